"""A runner that sends what no runner should: its worker and the other runners go on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.model.limits import LimitSpec
from outlast.runner.protocol import (
    TO_WORKER,
    ApplicationFailed,
    AttemptsEnded,
    End,
    FrameError,
    Hello,
    Pong,
    Reported,
    Restored,
    SaveRequest,
    StackAtLimit,
    TaskInfo,
    ToWorker,
    Unpacker,
    pack,
)
from outlast.store.limits import CodeLimits, DeclaredTask, NewLimit
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import Bench, FakeRunner, shared
from tests.unit.worker.worker_kit import COMPLETED

tokens = st.integers(1, 4) | st.sampled_from([-1, 0, 5, 2**64 - 1])
numbers = st.integers(-1, 5) | st.integers(2**62, 2**64 - 1)
texts = st.text(max_size=5) | st.sampled_from(["\x00", "\x1eoutlast 1 3\x1f", "x" * 10_000])
json_texts = st.sampled_from(["null", '{"n": 1}']) | texts
seconds = st.none() | st.floats()
progress = st.builds(Progress, seconds, st.none() | texts, st.none() | texts, st.none() | numbers)
crashes = st.builds(
    Crash,
    kind=st.sampled_from(CrashKind),
    message=texts,
    exit_code=numbers,
    stacks=texts,
    output=st.lists(texts, max_size=3),
    neighbours=st.lists(numbers, max_size=3),
)
outcomes = st.builds(
    Outcome,
    kind=st.sampled_from(OutcomeKind),
    result=st.none() | json_texts,
    crash=st.none() | crashes,
    delay=seconds,
    message=texts,
    pid=st.none() | numbers,
    incident=st.none() | numbers,
    proven=st.booleans(),
)
ends = st.builds(End, tokens, outcomes, st.booleans())
infos = st.builds(TaskInfo, texts, st.booleans(), st.lists(texts, max_size=2))
frames: st.SearchStrategy[ToWorker] = st.one_of(
    st.builds(AttemptsEnded, st.lists(ends, min_size=1, max_size=4)),
    st.builds(SaveRequest, numbers, tokens, numbers, json_texts),
    st.builds(Reported, tokens, progress),
    st.builds(StackAtLimit, tokens, texts),
    st.builds(Restored, tokens, numbers, st.lists(texts, max_size=3)),
    st.builds(Pong, numbers, st.lists(st.tuples(st.floats(), st.floats()), max_size=3)),
    st.builds(Hello, st.lists(infos, max_size=2), texts, texts),
    st.builds(ApplicationFailed, texts, texts),
)


def busy(bench: Bench) -> FakeRunner:
    return next(each for each in bench.runners if each.tokens)


@given(st.lists(frames, max_size=6))
def test_any_sequence_of_frames_leaves_each_attempt_one_end(said):
    async def tell() -> None:
        bench = await Bench().ready()
        bench.place(shared(1), shared(2), shared(3), shared(4))
        runner = busy(bench)
        held = bench.in_flight.held()
        others = held - runner.tokens
        for frame in said:
            with contextlib.suppress(FrameError):
                runner.says(*Unpacker(TO_WORKER).feed(pack(frame)))
            bench.pool.starter.make_requests(0)
            bench.pool.control.look_at_loops([])
        assert bench.in_flight.held() == held
        assert others <= set(bench.in_flight.running), "of another runner"
        runner.dies(signal="SIGKILL")
        ended = [each.token for each in bench.ends()]
        assert sorted(ended) == sorted(held - others)

    asyncio.run(tell())


async def test_a_frame_with_an_invalid_end_is_refused_as_a_whole():
    """An end that the runner has dropped must not be lost on its way to the worker."""
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    runner = busy(bench)
    bad = End(1, Outcome(kind=OutcomeKind.CRASHED))
    with pytest.raises(FrameError):
        runner.says(AttemptsEnded([End(2, COMPLETED), bad]))
    assert runner.tokens == set(bench.in_flight.running) == {1, 2}
    runner.dies(signal="SIGKILL")
    assert bench.outcomes() == ["bystander", "bystander"]


async def test_a_task_name_that_no_store_can_hold_is_never_claimed():
    """PostgreSQL would refuse each exchange of the worker as a whole."""
    bench = await Bench().ready()
    before = bench.pool.starter.tasks()
    with pytest.raises(FrameError):
        bench.runners[0].greets(**{"t": False, "a\x00b": False})
    assert bench.pool.starter.tasks() == before


@each_case(
    "limits",
    [
        CodeLimits(limits=[NewLimit("a\x00b", LimitSpec(running=1))]),
        CodeLimits(tasks=[DeclaredTask("a\x00b")]),
        CodeLimits(tasks=[DeclaredTask("t", limits=("a\x00b",))]),
    ],
)
async def test_a_name_in_limits_that_no_store_can_hold_is_refused(limits):
    bench = await Bench().ready()
    with pytest.raises(FrameError):
        bench.runners[0].says(Hello([TaskInfo("t", False)], None, "3", limits=limits))


async def test_foreign_ends_do_not_raise_the_rate_of_a_runner():
    """More would be claimed ahead than can be started."""
    bench = await Bench().ready()
    bench.place(shared(1))
    busy(bench).says(AttemptsEnded([End(token, COMPLETED) for token in range(100, 100_000)]))
    bench.clock.advance(1.0)
    assert bench.pool._ahead.shared.room() == 0


NO_JSON = ["", "no json", "{", '{"n": 1} 2', '"a\x00b"', "NaN", "[" * 101 + "]" * 101]


@each_case("text", NO_JSON)
async def test_a_checkpoint_that_is_no_json_is_refused_with_its_runner(text: str):
    """The next attempt would get it, and each later one, until the job is dead."""
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    with pytest.raises(FrameError, match="checkpoint that is not JSON"):
        busy(bench).says(SaveRequest(1, 1, 1, text))
    assert bench.checkpoints.saves == []


@each_case("text", NO_JSON)
async def test_a_result_that_is_no_json_is_refused_with_its_runner(text: str):
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    runner = busy(bench)
    with pytest.raises(FrameError, match="result that is not JSON"):
        runner.says(
            AttemptsEnded(
                [End(2, COMPLETED), End(1, Outcome(kind=OutcomeKind.COMPLETED, result=text))]
            )
        )
    assert runner.tokens == set(bench.in_flight.running) == {1, 2}
