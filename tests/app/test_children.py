"""The children of an attempt: made once for all attempts, and waited for without a slot."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

import outlast
from outlast import (
    RESULT,
    RESULTS,
    JobCancelled,
    JobFailed,
    State,
    StoreUnavailable,
    UsageError,
    chain,
    group,
)
from outlast.client.children import NAMED_FROM
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, run_sql, transaction, until

app = in_process_kit.app
store = in_process_kit.store


class Broken(Exception):
    pass


def define(app: outlast.App) -> tuple[Any, Any]:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task(retries=0)
    async def fail(number: int) -> int:
        raise Broken(str(number))

    return double, fail


async def test_a_set_in_another_order_is_the_same_work(app: outlast.App) -> None:
    """As a runner has it whose hashes have another seed."""
    orders, versions = [{0, 8}, {8, 0}], []

    @app.task
    async def count(tags: set[int]) -> int:
        return len(tags)

    @app.task(retries=0)
    async def parent() -> Any:
        attempt = outlast.current()
        return await attempt.wait_for(await attempt.spawn(count.call(orders[attempt.number - 1])))

    job = await parent.enqueue()
    async with app.worker():
        assert await job.result(DEADLINE) == 2
    for tags in orders:
        again = await count.using(key="k", delay=3600).enqueue(tags)
        await app.schedules.put("nightly", count.call(tags), every=3600)
        versions.append((await app.stores.ask(lambda it: it.inspector.schedules()))[0].version)
    assert again.same_args
    assert versions[0] == versions[1]


async def test_a_child_whose_task_was_renamed_is_the_same_work(
    app: outlast.App, store_url: str
) -> None:
    """As docs/rehearse.md advises: the old name becomes an alias."""

    def release(of: outlast.App, *names: str) -> Any:
        @of.task(name=names[0], aliases=names[1:], queue="children")
        async def resize(number: int) -> int:
            return 2 * number

        @of.task(retries=0)
        async def parent() -> Any:
            attempt = outlast.current()
            run = await attempt.spawn(chain(resize.call(1), resize.call(RESULT)))
            return await attempt.wait_for(run)

        return parent

    job = await release(app, "resize").enqueue()
    async with app.worker(queues=["default"]):
        await until(lambda: has_state(job, State.BLOCKED))
    renamed = outlast.App(store_url)
    release(renamed, "shrink", "resize")
    async with renamed.worker(queues=["default", "children"]):
        assert await job.result(DEADLINE) == 4
    await renamed.close()


async def test_another_task_is_other_work(app: outlast.App) -> None:
    double, fail = define(app)

    @app.task(retries=0)
    async def parent() -> Any:
        attempt = outlast.current()
        child = double if attempt.number == 1 else fail
        await attempt.spawn(child.call(1))
        if attempt.number == 1:
            raise outlast.Snooze(0)

    job = await parent.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="spawned other work here"):
            await job.result(DEADLINE)


async def test_children_that_a_failover_has_lost_are_spawned_again(
    app: outlast.App, store_url: str
) -> None:
    double, _ = define(app)

    @app.task(retries=0)
    async def parent() -> Any:
        attempt = outlast.current()
        run = await attempt.spawn(double.call(4))
        if attempt.number == 1:  # a standby takes over that has not received the last commit
            async with transaction(store_url) as connection:
                for table in ("outlast_dependencies", "outlast_steps"):
                    await run_sql(
                        connection, f"DELETE FROM {table} WHERE job_id = {attempt.job_id}"
                    )
        return await attempt.wait_for(run)

    job = await parent.enqueue()
    async with app.worker():
        assert await job.result(DEADLINE) == 8
    assert (await row_of(job)).failures == 0


async def test_chains_of_children_side_by_side_go_by_their_names(app: outlast.App) -> None:
    """Which of them comes first to its next child differs between attempts."""
    double, _ = define(app)
    turns: list[list[str]] = []

    @app.task(retries=0)
    async def parent() -> list[int]:
        attempt = outlast.current()
        order = ["a", "b"] if attempt.number % 2 else ["b", "a"]
        came = {name: asyncio.Event() for name in order}
        came[order[0]].set()
        turns.append(order)

        async def line(name: str) -> int:
            value = 1
            for n in range(3):
                await came[name].wait()
                child = await attempt.spawn(double.call(value), name=f"{name} {n}")
                came[order[1 - order.index(name)]].set()
                value = await attempt.wait_for(child)
            return value

        counted = await attempt.wait_for(await attempt.spawn(double.call(5)))
        return [counted, *await asyncio.gather(line("a"), line("b"))]

    job = await parent.enqueue()
    async with app.worker(concurrency=3):
        assert await job.result(DEADLINE) == [10, 8, 8]
    assert {*map(tuple, turns)} == {("a", "b"), ("b", "a")}
    first, end = NAMED_FROM + 1, NAMED_FROM + 100
    named = await app.stores.ask(lambda store: store.inspector.children(job.id, first, end))
    assert ((await row_of(job)).failures, len(named)) == (0, 6)


async def test_a_name_of_children_is_used_once_and_for_the_same_work(app: outlast.App) -> None:
    double, _ = define(app)

    @app.task(retries=0)
    async def parent(other: bool) -> None:
        attempt = outlast.current()
        await attempt.spawn(double.call(attempt.number if other else 1), name="one")
        if attempt.number == 1:
            raise outlast.Snooze(0)
        await attempt.spawn(double.call(1), name="one")

    for other, told in ((False, "was begun before"), (True, "spawned other work")):
        job = await parent.enqueue(other)
        async with app.worker():
            with pytest.raises(JobFailed, match=told):
                await job.result(DEADLINE)


async def test_children_run_once_and_their_results_come_in_order(app: outlast.App) -> None:
    double, _ = define(app)
    attempts: list[int] = []

    @app.task
    async def album(count: int) -> list[Any]:
        attempt = outlast.current()
        attempts.append(attempt.number)
        parts = await attempt.spawn(group(double.call(n) for n in range(count)))
        one = await attempt.spawn(double.call(100))
        return [await attempt.wait_for(parts), await attempt.wait_for(one)]

    @app.task
    def plain() -> int:
        attempt = outlast.current()
        run = attempt.spawn_sync(chain(double.call(4), double.call(outlast.RESULT)))
        found: int = attempt.wait_for_sync(run)
        return found

    job = await album.enqueue(30)
    other = await plain.enqueue()
    async with app.worker(concurrency=1):
        assert await job.result(DEADLINE) == [[2 * n for n in range(30)], 200]
        assert await other.result(DEADLINE) == 16
    assert attempts[0] == 1
    assert len(attempts) in {2, 3}
    assert (await job.refresh()).failures == 0
    rows = await app.stores.ask(lambda store: store.inspector.children(job.id, 1, 100))
    assert len(rows) == 31
    assert {row.state for row in rows} == {State.COMPLETED}


async def test_a_job_that_spawns_its_own_key_is_told_so(app: outlast.App) -> None:
    @app.task(retries=0)
    async def parent() -> None:
        await outlast.current().spawn(parent.using(key="one").call())

    job = await parent.using(key="one").enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"UsageError: .* cannot spawn itself"):
            await job.result(DEADLINE)


async def test_a_group_of_one_gives_a_list_and_none_an_empty_spawn(app: outlast.App) -> None:
    double, _ = define(app)

    @app.task
    async def parent() -> Any:
        attempt = outlast.current()
        with pytest.raises(UsageError, match="made of calls"):
            await attempt.spawn(7)  # type: ignore[arg-type]
        return await attempt.wait_for(await attempt.spawn(group([double.call(2)])))

    job = await parent.enqueue()
    async with app.worker():
        assert await job.result(DEADLINE) == [4]


async def test_a_later_attempt_gets_the_same_children_and_no_others(app: outlast.App) -> None:
    double, _ = define(app)
    seen: list[list[int]] = []
    number = 0

    @app.task(backoff=0)
    async def parent(changes: bool) -> None:
        nonlocal number
        number += changes
        attempt = outlast.current()
        run = await attempt.spawn(group([double.call(number), double.call(5)]))
        seen.append([job.id for job in run.jobs])
        raise Broken

    async with app.worker():
        with pytest.raises(JobFailed, match="Broken"):
            await (await parent.enqueue(False)).result(DEADLINE)
        assert len(seen) == 4
        assert seen == [seen[0]] * 4
        seen.clear()
        with pytest.raises(JobFailed, match=r"spawned other work here, as 'spawn 0':"):
            await (await parent.enqueue(True)).result(DEADLINE)
    assert len(seen) == 1


async def test_what_becomes_of_a_child_is_raised(app: outlast.App) -> None:
    double, fail = define(app)
    ends: list[str | None] = []

    @app.task(retries=0)
    async def parent() -> list[int]:
        attempt = outlast.current()
        run = await attempt.spawn(group([double.call(1), fail.call(2)]))
        behind = await attempt.spawn(chain(fail.call(3), double.call(outlast.RESULT)))
        try:
            await attempt.wait_for(behind)
        except JobCancelled as error:
            ends.append(error.reason)
        found: list[int] = await attempt.wait_for(run)
        return found

    job = await parent.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"JobFailed: job \d+ \(.*fail\) is dead.*Broken: 2"):
            await job.result(DEADLINE)
    assert set(ends) == {"upstream"}


async def test_misuse_says_what_to_do(app: outlast.App) -> None:
    double, _ = define(app)
    before = await double.enqueue(1)
    raised: list[str] = []

    @app.task
    async def parent() -> None:
        attempt = outlast.current()
        run = await app.enqueue(group([double.call(1)]))
        mistakes: list[tuple[Any, Any]] = [
            (attempt.wait_for, run),
            (attempt.wait_for, before),
            (attempt.spawn, double.using(after=[attempt.job_id]).call(1)),
            (attempt.spawn, double.using(key="k", debounce=5).call(1)),
            (attempt.spawn, double.using(after=[10**9]).call(1)),
            (attempt.spawn, double.call(1)),
        ]
        for verb, given in mistakes:
            with pytest.raises(outlast.OutlastError) as error:
                await verb(given)
            raised.append(str(error.value))

    job = await parent.enqueue()
    async with app.worker():
        await job.result(DEADLINE)
    needles = [
        "work that this attempt has spawned",
        "work that this attempt has spawned",
        "cannot wait for it",
        "makes each child once",
    ]
    for needle, text in zip([*needles, "there is no job", "an earlier spawn"], raised, strict=True):
        assert needle in text


async def test_a_parent_that_waits_is_its_ticks_job_until_a_cancel_ends_it(
    app: outlast.App,
) -> None:
    double, _ = define(app)
    waits = asyncio.Event()
    queue = double.using(delay=3600)

    @app.task
    async def parent() -> None:
        attempt = outlast.current()
        run = await attempt.spawn(queue.call(1))
        waits.set()
        await attempt.wait_for(run)

    await app.schedules.put("nightly", parent.call(), every=86_400)
    job = await app.schedules.trigger("nightly")
    async with app.worker():
        await asyncio.wait_for(waits.wait(), DEADLINE)
        while await job.status() != "blocked":
            await asyncio.sleep(0)
        assert (await app.schedules.trigger("nightly")).id == job.id
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(DEADLINE)


async def test_children_and_inputs_are_told_apart(app: outlast.App) -> None:
    double, _ = define(app)

    @app.task
    async def total(numbers: list[int]) -> int:
        attempt = outlast.current()
        more = await attempt.wait_for(await attempt.spawn(group(double.call(n) for n in numbers)))
        return sum(numbers) + sum(more)

    run = await app.enqueue(group(double.call(n) for n in range(3)).then(total.call(RESULTS)))
    async with app.worker():
        assert await run.result(DEADLINE) == 6 + 12


async def test_a_spawn_whose_answer_was_lost_finds_what_was_committed(
    app: outlast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    double, _ = define(app)
    real, calls = app.stores.enqueue, []

    async def enqueue(batch: Any, connection: object = None) -> Any:
        stored = await real(batch, connection)
        if len(batch) == 3:
            calls.append(len(batch))
            raise StoreUnavailable("its answer was lost")
        return stored

    monkeypatch.setattr(app.stores, "enqueue", enqueue)

    @app.task(retries=0)
    async def parent() -> Any:
        attempt = outlast.current()
        return await attempt.wait_for(await attempt.spawn(group(map(double.call, range(3)))))

    job = await parent.enqueue()
    async with app.worker():
        assert await job.result(DEADLINE) == [0, 2, 4]
    row = await row_of(job)
    assert (calls, row.failures, row.losses) == ([3], 0, 0)
    rows = await app.stores.ask(lambda store: store.inspector.children(job.id, 1, 9))
    assert len(rows) == 3


async def test_a_circle_over_other_jobs_and_their_children_is_refused(app: outlast.App) -> None:
    """Each of two parents waits for a child that waits for the other one."""
    double, _ = define(app)
    errors: list[str] = []
    ids: list[int] = []

    @app.task(retries=0)
    async def parent(place: int) -> int:
        attempt = outlast.current()
        child = await attempt.spawn(double.using(after=[ids[1 - place]]).call(place))
        if place == 1 and attempt.number == 1:  # the second one, once the first one waits
            await until(functools.partial(has_state, jobs[0], "blocked"))
        try:
            return int(await attempt.wait_for(child))
        except UsageError as error:
            errors.append(str(error))
            return -1

    jobs = await app.enqueue_many([parent.call(0), parent.call(1)])
    ids += [job.id for job in jobs]
    async with app.worker():
        assert await jobs[1].result(DEADLINE) == -1
        assert await jobs[0].result(DEADLINE) == 0
    (error,) = errors
    assert f"children of job {ids[1]} wait" in error


async def test_a_child_under_the_parents_own_ordered_key_is_refused(app: outlast.App) -> None:
    turn = app.limit("turn", running=1, per="limit_key", ordered=True)
    errors: list[str] = []

    @app.task(retries=0, limits=[turn])
    async def parent(depth: int) -> int:
        if not depth:
            return 7
        attempt = outlast.current()
        keys = {"turn": "other" if attempt.job_id == other.id else "mine"}
        child = await attempt.spawn(parent.using(limit_keys=keys).call(depth - 1))
        try:
            return int(await attempt.wait_for(child))
        except UsageError as error:
            errors.append(str(error))
            return -1

    other = await parent.using(limit_keys={"turn": "mine"}).enqueue(1)
    job = await parent.using(limit_keys={"turn": "mine"}).enqueue(1)
    async with app.worker():
        assert await other.result(DEADLINE) == 7
        assert await job.result(DEADLINE) == -1
    (error,) = errors
    assert "under the same key of an ordered limit" in error


@pytest.mark.parametrize("over", ["a job", "another key"])
async def test_a_circle_over_ordered_keys_is_refused(app: outlast.App, over: str) -> None:
    """A parent waits for a job that waits, one level down, for a key that the parent holds."""
    turn = app.limit("turn", running=1, per="limit_key", ordered=True)
    errors: list[str] = []

    @app.task(retries=0, limits=[turn])
    async def keyed(waits_for: str = "") -> int:
        if waits_for == "a job":
            return await wait(helper.call())
        return await wait(under(waits_for).call()) if waits_for else 7

    @app.task(retries=0)
    async def helper() -> int:
        return await wait(under("x").call())

    def under(key: str) -> Any:
        return keyed.using(limit_keys={"turn": key})

    async def wait(call: Any) -> int:
        attempt = outlast.current()
        try:
            return int(await attempt.wait_for(await attempt.spawn(call)))
        except UsageError as error:
            errors.append(str(error))
            return -1

    waits = {"x": "a job"} if over == "a job" else {"x": "y", "y": "x"}
    jobs = [await under(key).enqueue(waits_for) for key, waits_for in waits.items()]
    jobs += [await under(key).enqueue() for key in waits]
    async with app.worker():
        for job in jobs:
            await job.result(DEADLINE)
    assert errors
    assert all("under the same key of an ordered limit" in error for error in errors)


async def test_a_chain_that_is_taken_up_again_is_waited_for_to_its_new_end(
    app: outlast.App,
) -> None:
    """A requeue brings the first ones of a long chain back, and later claims the others."""
    double, _ = define(app)
    breaks = {"one", "parent"}  # each dies once

    @app.task(retries=0)
    async def one() -> int:
        if breaks & {"one"}:
            breaks.remove("one")
            raise Broken
        return 1

    @app.task(retries=0)
    async def parent(count: int) -> Any:
        attempt = outlast.current()
        links = [double.using(delay=3600).call(1), *[double.call(outlast.RESULT)] * count]
        run = await attempt.spawn(chain(*links))
        if breaks & {"parent"}:
            breaks.remove("parent")
            raise Broken
        return await attempt.wait_for(run)

    job = await parent.enqueue(300)
    run = await app.enqueue(chain(one.call(), *[double.call(outlast.RESULT)] * 40))
    async with app.worker():
        with pytest.raises(JobFailed):
            await job.result(DEADLINE)
        with pytest.raises(JobCancelled):
            await run.result(DEADLINE)
        (child,) = await app.stores.ask(lambda store: store.inspector.children(job.id, 301, 301))
        last = await app.get(child.id)
        await until(lambda: has_state(last, State.CANCELLED))
        await run.retry()
        assert await run.result(DEADLINE) == 2**40
        await job.requeue()
        await until(lambda: has_state(job, State.BLOCKED))
