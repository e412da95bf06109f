"""Encoded payloads from enqueue to result, by real workers, with and without their key."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

import outlast
from outlast import Compression, Encryption
from outlast.insight.calls import describe_call
from outlast.insight.documents import job_document
from outlast.insight.schedules import schedule_document
from outlast.model.job import ENDED
from outlast.model.lifecycle import OutcomeKind
from outlast.payload.payloads import MARK
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.values import NewEvent, Save
from outlast.testing import inline, isolate
from tests.app import in_process_kit
from tests.app.in_process_kit import has_state, transaction, until
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, lost_worker

store = in_process_kit.store
KEY, OTHER = Encryption.make_key(), Encryption.make_key()
SECRET = "4111-1111"
ran: list[str] = []


def an_app(url: str, *codecs: Any) -> outlast.App:
    app = outlast.App(url, payloads=codecs)

    @app.task(retries=0)
    async def pay(card: str, pages: int = 3) -> dict[str, str]:
        attempt = outlast.current()
        ran.append(card)
        for page in range((attempt.checkpoint or {"page": 0})["page"], pages):
            await attempt.save({"page": page + 1, "card": card})
        return {"paid": card}

    return app


@pytest.fixture(autouse=True)
def _at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("outlast.model.lifecycle.UNDECODABLE_PAUSE_SECONDS", 0.2)
    ran.clear()


async def stored(store: Store, job: outlast.Job[Any]) -> StoredJob:
    row = await store.inspector.job(job.id)
    assert row is not None
    return row


async def test_arguments_checkpoints_and_results_are_stored_encoded(
    store: Store, store_url: str
) -> None:
    app = an_app(store_url, Compression(least=0), Encryption({"k": KEY}))
    job = await app.tasks["pay"].enqueue(SECRET)
    async with app.worker():
        assert await job.result(timeout=60) == {"paid": SECRET}
    row = await stored(store, job)
    for text in (row.args, row.checkpoint, row.result):
        assert text is not None
        assert text.startswith(MARK)
    shown = json.dumps(job_document(row, []))
    assert SECRET not in shown
    assert '"encoded": ["aes-256-gcm:k"]' in shown
    assert describe_call(row.task, row.args) == "(encoded)"
    here = await job.refresh()  # a program that has the key reads it
    assert (here.args, here.result) == ({"card": SECRET}, {"paid": SECRET})
    assert here.checkpoint == {"page": 3, "card": SECRET}
    await app.close()


@pytest.mark.parametrize("codecs", [[], [Encryption({"k": OTHER})]], ids=["missing", "wrong"])
async def test_without_its_key_a_job_neither_runs_nor_is_lost(
    store: Store, store_url: str, codecs: list[Any]
) -> None:
    owner, stranger = an_app(store_url, Encryption({"k": KEY})), an_app(store_url, *codecs)
    job = await owner.tasks["pay"].enqueue(SECRET)

    async def is_handed_back() -> bool:
        return any(each.outcome == "undecodable" for each in await attempts(store, job))

    async with stranger.worker():
        await until(is_handed_back)
    assert ran == []
    row = await stored(store, job)
    assert (row.state, row.failures, row.losses) == ("queued", 0, 0)
    why = (await attempts(store, job))[0].message
    assert "the arguments cannot be read" in why
    assert "aes-256-gcm:k" in why
    theirs = await stranger.get(job.id)
    assert theirs.row is not None
    assert SECRET not in str(theirs.row.to_dict())
    async with owner.worker():
        await until(lambda: has_state(job, "completed"))
    with pytest.raises(outlast.BadArguments, match="the result cannot be read"):
        await theirs.result(timeout=60)
    await owner.close()
    await stranger.close()


async def test_a_key_is_held_by_what_is_encrypted_though_no_two_encryptions_are_alike(
    store: Store, store_url: str
) -> None:
    """Nor can another program see that the arguments are others: those of the first count."""
    app, plain = an_app(store_url, Encryption({"k": KEY})), an_app(store_url)
    first = await app.tasks["pay"].using(key="order-7").enqueue(SECRET)
    before = await stored(store, first)
    again = await app.tasks["pay"].using(key="order-7").enqueue(SECRET)
    other = await plain.tasks["pay"].using(key="order-7").enqueue("5555")
    assert [(each.id, each.created, each.same_args) for each in (again, other)] == [
        (first.id, False, False)
    ] * 2
    assert await stored(store, first) == before
    async with app.worker():
        assert await again.result(timeout=60) == {"paid": SECRET}
    assert ran == [SECRET]
    freed = await app.tasks["pay"].using(key="order-7").enqueue(SECRET)
    assert freed.created
    for each in (app, plain):
        await each.close()


@pytest.mark.on_both_stores
async def test_the_result_that_a_transaction_of_the_task_s_own_stores_is_encoded(
    store: Store, store_url: str
) -> None:
    app = outlast.App(store_url, payloads=[Encryption({"k": KEY}, required=True)])

    @app.task
    async def pay(card: str) -> dict[str, str]:
        async with transaction(store_url) as connection:
            await outlast.current().complete_in(connection, {"paid": card})
        return {"never": "stored"}

    job = await pay.enqueue(SECRET)
    async with app.worker():
        assert await job.result(timeout=60) == {"paid": SECRET}
    row = await stored(store, job)
    assert (row.result or "").startswith(MARK)
    assert SECRET not in str(row)
    await app.close()


async def attempts(store: Store, job: outlast.Job[Any]) -> Any:
    return await store.inspector.attempts(job.id)


@pytest.mark.parametrize(
    ("codecs", "shape", "says"),
    [
        ([Encryption({"k": KEY})], Any, "the checkpoint cannot be read"),
        ([], dict[str, str], r"the checkpoint does not fit dict[str, str]"),
    ],
    ids=["key", "shape"],
)
async def test_without_the_key_or_shape_of_its_checkpoint_a_job_does_not_begin(
    store: Store, store_url: str, codecs: list[Any], shape: Any, says: str
) -> None:
    """It would begin from nothing, and do again what it has done."""
    plain, owner = an_app(store_url), an_app(store_url, *codecs)
    plain.tasks["pay"].checkpoint = shape
    job = await plain.tasks["pay"].enqueue(SECRET, pages=2)
    await _save_one(store, owner)
    told: list[str] = []
    plain._end_fns.append(lambda _, outcome: told.append(outcome.message))
    async with plain.worker():

        async def is_handed_back() -> bool:
            return any(each.outcome == "undecodable" for each in await attempts(store, job))

        await until(is_handed_back)
    assert ran == []
    assert says in told[0]  # to OpenTelemetry and Sentry, too
    async with owner.worker():
        await until(lambda: has_state(job, "completed"))
    assert ran == [SECRET]
    await plain.close()
    await owner.close()


async def _save_one(store: Store, owner: outlast.App) -> None:
    """A worker that has the key saves a checkpoint and hands the job back."""
    hands = await Hands.on(store, tasks=["pay"])
    (claimed,) = await hands.claim(1, tasks=["pay"])
    text = owner.stores.payloads.encode("checkpoint", '{"page":1}')
    await store.checkpoint([Save(claimed.job_id, claimed.token, 1, text)])
    await hands.exchange(ended(claimed, OutcomeKind.RELEASED))
    await hands.vanish()


REQUIRED = Encryption({"k": KEY}, required=True)


async def test_plain_arguments_do_not_run_where_encryption_is_required(
    store: Store, store_url: str
) -> None:
    """As of a job enqueued by SQL, or one whose row was changed."""
    app, plain = an_app(store_url, REQUIRED), an_app(store_url)
    jobs = [
        await each.enqueue(SECRET)
        for each in (plain.tasks["pay"], plain.tasks["pay"], app.tasks["pay"])
    ]
    async with app.worker():
        for job in jobs[:2]:
            with pytest.raises(outlast.JobFailed, match=r"the arguments.*not encrypted") as failed:
                await (await app.get(job.id)).result(timeout=60)
            assert failed.value.report is not None
            assert failed.value.report.exception == "NotEncrypted"
        assert await jobs[2].result(timeout=60) == {"paid": SECRET}
    assert ran == [SECRET]
    (attempt,) = await attempts(store, jobs[0])
    assert SECRET not in attempt.message
    seen = await app.get(jobs[0].id)
    assert seen.row is not None
    assert seen.row.args == {"encoded": [], "bytes": len((await stored(store, jobs[0])).args)}
    async with plain.worker():  # nothing is lost
        await jobs[0].requeue()
        await until(lambda: has_state(jobs[0], "completed"))
    with pytest.raises(outlast.NotEncrypted, match="the result"):
        await (await app.get(jobs[0].id)).result(timeout=60)
    await app.close()
    await plain.close()


async def test_a_plain_checkpoint_does_not_go_on_where_encryption_is_required(
    store: Store, store_url: str
) -> None:
    app, plain = an_app(store_url, REQUIRED), an_app(store_url)
    job = await app.tasks["pay"].enqueue(SECRET)
    await _save_one(store, plain)
    async with app.worker():
        with pytest.raises(outlast.JobFailed, match=r"the checkpoint.*not encrypted"):
            await job.result(timeout=60)
    assert ran == []
    await app.close()
    await plain.close()


async def test_nothing_is_empty_enough_to_be_stored_plain(store: Store, store_url: str) -> None:
    """Arguments that are all left out, and a result that is None, are as good a place for a
    downgrade as others."""
    app = outlast.App(store_url, payloads=[REQUIRED])

    @app.task
    async def sweep(depth: int = 3) -> None:
        ran.append(str(depth))

    job = await sweep.enqueue()
    async with app.worker():
        await job.result(timeout=60)
    row = await stored(store, job)
    assert row.args.startswith(MARK)
    assert row.result is not None
    assert row.result.startswith(MARK)
    await app.close()


@pytest.mark.parametrize("codecs", [(), (Encryption({"k": KEY}),)], ids=["plain", "encrypted"])
async def test_a_save_forgives_losses_unless_it_is_where_the_attempt_went_on(
    store: Store, store_url: str, codecs: Any
) -> None:
    """Encrypted twice, the same checkpoint is two texts: it is compared before."""
    app = outlast.App(store_url, payloads=codecs)

    @app.task(backoff_first=0.01)
    async def pay(pages: list[int]) -> None:
        for page in pages:
            await outlast.current().save({"page": page})

    left = [([2], 1), ([1, 2], 1), ([3], 0), ([2, 3], 0)]  # what is saved -> losses
    jobs = []
    for number, (pages, _) in enumerate(left):
        queue = f"q{number}"
        jobs.append(await pay.using(queue=queue).enqueue(pages))
        hands = await Hands.on(store, queue, tasks=["pay"])
        (claimed,) = await hands.claim(1, tasks=["pay"], queues=[queue])
        text = app.stores.payloads.encode("checkpoint", '{"page":2}')
        await store.checkpoint([Save(claimed.job_id, claimed.token, 1, text)])
        await hands.vanish()
        await store.reclaim(lost_worker)
    assert [(await stored(store, job)).losses for job in jobs] == [1] * len(jobs)
    async with app.worker():
        for job in jobs:
            await until(partial(has_state, job, "completed"))
    assert [(await stored(store, job)).losses for job in jobs] == [losses for _, losses in left]
    await app.close()


@pytest.mark.parametrize("required", [False, True])
def test_a_test_of_the_application_reads_what_it_stores(required: bool) -> None:
    cipher = Encryption({"k": KEY}, required=required)
    app = an_app("sqlite:////nowhere.db", Compression(least=0), cipher)
    pay = app.tasks["pay"]
    with isolate(app) as jobs:
        pay.enqueue_sync(SECRET)
        jobs.enqueued(pay, card=SECRET)
        jobs.crash_after_save(2)
        jobs.drain_sync()
        (job,) = jobs.jobs()
        assert job.row is not None
        assert job.row.args == {"card": SECRET}
        assert job.result_sync() == {"paid": SECRET}
    assert ran == [SECRET, SECRET]


@pytest.mark.parametrize("required", [False, True])
async def test_inline_takes_what_is_encoded(required: bool) -> None:
    app = an_app("sqlite:////nowhere.db", Encryption({"k": KEY}, required=required))
    assert await inline(app.tasks["pay"].call(SECRET), checkpoint={"page": 2}) == {"paid": SECRET}


async def test_the_call_of_a_schedule_is_stored_encoded_and_run(
    store: Store, store_url: str
) -> None:
    """Every program that has the key encodes it alike: otherwise each worker would declare another
    version of what another one has declared."""
    cipher = Encryption({"k": KEY}, required=True)
    one = an_app(store_url, Compression(least=0, level=1), cipher)
    other = an_app(store_url, Compression(least=0, level=9), cipher)  # as by another zlib
    stranger = an_app(store_url)
    for app in (one, other):
        app.schedule("nightly", app.tasks["pay"].call(SECRET), every=3_600)
        app.schedule("long", app.tasks["pay"].call(SECRET * 999), cron="0 0 1 1 *")
    assert one.schedules.declared == other.schedules.declared
    async with one.worker():
        await one.schedules.put("hourly", one.tasks["pay"].call(SECRET), every=3_600)
        job = await one.schedules.trigger("hourly")
        assert await job.result(timeout=60) == {"paid": SECRET}
        await until(lambda: has_all(one))
    for row in await store.inspector.schedules():
        assert SECRET not in row.call
        assert "outlast:payload" in row.call
        assert SECRET not in str(schedule_document(row))
    assert (await one.schedules.get("nightly")).args == {"card": SECRET}
    assert (await stranger.schedules.get("nightly")).args["encoded"] == ["aes-256-gcm:k"]
    for app in (one, other, stranger):
        await app.close()


async def has_all(app: outlast.App) -> bool:
    return {each.name for each in await app.schedules.list()} == {"hourly", "long", "nightly"}


def test_a_codec_that_cannot_encode_alike_is_refused_for_schedules() -> None:
    class Fickle:
        def __init__(self) -> None:
            self._times = 0

        def encode(self, data: bytes, kind: str) -> tuple[str, bytes]:
            self._times += 1
            return "fickle", data + bytes([self._times])

        def decode(self, name: str, data: bytes, kind: str, most: int) -> bytes | None:
            return data[:-1] if name == "fickle" else None

    app = an_app("sqlite:////nowhere.db", Fickle())
    with pytest.raises(outlast.ConfigError, match="encode_same"):
        app.schedule("nightly", app.tasks["pay"].call(SECRET), every=3_600)


@pytest.mark.parametrize("what", ["event", "step"])
async def test_what_is_sealed_under_one_name_is_refused_under_another(
    store: Store, store_url: str, what: str
) -> None:
    """An approval of one job says nothing of another, though it is written to the store."""
    app = outlast.App(store_url, payloads=[Encryption({"k": KEY}, required=True)])

    @app.task(retries=0)
    async def pay(number: int) -> str:
        attempt = outlast.current()
        if what == "event":
            return str(await attempt.wait_event(f"approve:{number}", timeout=60))
        raise outlast.Dead(await attempt.step("charge", lambda: f"paid {number}"))

    async with app.worker():
        if what == "event":
            await app.send_event("approve:16", "ada")
            sealed = await store.find_event("approve:16")
            assert sealed is not None
            await store.send_event(NewEvent("approve:17", sealed))
            assert await (await pay.enqueue(16)).result(timeout=60) == "ada"
            other = await pay.enqueue(17)
        else:
            first, other = await pay.enqueue(16), await pay.enqueue(17)
            for job in (first, other):
                await until(partial(has_state, job, "dead"))
            async with raw(store_url) as session:
                assert await session.run(MOVE_STEP.format(first.id, other.id))
            await app.requeue(other.id)

        async def is_undecodable() -> bool:
            return "undecodable" in {each.outcome for each in await attempts(store, other)}

        await until(is_undecodable)
    await app.close()


MOVE_STEP = """UPDATE outlast_steps SET value = (SELECT value FROM outlast_steps WHERE job_id = {})
WHERE job_id = {}"""


async def step(attempt: outlast.Attempt, _: Any) -> Any:
    return await attempt.step("card", lambda: SECRET)


async def event(attempt: outlast.Attempt, _: Any) -> Any:
    return await attempt.wait_event("card", timeout=60)


async def children(attempt: outlast.Attempt, child: Any) -> Any:
    return await attempt.wait_for(await attempt.spawn(child.call()))


async def end_of_a_sleep(attempt: outlast.Attempt, _: Any) -> Any:
    await attempt.sleep(0.01, "a moment")
    return SECRET


@pytest.mark.parametrize("swallows", [False, True], ids=["raises", "swallows"])
@pytest.mark.parametrize("read", [step, event, children, end_of_a_sleep])
async def test_a_worker_without_the_key_of_what_an_attempt_reads_hands_the_job_back(
    store: Store, store_url: str, read: Any, swallows: bool
) -> None:
    """As of arguments and checkpoints: uncharged, for a worker that has the key."""
    handed_back = False

    def an_app(*keys: tuple[str, str]) -> outlast.App:
        app = outlast.App(store_url, payloads=[Encryption(dict(keys))])

        @app.task(queue="children")
        async def child() -> str:
            return SECRET

        @app.task(retries=0)
        async def reads() -> Any:
            attempt = outlast.current()
            try:
                value = await read(attempt, child)
            except BaseException:
                if not swallows:
                    raise
                return "as if it were nothing"
            if not handed_back:
                raise outlast.Snooze(0.01)
            return value

        return app

    old, new = an_app(("a", KEY)), an_app(("b", OTHER), ("a", KEY))
    job = await old.tasks["reads"].enqueue()
    await new.send_event("card", SECRET)
    async with new.worker(queues=["default"]):
        await until(partial(has_attempted, store, job))
    async with new.worker(queues=["children"]):
        await until(partial(has_no_queued_child, store))

    async def is_tried_again() -> bool:
        ends = [each.outcome for each in await attempts(store, job)]
        return bool({*ends} - {"snoozed", "released"}) or (await stored(store, job)).state in ENDED

    async with old.worker(queues=["default"]):
        await until(is_tried_again)
    ends = await attempts(store, job)
    assert "undecodable" in {each.outcome for each in ends}
    assert {each.charge for each in ends} == {"none"}
    handed_back = True
    async with new.worker():
        assert await (await new.get(job.id)).result(timeout=60) == SECRET
    await old.close()
    await new.close()


async def has_attempted(store: Store, job: outlast.Job[Any]) -> bool:
    row = await stored(store, job)
    return row.attempt_count > 0 and row.state != "running"


async def has_no_queued_child(store: Store) -> bool:
    rows = await store.inspector.jobs(JobFilter(task="child"))
    return all(row.state in ENDED for row in rows)
