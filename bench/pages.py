"""The page, the API and the exporter on a large store of either kind, against what was aimed at.

    python -m bench pages [--rows 10000000] [--store postgres|sqlite] [--after FILE] [--quick]

Every address is asked *warm* (fresh: nothing that was read before is used, the database has it in
memory) and *cold* (the page's process has just begun, and the database's memory is empty:
PostgreSQL was started again, the file was dropped from the system's cache). Then what each
statement reads, a scrape, the first page's bytes, 50 open pages beside a worker, and memory. With
``--after`` the stores are filled, and measured once that file exists. Some 10 GB of space are
needed for 10,000,000 rows (``TMPDIR``).
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.environment import CARELESS, SETTINGS, ground
from bench.kit import tell
from bench.open_pages import tabs
from bench.page_process import Shop, page, quantile
from bench.series import Series
from harness.servers import PostgresServer
from outlast.web.render import asset_path

ROWS, QUICK_ROWS = 10_000_000, 100_000
WARM, COLD = 30, 1  # times that each address is asked
DRAIN_SECONDS, PAIRS = 10.0, 3
ROWS_MAX, BUFFERS_MAX = 20_000, 5_000
STEPS_MAX = 400_000  # of SQLite's machine: 20,000 rows at 20 steps each


# --- addresses ----------------------------------------------------------------------------------


def warm(shop: Shop, series: Series, times: int) -> None:
    """Note what each address takes where the database has all in memory."""
    worst: dict[str, float] = {}
    with page(shop.url, "--fresh") as served:
        for name in ["/bench/floor", *shop.addresses()]:
            served.ask(name)
            taken = [served.timed(name) for _ in range(times)]
            for part in (0.5, 0.95):
                what = f"warm, p{part * 100:.0f}: {name}"
                series.figure(shop.kind, what, "ms", 1).values.append(quantile(taken, part))
            if name != "/bench/floor":
                worst[name] = quantile(taken, 0.95)
        memory = served.memory()
    most(series, shop, "warm: the slowest address, p95", worst, "ms")
    series.figure(shop.kind, "memory of the page's process, at most", "MiB", 1).values.append(
        memory
    )


def most(series: Series, shop: Shop, what: str, found: dict[str, float], unit: str) -> None:
    """Note the largest of these, and say which it is."""
    name = max(found, key=lambda one: found[one])
    series.figure(shop.kind, what, unit, 1).values.append(found[name])
    print(f"{shop.kind}, {what}: {found[name]:,.1f} {unit}, {name}", flush=True)


def cold(shop: Shop, series: Series, times: int) -> None:
    """Note what each address takes as the first one that is asked for."""
    worst: dict[str, float] = {}
    for name in shop.addresses():
        for _ in range(times):
            shop.forget()
            with page(shop.url) as served:
                served.ask("/api/v1/me")
                worst[name] = max(worst.get(name, 0.0), served.timed(name))
        series.figure(shop.kind, f"cold: {name}", "ms", 0).values.append(worst[name])
    most(series, shop, "cold: the slowest address", worst, "ms")


def scrape(shop: Shop, series: Series, times: int) -> None:
    """Note what a scrape takes that looks at the store."""
    with page(shop.url, "--fresh") as served:
        served.ask("/metrics")
        taken = [served.timed("/metrics") for _ in range(times)]
        large = len(served.ask("/metrics"))
    series.figure(shop.kind, "a scrape, p95", "ms", 1).values.append(quantile(taken, 0.95))
    series.figure(shop.kind, "a scrape, bytes", "kB", 0).values.append(large / 1e3)


def weigh(shop: Shop, series: Series) -> None:
    """Note the bytes of the first page, and of the scripts among them."""
    with page(shop.url) as served:
        texts = [served.ask("/"), *(served.ask(asset_path(name)) for name in ASSETS)]
    sizes = [len(gzip.compress(text)) / 1e3 for text in texts]
    series.figure(shop.kind, "first page, gzipped", "kB", 1).values.append(sum(sizes))
    series.figure(shop.kind, "our script, gzipped", "kB", 1).values.append(sizes[1])
    series.figure(shop.kind, "idiomorph, gzipped", "kB", 1).values.append(sizes[2])


ASSETS = ("outlast.js", "idiomorph.js", "outlast.css", "icon.svg")

# --- statements ---------------------------------------------------------------------------------

EXPLAIN = {
    "session_preload_libraries": "'auto_explain'",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_level": "'notice'",
    "auto_explain.log_format": "'json'",
}


def plans(shop: Shop, series: Series, folder: Path) -> None:
    """Note what the statements of each address read, and print those that read most."""
    if shop.server is not None:
        for name, value in EXPLAIN.items():
            shop.server.sql(f"ALTER DATABASE large SET {name} = {value}")
    file = folder / f"plans-{shop.kind}"
    found: dict[str, dict[str, Any]] = {}
    try:
        with page(shop.url, "--fresh", "--plans", str(file)) as served:
            for name in [*shop.addresses(), "/metrics"]:
                before = file.stat().st_size
                served.ask(name)
                time.sleep(0.05)  # notes of the last statement
                with file.open() as noted:
                    noted.seek(before)
                    for line in noted:
                        one = json.loads(line) | {"address": name}
                        if _weight(one) > _weight(found.get(one["text"], {})):
                            found[one["text"]] = one
    finally:
        if shop.server is not None:
            shop.server.sql("ALTER DATABASE large RESET ALL")
    report(shop, series, sorted(found.values(), key=_weight, reverse=True))


def _weight(one: dict[str, Any]) -> float:
    return max(one.get("rows", 0) / ROWS_MAX, one.get("buffers", 0) / BUFFERS_MAX)


def report(shop: Shop, series: Series, found: list[dict[str, Any]]) -> None:
    """Note the most that a statement has read; print the largest ones."""
    unit = "steps" if shop.server is None else "buffers"
    for key, what in (("rows", "rows"), ("buffers", unit)):
        if shop.server is not None or key == "buffers":
            highest = float(max(one[key] for one in found))
            series.figure(shop.kind, f"a statement: {what}, at most", "").values.append(highest)
    for one in found[:12]:
        lines = [line for line in one["text"].splitlines() if not line.startswith("--")]
        print(
            f"{shop.kind}: {one['rows']:,} rows, {one['buffers']:,} {unit}, {one['ms']:.1f} ms:"
            f" {one['address']}: {' '.join(' '.join(lines).split())[:110]} [{one['plan'][:160]}]",
            flush=True,
        )


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("pages", "the page on a large store")
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    times = 5 if options.quick else WARM
    kinds = [options.store] if options.store else ["postgres", "sqlite"]
    with ground() as place, tell("pages", len(kinds) * 8, 60) as step:
        shops = [make_shop(kind, place.folder, rows) for kind in kinds]
        for shop in shops:
            step(f"{shop.kind}: {shop.rows:,} jobs, made in {shop.seconds:.0f} s")
        wait_for(options.after)
        for shop in shops:
            for what, measure in parts(shop, series, times, place.folder, options).items():
                series.attempt(shop.kind, what, "", measure)
                step(f"{shop.kind}: {what}")
        for shop in shops:
            if shop.server is not None:
                shop.server.dispose()
    return series.finish(whole=not (options.quick or options.store))


def make_shop(kind: str, folder: Path, rows: int) -> Shop:
    """Return a filled store."""
    server = None
    if kind == "postgres":
        server = PostgresServer(settings=SETTINGS | CARELESS)
        server.start()
    made = Shop(kind, folder, rows, server)
    if server is not None:
        server.settings |= SETTINGS
        server.restart()
    return made


def wait_for(path: Path | None) -> None:
    """Return once this file exists."""
    while path is not None and not path.exists():
        time.sleep(0.5)


def parts(
    shop: Shop, series: Series, times: int, folder: Path, options: Any
) -> dict[str, Callable[[], None]]:
    """Return what is measured, in its order."""
    seconds = 1.0 if options.quick else DRAIN_SECONDS
    return {
        "warm": lambda: warm(shop, series, times),
        "a scrape": lambda: scrape(shop, series, times),
        "bytes": lambda: weigh(shop, series),
        "statements": lambda: plans(shop, series, folder),
        "open pages": lambda: tabs(shop, series, seconds, 1 if options.quick else PAIRS),
        "cold": lambda: cold(shop, series, 1 if options.quick else COLD),
    }
