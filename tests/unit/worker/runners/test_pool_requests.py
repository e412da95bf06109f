"""For every mix of tasks, ends and deaths the pool asks for what fits, and never for more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outlast.runner import protocol
from outlast.runner.protocol import AttemptsEnded, End
from outlast.store.protocol import CLAIMS_MAX
from outlast.store.values import ClaimRequest
from tests.unit.worker.runners.pool_kit import CONCURRENCY, OWN, SHARED, SIZE, Bench, own, shared
from tests.unit.worker.worker_kit import COMPLETED, claimed


@st.composite
def histories(draw):
    size, concurrency = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    steps = draw(st.lists(st.tuples(st.sampled_from("ccceggdk"), st.integers(0, 9)), max_size=30))
    knows = draw(st.sampled_from([{OWN: True}, {SHARED: False}, {OWN: True, SHARED: False}]))
    return size, concurrency, knows, steps


def check(bench: Bench, size: int, concurrency: int) -> None:
    working = [r for r in bench.runners if r.tokens and r.kill_reason is None]
    kinds = [{bench.in_flight.running[token].claimed.solo for token in r.tokens} for r in working]
    assert kinds.count({0}) <= size
    assert kinds.count({1}) <= size
    assert {0, 1} not in kinds, "a suspect has no neighbour"
    for runner, kind in zip(working, kinds, strict=True):
        names = [bench.in_flight.running[token].claimed.task for token in runner.tokens]
        assert len(names) <= (1 if kind == {1} else concurrency)
        assert OWN not in names or len(names) == 1, "a plain function has its runner to itself"
    held = {token for runner in bench.runners for token in runner.tokens}
    assert held == set(bench.in_flight.running), "each attempt runs in one runner"


def claim(bench: Bench, tokens, pick: int) -> None:
    """Fill the requests as a store might: each up to its limit, with any mix of their tasks."""
    attempts = []
    for request in bench.pool.starter.make_requests(len(bench.in_flight.ended)):
        count = pick % (request.limit + 1) if pick < 5 else request.limit
        for _ in range(count):
            token = next(tokens)
            task = request.tasks[(token + pick) % len(request.tasks)]
            attempts.append(claimed(token, task, solo=request.solo))
    bench.place(*attempts)
    assert bench.ends() == [], "all that was asked for fits"


async def step(bench: Bench, knows, tokens, verb: str, pick: int) -> None:
    runners = bench.runners
    busy = [runner for runner in runners if runner.tokens]
    if verb == "c":
        claim(bench, tokens, pick)
    elif verb == "e" and busy:
        runner = busy[pick % len(busy)]
        runner.says(AttemptsEnded([End(min(runner.tokens), COMPLETED)]))
    elif verb == "d" and runners:
        runners[pick % len(runners)].dies(signal="SIGKILL")
    elif verb == "k" and busy:
        busy[pick % len(busy)].kill("timeout")
    elif verb == "g":
        await bench.pool.keeper.run_once()
        late = [runner for runner in runners if not runner.ready]
        if late:
            late[pick % len(late)].greets(**knows)
    for end in bench.ends():
        bench.in_flight._handed_in.pop(end.token)


@given(histories())
async def test_no_mix_of_tasks_ends_and_deaths_overcommits_the_runners(history):
    size, concurrency, knows, steps = history
    bench = Bench(size, concurrency)
    tokens = iter(range(1, 10_000))
    await bench.pool.keeper.run_once()
    for verb, pick in steps:
        await step(bench, knows, tokens, verb, pick)
        check(bench, size, concurrency)


async def test_async_tasks_alone_fill_every_slot():
    bench = await Bench().ready(shared=False)
    assert bench.requests(0) == [ClaimRequest([SHARED], SIZE * CONCURRENCY, [])]
    bench.place(*(shared(n) for n in range(SIZE * CONCURRENCY)))
    assert [len(runner.tokens) for runner in bench.runners] == [CONCURRENCY, CONCURRENCY, 0]
    assert bench.requests(0) == []


async def test_async_tasks_leave_idle_runners_to_plain_functions():
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    assert sorted(len(runner.tokens) for runner in bench.runners) == [0, 0, 2]
    bench.place(own(3))
    assert bench.outcomes() == []
    assert bench.requests(0) == [ClaimRequest([SHARED], CONCURRENCY - 2, [])]


async def test_a_plain_function_that_waited_for_the_spare_has_another_one_started():
    bench = await Bench().ready()
    bench.place(*(shared(n) for n in range(1, SIZE * CONCURRENCY + 1)))
    bench.place(own(10))  # async tasks fill all others
    spare = bench.runner(10)
    bench.end_many(1)
    bench.place(own(11))
    assert bench.pool.starter.count_waiting() == 1
    changes = bench.owner.changes
    spare.says(AttemptsEnded([End(10, COMPLETED)]))
    assert spare.tokens == {11}
    assert bench.owner.changes > changes


async def test_unanswered_ends_keep_their_slots():
    bench = await Bench().ready(own=True)
    assert [request.limit for request in bench.requests(1)] == [SIZE - 1]
    assert bench.requests(SIZE) == []


async def test_requests_are_bounded_by_the_claims_of_one_exchange():
    bench = await Bench(size=2, concurrency=CLAIMS_MAX).ready(shared=False)
    assert [request.limit for request in bench.requests(0)] == [CLAIMS_MAX]


async def test_a_job_under_a_dropped_alias_is_handed_back():
    bench = await Bench().ready()
    bench.place(claimed(1, "unheard of"))
    assert bench.outcomes() == ["released"]


async def test_a_task_known_only_to_a_busy_runner_is_released_with_a_pause():
    """A runner started after a deploy knows more tasks than older ones."""
    bench = await Bench().ready(own=True)
    bench.runners[0].greets(own=True, new=True)
    bench.place(own(1))
    assert "new" in bench.runner(1).tasks
    bench.place(claimed(2, "new"))
    (end,) = bench.ends()
    assert (end.outcome, end.failures) == ("released", 0)
    assert end.delay > 0.0


async def test_a_claim_too_large_for_a_frame_is_ended_and_the_runner_goes_on(monkeypatch):
    monkeypatch.setattr(protocol, "FRAME_MAX", 1000)
    bench = await Bench().ready()
    bench.place(claimed(1, OWN, args="x" * 2000))
    (end,) = bench.ends()
    assert (end.outcome, end.failures) == ("error", 1)
    assert not any(runner.tokens or runner.exclusive for runner in bench.runners)


async def test_a_dead_runner_takes_no_attempts_before_its_death_is_handled():
    """Attempts that it never read would be charged with its death."""
    bench = await Bench(size=1).ready()
    dying, spare = bench.runners
    dying.gone = True
    bench.place(own(1))
    assert (dying.runs(), spare.runs()) == ([], [1])
    spare.gone = True
    assert bench.requests(0) == []
