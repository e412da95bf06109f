"""An attempt that misbehaves still ends exactly once."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

import outlast
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import kind_of, raiser

bench = execute_kit.bench


class Unmade(outlast.Snooze):
    def __init__(self, who: str) -> None:  # without super().__init__: it has no seconds
        self.who = who


class Untimed(outlast.Retry):
    def __init__(self, who: str) -> None:
        self.who = who


class Unsayable(outlast.Cancel):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Worded(outlast.Snooze):
    def __init__(self) -> None:
        super().__init__(1)
        self.seconds = "soon"  # type: ignore[assignment]


@pytest.mark.parametrize("error", [Unmade("a"), Untimed("b"), Unsayable(), Worded()])
async def test_a_verdict_with_broken_attributes_ends_as_an_error(bench, error):
    """Otherwise its job would count as running forever, held by a live worker."""
    assert kind_of(await bench.outcome(raiser(bench, error, plain=False))) is CrashKind.ERROR


async def test_an_attempt_that_cannot_be_prepared_ends_without_delaying_others(bench):
    @bench.app.task
    async def works() -> None:
        """Return normally."""

    outcome = await bench.outcome(works, policy=Policy(timeout=1e15))  # no date is that far away
    assert kind_of(outcome) is CrashKind.ERROR
    assert (await bench.outcome(works)).kind is OutcomeKind.COMPLETED


@pytest.mark.parametrize("plain", [False, True])
async def test_an_error_after_an_attempt_does_not_lose_its_end(bench, plain):
    def fails(_: object) -> None:
        raise RuntimeError("nothing could be set back")

    bench.executor._on_idle = fails
    task = raiser(bench, ValueError("its own"), plain=plain)
    for _ in range(2):
        assert kind_of(await bench.outcome(task)) is CrashKind.ERROR


@pytest.mark.parametrize("how", ["recalled", "expired", "undecodable", "unknown"])
async def test_what_an_attempt_changed_is_set_back_though_the_last_one_could_not_begin(bench, how):
    told: list[tuple[int, int, bool]] = []
    bench.executor._on_idle = lambda *idle: told.append(idle)

    @bench.app.task(name="changes")
    async def changes() -> None:
        expired = bench.executor._clock.boot() if how == "expired" else None
        name = "unknown" if how == "unknown" else "changes"
        bench.start(name, 2, "[" if how == "undecodable" else "{}", begin_by=expired)
        if how == "recalled":
            assert bench.executor.recall([2]) == [2]

    bench.start(changes)
    first, _ = await bench.ends(2)
    assert first.outcome.kind is OutcomeKind.COMPLETED
    assert told == [(2, 1, True)]


@pytest.mark.parametrize("begun", [False, True])
async def test_an_attempt_that_is_sent_twice_runs_once(bench, begun):
    runs: list[int] = []
    go = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        runs.append(1)
        await go.wait()

    bench.start(waits)
    if begun:
        await asyncio.sleep(0)
        assert runs == [1]
    bench.start(waits)
    await asyncio.sleep(0)
    go.set()
    assert (await bench.end()).outcome.kind is OutcomeKind.COMPLETED
    for _ in range(5):
        await asyncio.sleep(0)
    assert (runs, bench.link.ends) == ([1], [])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("code", [0, 7, None])
async def test_a_forked_child_ends_where_it_would_return_from_the_task(bench, code, plain):
    """It must not report the end of an attempt that its parent goes on with."""

    def fork() -> int:
        child = os.fork()
        if not child:
            sys.exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @bench.app.task
    def forks() -> int:
        return fork()

    @bench.app.task
    async def forks_async() -> int:
        await asyncio.sleep(0)
        return fork()

    outcome = await bench.outcome(forks if plain else forks_async)
    assert outcome.result == str(code or 0)
