"""NATS under attack: strangers, forged answers, logins that change. Jobs are late at most."""

from __future__ import annotations

import contextlib
import itertools
import json

import nats
from nats.js.errors import NotFoundError

from harness.nats_server import NatsServer
from outlast.model.job import State
from outlast.store.values import NewJob
from tests.messengers.kit import Shop, inbox_of, jetstream, published, row_says

POLL = 0.2
PULLS = "$JS.API.CONSUMER.MSG.NEXT.>"


async def test_a_known_task_does_not_wait_behind_strangers(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker():
        async with jetstream(nats_server.url) as js:
            subject = await shop.subject()
            for number in range(200):
                strange = {"job_id": 10**9 + number, "queue": "default", "task": "strange"}
                await js.publish(subject, json.dumps(strange).encode())
        job = await shop.work.enqueue(7)
        assert await job.result(timeout=60) == 7


async def test_no_stranger_has_the_notice_of_a_job_dropped_as_a_duplicate(
    shop: Shop, nats_server: NatsServer
) -> None:
    """JetStream drops a message whose id it has seen, no matter who has sent that."""
    async with jetstream(nats_server.url) as js:
        jobs = [await shop.work.enqueue(0)]
        for job_id in range(jobs[0].id + 1, jobs[0].id + 20):
            headers = {"Nats-Msg-Id": f"{job_id}-0-0-0"}
            await js.publish(await shop.subject(), b"{}", headers=headers)
        jobs += [await shop.work.enqueue(number) for number in range(3)]
    told = [each.get("job_id") for each in await published(shop, nats_server.url)]
    assert [one for one in told if one] == [job.id for job in jobs]


async def test_no_stranger_has_the_notice_of_a_sweep_dropped_as_a_duplicate(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker(queues=["other"]) as worker, jetstream(nats_server.url) as js:
        for job_id, position in itertools.product(range(1, 4), range(20)):
            headers = {"Nats-Msg-Id": f"{job_id}-0-{position}-1"}  # as notices once had ids
            await js.publish(await shop.subject(), b"{}", headers=headers)
        job_id = (await shop.store.enqueue([NewJob(task="work", args="{}")]))[0].job_id
        assert worker._announcer is not None
        await worker._announcer.sweep(0.0)
    told = [each.get("job_id") for each in await published(shop, nats_server.url)]
    assert [one for one in told if one] == [job_id]


async def test_a_forged_message_outside_the_stream_ends_no_connection(
    shop: Shop, nats_server: NatsServer
) -> None:
    """A client that sees requests for messages knows where the answers go, and can write there."""
    client = await nats.connect(nats_server.url)
    requests = await client.subscribe(PULLS)
    forged = b'{"job_id": 1, "queue": "default", "task": "strange"}'
    try:
        async with shop.ready_worker() as worker:
            jobs = [await shop.work.enqueue(number) for number in range(3)]
            request = await requests.next_msg(timeout=30)
            for reply in ("", "elsewhere", "$JS.ACK.too.short", "$JS.ACK.a.b.c.d.e.f.g"):
                await client.publish(request.reply, forged, reply=reply)
                await client.publish(request.reply, b"no notice", reply=reply)
            await client.flush()
            jobs.append(await shop.work.enqueue(3))
            assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2, 3]
            assert inbox_of(worker).healthy
            assert not shop.events("wakeup_lost")
    finally:
        await client.close()


async def test_a_consumer_that_is_deleted_under_load_costs_latency_only(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker(poll=POLL), jetstream(nats_server.url) as js:
        jobs = []
        for number in range(60):
            jobs.append(await shop.work.enqueue(number))
            if number % 20 == 10:
                with contextlib.suppress(NotFoundError):  # not there again yet
                    await js.delete_consumer(await shop.stream(), "all")
        assert [await job.result(timeout=30) for job in jobs] == list(range(60))
    assert set(shop.ran.values()) == {1}


async def test_a_login_that_is_changed_later_is_reported_and_jobs_run(pg_url: str) -> None:
    login = 'authorization {{ user: "eve", password: "{}" }}'
    with NatsServer(login.format("first")) as server:
        url = f"nats://eve:first@127.0.0.1:{server.port}"
        async with Shop.opened(pg_url, url) as shop, shop.ready_worker(poll=POLL):
            server.extra = login.format("second")
            server.reload()
            await row_says(shop, "authorization")
            job = await shop.work.enqueue(1)
            assert await job.result(timeout=30) == 1
            assert (await job.refresh()).state is State.COMPLETED
