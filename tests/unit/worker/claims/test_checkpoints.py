"""Checkpoints are answered when the store has them; of progress only the latest is written."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from outlast.errors import BadData, StoreUnavailable
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy
from outlast.runner.protocol import Reported
from outlast.store.minutes import CountKind
from outlast.store.values import Answer, NamedStep, Save
from outlast.worker.claims import checkpoints as module
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.evidence import Evidence
from outlast.worker.runners.watchdog import find_limit
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, FakeStore, claimed, crash, heard, new_in_flight


class Desk:
    """Three attempts in flight, their checkpoint writer, and its answers."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.clock = ManualClock()
        self.in_flight = new_in_flight(self.clock)
        self.checkpoints = CheckpointWriter(self.store, self.in_flight)  # type: ignore[arg-type]
        self.nudge = self.checkpoints.nudge
        self.answers: list[tuple[int, str]] = []
        self.found: list[tuple[int, str, str | None]] = []
        for token in (1, 2, 3):
            self.in_flight.claim([claimed(token, losses=9)])

    def save(self, token: int, number: int = 1, value: str = '{"n":1}') -> None:
        self.checkpoints.add(
            Save(token, token, number, value), lambda word, _: self.answers.append((token, word))
        )

    def step(self, token: int, name: str = "cover", value: str | None = "1") -> None:
        step = NamedStep(token, token, name, value)
        self.checkpoints.add(step, lambda *found: self.found.append((token, *found)))

    def limit(self, token: int) -> None:
        """Give an attempt that has begun a stall limit of five seconds."""
        policy = Policy(stall_timeout=5.0)
        running = self.in_flight.running[token]
        running.claimed = msgspec.structs.replace(running.claimed, policy=policy)
        self.in_flight.note_begun(token, 0.0)

    def report(self, token: int, fraction: float) -> None:
        running = self.in_flight.running[token]
        self.checkpoints.report(running, Reported(token, Progress(fraction)))

    def losses(self, token: int) -> int:
        self.in_flight.end(token, crash(CrashKind.LOST_LEASE))
        return self.in_flight.take(1)[0].losses


@pytest.fixture
def desk():
    return Desk()


async def test_waiting_saves_are_written_together_and_each_is_answered(desk):
    for token in (1, 2, 3):
        desk.save(token)
    assert desk.nudge.is_given
    await desk.checkpoints.run_once()
    assert desk.store.calls == [("checkpoint", [(1, 1), (2, 1), (3, 1)])]
    assert desk.answers == [(1, "accepted"), (2, "accepted"), (3, "accepted")]
    await desk.checkpoints.run_once()
    assert len(desk.store.calls) == 1


async def test_batches_are_bounded(desk, monkeypatch):
    monkeypatch.setattr(module, "SAVES_MAX", 2)
    for number in range(1, 6):
        desk.save(1, number)
    await desk.checkpoints.run_once()
    assert [len(saves) for _, saves in desk.store.calls] == [2, 2, 1]
    assert len(desk.answers) == 5


async def test_batches_are_bounded_in_bytes(desk, monkeypatch):
    monkeypatch.setattr(module, "TRIP_BYTES", 15)  # a save has seven
    for number in range(1, 6):
        desk.save(1, number)
    await desk.checkpoints.run_once()
    assert [len(saves) for _, saves in desk.store.calls] == [2, 2, 1]
    monkeypatch.setattr(module, "TRIP_BYTES", 0)
    desk.save(1, 6)
    await desk.checkpoints.run_once()
    assert len(desk.answers) == 6


async def test_a_save_is_answered_only_once_the_store_has_it(desk):
    desk.save(1)
    desk.store.saves = [StoreUnavailable("broke off")]
    with pytest.raises(StoreUnavailable):
        await desk.checkpoints.run_once()
    assert desk.answers == []
    await desk.checkpoints.run_once()
    assert desk.answers == [(1, "accepted")]


async def test_an_accepted_checkpoint_forgives_losses(desk):
    desk.save(1)
    desk.save(2)
    desk.store.saves = [[Answer.ACCEPTED, Answer.REFUSED]]
    await desk.checkpoints.run_once()
    assert (desk.losses(1), desk.losses(2)) == (1, 10)


async def test_a_refused_write_is_counted_by_its_kind(desk):
    desk.save(1)
    desk.step(2)
    desk.store.saves = [[Answer.REFUSED], [Answer.REFUSED]]
    await desk.checkpoints.run_once()
    counted = desk.in_flight.counters.take()
    assert [(each.kind, each.outcome) for each in counted] == [
        (CountKind.REFUSAL, "checkpoint"),
        (CountKind.REFUSAL, "step"),
    ]


async def test_a_save_whose_first_answer_was_lost_forgives_losses_as_well(desk):
    """The row has forgiven them; an end that says otherwise would charge them again."""
    desk.save(1)
    desk.store.saves = [StoreUnavailable("the reply was cut"), [Answer.ALREADY]]
    with pytest.raises(StoreUnavailable):
        await desk.checkpoints.run_once()
    await desk.checkpoints.run_once()
    assert desk.answers == [(1, "already")]
    assert desk.losses(1) == 1


async def test_a_checkpoint_that_the_store_refuses_fails_alone(desk):
    for token in (1, 2, 3):
        desk.save(token)
    bad = BadData("a NUL byte")
    desk.store.saves = [bad, [Answer.ACCEPTED], bad, bad, [Answer.ACCEPTED]]
    await desk.checkpoints.run_once()
    assert desk.answers == [(1, "accepted"), (2, "rejected"), (3, "accepted")]


async def test_a_save_to_a_locked_row_is_retried_without_delaying_others(desk):
    desk.save(1)
    desk.save(2)
    desk.report(3, 0.5)
    desk.store.saves = [[Answer.BUSY, Answer.ACCEPTED], [Answer.BUSY]]
    pause = await desk.checkpoints.run_once()
    assert desk.answers == [(2, "accepted")]
    assert desk.store.verbs() == ["checkpoint", "progress"]
    assert pause == module.BUSY_PAUSE_SECONDS
    await desk.checkpoints.run_once()
    assert desk.answers == [(2, "accepted")]
    assert await desk.checkpoints.run_once() is None
    assert desk.answers == [(2, "accepted"), (1, "accepted")]


async def test_reports_are_written_at_once_and_then_now_and_then(desk):
    assert await desk.checkpoints.run_once() is None, "it rests until something comes"
    desk.report(1, 0.1)
    assert desk.nudge.is_given
    desk.nudge.take()
    assert await desk.checkpoints.run_once() == module.FLUSH_SECONDS
    desk.report(1, 0.2)
    assert not desk.nudge.is_given, "it waits for its turn"
    assert await desk.checkpoints.run_once() == module.FLUSH_SECONDS
    assert await desk.checkpoints.run_once() is None
    assert [report.progress.fraction for report in desk.store.reports] == [0.1, 0.2]


async def test_only_the_latest_report_of_each_attempt_is_written(desk):
    desk.report(1, 0.1)
    desk.report(1, 0.2)
    desk.report(2, 0.3)
    await desk.checkpoints.run_once()
    assert [(r.token, r.progress.fraction) for r in desk.store.reports] == [(1, 0.2), (2, 0.3)]
    await desk.checkpoints.run_once()
    assert len(desk.store.reports) == 2


async def test_the_report_of_an_attempt_that_has_ended_is_left_to_its_end(desk):
    for token in (1, 2, 3):
        desk.report(token, 0.5)
    desk.in_flight.end(1, COMPLETED)
    desk.in_flight.end(2, COMPLETED)
    desk.in_flight.take_answers(desk.in_flight.take(1), [Answer.ACCEPTED])
    await desk.checkpoints.run_once()
    assert [report.token for report in desk.store.reports] == [3]
    await desk.checkpoints.report_last([2])
    assert [report.token for report in desk.store.reports] == [3, 2]
    assert desk.checkpoints._reports == {}, "that of the first was too late"


async def test_only_the_last_reports_of_ending_attempts_are_written_at_once(desk):
    desk.report(1, 1.0)
    desk.report(2, 0.5)
    await desk.checkpoints.report_last([1, 3])
    assert [(r.token, r.progress.fraction) for r in desk.store.reports] == [(1, 1.0)]
    await desk.checkpoints.report_last([1, 3])
    assert desk.store.verbs() == ["progress"], "an attempt without a report costs no trip"


async def test_the_last_reports_wait_for_those_under_way(desk):
    """Otherwise the end would come first, and the report before it would be refused."""
    gate, working = asyncio.Event(), desk.store.progress

    async def slow(reports):
        await gate.wait()
        return await working(reports)

    desk.store.progress = slow
    desk.report(1, 0.5)
    writing = asyncio.create_task(desk.checkpoints.run_once())
    await asyncio.sleep(0)
    last = asyncio.create_task(desk.checkpoints.report_last([1]))
    await asyncio.sleep(0)
    assert not last.done()
    gate.set()
    await asyncio.gather(writing, last)
    assert [report.progress.fraction for report in desk.store.reports] == [0.5]


async def test_slow_last_reports_delay_no_end(desk, monkeypatch):
    async def hangs(reports):
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "LAST_SECONDS", 0.0)
    desk.store.progress = hangs
    desk.report(1, 1.0)
    await desk.checkpoints.report_last([1])


async def test_a_report_that_the_store_cannot_take_is_dropped(desk):
    async def refuses(reports):
        raise BadData("a NUL byte")

    desk.store.progress = refuses
    desk.report(1, 0.1)
    with heard() as names:
        await desk.checkpoints.run_once()
        await desk.checkpoints.run_once()
    assert names == ["progress_rejected"]


async def test_one_report_that_the_store_cannot_take_costs_no_other(desk):
    working = desk.store.progress

    async def refuses(reports):
        if any(report.token == 2 for report in reports):
            raise BadData("not this one")
        return await working(reports)

    desk.store.progress = refuses
    for token in (1, 2, 3):
        desk.report(token, 0.1)
    with heard() as names:
        await desk.checkpoints.run_once()
    assert names == ["progress_rejected"]
    assert [report.token for report in desk.store.reports] == [1, 3]


@pytest.mark.parametrize("breaks", [False, True], ids=["its row was locked", "it broke off"])
async def test_a_report_that_failed_is_written_again_unless_there_is_a_later_one(desk, breaks):
    """It may move the deadline of an attempt that never reports again."""
    working = desk.store.progress

    async def fails(reports):
        desk.report(1, 0.9)  # comes in meanwhile
        if breaks:
            raise StoreUnavailable("broke off")
        return [Answer.BUSY] * len(reports)

    desk.store.progress = fails
    desk.report(1, 0.1)
    desk.report(2, 0.2)
    with pytest.raises(StoreUnavailable) if breaks else contextlib.nullcontext():
        await desk.checkpoints.run_once()
    desk.store.progress = working
    await desk.checkpoints.run_once()
    assert sorted((r.token, r.progress.fraction) for r in desk.store.reports) == [
        (1, 0.9),
        (2, 0.2),
    ]


async def test_no_save_waits_for_a_worker_that_has_left(desk):
    desk.save(1)
    desk.checkpoints.close()
    desk.save(2)
    assert desk.answers == [(1, "refused"), (2, "refused")]
    await desk.checkpoints.run_once()
    assert desk.store.calls == []


async def test_progress_is_redacted_before_it_is_written(desk):
    desk.in_flight._evidence = Evidence(ManualClock(), redact=["s3cret"])
    desk.checkpoints.report(desk.in_flight.running[1], Reported(1, Progress(0.5, "a s3cret")))
    assert desk.checkpoints._reports[1].progress == Progress(0.5, "a [redacted]")


def stalls(desk, token: int = 1) -> bool:
    """Whether the stall limit of an attempt, of five seconds, has passed."""
    running = desk.in_flight.running[token]
    reason, at = find_limit(running)
    return reason == "stalled" and desk.clock.boot() >= at


async def test_an_attempt_that_waits_for_the_store_to_answer_a_save_does_not_stall(desk):
    """The arrival of the save is the sign of life, and then it is the store that is silent."""
    desk.limit(1)
    desk.clock.advance(4.0)
    desk.save(1)
    desk.store.saves = [StoreUnavailable("away"), [Answer.ACCEPTED]]
    desk.clock.advance(4.0)
    with pytest.raises(StoreUnavailable):
        await desk.checkpoints.run_once()
    desk.clock.advance(60.0)
    assert not stalls(desk)
    await desk.checkpoints.run_once()
    desk.clock.advance(4.9)
    assert not stalls(desk)
    desk.clock.advance(0.2)
    assert stalls(desk)


@pytest.mark.parametrize("answer", [Answer.BUSY, Answer.REFUSED])
async def test_once_the_store_has_answered_a_save_the_stall_limit_counts(desk, answer):
    """A row that stays locked may be so by the attempt's own transaction, which never ends."""
    desk.limit(1)
    desk.save(1)
    desk.store.saves = [[answer]] * 3
    desk.clock.advance(60.0)
    await desk.checkpoints.run_once()
    assert not stalls(desk)
    desk.clock.advance(4.0)
    await desk.checkpoints.run_once()
    desk.clock.advance(1.1)
    assert stalls(desk)


async def test_a_save_whose_answer_comes_late_does_not_count_for_a_later_one(desk):
    desk.limit(1)
    desk.save(1, 1)
    desk.store.saves = [[Answer.ACCEPTED, Answer.ACCEPTED], [Answer.ACCEPTED]]
    desk.save(1, 2)
    await desk.checkpoints.run_once()
    desk.save(1, 3)
    desk.clock.advance(60.0)
    assert not stalls(desk)


# ---------------------------------------------------------------------------------- steps


async def test_saves_steps_and_looks_are_written_together_and_answered_each(desk):
    desk.save(1)
    desk.step(2)
    desk.step(3, value=None)
    desk.step(9)
    await desk.checkpoints.run_once()
    verbs = [verb for verb, _ in desk.store.calls]
    assert verbs == ["checkpoint", "keep_steps", "find_steps"]
    assert desk.answers == [(1, "accepted")]
    assert desk.found == [(2, "accepted", None), (3, "already", '"kept"'), (9, "refused", None)]
    assert [desk.losses(token) for token in (2, 3)] == [1, 10], "a look is no progress"


async def test_a_step_that_the_store_cannot_take_harms_no_other(desk):
    desk.store.saves = [BadData("NUL"), BadData("NUL"), [Answer.ACCEPTED]]
    desk.step(1)
    desk.step(2)
    await desk.checkpoints.run_once()
    assert desk.found == [(1, "rejected", None), (2, "accepted", None)]


async def test_a_step_that_is_refused_is_counted_and_a_busy_one_is_sent_again(desk):
    desk.store.saves = [[Answer.REFUSED, Answer.BUSY]]
    desk.step(1)
    desk.step(2)
    await desk.checkpoints.run_once()
    assert desk.found == [(1, "refused", None)]
    await desk.checkpoints.run_once()
    assert desk.found == [(1, "refused", None), (2, "accepted", None)]
    desk.checkpoints.close()
    desk.step(3)
    assert desk.found[-1] == (3, "refused", None)


async def test_an_attempt_that_waits_for_the_store_to_answer_a_step_does_not_stall(desk):
    desk.limit(1)
    desk.step(1)
    desk.store.saves = [StoreUnavailable("away"), [Answer.ACCEPTED]]
    with pytest.raises(StoreUnavailable):
        await desk.checkpoints.run_once()
    desk.clock.advance(60.0)
    assert not stalls(desk)
    await desk.checkpoints.run_once()
    desk.clock.advance(5.1)
    assert stalls(desk)
