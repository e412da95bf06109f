"""Remove from rows what a visitor may not see, as they are read, before any other code sees them.

Sentences, documents and pages shorten, wrap and join texts. So secrets have to be searched for in
the texts as they are stored. A new page or document is covered automatically: it
has no other access to the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from outlast.insight.hiding import HIDDEN, Hiding
from outlast.model.crash import LINE_MAX
from outlast.store.logs import LogLine
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob

T = TypeVar("T")

PAYLOADS = {"args", "checkpoint", "result", "meta", "stack", "output", "lines"}
"""Columns shown only to visitors with the right ``payload``, in rows and in the JSON of a row."""
_NAMES = {
    "actor", "boot_id", "catch_up", "charge", "fingerprint", "group", "acknowledged_pauses",
    "held_back", "host", "instance", "kind", "lacks", "limits", "lock_path", "name", "origin",
    "outcome",
    "overlap", "paused_by", "presence", "queue", "queues", "release", "schedule", "spec",
    "stacks_asked", "state", "tags", "task", "tasks", "tenant", "verb", "version", "worker",
}  # fmt: skip
"""Columns that are never hidden, since code compares them: names, Outlast's own words, versions."""
_JSON = {"call", "filter"}  # JSON columns that hold other columns
_TEXTS = ("args", "checkpoint", "result")
PIECE_BYTES = 3_900  # a longer line may go on in the next (``worker.claims.checkpoints``)
AHEAD = 20_000  # characters read beyond a cut, so that a match that begins before it is seen whole


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

    def cover(self, value: T) -> T:
        """Return a row, or several, without what these visitors may not see."""
        if self._payload and not self._hiding.is_needed:
            return value
        return cast("T", self._cover("", value))

    def _cover(self, name: str, value: Any) -> Any:
        if name in PAYLOADS and not self._payload:
            return _emptied(name, value)
        if isinstance(value, str):
            return self._text(name, value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if name in {"lines", "output"}:
            return self._lines(value)
        if type(value) is list:
            return [self._cover(name, one) for one in value]
        if type(value) is tuple:
            return tuple(self._cover(name, one) for one in value)
        if type(value) is dict:
            return {key: self._cover(key, one) for key, one in value.items()}
        return value

    def _text(self, name: str, text: str) -> str:
        if name in _NAMES or isinstance(text, Enum):
            return text
        return self._json(name, text) if name in _JSON else self._hiding.cover(text)

    def _struct(self, row: msgspec.Struct) -> msgspec.Struct:
        old = {name: getattr(row, name) for name in _fields_with_texts(type(row))}
        new = {name: self._cover(name, one) for name, one in old.items()}
        changed = {name: one for name, one in new.items() if one is not old[name]}
        return msgspec.structs.replace(row, **changed) if changed else row

    def _json(self, name: str, text: str) -> str:
        """Return JSON with the columns in it covered. A text that is not JSON is hidden from
        visitors without the right, since its content is unknown."""
        try:
            told = self._cover("", msgspec.json.decode(text))
            if name == "filter" and "args" in told and not self._payload:
                told["args"] = HIDDEN
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
            return self._hiding.cover(text) if self._payload else HIDDEN
        return msgspec.json.encode(told).decode()

    def _lines(self, lines: Sequence[Any]) -> list[Any]:
        """Return lines covered, including matches over several lines; after such a match the times
        of the lines are lost."""
        if not lines or not isinstance(lines[0], LogLine):
            ends = [self._hiding.cover_cut(one, keeps_end=len(one) >= LINE_MAX) for one in lines]
            return self._hiding.cover("\n".join(ends)).split("\n") if ends else []
        lines = list(self._join_pieces(lines))
        texts = [self._hiding.cover_cut(one.text) for one in lines]
        parts = self._hiding.cover("\n".join(texts)).split("\n")
        if len(parts) != len(lines):
            return [LogLine(0.0, part) for part in parts]
        return [LogLine(line.at, part) for line, part in zip(lines, parts, strict=True)]

    def _join_pieces(self, lines: Sequence[LogLine]) -> Iterator[LogLine]:
        """Yield lines; join the pieces of one line if a match crosses a border between them."""
        pieces: list[LogLine] = []
        for number, line in enumerate(lines, 1):
            pieces.append(line)
            if len(line.text.encode()) >= PIECE_BYTES and number < len(lines):
                continue
            whole = "".join(one.text for one in pieces)
            if len(pieces) > 1 and (covered := self._hiding.cover(whole)) != whole:
                pieces = [LogLine(pieces[0].at, covered)]
            yield from pieces
            pieces = []


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
