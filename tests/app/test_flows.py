"""Flows: chains, groups, what follows an end, and the results that jobs get of earlier ones."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

import outlast
from outlast import RESULT, RESULTS, JobCancelled, State, UsageError, chain, group
from outlast.client.flow_parts import plan_of
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, transaction

app = in_process_kit.app
store = in_process_kit.store

LONG = 2_000  # links: more than Python lets functions call one another
NOWHERE = "sqlite:////nowhere/production.db"


class Page(msgspec.Struct):
    url: str
    at: dt.date


class Tasks:
    """Some tasks, and what they have been called with."""

    def __init__(self, app: outlast.App) -> None:
        self.said: list[Any] = []

        @app.task
        async def fetch(url: str) -> Page:
            return Page(url, dt.date(2030, 1, 2))

        @app.task
        def size(page: Page, *, unit: str = "b") -> str:
            return f"{len(page.url)}{unit}"

        @app.task
        async def say(*words: str, what: Any = None) -> Any:
            self.said.append((*words, what))
            return what

        @app.task(retries=0)
        async def fail(url: str = "") -> str:
            raise ValueError(url)

        self.fetch, self.size, self.say, self.fail = fetch, size, say, fail


@pytest.fixture
def tasks(app: outlast.App) -> Tasks:
    return Tasks(app)


async def test_a_chain_hands_each_typed_result_on(app: outlast.App, tasks: Tasks) -> None:
    links = [
        tasks.fetch.call("abc"),
        tasks.size.call(RESULT, unit="k"),
        tasks.say.call("size", what=RESULT),
    ]
    run = await app.enqueue(chain(*links), name="sizes")
    assert await run.progress() == {State.QUEUED: 1, State.BLOCKED: 2}
    async with app.worker():
        assert await run.result(DEADLINE) == "3k"
    assert tasks.said == [("size", "3k")]
    assert await run.progress() == {State.COMPLETED: 3}
    assert [(await job.refresh()).policy.labels for job in run.jobs] == [("sizes",)] * 3


async def test_a_group_ends_with_the_results_in_order(app: outlast.App, tasks: Tasks) -> None:
    words = [f"w{number}" for number in range(30)]
    inner = chain(tasks.fetch.call("abcd"), tasks.size.call(RESULT))
    many = group([*(tasks.say.call(what=word) for word in words), inner])
    run = await app.enqueue(many.then(tasks.say.call("all", what=RESULTS)))
    side_by_side = await app.enqueue(group(map(tasks.fetch.call, ["a", "b"])))
    async with app.worker():
        assert await run.result(DEADLINE) == [*words, "4b"]
        assert [
            page["url"] if isinstance(page, dict) else page.url
            for page in await side_by_side.result(DEADLINE)
        ] == ["a", "b"]


async def test_nested_flows_run_to_their_end_and_hold_each_job_once(
    app: outlast.App, tasks: Tasks, store: Any
) -> None:
    """celery#4681: what came after nested groups and chains never ran. celery#5000: each message
    held all that came after it, and memory grew with the power of the depth."""
    two = chain(tasks.say.call(what=1), tasks.say.call(what=RESULT))
    run = await app.enqueue(chain(*[group([two, two])] * 12, tasks.say.call("last", what=RESULTS)))
    assert len(run.jobs) == 12 * 4 + 1
    links = await store.inspector.flow_links([job.id for job in run.jobs], 1_000)
    assert len({(link.job_id, link.place) for link in links}) == 12 * 2 + 11 * 4 + 2
    async with app.worker():
        assert await run.result(DEADLINE) == [1, 1]


async def test_what_follows_a_call_depends_on_its_end(app: outlast.App, tasks: Tasks) -> None:
    alarm, then = tasks.say.call("alarm"), tasks.say.call("then", what=RESULT)
    good = await tasks.size.using(then=then, on_dead=alarm).enqueue(
        Page("abc", dt.date(2030, 1, 2))
    )
    bad = (
        await tasks.fail.using(then=then)
        .using(on_dead=chain(alarm, tasks.say.call("after")))
        .enqueue("u")
    )
    async with app.worker():
        last = await tasks.say.using(after=outlast.ended(good.id + 1, bad.id + 3)).enqueue("last")
        await last.result(DEADLINE)
    assert tasks.said[-1] == ("last", None)
    assert sorted(map(str, tasks.said[:-1])) == sorted(
        map(str, [("then", "3b"), ("alarm", None), ("after", None)])
    )


async def test_a_dead_link_cancels_the_rest_until_a_retry(app: outlast.App, tasks: Tasks) -> None:
    fails = [True]

    @app.task(retries=0)
    async def sometimes() -> int:
        if fails.pop():
            raise ValueError
        return 7

    run = await app.enqueue(
        chain(sometimes.call(), tasks.say.call(what=RESULT), tasks.say.call(what=RESULT))
    )
    async with app.worker():
        with pytest.raises(JobCancelled) as caught:
            await run.result(DEADLINE)
        assert caught.value.reason == "upstream"
        fails.append(False)
        assert await run.retry() == {run.jobs[0].id: outlast.Requeued.REQUEUED}
        assert await run.result(DEADLINE) == 7
    assert await run.cancel() == 0


@pytest.mark.on_both_stores
async def test_a_flow_waits_in_the_callers_transaction(
    app: outlast.App, tasks: Tasks, store: Any
) -> None:
    first = await tasks.fetch.enqueue("abc")
    async with transaction(app.url) as connection:
        run = await app.enqueue(
            chain(tasks.say.call("one"), tasks.say.call("two")), connection=connection
        )
        late = await tasks.size.using(after=[first], connection=connection).enqueue(RESULT)
    async with app.worker():
        await run.result(DEADLINE)
        assert await late.result(DEADLINE) == "3b"


async def test_a_cancelled_flow_runs_nothing_more(app: outlast.App, tasks: Tasks) -> None:
    run = await app.enqueue(chain(*[tasks.say.call("x")] * 3))
    assert await run.cancel() == 3
    assert await run.progress() == {State.CANCELLED: 3}


async def test_a_mistake_is_refused_where_it_is_written(app: outlast.App, tasks: Tasks) -> None:
    say, size = tasks.say, tasks.size
    with pytest.raises(
        UsageError, match=r"argument 'page' of task size stands for a result, but its job waits"
    ):
        await size.enqueue(RESULT)
    with pytest.raises(UsageError, match="waits for 2 others: use RESULTS, the list"):
        await app.enqueue(group([say.call(), say.call()]).then(size.call(RESULT)))
    with pytest.raises(UsageError, match="a dead job has none"):
        await say.using(on_dead=size.call(RESULT)).enqueue()
    with pytest.raises(
        UsageError, match="contains RESULT or RESULTS, which must be a whole argument"
    ):
        say.call(RESULT)
    with pytest.raises(UsageError, match="a flow is made of calls"):
        chain(say.call(), say)  # type: ignore[arg-type]
    with pytest.raises(outlast.ConfigError, match="after takes jobs, their ids"):
        say.using(after="17")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a schedule takes a call without others"):
        app.schedule("tick", say.using(then=say.call()).call(), every=60)
    other = outlast.App(NOWHERE)
    with pytest.raises(UsageError, match="of another application"):
        await other.enqueue(chain(say.call()))
    with pytest.raises(outlast.JobNotFound, match="no job 4711 to wait for"):
        await say.using(after=[4711]).enqueue()


async def test_an_empty_group_is_refused_in_all_places_alike(tasks: Tasks) -> None:
    """Also in a task, whose job fails. Completing at once would have to mean in a chain that what
    follows waits for what comes before, and gets no results: no link in a store says that."""
    say, size = tasks.say, tasks.size
    for make in (
        lambda: group([]),
        chain,
        lambda: chain(say.call(), group([])),
        lambda: group([]).then(size.call(RESULTS)),
        lambda: group([group([]), say.call()]),
    ):
        with pytest.raises(UsageError, match="at least one call: test a list that may be empty"):
            make()


def nested(call: Any, wrap: Any, times: int) -> Any:
    for _ in range(times):
        call = wrap(call)
    return call


def test_a_flow_that_grows_in_a_loop_is_one_chain() -> None:
    say = Tasks(outlast.App(NOWHERE)).say
    links = ("a", lambda flow: chain(flow, say.call())), ("b", lambda flow: flow.then(say.call()))
    for first, wrap in links:
        plan, last = plan_of([nested(chain(say.call(first)), wrap, LONG)])
        waits = [tuple(each.job for each in job.after) for job in plan.jobs]
        assert waits == [(), *((-1 - place,) for place in range(LONG))]
        assert last == [LONG]


def test_a_flow_that_is_nested_too_deep_is_refused() -> None:
    say = Tasks(outlast.App(NOWHERE)).say
    for wrap in (
        lambda flow: say.using(then=flow).call(),
        lambda flow: say.using(on_dead=flow).call(),
        lambda flow: group([flow]),
        lambda flow: chain(say.call(), group([flow, say.call()])),
    ):
        assert plan_of([nested(say.call(), wrap, 40)])
        with pytest.raises(UsageError, match="nested more than 100 levels deep"):
            plan_of([nested(say.call(), wrap, 3_000)])


def test_a_flow_of_too_many_links_is_refused_at_once() -> None:
    say = Tasks(outlast.App(NOWHERE)).say
    wide = [say.call()] * 400
    for flow in (chain(group(wide), group(wide)), chain(*[group([say.call()] * 110)] * 10)):
        with pytest.raises(UsageError, match=r"100,000 links.*one call between"):
            plan_of([flow])
    plan, _ = plan_of([chain(group(wide), say.call(), group(wide))])
    assert len(plan.jobs) == 801
    plan, _ = plan_of([group([say.call()] * 20_000).then(say.call())])
    assert len(plan.jobs[-1].after) == 20_000
