"""Write metric families as the text that a Prometheus server reads.

prometheus_client's own writer checks each name and label again for each line, which takes most of
the time of a scrape with thousands of series. Names here are plain, and the lines of one series
repeat its labels, so each label is escaped once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def write_text(families: Iterable[Metric]) -> bytes:
    """Return gauges, counters and histograms as text, in their order."""
    shown: dict[str, str] = {}  # values of labels -> escaped
    lines = [line for one in families for line in _lines(one, shown)]
    return "".join(lines).encode()


def _lines(family: Metric, shown: dict[str, str]) -> Iterator[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    words = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {words}\n# TYPE {name} {family.type}\n"
    for sample in family.samples:
        labels = [f'{key}="{_show(text, shown)}"' for key, text in sorted(sample.labels.items())]
        told = f"{{{','.join(labels)}}}" if labels else ""
        number: str = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
        yield f"{sample.name}{told} {number}\n"


def _show(text: str, shown: dict[str, str]) -> str:
    found = shown.get(text)
    if found is None:
        found = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        shown[text] = found
    return found
