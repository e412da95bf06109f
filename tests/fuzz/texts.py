"""Texts of strangers on their way to a terminal: pages, lists, explanations, errors and logs."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import msgspec
from hypothesis import strategies as st
from rich.console import Console

from outlast.base import text as words
from outlast.cli.errors import say
from outlast.cli.job_page import Page
from outlast.cli.logs import _json, text_renderer
from outlast.cli.run import _end
from outlast.cli.show import dead_table, gone_table, jobs_table, workers_table
from outlast.insight.availability import Served
from outlast.insight.explanation import JobDetails
from outlast.insight.queries import JobList
from outlast.insight.why import why
from outlast.model.job import SHELL_TASK, State
from outlast.model.pause import NO_PAUSES
from outlast.store.rows import WorkerStatus
from outlast.store.statistics import Place
from tests.fuzz.kit import BOMBS, Fuzzer, quiet
from tests.unit.cli.test_hostile_texts import ATTEMPTS, EVIL, REFUSALS, WORKER, job_in
from tests.unit.insight.rows_kit import NOW

PIECES = [
    EVIL,
    "\x1b[31m",
    "\x9b2J",
    "\x1b]52;c;AAAA\x07",
    "\r",
    "\r\n",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ud800",
    "\x7f",
    "\t" * 50,
    "\n" * 100,
    "[bold]",
    "[/]",
    "é" + "\u0301" * 40,
    "\U0001f468\u200d\U0001f469",
    "\ufeff",
    "x" * 5_000,
    "%s{0}{x}",
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=6).map("".join) | (
    st.sampled_from(BOMBS)
)


def _steers(text: str, *, newlines: bool = True) -> set[str]:
    """Return the control characters of terminals, and those that change the order of others."""
    allowed = {"\n", "\t"} if newlines else set[str]()
    return {
        each
        for each in set(text) - allowed
        if unicodedata.category(each) in {"Cc", "Cs"} or each in words._BIDI
    }


def words_are_safe(text: str) -> None:
    """Text for people has no control character, and stays within its bounds."""
    assert not _steers(words.safe(text))
    one = words.line(text, 80)
    assert not _steers(one, newlines=False)
    assert len(one) <= 80
    for shown in (words.lines(text, 20), words.pretty(text, 20), words.pretty(_quoted(text), 20)):
        assert not _steers("".join(shown), newlines=False)
        assert len(shown) <= 20
    with quiet() as stream:
        say(text)
    assert not _steers(stream.getvalue())
    stream.getvalue().encode()
    fields = {
        "event": text,
        "level": "warning",
        text: text,
        "names": [text],
        "error": ValueError(text),
    }
    assert not _steers(text_renderer(colors=False)(dict(fields)))
    document = _json(dict(fields))
    assert document.isascii()
    assert document.isprintable()


def _quoted(text: str) -> str:
    return json.dumps({"argv": [text, 1], "output": [text, 1], text: {"b": text}})


def pages_are_safe(case: tuple[State, str, str]) -> None:
    """No page, list or explanation sends a control character of a row's."""
    state, text, other = case
    row = _with(job_in(state), text, args=other, checkpoint=other, result=text)
    attempts = [_with(each, text) for each in ATTEMPTS]
    worker = _with(WORKER, text, queues=[text], tasks=[text], tags=[other], lacks={text: [other]})
    gone = msgspec.structs.replace(worker, status=WorkerStatus.LOST, stopped_at=NOW)
    refusals = [_with(each, text) for each in REFUSALS]
    out = Console(file=io.StringIO(), highlight=False, markup=False, width=240)
    details = JobDetails(row=row, attempts=attempts, refusals=refusals, workers=[worker], now=NOW)
    Page(out, details, why(details)).write()
    command = _with(row, text, task=SHELL_TASK, args=_quoted(text), result=_quoted(text))
    served = Served([msgspec.structs.replace(WORKER, tasks=[text])])
    out.print(jobs_table(out, JobList([row, command], served, {}, NO_PAUSES), NOW))
    out.print(dead_table(out, [(row, text)], NOW))
    out.print(workers_table(out, [worker], {text: 3}, NOW))
    out.print(gone_table(out, [gone], {text: 3}, NOW))
    out.print(*_end(row, attempts).output, *_end(command, attempts).output)
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert not _steers(shown)
    answer = why(JobDetails(row=row, attempts=attempts, workers=[worker], place=Place(), now=NOW))
    assert not _steers(" ".join([*answer.sentences, *answer.moves]))
    shown.encode()


def _with(row: Any, text: str, **more: Any) -> Any:
    """Return a row with the text in place of each text of strangers."""
    return msgspec.structs.replace(row, **(_changed(row, text) | more))


def _changed(row: Any, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(row).items():
        if value == EVIL:
            found[name] = text
        elif isinstance(value, msgspec.Struct):
            found[name] = _with(value, text)
        elif value == [EVIL]:
            found[name] = [text, text]
    return found


FUZZERS = [
    Fuzzer("texts for people", texts, words_are_safe, few=50),
    Fuzzer("pages", st.tuples(st.sampled_from(State), texts, texts), pages_are_safe, few=8),
]
