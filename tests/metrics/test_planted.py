"""A secret is planted wherever a store has room for one. No byte of the metrics holds a piece:
labels are names of queues and tasks, and words of ours."""

from __future__ import annotations

from functools import partial

from outlast.cli.exporter import open_source
from outlast.metrics.collector import read_look
from outlast.metrics.exporter import Exporter
from outlast.store import open_store
from tests.conformance.planted_kit import planted


async def test_no_byte_of_the_metrics_holds_a_secret(store_url: str) -> None:
    store = open_store(store_url)
    await store.open()
    world = await planted(store)
    await store.close()
    source = open_source(store_url)
    page = (await Exporter(partial(source.ask, read_look)).page()).decode()
    await source.close()
    assert "outlast_store_up 1.0" in page
    assert world.secrets.found(page) == set()
