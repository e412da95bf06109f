"""Writes the tables of bench/results/tables.md, and their pictures: ``python -m bench page``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bench import latency, rates, steady, targets
from bench.contenders import DEFAULTS, OUTLAST, PEERS, Entry
from bench.environment import REQUIREMENTS
from bench.kit import PAGE, RESULTS, load, markdown, on_what, put
from bench.pages_table import pages_text
from bench.series import Figure

PICTURES = RESULTS
NOT_YET = "Not measured yet."
OURS, THEIRS, RAW = "#1f6f8b", "#b9b4a7", "#e3c770"


def main(options: Any = None) -> int:
    """Write everything that has been measured into its place."""
    for name, write in SECTIONS.items():
        found = load(FILES.get(name, name))
        text = NOT_YET
        if name in UNMEASURED:
            text = write(None)
        elif found is not None:
            text = f"{on_what(found['at'], found['machine'])}\n\n{write(found['values'])}"
        put(PAGE, name, text)
    print(f"written: {PAGE}")
    return 0


def targets_text() -> str:
    """Return the table of targets, and the count."""
    rows = targets.rows(targets.Results())
    met, missed = (sum(row.met is verdict for row in rows) for verdict in (True, False))
    count = f"{met} met, {missed} missed, {len(rows) - met - missed} not measured."
    headings = ["measure", "target", "measured", "verdict"]
    return f"{count}\n\n{markdown(headings, [row.cells() for row in rows])}"


def field_text() -> str:
    """Return who is measured, in which version and with which settings."""
    rows = [
        [entry.name, version(entry), STORES[entry.store], entry.settings]
        for entry in (*OUTLAST, *DEFAULTS, *PEERS)
    ]
    return markdown(["who", "version", "store", "settings"], rows)


def version(entry: Entry) -> str:
    """Return the version that is pinned; of ours: this one."""
    if not entry.environment:
        return "this"
    pins = (REQUIREMENTS / f"{entry.environment}.txt").read_text().split()
    found = dict(pin.partition("==")[::2] for pin in pins)
    return found[entry.package or entry.environment]


# --- rates --------------------------------------------------------------------------------------

RATE_COLUMNS = {
    "who": "",
    "jobs/s": "",
    "rounds": "",
    "jobs": "",
    "client CPU, us": "client_us",
    "database CPU, us": "database_us",
    "WAL, B": "wal",
    "transactions": "transactions",
    "dead rows": "dead",
}
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis, in memory only"}


def rates_text(what: Sequence[str]) -> Callable[[Any], str]:
    """Return what writes the tables of these measurements: one for each and each store."""

    def write(values: Any) -> str:
        lines = msgspec.convert(values, list[rates.Line])
        parts: list[str] = []
        for one in what:
            for store, title in STORES.items():
                chosen = [line for line in lines if line.what == one and line.store == store]
                if chosen:
                    parts += [f"**{one}, {title}**", rates_table(chosen)]
        return "\n\n".join([*parts, *drawing(lines, what)])

    return write


def rates_table(lines: Sequence[rates.Line]) -> str:
    """Return one table, the fastest first."""
    ordered = sorted(lines, key=lambda line: -line.median())
    return markdown(list(RATE_COLUMNS), [rates_row(line) for line in ordered])


def rates_row(line: rates.Line) -> list[str]:
    """Return one line; one that could not be measured says why."""
    if not line.rounds:
        return [line.name, line.failed[-1].replace("|", "/")[:120], *[""] * 7]
    figures = [name for name in RATE_COLUMNS.values() if name]
    digits = {"transactions": 3, "dead": 1}
    costs = [f"{line.median(name):,.{digits.get(name, 0)}f}" for name in figures]
    if line.store != "postgres":
        costs[2:] = ["", "", ""]
    if line.store == "sqlite":
        costs[1] = "in the client"
    jobs = f"{line.median('jobs'):,.0f}"
    return [line.name, line.spread(), str(len(line.rounds)), jobs, *costs]


def drawing(lines: Sequence[rates.Line], what: Sequence[str]) -> list[str]:
    """Draw the first of these measurements; return the link to the picture."""
    chosen = [line for line in lines if line.what == what[0] and line.rounds]
    if not chosen:
        return []
    name = what[0].replace(", ", "-").replace(" ", "-")
    chosen.sort(key=lambda line: line.median())
    bars(
        [line.name for line in chosen],
        [line.median() for line in chosen],
        name,
        f"{what[0]}: jobs/s, logarithmic",
    )
    return [f"![{what[0]}: jobs a second]({name}.svg)"]


# --- the others ---------------------------------------------------------------------------------


def latency_text(values: Any) -> str:
    """Return the table of waits."""
    lines = msgspec.convert(values, list[latency.Line])
    headings = ["who", "store", "load", "p50, ms", "p99, ms", "jobs", "rounds"]
    rows = []
    for line in sorted(lines, key=lambda each: (each.what != latency.IDLE, each.median("p50"))):
        load_ = line.what
        if line.what == latency.HALF:
            load_ += f" ({line.median('rate'):,.0f}/s)"
        waits = [f"{line.median(name):.1f}" for name in ("p50", "p99")]
        if not line.samples:
            waits = [line.failed[-1].replace("|", "/")[:120] if line.failed else "", ""]
        counts = [f"{line.median('jobs'):,.0f}", str(len(line.samples))]
        rows.append([line.name, line.store, load_, *waits, *counts])
    return markdown(headings, rows)


def figures_text(values: Any) -> str:
    """Return a table of single numbers."""
    figures = msgspec.convert(values, list[Figure])
    rows = [[each.name, each.what, each.shown(), each.unit] for each in figures]
    return markdown(["who", "what", "measured", "unit"], rows)


def pivot_text(values: Any) -> str:
    """Return a table of single numbers with a column for each name."""
    figures = msgspec.convert(values, list[Figure])
    names = list(dict.fromkeys(each.name for each in figures))
    shown = {(each.what, each.name): each.shown() for each in figures}
    units = {each.what: each.unit for each in figures}
    rows = [
        [what.replace("|", "/"), *(shown.get((what, name), "") for name in names), unit]
        for what, unit in units.items()
    ]
    return markdown(["what", *names, "unit"], rows)


def flow_text(values: Any) -> str:
    """Return the table of rates over time, and their picture."""
    flows = msgspec.convert(values, list[steady.Flow])
    headings = [
        "who",
        "before, /s",
        "at the end, /s",
        "share",
        "dead rows left",
        "taken by the host",
    ]
    rows = [
        [
            flow.name,
            f"{flow.first:,.0f}",
            f"{flow.last:,.0f}",
            f"{flow.share():.2f}" if not flow.failed else flow.failed[-1][:120],
            f"{flow.dead_rows:,}",
            taken(flow.stolen),
        ]
        for flow in flows
    ]
    name = flows[0].what if flows else ""
    curves({flow.name: flow.steps for flow in flows if flow.steps}, name)
    picture = f"![jobs a second over time]({name}.svg)"
    return f"{markdown(headings, rows)}\n\n{picture}"


def taken(stolen: Sequence[float]) -> str:
    """Return in words what the host took of the processors, by steps."""
    if not stolen:
        return "not noted"
    worst = max(range(len(stolen)), key=stolen.__getitem__)
    mean = sum(stolen) / len(stolen)
    return f"{mean:.1%}; most at {worst * steady.STEP:.0f} s: {stolen[worst]:.0%}"


# --- pictures -----------------------------------------------------------------------------------


def _drawn(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure and its axes; no window is opened, and the same data make the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "outlast", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, name: str) -> None:
    from matplotlib import pyplot as plt

    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


def colour(name: str) -> str:
    """Return the colour of a line: ours, the floor's or a peer's."""
    return OURS if name.startswith("Outlast") else RAW if name.startswith("floor") else THEIRS


def bars(names: Sequence[str], values: Sequence[float], file: str, title: str) -> None:
    """Draw one bar for each, on a logarithmic scale."""
    figure, axes = _drawn(7.5, 0.6 + 0.22 * len(names))
    drawn = axes.barh(names, values, color=[colour(name) for name in names])
    axes.bar_label(drawn, [f" {value:,.0f}" for value in values])
    axes.set_xscale("log")
    axes.set_title(title, loc="left")
    axes.margins(x=0.12, y=0.01)
    _save(figure, file)


def curves(lines: dict[str, list[float]], file: str) -> None:
    """Draw rates over time, a point for each 10 s."""
    figure, axes = _drawn(7.5, 2.6)
    for name, values in lines.items():
        at = [(n + 0.5) * steady.STEP for n in range(len(values))]
        axes.plot(at, values, marker=".", label=name, color=colour(name))
    if file == "held":
        axes.axvspan(steady.BEFORE, steady.BEFORE + steady.HELD, color="#d8d8d8", alpha=0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds" + (" (grey: a transaction is held open)" if file == "held" else ""))
    axes.set_ylabel("jobs/s")
    axes.legend(frameon=False)
    _save(figure, file)


SECTIONS: dict[str, Callable[[Any], str]] = {
    "targets": lambda _: targets_text(),
    "field": lambda _: field_text(),
    "drains": rates_text([targets.DRAIN1, targets.DRAIN2]),
    "enqueuing": rates_text([rates.ONE, rates.MANY]),
    "latency": latency_text,
    "backlog": figures_text,
    "lanes": figures_text,
    "limits": figures_text,
    "flows": pivot_text,
    "crowds": figures_text,
    "size": pivot_text,
    "commands": pivot_text,
    "held": flow_text,
    "steady": flow_text,
    "idle": figures_text,
    "schedules": figures_text,
    "workers": pivot_text,
    "life": figures_text,
    "pages": pages_text,
    "memory": figures_text,
    "heartbeat": figures_text,
}
UNMEASURED = {"targets", "field"}
FILES = {"drains": "rates", "enqueuing": "rates"}
