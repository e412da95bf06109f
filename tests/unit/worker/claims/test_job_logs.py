"""What attempts print: whose is kept, how much of it, and when it is written."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import Policy
from outlast.store.logs import JobLog
from outlast.worker.claims.checkpoints import (
    CHARACTERS_MAX,
    LINE_MAX,
    LINES_MAX,
    CheckpointWriter,
    JobLogs,
)
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, claimed, new_in_flight


class Shelf:
    """A store that keeps logs; unavailable when set so. ``locked``: tokens that it cannot take."""

    def __init__(self) -> None:
        self.written: list[list[JobLog]] = []
        self.away = False
        self.locked: set[int] = set()

    async def keep_logs(self, logs: list[JobLog]) -> set[int]:
        if self.away:
            raise StoreUnavailable("away")
        self.written.append(logs)
        return {log.token for log in logs} - self.locked

    def last(self) -> dict[int, list[str]]:
        return {log.token: [line.text for line in log.lines] for log in self.written[-1]}


class Desk:
    """Two attempts that run, of which the first has its lines kept."""

    def __init__(self, **evidence: Any) -> None:
        self.shelf = Shelf()
        self.in_flight = new_in_flight(**evidence)
        self.in_flight.claim([claimed(1, policy=Policy(logs=True)), claimed(2)])
        self.checkpoints = CheckpointWriter(self.shelf, self.in_flight)  # type: ignore[arg-type]
        self.logs: JobLogs = self.checkpoints.logs


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_only_what_is_asked_for_is_kept_and_written_when_it_grows(desk: Desk) -> None:
    desk.logs.add(2, b"not kept\n")
    desk.logs.add(99, b"not known\n")
    assert not desk.logs.kept
    desk.logs.add(1, b"one\ntw")
    await desk.logs.run_once()
    assert desk.shelf.last() == {1: ["one"]}
    desk.logs.add(1, b"o\n\xff\x00\n")
    await desk.logs.run_once()
    assert desk.shelf.last() == {1: ["one", "two", "\ufffd\ufffd"]}
    await desk.logs.run_once()
    assert len(desk.shelf.written) == 2


async def test_a_worker_may_keep_what_all_attempts_print(desk: Desk) -> None:
    desk.logs.keep_all()
    desk.logs.add(2, b"kept\n")
    await desk.logs.run_once()
    assert desk.shelf.last() == {2: ["kept"]}


async def test_of_much_output_the_last_lines_are_kept(desk: Desk) -> None:
    desk.logs.add(1, b"".join(b"line %d\n" % n for n in range(LINES_MAX + 5)))
    await desk.logs.run_once()
    ((log,),) = desk.shelf.written
    assert (len(log.lines), log.dropped) == (LINES_MAX, 5)
    assert log.lines[0].text == "line 5"
    desk.logs.add(1, b"x" * 3 * LINE_MAX)  # without an end
    for _ in range(20):
        desk.logs.add(1, b"y" * LINE_MAX + b"\n")
    await desk.logs.run_once()
    ((log,),) = desk.shelf.written[1:]
    assert sum(len(line.text) for line in log.lines) <= CHARACTERS_MAX
    assert len(log.lines) + log.dropped >= LINES_MAX + 5 + 20


async def test_of_a_progress_bar_its_state_is_kept_now_and_then(desk: Desk) -> None:
    """It is one line, for hours: nothing of it was kept until it ended, and then all of it."""
    clock = ManualClock()
    logs = JobLogs(desk.shelf, desk.in_flight, clock)  # type: ignore[arg-type]
    for percent in range(100):
        logs.add(1, b"\r%3d%% %s" % (percent, b"#" * 500))
        clock.advance(1.0)
    await logs.run_once()
    assert [line[:4] for line in desk.shelf.last()[1]] == ["  0%", " 30%", " 60%", " 90%"]
    for percent in range(3):
        logs.add(1, b"%d%%\r" % percent)
    logs.add(1, b"done\nnext\n")
    await logs.run_once()
    assert desk.shelf.last()[1][4:] == ["done", "next"]


async def test_the_last_lines_are_written_before_the_end_is_handed_in(desk: Desk) -> None:
    desk.logs.add(1, b"at the end\n")
    desk.in_flight.end(1, COMPLETED)
    await desk.checkpoints.report_last(iter([1, 2]))
    assert desk.shelf.last() == {1: ["at the end"]}
    assert not desk.logs.kept
    await desk.checkpoints.report_last([1])
    assert len(desk.shelf.written) == 1


async def test_an_end_does_not_wait_for_a_store_that_is_away(desk: Desk) -> None:
    desk.shelf.away = True
    desk.logs.add(1, b"lost\n")
    desk.in_flight.end(1, COMPLETED)
    await desk.checkpoints.report_last([1])
    assert desk.shelf.written == []


async def test_what_could_not_be_written_is_written_with_the_next_time(desk: Desk) -> None:
    desk.logs.add(1, b"one\n")
    desk.shelf.away = True
    with pytest.raises(StoreUnavailable):
        await desk.logs.run_once()
    desk.shelf.away, desk.shelf.locked = False, {1}
    await desk.logs.run_once()
    desk.shelf.locked = set()
    await desk.logs.run_once()
    await desk.logs.run_once()
    assert [len(logs) for logs in desk.shelf.written] == [1, 1]


async def test_an_end_that_is_handed_in_again_keeps_no_other_lines_back(desk: Desk) -> None:
    """The row of the first is locked: its last lines are given up, and its end comes again."""
    desk.logs.keep_all()
    desk.shelf.locked = {1}
    desk.logs.add(1, b"one\n")
    await desk.checkpoints.report_last([1])
    desk.logs.add(2, b"two\n")
    await desk.checkpoints.report_last([1, 2])
    assert desk.shelf.last() == {2: ["two"]}
    assert not desk.logs.kept


async def test_attempts_that_are_gone_are_forgotten(desk: Desk) -> None:
    desk.logs.add(1, b"one\n")
    desk.in_flight.running.clear()  # its lease is lost
    await desk.logs.run_once()
    assert not desk.logs.kept
    assert desk.shelf.written == []


async def test_secrets_are_hidden_on_the_way_to_the_store() -> None:
    desk = Desk(redact=[r"\d{4}-\d{4}"])
    desk.logs.add(1, b"card 1234-5678 of postgresql://app:geheim@db/shop\n")
    await desk.logs.run_once()
    (text,) = desk.shelf.last()[1]
    assert "1234" not in text
    assert "geheim" not in text
