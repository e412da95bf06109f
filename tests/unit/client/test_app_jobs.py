"""The application's tasks and jobs: enqueued one by one and in batches, found by id."""

from __future__ import annotations

import msgspec
import pytest

import outlast
from outlast.client.task import Call
from outlast.client.task_options import Placement
from outlast.errors import JobNotFound, UnknownTask, UsageError
from outlast.model.job import State
from outlast.store import batches
from outlast.store.rows import JobFilter
from outlast.store.values import Cancelled, Requeued
from tests.unit.client import app_kit
from tests.unit.client.app_kit import application

app = app_kit.app


def test_an_unknown_task_is_refused_with_similar_names():
    app = application(None)
    assert app.find("send") is app.tasks["mail"]
    with pytest.raises(UnknownTask, match="'analyse'; did you mean analyze"):
        app.find("analyse")
    with pytest.raises(UnknownTask, match="the tasks are: analyze, mail, send"):
        app.find("zzz")
    with pytest.raises(UnknownTask, match="the application has none"):
        outlast.App().find("x")


async def test_a_job_is_stored_as_the_task_and_the_call_have_it(app):
    job = await app.tasks["mail"].using(priority=5, key="k", tenant="t", delay=60).enqueue("a")
    row = await job.refresh()
    assert (row.task, row.queue, row.args, row.state) == ("mail", "mail", {"to": "a"}, "queued")
    assert (row.priority, row.key, row.tenant, row.policy.retries) == (5, "k", "t", 1)
    assert row.waiting
    assert (row.run_at - row.enqueued_at).total_seconds() == pytest.approx(60, abs=1)
    assert await job.status() == "scheduled"


async def test_a_debounced_job_keeps_its_handle_and_gets_the_newest_arguments(app):
    mail = app.tasks["mail"].using(key="k", debounce=60)
    first, second = await mail.enqueue("a"), await mail.enqueue("b")
    assert (first.created, second.created, first.id) == (True, False, second.id)
    row = (await app.get(first.id)).row
    assert row.args == {"to": "b"}
    assert (row.run_at - row.enqueued_at).total_seconds() >= 60
    with pytest.raises(outlast.ConfigError, match="a schedule"):
        app.schedule("hourly", mail.call("c"), every=3600)
    with pytest.raises(outlast.UsageError, match="wait for others"):
        await app.enqueue(outlast.chain(mail.call("a"), app.tasks["mail"].call("b")))


async def test_many_jobs_keep_their_order_beyond_one_statement(app):
    calls = [app.tasks["mail"].call(str(n)) for n in range(5_003)]
    jobs = await app.enqueue_many(calls)
    ids = [job.id for job in jobs]
    assert ids == sorted(set(ids))
    assert (await app.get(ids[5_002])).row.args == {"to": "5002"}
    assert await app.enqueue_many([]) == []


async def test_equal_calls_are_stored_with_equal_arguments(app):
    analyze = app.tasks["analyze"].using(key="k")
    first = await analyze.enqueue("a", 5)
    same = await analyze.enqueue(depth=5, repo="a")
    other = await analyze.enqueue("a", 6)
    assert (first.same_args, same.same_args, other.same_args) == (True, True, False)
    assert {same.id, other.id} == {first.id}
    assert not other.created


async def test_a_key_of_another_task_is_an_error_for_one_job_and_for_many(app):
    first = await app.tasks["mail"].using(key="k").enqueue("a")
    analyze = app.tasks["analyze"]
    with pytest.raises(outlast.KeyInUse) as raised:
        await analyze.using(key="k").enqueue("a")
    assert (raised.value.task, raised.value.job_id) == ("mail", first.id)
    with pytest.raises(outlast.KeyInUse):
        await app.enqueue_many([analyze.call("b"), analyze.using(key="k").call("c")])
    assert [row.id for row in await (await app.stores.store()).inspector.jobs(JobFilter())] == [
        first.id
    ]


async def test_one_statement_is_bounded_in_bytes(app, monkeypatch):
    monkeypatch.setattr(batches, "ENQUEUE_BYTES", 25)
    store, sizes = await app.stores.store(), []

    async def noting(jobs):
        sizes.append([len(job.args) for job in jobs])
        return await enqueue(jobs)

    enqueue = store.enqueue
    monkeypatch.setattr(store, "enqueue", noting)
    texts = ["", "abcd", "x" * 50, "", ""]
    jobs = await app.enqueue_many([app.tasks["mail"].call(text) for text in texts])
    assert sizes == [[9, 13], [59], [9, 9]]
    assert len({job.id for job in jobs}) == 5


async def test_a_failed_batch_ends_the_call_and_earlier_batches_stay(app, monkeypatch):
    monkeypatch.setattr(batches, "ENQUEUE_MAX", 2)
    mail = app.tasks["mail"]
    bad = Call(mail, msgspec.structs.replace(mail.call("x").job, priority=1_000), Placement())
    with pytest.raises(outlast.OutlastError):
        await app.enqueue_many([mail.call("1"), mail.call("2"), bad, mail.call("4")])
    rows = await (await app.stores.store()).inspector.jobs(JobFilter())
    assert sorted(row.args for row in rows) == ['{"to":"1"}', '{"to":"2"}']


async def test_many_takes_calls_of_this_application_only(app):
    other = application(app.url)
    with pytest.raises(UsageError, match="another application"):
        await app.enqueue_many([app.tasks["mail"].call("a"), other.tasks["mail"].call("b")])
    with pytest.raises(UsageError, match="takes calls"):
        await app.enqueue_many([app.tasks["mail"]])


async def test_get_cancel_and_requeue_by_id(app):
    job = await app.tasks["mail"].enqueue("a")
    same = await app.get(job.id)
    assert (same.id, same.task, same.created) == (job.id, "mail", False)
    assert await app.cancel(job.id) is Cancelled.CANCELLED
    assert await app.cancel(job.id) is Cancelled.ENDED
    assert await app.requeue(job.id) is Requeued.REQUEUED
    assert await same.requeue(from_scratch=True) is Requeued.NOT_ENDED
    assert (await same.refresh()).state is State.QUEUED


async def test_an_id_that_names_no_job_is_not_found(app):
    for call in (app.get, app.cancel, app.requeue):
        with pytest.raises(JobNotFound, match="there is no job 999"):
            await call(999)
        for wrong in ("1", None, True, 0, -1, 2**63, 1.5):
            with pytest.raises(UsageError, match="the id of a job is a whole number"):
                await call(wrong)
