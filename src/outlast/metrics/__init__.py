"""What a Prometheus server reads of a store: one page for the whole fleet.

look.py        one look at the store: bounded reads, never the jobs themselves
collector.py   the look as metric families: docs/metrics.md lists them
exposition.py  the families as text
exporter.py    the page, kept for 15 s, with ``outlast_store_up`` 0 where the store is away

No worker serves metrics: its death would take them along. Needs ``pip install 'outlast[metrics]'``.
"""
