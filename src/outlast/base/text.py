"""Format times, sizes and untrusted texts for people and terminals. Pure."""

from __future__ import annotations

import json
import re
import signal
import unicodedata
from datetime import UTC, datetime
from typing import Any

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WORD_MAX = 1_000  # characters of a word of a command
ENDLESS = 1e12  # seconds: longer is infinite, as in a database
_KIBI = 1024
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def span(seconds: float) -> str:
    """Return a length of time with two digits or so: ``0.21 s``, ``5 s``, ``3.2 s``, ``4 min``."""
    seconds = max(0.0, seconds)
    if seconds >= ENDLESS:
        return "endless time"
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 10:  # noqa: PLR2004
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return _two(whole, 60, "min", 1, "s")
    if whole < DAY:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86_400, "d", 3600, "h")


def _two(whole: int, large: int, large_word: str, small: int, small_word: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_word}" + (f" {rest} {small_word}" if rest else "")


def rough(seconds: float) -> str:
    """Return a length of time with one unit: ``3 s``, ``4 min``, ``5 h``, ``6 d``."""
    seconds = max(0.0, seconds)  # also for NaN
    if seconds >= ENDLESS:
        return "endless time"
    for size, word in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {word}"
    return f"{int(seconds)} s"


def ago(at: float | None, now: float) -> str:
    """Return how long ago ``at`` was: ``3 s ago``; ``now`` if it is ahead of our clock."""
    if at is None:
        return ""
    return f"{rough(now - at)} ago" if now - at >= 1 else "now"


def due(at: float | None, now: float) -> str:
    """Return when ``at`` is to come: ``in 3 s``; for a past time as ``ago``."""
    return ago(at, now) if at is None or at - now < 1 else f"in {rough(at - now)}"


def stamp(at: float | None) -> str:
    """Return a time as ``2026-01-31 15:04:05 UTC``."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "beyond all dates"


def percent(fraction: float) -> str:
    """Return a fraction as ``40%``; one beyond 0 or 1 as that."""
    return f"{int(100 * min(1.0, max(0.0, fraction)))}%"


def size(count: int) -> str:
    """Return bytes as ``120 MiB``."""
    amount, word = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _KIBI:
            break
        amount, word = amount / _KIBI, larger
    return f"{amount:.0f} {word}" if amount >= 10 or word == "B" else f"{amount:.1f} {word}"  # noqa: PLR2004


def since(at: float | None, now: float) -> str:
    """Return for how long something has lasted: ``for 4 min 10 s``."""
    return "for an unknown time" if at is None else f"for {span(now - at)}"


def count_of(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def at_least(number: int, more: object) -> str:
    """Return a number: ``1,234``, or ``1,234+`` if there may be more."""
    return f"{number:,}{'+' if more else ''}"


def safe(text: str) -> str:
    """Return an untrusted text, such as output or an argument, with characters that could steer a
    terminal shown as escapes. Lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def escape(text: str) -> str:
    """Return a text with the escapes of JSON for all that is not ASCII: JSON text keeps its
    meaning."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _shown(character: str) -> str:
    if character in "\n\t" or (" " <= character <= "~"):
        return character
    if unicodedata.category(character) in {"Cc", "Cs"} or character in _BIDI:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def line(text: str | None, most: int = 100) -> str:
    """Return an untrusted text as one safe line of at most ``most`` characters."""
    return cut(" ".join(safe(text or "").split()), most)


def shell_word(text: str) -> str:
    """Return an untrusted text as one word of a command that people copy into a shell."""
    from shlex import quote

    return quote(line(text, WORD_MAX))


def cut(text: str, most: int) -> str:
    """Return ``text``, its end replaced by ``…`` if it is longer than ``most``."""
    return text if len(text) <= most else text[: max(0, most - 1)].rstrip() + "…"


def lines(text: str, most: int) -> list[str]:
    """Return the safe lines of a text; beyond ``most`` lines, a note replaces the middle."""
    every = safe(text).expandtabs(4).splitlines()
    if len(every) <= most:
        return every
    head = most // 2
    tail = most - head - 1
    return [*every[:head], f"… {len(every) - most + 1} lines …", *every[-tail:]]


def pretty(text: str, most: int) -> list[str]:
    """Return stored JSON laid out for people in at most ``most`` lines; a short value takes one."""
    try:
        value: Any = json.loads(text)
        short = json.dumps(value, ensure_ascii=False)
        if len(short) <= 70:  # noqa: PLR2004
            return lines(short, most)
        text = json.dumps(value, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):  # a damaged row is shown as it is
        return lines(text, most)
    return [cut(one, 200) for one in lines(text, most)]


def signal_name(number: int) -> str:
    """Return the name of a signal, as ``SIGKILL``; ``signal 64`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
