"""Remove from rows what a visitor may not see, as they are read, before any other code sees them.

In a JSON document the value under a hidden key is hidden. Every other text (a line of output, a
message, a traceback, a text in a document) is covered whole if a hidden key stands in it as a word,
if the expression matches, or if it was cut: the key of the rest may have been in the other
part. No quotes or brackets are read, so it does not matter who has written a text.

Sentences, documents and pages shorten, wrap and join texts, so secrets are searched for in the
texts as they are stored. A new page or document is covered automatically: it has no other access to
the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote

import msgspec

from outlast.errors import ConfigError, text_of
from outlast.model.crash import LINE_MAX
from outlast.store.logs import LogLine
from outlast.store.protocol import Store

T = TypeVar("T")

HIDDEN: Final = "▒▒▒"
PAYLOADS = {"args", "checkpoint", "result", "meta", "stack", "output", "lines"}
"""Columns shown only to visitors with the right ``payload``, in rows and in the JSON of a row."""
_TEXTS = {"args", "checkpoint", "result"}
_DOCUMENTS = {*_TEXTS, "meta"}  # JSON that an application has written
_JSON = {"call", "filter"}  # JSON of Outlast's, which holds other columns
SHOWN = set(
    """
    task queue tenant worker host state outcome charge verb schedule group fingerprint
    ActionRow.actor Counted.kind Crash.release Forgotten.name LimitRow.name Miscounted.name
    Pause.name Pause.paused_by PermitRow.name ScheduleRow.name ScheduleRow.spec ScheduleRow.overlap
    ScheduleRow.catch_up ScheduleRow.origin ScheduleRow.version StoredJob.held_back StoredJob.limits
    StreamPlace.holders Undecodable.release WorkerRow.name WorkerRow.queues WorkerRow.tasks
    WorkerRow.release WorkerRow.lock_path WorkerRow.instance WorkerRow.presence WorkerRow.boot_id
    WorkerRow.stacks WorkerRow.acknowledged_pauses
    """.split()  # noqa: SIM905  # a list of strings is five times as long
)
"""Columns, of all rows or of one kind, that are never hidden, since code compares them."""
PIECE_BYTES = 3_900  # a longer line may go on in the next (``worker.claims.checkpoints``)
AHEAD = 20_000  # characters read beyond a cut, so that most documents are seen whole
_BETWEEN = r"[^\"'\\:\n]{0,100}?"  # what * in a key matches
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_NO_LETTER = re.compile(  # what may stand right before a word: an escape, a colour, a quoted sign
    r"(?:\x1b|\\(?:x1b|u001b|033))(?:\[[\d;]*[a-zA-Z]|\([A-Z0-9])"
    r"|\\(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[0-7]{1,3}|[a-z])|%(?:25)*[0-9a-f]{2}",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"\s|[-)\]}]|\Z")  # a line with the rest of a value
_CUT, _CUT_MIN = " ... ", 199  # as ``model.crash.clean`` cuts texts of that length or more


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
        self._key_alone = re.compile(rf"\W*{names}\W*" if chosen else r"(?!)", re.IGNORECASE)

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be hidden."""
        return self._key is not None or self._pattern is not None

    def cover(self, text: str) -> str:
        """Return a text, covered whole if it may hold a hidden value."""
        middle = (len(text) - len(_CUT)) // 2
        is_cut = text.endswith("…") or text.startswith(_CUT, middle)
        if self._has(text) or (is_cut and len(text) >= _CUT_MIN and self.is_needed):
            return HIDDEN
        return text

    def cover_document(self, text: str) -> str:
        """Return JSON with its hidden values covered; anything but JSON is a text."""
        if not self._has(text):
            return text
        try:
            shown = msgspec.json.encode(self._value(json.loads(text))).decode()
        except (ValueError, OverflowError, RecursionError):
            shown = text
        is_left = shown == text or _is_in(self._pattern, shown)  # as by a match over several values
        return f'"{HIDDEN}"' if is_left else shown

    def cover_lines(self, lines: Sequence[str], cut_bytes: int) -> list[str]:
        """Return lines of output covered: each that may hold what is hidden, all that one match
        reaches, and the lines below that go on with it (indented, or with a sign of a list).
        A line of ``cut_bytes`` or more was cut, and may go on in the next one."""
        text = "\n".join(line.replace("\n", " ") for line in lines)
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: re.sub(".+", HIDDEN, match[0]), text)
        told: list[str] = []
        is_hidden = was_cut = False
        for line, rest in zip(lines, text.split("\n"), strict=False):
            is_cut = self.is_needed and len(line.encode()) >= cut_bytes
            goes_on = is_hidden and _GOES_ON.match(line) is not None
            is_hidden = is_cut or was_cut or goes_on or rest != line or self._has(line)
            told.append(HIDDEN if is_hidden else line)
            was_cut = is_cut
        return told

    def _has(self, text: str) -> bool:
        return _is_in(self._key, text) or _is_in(self._pattern, text)

    def _value(self, value: Any) -> Any:
        """Return a value of a document without hidden values. A text that is no more than a key
        covers the list or the object in which it stands: its value may stand beside it."""
        if isinstance(value, str):
            return self.cover(value)
        if not isinstance(value, list | dict):
            return HIDDEN if _is_in(self._pattern, json.dumps(value)) else value
        inner = value.values() if isinstance(value, dict) else value
        if any(isinstance(one, str) and self._key_alone.fullmatch(one) for one in inner):
            return HIDDEN
        if isinstance(value, list):
            return [self._value(one) for one in value]
        return dict(map(self._item, value.items()))

    def _item(self, item: tuple[str, Any]) -> tuple[str, Any]:
        name, value = item
        shown = HIDDEN if _is_in(self._pattern, name) else name
        return shown, HIDDEN if _is_in(self._key, name) else self._value(value)


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
        flat = re.sub(r"\\+", r"\\", text).replace("\\/", "/")
        forms += [_NO_LETTER.sub(" ", flat), _ESCAPED.sub(_letter, unquote(flat))]
    return any(map(pattern.search, forms))


def _letter(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))


class Covering:
    """What one kind of visitors may see. ``payload``: whether they have the right of that name.
    ``text_max``: characters of a payload that they are shown."""

    def __init__(self, hiding: Hiding, *, payload: bool, text_max: int | None = None) -> None:
        self._hiding = hiding
        self._payload = payload
        self._text_max = text_max

    @property
    def read_max(self) -> int | None:
        """How many characters of a payload are read."""
        return self._text_max and self._text_max + (AHEAD if self._hiding.is_needed else 0)

    def view(self, store: Store) -> Store:
        """Return the store as these visitors may read it."""
        if self._payload and not self._hiding.is_needed:
            return store
        covering = partial(Covering, self._hiding, payload=self._payload)
        return cast("Store", _CoveredStore(store, _CoveredInspector(store.inspector, covering)))

    def cover(self, value: T, kind: type | None = None) -> T:
        """Return a row, or several, without what these visitors may not see. ``kind``: of what the
        columns are, if they are given as a dict."""
        if self._payload and not self._hiding.is_needed:
            return value
        return cast("T", self._cover(kind, "", value))

    def _cover(self, kind: type | None, name: str, value: Any) -> Any:
        """Return the value of a column of a kind of row, covered."""
        if name in PAYLOADS and not self._payload:  # that there is one is no secret
            given: list[Any] | None = [] if isinstance(value, list) else None
            return "null" if name in _TEXTS and value is not None else given
        if isinstance(value, str):
            return self._text(kind, name, value)
        if isinstance(value, msgspec.Struct):
            columns = {each: getattr(value, each) for each in value.__struct_fields__}
            told = {each: self._cover(type(value), each, one) for each, one in columns.items()}
            return msgspec.structs.replace(value, **told)
        if name in {"lines", "output"}:
            return self._lines(value)
        if type(value) in {list, tuple}:
            return type(value)(self._cover(kind, name, one) for one in value)
        if type(value) is dict:
            return {key: self._cover(kind, name or key, one) for key, one in value.items()}
        return value

    def _text(self, kind: type | None, name: str, text: str) -> str:
        own = "" if kind is None else f"{kind.__name__}.{name}"
        if isinstance(text, Enum) or name in SHOWN or own in SHOWN:
            return text
        if name in _JSON:
            return self._json(name, text)
        if name not in _DOCUMENTS:
            return self._hiding.cover(text)
        if self._text_max and name in _TEXTS and len(text) >= self._text_max + AHEAD:
            return HIDDEN
        return self._hiding.cover_document(text)[: self._text_max]

    def _json(self, name: str, text: str) -> str:
        """Return JSON with the columns in it covered. A text that is not JSON is hidden from
        visitors without the right, since its content is unknown."""
        try:
            told = self._cover(None, "", msgspec.json.decode(text))
            if name == "filter" and "args" in told and not self._payload:
                told["args"] = HIDDEN
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
            return self._hiding.cover(text) if self._payload else HIDDEN
        return msgspec.json.encode(told).decode()

    def _lines(self, lines: Sequence[Any]) -> list[Any]:
        if lines and isinstance(lines[0], LogLine):
            shown = self._hiding.cover_lines([one.text for one in lines], PIECE_BYTES)
            return [one._replace(text=text) for one, text in zip(lines, shown, strict=True)]
        return self._hiding.cover_lines(lines, LINE_MAX)


class _CoveredStore:
    def __init__(self, store: Store, inspector: _CoveredInspector) -> None:
        self._store = store
        self.inspector = inspector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _CoveredInspector:
    """An inspector that covers all its answers, and cuts payloads after that."""

    def __init__(self, inspector: Any, covering: Callable[..., Covering]) -> None:
        self._inspector = inspector
        self._covering = covering

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        ask = getattr(self._inspector, name)

        async def asked(*values: Any, **named: Any) -> Any:
            return self._covering().cover(await ask(*values, **named))

        return asked

    async def job(self, job_id: int, text_max: int | None = None) -> Any:
        return await self._read(self._inspector.job, job_id, text_max)

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> Any:
        return await self._read(self._inspector.jobs_of, ids, text_max)

    async def last_attempts(self, ids: Sequence[int], text_max: int | None = None) -> Any:
        return await self._read(self._inspector.last_attempts, ids, text_max)

    async def _read(self, ask: Any, which: Any, text_max: int | None) -> Any:
        covering = self._covering(text_max=text_max)
        return covering.cover(await ask(which, covering.read_max))
