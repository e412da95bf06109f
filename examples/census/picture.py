"""What the analysis leaves behind for people (a picture) and for programs (the numbers).

The picture is a stacked area: how much there is of what, when, and, where a worker was
killed on the way, at which commit. Drawn with matplotlib's figure objects alone (no pyplot:
no display, no global state). The colours are Paul Tol's "muted" scheme, which people with
any colour vision can tell apart. Files appear whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.census.evolution import Evolution, Sample, languages_of
from examples.census.languages import OTHER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMA = 1
PALETTE = (
    "#44AA99", "#DDCC77", "#332288", "#CC6677", "#88CCEE",
    "#882255", "#117733", "#AA4499", "#999933",
)  # fmt: skip
OTHER_COLOUR = "#D8D8DC"
INK, FAINT = "#22252B", "#6B7280"
MOMENT = 10 / 86_400
"""Days; a history that is shorter gets one date for its axis."""

_STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "svg.hashsalt": "outlast",
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Interruption:
    """A worker was killed after sample ``killed_at``, its job resumed from ``resumed_from``.

    Both are numbers of samples done, from 0.
    """

    killed_at: int
    resumed_from: int

    @property
    def label(self) -> str:
        """What the picture says about it."""
        if self.resumed_from == 0:
            return "worker killed here, started again from the first commit"
        return f"worker killed here, resumed from commit {self.resumed_from:,}"


@dataclass(frozen=True, slots=True)
class Band:
    """One language of the picture: its lines at each sample."""

    name: str
    colour: str
    lines: list[int]


def write_pictures(
    evolution: Evolution, *paths: Path, interruption: Interruption | None = None
) -> None:
    """Draw once, and write to each path in the format of its suffix (``.png``, ``.svg``).

    Raises ValueError when there is no sample, ModuleNotFoundError without matplotlib, OSError
    when a file cannot be written.
    """
    import matplotlib as mpl

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in any script
        figure = draw(evolution, interruption)
        for path in paths:
            kind = path.suffix.removeprefix(".")
            with _whole(path) as unfinished:
                figure.savefig(unfinished, format=kind, dpi=150, metadata=_metadata(kind))


def write_numbers(
    path: Path, evolution: Evolution, *, interruption: Interruption | None = None
) -> None:
    """Write all samples as one JSON document. Raises OSError when the file cannot be written."""
    with _whole(path) as unfinished:
        text = json.dumps(numbers(evolution, interruption), indent=1, ensure_ascii=False)
        unfinished.write_text(text + "\n", encoding="utf-8")


def numbers(evolution: Evolution, interruption: Interruption | None = None) -> dict[str, Any]:
    """The document that ``write_numbers`` writes; dates are ISO 8601 in UTC."""
    return {
        "schema": SCHEMA,
        "repository": evolution.repository,
        "tip": evolution.tip,
        "shallow": evolution.shallow,
        "history": evolution.total,
        "interruption": asdict(interruption) if interruption else None,
        "commits": [_commit(sample) for sample in evolution.samples],
    }


def bands(evolution: Evolution) -> list[Band]:
    """The languages that ever grew largest, by their area; the rest last, as ``OTHER``."""
    samples = evolution.samples
    series = {
        name: [sample.lines.get(name, 0) for sample in samples] for name in languages_of(samples)
    }
    peaks = sorted(series.keys() - {OTHER}, key=lambda name: (-max(series[name]), name))
    shown = sorted(peaks[: len(PALETTE)], key=lambda name: (-sum(series[name]), name))
    rest = [sample.total - sum(sample.lines.get(name, 0) for name in shown) for sample in samples]
    result = [
        Band(name, colour, series[name]) for name, colour in zip(shown, PALETTE, strict=False)
    ]
    return [*result, Band(OTHER, OTHER_COLOUR, rest)] if any(rest) else result


def in_order(seconds: list[int]) -> list[float]:
    """Dates that never go back: those out of line with most others are set between neighbours.

    Clocks of committers lie; the longest rising series is believed.
    """
    kept = _longest_rising(seconds)
    result: list[float] = []
    for place in range(len(seconds)):
        at = bisect_right(kept, place)
        left, right = kept[max(at - 1, 0)], kept[min(at, len(kept) - 1)]
        share = (place - left) / (right - left) if left < place < right else 0.0
        result.append(seconds[left] + share * (seconds[right] - seconds[left]))
    return result


def draw(evolution: Evolution, interruption: Interruption | None = None) -> Figure:
    """The picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    if not evolution.samples:
        raise ValueError("there is nothing to draw: no commit was counted")
    figure = Figure(figsize=(12, 6.4), facecolor="white")
    axes = figure.add_axes((0.075, 0.09, 0.70, 0.75))
    dates = _dates(evolution.samples)
    areas = bands(evolution)
    _stack(axes, dates, areas)
    _frame(axes, dates, areas)
    _title(figure, evolution)
    _legend(axes, areas)
    if interruption:
        _mark(axes, dates, interruption)
    return figure


def _stack(axes: Axes, dates: list[float], areas: list[Band]) -> None:
    """The areas, the largest at the bottom."""
    rows = [area.lines * (len(dates) // len(area.lines)) for area in areas]
    colours = [area.colour for area in areas]
    if rows:
        axes.stackplot(dates, rows, colors=colours, linewidth=0.25, edgecolor="white")


def _frame(axes: Axes, dates: list[float], areas: list[Band]) -> None:
    """Lines with thousands separators on the left, dates below, and nothing more."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    top = max((sum(column) for column in zip(*(a.lines for a in areas), strict=True)), default=0)
    axes.set_ylim(0, max(top, 1) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#E5E7EB", linewidth=0.8)
    axes.set_axisbelow(True)
    _calendar(axes, dates)


def _calendar(axes: Axes, dates: list[float]) -> None:
    """Dates below, as long as they need to be; in full when there is only one."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

    axes.set_xlim(dates[0], dates[-1])
    middle = (dates[0] + dates[-1]) / 2
    if dates[-1] - dates[0] < MOMENT:
        axes.set_xticks([middle], [f"{num2date(middle):%Y-%m-%d %H:%M} UTC"])  # type: ignore[no-untyped-call]
        return
    locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _title(figure: Figure, evolution: Evolution) -> None:
    last = evolution.samples[-1]
    figure.text(
        0.075, 0.935, f"{evolution.repository[:60]}: lines of code by language",
        fontsize=17, fontweight="bold",
    )  # fmt: skip
    facts = [
        f"{last.total:,} lines in {last.files:,} files",
        f"{len(evolution.samples):,} of {evolution.total:,} commits counted",
    ]
    if evolution.shallow:
        facts.append("a shallow clone: what came before is not in it")
    if last.skipped:
        facts.append(f"{last.skipped:,} files too large or missing, not counted")
    figure.text(0.075, 0.885, "  ·  ".join(facts), fontsize=10.5, color=FAINT)


def _legend(axes: Axes, areas: list[Band]) -> None:
    """On the right, in the order of the areas: names, and the lines of the last commit."""
    from matplotlib.patches import Rectangle

    place = axes.transAxes
    for row, area in enumerate(reversed(areas)):
        y = 0.975 - row * 0.062
        square = Rectangle((1.025, y - 0.018), 0.017, 0.036, color=area.colour, transform=place)
        axes.add_patch(square).set_clip_on(False)
        axes.text(1.053, y, area.name[:20], transform=place, va="center")
        size = f"{area.lines[-1]:,}"
        axes.text(1.28, y, size, transform=place, va="center", ha="right", color=FAINT)


def _mark(axes: Axes, dates: list[float], interruption: Interruption) -> None:
    """A thin line at the commit where the worker died, and what happened there."""
    from matplotlib.patheffects import withStroke

    place = min(max(interruption.killed_at - 1, 0), len(dates) - 1)
    begin, x, end = dates[0], dates[place], dates[-1]
    halo = [withStroke(linewidth=3.5, foreground="white")]
    axes.axvline(x, color=INK, linewidth=1.2, path_effects=halo)
    left = x - begin > (end - begin) / 2
    axes.annotate(
        interruption.label,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-8 if left else 8, -4),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        path_effects=halo,
    )


def _dates(samples: list[Sample]) -> list[float]:
    """Where each sample stands, in matplotlib's days; two places when all stand at one moment."""
    from matplotlib.dates import date2num

    seconds = in_order([sample.seconds for sample in samples])
    if seconds[0] == seconds[-1]:
        seconds = [seconds[0] - 1, *seconds[1:-1], seconds[-1] + 1]
    return [float(date2num(_utc(second))) for second in seconds]  # type: ignore[no-untyped-call]


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _longest_rising(seconds: list[int]) -> list[int]:
    """Places of a longest series that never falls (patience sorting)."""
    ends: list[int] = []
    values: list[int] = []
    before: list[int] = []
    for place, value in enumerate(seconds):
        at = bisect_right(values, value)
        before.append(ends[at - 1] if at else -1)
        ends[at : at + 1], values[at : at + 1] = [place], [value]
    series = ends[-1:]
    while series and before[series[-1]] >= 0:
        series.append(before[series[-1]])
    return series[::-1]


def _commit(sample: Sample) -> dict[str, Any]:
    facts = {name: getattr(sample, name) for name in ("files", "binary", "skipped", "lines")}
    return {"id": sample.id, "date": _utc(sample.seconds).isoformat()} | facts


def _metadata(kind: str) -> dict[str, Any]:
    """Nothing that changes from run to run: equal numbers make equal files."""
    return {"Date": None} if kind == "svg" else {}


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` at the end, and nothing upon an error."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
