"""Our text of metric families is that of prometheus_client, whose writer is four times as slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from outlast.metrics.collector import QUEUES_MAX, TASKS_MAX, LookCollector, Names
from outlast.metrics.exporter import write_text
from tests.metrics.kit import counted, full_look

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

NAMES = ["a'b\"c\\", "ключ", "</script>", "a\nb", "", '\\"\\n', "_other"]
NUMBERS = [0, 1, 2.5, 1e6, 1_234_567, 1e-9, 10**15, -3.5, float("inf"), float("nan")]


class Families(Collector):
    """Families that are collected as they are."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def assert_alike(families: Iterable[Metric]) -> None:
    """Fail where the two writers differ."""
    both = list(families)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(both))
    assert write_text(both).decode() == generate_latest(registry).decode()


def test_a_look_is_written_as_the_client_writes_it() -> None:
    look = full_look()
    totals = [*look.totals, *(counted(7, queue=name, task=name[::-1]) for name in NAMES)]
    look = msgspec.structs.replace(look, totals=totals)
    assert_alike(LookCollector(look, Names(QUEUES_MAX), Names(TASKS_MAX)).collect())


def test_any_label_and_any_number_is_written_as_the_client_writes_it() -> None:
    plain = GaugeMetricFamily("plain", 'without "labels",\nin \\ two lines', value=1)
    empty = GaugeMetricFamily("empty", "of nothing", labels=["a"])
    full = GaugeMetricFamily("full", "of all", labels=["z", "a"])
    for name in NAMES:
        for number in NUMBERS:
            full.add_metric([name, str(number)], number)
    assert_alike([plain, empty, full])
