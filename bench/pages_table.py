"""The tables of bench/results/tables.md about the page: targets, and each address."""

from __future__ import annotations

from typing import Any

import msgspec

from bench.kit import markdown
from bench.series import Figure

STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
TARGETS = {
    "warm: the slowest address, p95": "≤ 50 ms",
    "cold: the slowest address": "≤ 250 ms",
    "a statement: rows, at most": "≤ 20,000",
    "a statement: buffers, at most": "≤ 5,000",
    "a statement: steps, at most": "",
    "a scrape, p95": "≤ 50 ms",
    "a scrape, bytes": "",
    "first page, gzipped": "≤ 40 kB",
    "our script, gzipped": "≤ 8 kB",
    "idiomorph, gzipped": "",
    "memory of the page's process, at most": "≤ 60 MiB",
}


def pages_text(values: Any) -> str:
    """Return a table of the targets, and one of all addresses."""
    figures = msgspec.convert(values, list[Figure])
    shown = {(each.what, each.name): f"{each.shown()} {each.unit}".strip() for each in figures}
    rows = [
        [what, target, *(shown.get((what, store), "") for store in STORES)]
        for what, target in TARGETS.items()
    ]
    whole = markdown(["what", "target", *STORES.values()], rows)
    names = list(dict.fromkeys(each.what.partition(": ")[2] for each in figures if _is_one(each)))
    kinds = ("warm, p50", "warm, p95", "cold")
    headings = [f"{title}: {kind}" for title in STORES.values() for kind in kinds]
    each_one = [
        [
            f"`{name}`" if name != "/bench/floor" else "floor: `SELECT` of the time",
            *(shown.get((f"{kind}: {name}", store), "") for store in STORES for kind in kinds),
        ]
        for name in names
    ]
    return f"{whole}\n\n{markdown(['address', *headings], each_one)}"


def _is_one(figure: Figure) -> bool:
    return figure.what.startswith(("warm, p95: ", "cold: ")) and ": the " not in figure.what
