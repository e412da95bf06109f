"""The attempt as a task's code sees it, and how its writes are fenced."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import outlast
from outlast.client.attempt import Attempt
from outlast.client.awaiting import awaiting, running
from outlast.errors import (
    BadArguments,
    LostLease,
    NotInAttempt,
    StoreUnavailable,
    SyncInLoop,
    UsageError,
)
from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.store.values import Answer, Claimed, StepFound
from tests.unit.interruptions_kit import call_at_each_line

ODD = ["an object", "no number", "a lone surrogate", "too large"]


class FakeLink:
    """Records what an attempt sends; gives set answers."""

    store_id = "s1"
    worker_id = 9

    def __init__(self) -> None:
        self.reports: list[Progress] = []
        self.saves: list[tuple[int, int, int, str, bool]] = []
        self.answer = Answer.ACCEPTED
        self.steps: dict[str, str] = {}

    def report(self, token: int, progress: Progress) -> None:
        self.reports.append(progress)

    def save(
        self, job_id: int, token: int, number: int, value_json: str, *, again: bool
    ) -> Future[StepFound]:
        self.saves.append((job_id, token, number, value_json, again))
        return self._answer()

    def step(self, job_id: int, token: int, name: str, value_json: str | None) -> Future[StepFound]:
        if value_json is None:
            return self._answer(self.steps.get(name))
        self.steps[name] = value_json
        return self._answer()

    def _answer(self, value: str | None = None) -> Future[StepFound]:
        answer: Future[StepFound] = Future()
        answer.set_result(StepFound(self.answer, value))
        return answer


@pytest.fixture
def link():
    return FakeLink()


def attempt_of(
    link: FakeLink, checkpoint: str | None = None, number: int = 3, **options: Any
) -> Attempt:
    claimed = Claimed(
        job_id=1,
        token=70,
        task="mail",
        queue="q",
        args="{}",
        number=number,
        failures=2,
        losses=0,
        policy=Policy(retries=2),
        tenant="acme",
        checkpoint=checkpoint,
    )
    return Attempt(link, claimed, **options)


def test_an_attempt_shows_what_was_claimed(link):
    attempt = attempt_of(link, deadline=0.0, resources="engine")
    assert (attempt.job_id, attempt.token, attempt.number, attempt.failures) == (1, 70, 3, 2)
    assert (attempt.task, attempt.queue, attempt.tenant) == ("mail", "q", "acme")
    assert (attempt.worker_id, attempt.resources) == (9, "engine")
    assert attempt.deadline == datetime(1970, 1, 1, tzinfo=UTC)
    assert attempt.is_last_try
    assert attempt.checkpoint is None


def test_the_checkpoint_is_plain_json_and_each_read_a_copy(link):
    attempt = attempt_of(link, '{"commit":400}')
    attempt.checkpoint["commit"] = 0
    assert attempt.checkpoint == {"commit": 400}


class Page(msgspec.Struct):
    number: int


def test_a_checkpoint_of_a_declared_type_is_read_saved_and_refused_as_that(link):
    attempt = attempt_of(link, '{"number":7}', saves=Page)
    assert attempt.checkpoint == Page(7)
    attempt.save_sync(Page(8))
    assert attempt.checkpoint == Page(8)
    with pytest.raises(BadArguments, match="the checkpoint does not fit Page"):
        attempt.save_sync({"number": "nine"})
    assert [text for *_, text, _ in link.saves] == ['{"number":8}']
    with pytest.raises(BadArguments, match="the checkpoint does not fit Page"):
        attempt_of(link, '{"chapter":7}', saves=Page)


# ---------------------------------------------------------------------------------- report


@pytest.mark.parametrize(
    ("fraction", "seen"),
    [(0.4, 0.4), (-1, 0.0), (7, 1.0), (math.nan, None), (math.inf, 1.0), ("x", None), (None, None)],
)
def test_odd_fractions_are_cut_or_dropped(link, fraction, seen):
    attempt_of(link).report(fraction)
    assert link.reports == [Progress(fraction=seen)]


def test_texts_are_cleaned_and_bounded(link):
    attempt_of(link).report(message="a\x00b\ud800" + "x" * 10_000, stage="s" * 1_000)
    (progress,) = link.reports
    assert progress.message is not None
    assert progress.stage is not None
    assert progress.message.startswith("a\ufffdb?")
    assert len(progress.message) <= 2_000
    assert len(progress.stage) <= 200


def test_report_never_raises_for_any_value(link):
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no words")

        __float__ = __str__

    attempt_of(link).report(Odd(), Odd(), stage=Odd())  # type: ignore[arg-type]
    assert link.reports == [Progress(None, "<Odd>", "<Odd>")]


# ------------------------------------------------------------------------------------ save


async def test_saves_are_numbered_from_one_and_become_the_checkpoint(link):
    attempt = attempt_of(link, '{"n":0}')
    await attempt.save({"n": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)})
    await asyncio.to_thread(attempt.save_sync, {"n": 2})
    assert [save[:3] for save in link.saves] == [(1, 70, 1), (1, 70, 2)]
    assert link.saves[0][3] == '{"n":1,"at":"2030-01-01T00:00:00Z"}'
    assert attempt.checkpoint == {"n": 2}


async def test_a_plain_save_or_step_in_an_event_loop_is_refused_before_it_is_sent(link):
    """In process, the answer would come from the very loop that waits for it."""
    attempt = attempt_of(link)
    with pytest.raises(SyncInLoop, match=r"await save\(\)"):
        attempt.save_sync(1)
    with pytest.raises(SyncInLoop, match=r"await step\(\)"):
        attempt.step_sync("one", dict)
    assert (link.saves, link.steps) == ([], {})


async def test_a_refused_save_is_a_lost_lease(link):
    attempt = attempt_of(link, '{"n":0}')
    link.answer = Answer.REFUSED
    with pytest.raises(LostLease, match=r"attempt 3 of job 1 \(token 70\)"):
        await attempt.save({"n": 1})
    with pytest.raises(LostLease):
        await asyncio.to_thread(attempt.save_sync, {"n": 1})
    assert attempt.checkpoint == {"n": 0}


def test_a_signal_handler_may_report_and_save_in_the_middle_of_that(link):
    """Of the same thread: it cannot wait for the end of that."""
    attempt = attempt_of(link)
    lines = call_at_each_line(lambda: attempt.report(0.5), lambda: attempt.report(0.7))
    assert len(link.reports) == 2 * lines + 1
    lines = call_at_each_line(lambda: attempt.save_sync("task"), lambda: attempt.save_sync("other"))
    numbers = {number for _, _, number, *_ in link.saves}
    assert numbers == set(range(1, 2 * lines + 2))


def test_a_save_whose_answer_was_lost_counts_when_it_is_there_already(link):
    attempt = attempt_of(link)
    link.answer = Answer.ALREADY
    attempt.save_sync(1)
    assert attempt.checkpoint == 1


def test_a_save_to_a_locked_row_is_unknown(link):
    link.answer = Answer.BUSY
    with pytest.raises(StoreUnavailable):
        attempt_of(link).save_sync(1)


@pytest.mark.parametrize("value", [object(), math.nan, "\ud800", "x" * 2000], ids=ODD)
def test_a_value_that_cannot_be_saved_is_refused_before_it_is_sent(link, value):
    with pytest.raises(BadArguments, match="the checkpoint"):
        attempt_of(link, max_payload=1000).save_sync(value)
    assert link.saves == []


async def test_concurrent_saves_keep_the_latest(link):
    attempt = attempt_of(link)
    answers: list[Future[StepFound]] = [Future(), Future()]
    link.save = lambda job_id, token, number, value, *, again: answers[number - 1]
    slow = asyncio.create_task(attempt.save("first"))
    await asyncio.sleep(0)
    answers[1].set_result(StepFound(Answer.ACCEPTED))
    await attempt.save("second")
    answers[0].set_result(StepFound(Answer.ACCEPTED))
    await slow
    assert attempt.checkpoint == "second"


# ------------------------------------------------------------------------------------ stop


def test_the_first_reason_to_stop_stays(link):
    attempt = attempt_of(link)
    assert (attempt.stopping, attempt.stop_reason) == (False, None)
    attempt._stop("timeout")
    attempt._stop("cancel")
    assert (attempt.stopping, attempt.stop_reason, attempt.cancelled) == (True, "timeout", False)


# --------------------------------------------------------------------------------- current


def test_outside_of_a_task_there_is_no_attempt():
    with pytest.raises(NotInAttempt, match=r"outlast\.testing\.inline_sync\(task\.call"):
        outlast.current()


async def test_current_works_in_tasks_and_threads_started_from_an_attempt(link):
    attempt = attempt_of(link)
    seen: list[BaseException] = []

    async def live() -> outlast.Attempt:
        running.set(attempt)
        thread = threading.Thread(target=lambda: seen.append(_raised()))
        thread.start()
        thread.join()
        return await asyncio.create_task(asyncio.to_thread(outlast.current))

    assert await asyncio.create_task(live()) is attempt
    assert isinstance(seen[0], NotInAttempt)
    with pytest.raises(NotInAttempt):
        outlast.current()


def _raised() -> BaseException:
    try:
        outlast.current()
    except NotInAttempt as error:
        return error
    raise AssertionError


# ----------------------------------------------------------------------------- complete_in


async def test_complete_in_takes_a_result_that_fits_and_then_nothing_is_saved(link):
    """What it does to a transaction: tests/conformance/test_connections.py."""
    attempt = attempt_of(link, returns=int)
    with pytest.raises(BadArguments, match="the result"):
        await attempt.complete_in(object(), "x")
    attempt.completed_in = True
    with pytest.raises(UsageError, match="completed in your transaction"):
        await attempt.save(1)


async def test_a_wait_is_reported_with_the_last_progress(link):
    attempt = attempt_of(link)
    running.set(attempt)
    attempt.report(0.5, "half")
    with awaiting(7) as tell:
        assert len(link.reports) == 1, "not before it has lasted a while"
        tell()
        tell()
        with awaiting(8) as tell_too:
            tell_too()
            attempt.report(0.6)
    assert [report.waits_for for report in link.reports] == [None, 7, 7, 7, 7, None]
    assert link.reports[1] == Progress(0.5, None, "half", 7)
    assert link.reports[-1] == Progress(0.6)


async def test_a_failed_wait_is_no_longer_reported(link):
    running.set(attempt_of(link))
    with pytest.raises(TimeoutError), awaiting(7) as tell:
        tell()
        raise TimeoutError
    assert link.reports[-1].waits_for is None
