"""Serve a store's metrics to a Prometheus server: one page for the whole fleet.

look.py        one read of the store: bounded, never the jobs themselves
collector.py   the read values as metric families: docs/metrics.md lists them
exposition.py  the families as text
exporter.py    the page, kept for 15 s, with ``outlast_store_up`` 0 if the store is unreachable

No worker serves metrics: they would end with its death. Needs ``pip install 'outlast[metrics]'``.
"""
