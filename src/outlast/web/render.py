"""Render templates: strict (an unknown name is an error), with all text escaped. Serve the
stylesheet and the scripts from memory: their addresses carry a digest of their content, so a
browser keeps them until they change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outlast.base.text import (
    ago,
    at_least,
    count_of,
    due,
    line,
    percent,
    rough,
    safe,
    shell_word,
    span,
    stamp,
)
from outlast.insight.calls import describe_call
from outlast.model.crash import Charge
from outlast.web.access import ANYONE, Right


class MenuEntry(NamedTuple):
    """A page in the menu. ``by_tenant``: users of one tenant have it, too."""

    path: str
    title: str
    by_tenant: bool = False


NAVIGATION: list[MenuEntry] = [
    MenuEntry("/", "Overview"),
    MenuEntry("/jobs", "Jobs", by_tenant=True),
    MenuEntry("/flows", "Flows", by_tenant=True),
    MenuEntry("/dead", "Dead jobs", by_tenant=True),
    MenuEntry("/deaths", "Deaths", by_tenant=True),
    MenuEntry("/queues", "Queues"),
    MenuEntry("/tasks", "Tasks"),
    MenuEntry("/workers", "Workers"),
    MenuEntry("/schedules", "Schedules"),
    MenuEntry("/limits", "Limits"),
    MenuEntry("/refusals", "Refusals"),
    MenuEntry("/actions", "Actions"),
    MenuEntry("/system", "System"),
]


SHOWN_MAX = 3  # findings of one kind; the others are shown on demand
LINE_MAX = 70  # characters of JSON in one line

MEANINGS = {
    "wait": (
        "queued", "blocked", "scheduled", "waiting", "in_line", "due", "stopped", "expired",
        "snoozed", "released",
    ),
    "run": ("running", "active", "well"),
    "good": ("completed", "done"),
    "care": (
        "retrying", "suspect", "suspects", "stopping", "draining", "failing", "silent", "overdue",
        "slots_held", "bystander", "lost_worker", "lost_lease",
    ),
    "bad": (
        "dead", "orphaned", "lost", "gone", "malformed", "error", "timeout", "stalled",
        "unresponsive", "exited", "signalled", "out_of_memory", "rejected_result", "undecodable",
        "completion_not_committed",
    ),
    "held": ("paused", "unservable", "no_workers", "lacks_tags", "queue_not_served"),
    "off": ("cancelled", "undeclared"),
}  # fmt: skip
"""What the colours mean: each of a phase, a position or a status is one of these."""
OUTLAST = "outlast"  # the command
_JOINT = re.compile(r"([._])(?=\w)")  # in a name, between two of its words
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} UTC")
_MEANING = {word: meaning for meaning, words in MEANINGS.items() for word in words}


def meaning(word: str) -> str:
    """Return the meaning of a phase, a position or a status; an unknown word counts as waiting."""
    return _MEANING.get(word, "wait")


def outcome_meaning(attempt: Any) -> str:
    """Return the meaning of an attempt's outcome: by its charge, if it has ended."""
    known = {"running": "run", "completed": "good"}.get(attempt.outcome)
    return known or {Charge.FAILURE: "bad", Charge.LOSS: "care"}.get(attempt.charge, "off")


def bounded(number: int, most: int) -> str:
    """Return a bounded number: ``1,234``, or ``10,000+`` if it has reached its bound."""
    return at_least(min(number, most), number >= most)


def quiet_zero(number: int, more: object) -> str:
    """Return a number as ``at_least`` does, with an inconspicuous zero."""
    text = at_least(number, more)
    return text if number or more else Markup('<span class="none">0</span>')


def breakable(text: str | None, most: int = 100) -> Markup:
    """Return a name as one safe line that a browser may break after a dot or an underscore."""
    return Markup(_JOINT.sub(r"\1<wbr>", str(escape(line(text, most)))))  # noqa: S704


def sentence(text: str, now: float, command: str = OUTLAST) -> Markup:
    """Return a sentence of the command line for a page: text between backquotes becomes a command,
    and times in UTC are shown like all times of the page. ``command``: how the command line is
    called here; by any other name than ``outlast`` it knows its application."""
    parts = str(escape(text.replace("….", "…"))).split("`")
    for number, part in enumerate(parts):
        is_command = number % 2 == 1
        parts[number] = _show_command(part, command) if is_command else _show_times(part, now)
    return Markup("".join(parts))  # noqa: S704


def _show_command(text: str, command: str) -> str:
    if command != OUTLAST and text.startswith(f"{OUTLAST} "):
        text = escape(command) + text.removeprefix(OUTLAST).replace(" MODULE:APP", "")
    return f"<code>{text}</code>"


def _show_times(text: str, now: float) -> str:
    def show(found: re.Match[str]) -> str:
        try:
            at = datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
        except ValueError:  # it only resembles a time
            return found[0]
        shown = day_and_time(at.timestamp(), now)
        made = machine_time(at.timestamp())
        return f'<time datetime="{made}" title="{found[0]}">{shown}</time>'

    return _STAMP.sub(show, text)


def day_and_time(at: float, now: float) -> str:
    """Return a short time in UTC: today's without the day, any other without the seconds."""
    try:
        then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    except (OverflowError, ValueError, OSError):
        return "beyond all dates"
    if then.date() == today.date():
        return then.strftime("%H:%M:%S")
    return then.strftime("%d %b %H:%M" if then.year == today.year else "%d %b %Y")


def machine_time(at: float) -> str:
    """Return a time for a script: ISO 8601 in UTC; "" for a time that is out of range."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def lay_out(text: str) -> str:
    """Return stored JSON laid out for people, a short value in one line; a text that is not JSON,
    such as one whose end was cut, as it is. Numbers keep their digits."""
    try:
        short: str = msgspec.json.format(text, indent=0)
        return short if len(short) <= LINE_MAX else msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def load_templates() -> None:
    """Compile all templates now, which takes 0.3 s, so that no visitor waits for it."""
    for name in environment().list_templates():
        environment().get_template(name)


@cache
def environment() -> Environment:
    """Return the one environment of all templates."""
    made = Environment(
        loader=PackageLoader("outlast.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago,
        "at_least": quiet_zero,
        "bounded": bounded,
        "breakable": breakable,
        "count_of": count_of,
        "day_and_time": day_and_time,
        "due": due,
        "lay_out": lay_out,
        "line": line,
        "machine_time": machine_time,
        "meaning": meaning,
        "outcome": outcome_meaning,
        "percent": percent,
        "rough": rough,
        "safely": safe,
        "sentence": sentence,
        "shell_word": shell_word,
        "span": span,
        "stamp": stamp,
    }
    made.globals |= {
        "ANYONE": ANYONE,
        "NAVIGATION": NAVIGATION,
        "Right": Right,
        "SHOWN_MAX": SHOWN_MAX,
        "asset": asset_path,
        "describe_call": describe_call,
        "draw_bars": draw_bars,
        "draw_sparkline": draw_sparkline,
    }
    return made


def render(template: str, values: dict[str, Any]) -> str:
    """Return a page. The values include the values that base.html shows on all pages (visit.py)."""
    return environment().get_template(template).render(values)


HEIGHT, WIDTH, BAR = 24, 3, 2  # of the picture, of a step, of the bar in it


def draw_sparkline(attempts: Sequence[int], failed: Sequence[int], label: str) -> Markup:
    """Return a picture of ended attempts, step by step, with the failed part of each bar at its
    foot. ``label`` names their subject."""
    most = max(attempts, default=0)
    said = f"{label}: {sum(attempts)} ended, {sum(failed)} did not complete, at most {most} a step"
    return draw_bars({"ended": attempts, "failed": failed}, said)


def draw_bars(series: Mapping[str, Sequence[float | None]], label: str) -> Markup:
    """Return a picture of some series, by the kind of their bars, over each other and on one
    scale."""
    steps = max(map(len, series.values()))
    most = max((one for each in series.values() for one in each if one), default=1)
    bars = "".join(_bars(kind, numbers, most) for kind, numbers in series.items())
    return Markup(  # noqa: S704  # numbers, and a label that is escaped
        f'<svg class="sparkline" viewBox="0 0 {steps * WIDTH} {HEIGHT}" preserveAspectRatio="none"'
        f' role="img" aria-label="{escape(label)}">{bars}</svg>'
    )


def _bars(kind: str, numbers: Sequence[float | None], most: float) -> str:
    """Return a bar for each number above zero; ``most`` is as high as the picture."""
    bars = {number: _bar(number, most) for number in set(numbers) if number}
    drawn = [f"M{n * WIDTH} {HEIGHT}{bars[one]}" for n, one in enumerate(numbers) if one]
    return f'<path class="{kind}" d="{"".join(drawn)}"/>' if drawn else ""


def _bar(number: float, most: float) -> str:
    high = f"{HEIGHT * number / most:.1f}".removesuffix(".0")
    return f"v-{high}h{BAR}v{high}z"


TYPES = {
    "outlast.css": "text/css; charset=utf-8",
    "outlast.js": "text/javascript; charset=utf-8",
    "idiomorph.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"


@cache
def read_asset(name: str) -> bytes:
    """Return the content of a file."""
    return files("outlast.web").joinpath("static", name).read_bytes()


@cache
def asset_path(name: str) -> str:
    """Return the address of a file, such as ``/static/1f2e3d4c/outlast.css``."""
    return f"/static/{hashlib.blake2b(read_asset(name), digest_size=6).hexdigest()}/{name}"


async def _show(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in TYPES:
        return Response("no such file", 404)
    is_current = asset_path(name).endswith(f"/{request.path_params['digest']}/{name}")
    headers = {"content-type": TYPES[name]} | ({"cache-control": FOREVER} if is_current else {})
    return Response(read_asset(name), headers=headers)


ROUTE = Route("/static/{digest}/{name}", _show)
