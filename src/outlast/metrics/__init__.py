"""Serve a store's metrics to a Prometheus server: one page for the whole fleet.

collector.py   one bounded read of the store, as metric families: docs/metrics.md lists them
exporter.py    the page as text, kept for 15 s; ``outlast_store_up`` 0: the store is unreachable

No worker serves metrics: they would end with its death. Needs ``pip install 'outlast[metrics]'``.
"""
