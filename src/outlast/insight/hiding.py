"""Remove from rows what a visitor may not see, as they are read, before any other code sees them.

Two rules decide what is hidden. In a JSON document the value under a hidden key is. Every other
text (a line of output, a message, a traceback, a text in a document) is covered whole if a hidden
key stands in it as a word, or the expression matches: no quotes or brackets are read, so it does
not matter who has written the text, how often it was quoted, and where it was cut.

Sentences, documents and pages shorten, wrap and join texts, so secrets are searched for in the
texts as they are stored. A new page or document is covered automatically: it has no other access to
the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, cast, get_type_hints
from urllib.parse import unquote

import msgspec

from outlast.errors import ConfigError, text_of
from outlast.model.crash import LINE_MAX, Crash
from outlast.model.pause import Pause
from outlast.store.actions import ActionRow
from outlast.store.limits import Forgotten, LimitRow, Miscounted, PermitRow, StreamPlace
from outlast.store.logs import LogLine
from outlast.store.minutes import Counted
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob, WorkerRow
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import Undecodable

T = TypeVar("T")

HIDDEN: Final = "▒▒▒"
PAYLOADS = {"args", "checkpoint", "result", "meta", "stack", "output", "lines"}
"""Columns shown only to visitors with the right ``payload``, in rows and in the JSON of a row."""
_TEXTS = ("args", "checkpoint", "result")
_DOCUMENTS = {*_TEXTS, "meta"}  # JSON that an application has written
_JSON = {"call", "filter"}  # JSON of Outlast's, which holds other columns
_WORDS = {
    "task", "queue", "tenant", "worker", "host", "state", "outcome", "charge", "verb", "schedule",
    "group", "fingerprint",
}  # fmt: skip
"""Columns that mean the same in all rows, and are never hidden, since code compares them."""
_NAMES: Final[dict[type | None, frozenset[str]]] = {
    kind: frozenset(names.split())
    for kind, names in {
        ActionRow: "actor",
        Counted: "kind",
        Crash: "release",
        Forgotten: "name",
        LimitRow: "name",
        Miscounted: "name",
        Pause: "name paused_by",
        PermitRow: "name",
        ScheduleRow: "name spec overlap catch_up origin version",
        StoredJob: "held_back limits",
        StreamPlace: "holders",
        Undecodable: "release",
        WorkerRow: "name queues tasks release lock_path instance presence boot_id stacks"
        " acknowledged_pauses",
    }.items()
}
"""Columns of one kind of row that are never hidden, for the same reason."""
PIECE_BYTES = 3_900  # a longer line may go on in the next (``worker.claims.checkpoints``)
AHEAD = 20_000  # characters read beyond a cut, so that most documents are seen whole
_BETWEEN = r"[^\"'\\:\n]{0,100}?"  # what * in a key matches
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_NO_LETTER = re.compile(  # what may stand right before a word: an escape, a colour, a quoted sign
    r"(?:\x1b|\\(?:x1b|u001b|033))(?:\[[\d;]*[a-zA-Z]|\([A-Z0-9])"
    r"|\\(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[0-7]{1,3}|[a-z])|%(?:25)*[0-9a-f]{2}",
    re.IGNORECASE,
)
_BACKSLASHES = re.compile(r"\\+")
_GOES_ON = re.compile(r"\s|[-)\]}]|\Z")  # a line with the rest of a value
_CUT = " ... "  # ``model.crash.clean`` writes it in the middle of a text that was too long
_CUT_MIN = 199  # characters of the shortest text that was cut
_FIRST_WORD, _LAST_WORD = re.compile(r"\A\S+"), re.compile(r"(?<!\S)\S+\Z")


class Hiding:
    """What one dashboard hides from all its visitors."""

    def __init__(self, pattern: str | None = None, keys: Iterable[str] = ()) -> None:
        """Raises ConfigError for a pattern or keys that cannot be used."""
        chosen = [keys] if isinstance(keys, str) else list(keys)
        if not all(isinstance(key, str) and key.strip("*") for key in chosen):
            raise ConfigError(f"hide_keys={chosen!r}: write names of keys, as password or *token*")
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"hide={pattern!r}: {text_of(error)}") from error
        names = f"(?:{'|'.join(map(_compile_key, chosen))})"
        self._key = re.compile(names, re.IGNORECASE) if chosen else None
        self._key_alone = re.compile(rf"\W*{names}\W*", re.IGNORECASE)

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be hidden."""
        return self._key is not None or self._pattern is not None

    def cover(self, text: str) -> str:
        """Return a text, covered whole if it may hold what is hidden; else without the words at
        places where it was cut before it was stored, since a part of a match does not match."""
        return HIDDEN if self._has(text) else self._cover_cut(text)

    def cover_document(self, text: str) -> str:
        """Return JSON with what is hidden in it covered; what is no JSON is a text."""
        if not self._has(text):
            return text
        try:
            shown = msgspec.json.encode(self._value(json.loads(text))).decode()
        except (ValueError, OverflowError, RecursionError):
            shown = text
        is_left = shown == text or _is_in(self._pattern, shown)  # as by a match over several values
        return f'"{HIDDEN}"' if is_left else shown

    def cover_lines(self, lines: Sequence[str], *, only_ends: bool = False) -> list[str]:
        """Return lines of output covered: each that may hold what is hidden, the lines below it
        that go on with it (indented, or with a sign of a list), and all that one match reaches.
        ``only_ends``: of long lines only the end was kept."""
        text = "\n".join(lines)
        matches = [] if self._pattern is None else [m.span() for m in self._pattern.finditer(text)]
        told: list[str] = []
        start, is_hidden = 0, False
        for line in lines:
            is_hidden = self._has(line) or (is_hidden and _GOES_ON.match(line) is not None)
            while matches and matches[0][1] <= start:
                del matches[0]
            is_matched = bool(matches) and matches[0][0] < start + len(line)
            shown = self._cover_cut(line, is_end=only_ends and len(line) >= LINE_MAX)
            told.append(HIDDEN if is_hidden or is_matched else shown)
            start += len(line) + 1
        return told

    def _has(self, text: str) -> bool:
        return _is_in(self._key, text) or _is_in(self._pattern, text)

    def _value(self, value: Any) -> Any:
        """Return a value of a document without what is hidden. A text that is no more than a key
        covers the list or the object in which it stands: its value may stand beside it."""
        if isinstance(value, str):
            return self.cover(value)
        if isinstance(value, dict):
            return HIDDEN if self._names(value.values()) else dict(map(self._item, value.items()))
        if isinstance(value, list):
            return HIDDEN if self._names(value) else [self._value(one) for one in value]
        return HIDDEN if _is_in(self._pattern, json.dumps(value)) else value

    def _item(self, item: tuple[str, Any]) -> tuple[str, Any]:
        name, value = item
        shown = HIDDEN if _is_in(self._pattern, name) else name
        return shown, HIDDEN if _is_in(self._key, name) else self._value(value)

    def _names(self, values: Iterable[Any]) -> bool:
        if self._key is None:
            return False
        return any(isinstance(one, str) and self._key_alone.fullmatch(one) for one in values)

    def _cover_cut(self, text: str, *, is_end: bool = False) -> str:
        """Return a text without what may belong to a part that was cut off: the word at the cut
        and, if values under keys are hidden, all behind it."""
        middle = (len(text) - len(_CUT)) // 2
        if len(text) < _CUT_MIN or not self.is_needed:
            return text
        if is_end:
            return self._cover_start(text)
        if text[middle : middle + len(_CUT)] == _CUT:
            behind = self._cover_start(text[middle + len(_CUT) :])
            return _LAST_WORD.sub(HIDDEN, text[:middle]) + _CUT + behind
        return _LAST_WORD.sub(HIDDEN, text[:-1]) + "…" if text.endswith("…") else text

    def _cover_start(self, text: str) -> str:
        return HIDDEN if self._key is not None else _FIRST_WORD.sub(HIDDEN, text)


def _compile_key(key: str) -> str:
    """Return a pattern for a key as a word, in which * stands for anything. The text between two *
    is matched at its first occurrence only: other places would match no more names, and trying them
    all takes minutes in a text of 100 kB."""
    first, *others = key.split("*")
    begin, end = (r"(?<!\w)" if first else ""), ("" if others and not others[-1] else r"(?!\w)")
    named = [re.escape(part) for part in (first, *others) if part]
    middle = [f"(?>{_BETWEEN}{part})" for part in named[1:-1]]
    last = [_BETWEEN + part for part in named[1:][-1:]]
    return begin + "".join([*named[:1], *middle, *last]) + end


def _is_in(pattern: re.Pattern[str] | None, text: str) -> bool:
    """Whether a pattern matches in a text, as it is or with its escapes read."""
    if pattern is None:
        return False
    forms = [text]
    if not {"\\", "%", "\x1b"}.isdisjoint(text):
        flat = _BACKSLASHES.sub(r"\\", text).replace("\\/", "/")
        forms += [_NO_LETTER.sub(" ", flat), _ESCAPED.sub(_letter, unquote(flat))]
    return any(map(pattern.search, forms))


def _letter(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))


class Covering:
    """What one kind of visitors may see. ``payload``: whether they have the right of that name."""

    def __init__(self, hiding: Hiding, *, payload: bool) -> None:
        self._hiding = hiding
        self._payload = payload

    def view(self, store: Store) -> Store:
        """Return the store as these visitors may read it."""
        if self._payload and not self._hiding.is_needed:
            return store
        ahead = AHEAD if self._hiding.is_needed else 0
        return cast("Store", _CoveredStore(store, _CoveredInspector(store.inspector, self, ahead)))

    def cover(self, value: T, kind: type | None = None) -> T:
        """Return a row, or several, without what these visitors may not see. ``kind``: of what the
        columns are, if they are given as a dict."""
        if self._payload and not self._hiding.is_needed:
            return value
        return cast("T", self._cover(kind, "", value))

    def _cover(self, kind: type | None, name: str, value: Any) -> Any:
        """Return the value of a column of a kind of row, covered."""
        if name in PAYLOADS and not self._payload:
            return _emptied(name, value)
        if isinstance(value, str):
            return self._text(kind, name, value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if name in {"lines", "output"}:
            return self._lines(value)
        if type(value) is list:
            return [self._cover(kind, name, one) for one in value]
        if type(value) is tuple:
            return tuple(self._cover(kind, name, one) for one in value)
        if type(value) is dict:
            return {key: self._cover(kind, name or key, one) for key, one in value.items()}
        return value

    def _text(self, kind: type | None, name: str, text: str) -> str:
        if isinstance(text, Enum) or name in _WORDS or name in _NAMES.get(kind, ()):
            return text
        if name in _JSON:
            return self._json(name, text)
        return self._hiding.cover_document(text) if name in _DOCUMENTS else self._hiding.cover(text)

    def _struct(self, row: msgspec.Struct) -> msgspec.Struct:
        kind = type(row)
        old = {name: getattr(row, name) for name in _fields_with_texts(kind)}
        new = {name: self._cover(kind, name, one) for name, one in old.items()}
        changed = {name: one for name, one in new.items() if one is not old[name]}
        return msgspec.structs.replace(row, **changed) if changed else row

    def _json(self, name: str, text: str) -> str:
        """Return JSON with the columns in it covered. A text that is not JSON is hidden from
        visitors without the right, since its content is unknown."""
        try:
            told = self._columns("", msgspec.json.decode(text))
            if name == "filter" and "args" in told and not self._payload:
                told["args"] = HIDDEN
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
            return self._hiding.cover(text) if self._payload else HIDDEN
        return msgspec.json.encode(told).decode()

    def _columns(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._columns(key, one) for key, one in value.items()}
        return self._cover(None, name, value)

    def _lines(self, lines: Sequence[Any]) -> list[Any]:
        """Return lines covered. A line that is kept in several pieces is one."""
        if not lines or not isinstance(lines[0], LogLine):
            return self._hiding.cover_lines(lines, only_ends=True)
        whole = list(_join_pieces(lines))
        texts = ["".join(one.text for one in pieces) for pieces in whole]
        covered = zip(whole, texts, self._hiding.cover_lines(texts), strict=True)
        return [
            one
            for pieces, text, shown in covered
            for one in (pieces if shown == text else [LogLine(pieces[0].at, shown)])
        ]


def _join_pieces(lines: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """Yield the pieces of each line."""
    pieces: list[LogLine] = []
    for line in lines:
        pieces.append(line)
        if len(line.text.encode()) < PIECE_BYTES:
            yield pieces
            pieces = []
    if pieces:
        yield pieces


def _emptied(name: str, value: Any) -> Any:
    """Return a placeholder for a hidden payload: its existence is no secret."""
    if name in _TEXTS:
        return None if value is None else "null"
    return [] if isinstance(value, list) else None


@cache
def _fields_with_texts(kind: type[msgspec.Struct]) -> list[str]:
    hints = get_type_hints(kind)
    plain = {str(each) for one in (int, float, bool) for each in (one, one | None)}
    return [each for each in kind.__struct_fields__ if str(hints[each]) not in plain]


class _CoveredStore:
    def __init__(self, store: Store, inspector: _CoveredInspector) -> None:
        self._store = store
        self.inspector = inspector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _CoveredInspector:
    """An inspector that covers all its answers."""

    def __init__(self, inspector: Any, covering: Covering, ahead: int) -> None:
        self._inspector = inspector
        self._covering = covering
        self._ahead = ahead

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        ask = getattr(self._inspector, name)

        async def asked(*values: Any, **named: Any) -> Any:
            return self._covering.cover(await ask(*values, **named))

        return asked

    async def job(self, job_id: int, text_max: int | None = None) -> Any:
        return self._cut(await self._inspector.job(job_id, self._beyond(text_max)), text_max)

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> Any:
        rows = await self._inspector.jobs_of(ids, self._beyond(text_max))
        return [self._cut(row, text_max) for row in rows]

    async def last_attempts(self, ids: Sequence[int], text_max: int | None = None) -> Any:
        rows = await self._inspector.last_attempts(ids, self._beyond(text_max))
        return [(self._cut(row, text_max), self._covering.cover(last)) for row, last in rows]

    def _beyond(self, text_max: int | None) -> int | None:
        return text_max + self._ahead if text_max else text_max

    def _cut(self, row: StoredJob | None, text_max: int | None) -> StoredJob | None:
        """Return a row with its texts covered, then cut. A word that goes on beyond the text that
        was read is not shown: a match may begin in it and end beyond."""
        shown = self._covering.cover(row)
        if row is None or shown is None or not text_max or not self._ahead:
            return shown
        texts = {name: getattr(shown, name) for name in _TEXTS}
        cut = {
            name: HIDDEN if len(getattr(row, name)) >= text_max + self._ahead else text[:text_max]
            for name, text in texts.items()
            if text is not None
        }
        return msgspec.structs.replace(shown, **cut)
