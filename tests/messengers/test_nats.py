"""NATS JetStream as wake-up, on a real server: which workers it wakes, and that it is harmless."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import asyncpg
import msgspec
import nats
import pytest

import outlast
from harness.nats_server import NatsServer
from outlast.store.values import NewJob
from outlast.wakeup import messenger
from outlast.worker.claims import pacing
from outlast.worker.worker import Worker
from tests.conformance.kit import Hands
from tests.messengers.kit import NEVER, Shop, inbox_of, jetstream, published, sweep

ODD = "päper.>*|~"  # a queue's name that NATS could not have in a subject


async def test_a_message_brings_a_job_to_an_idle_worker(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker():
        job = await shop.work.enqueue(7)
        assert await job.result(timeout=30) == 7
        assert [message["job_id"] for message in await published(shop, nats_server.url)] == [job.id]
        await all_settled(shop, nats_server, "all")


async def test_enqueuing_without_a_loop_also_publishes(shop: Shop, nats_server: NatsServer) -> None:
    async with shop.ready_worker():
        job = await asyncio.to_thread(shop.work.enqueue_sync, 7)
        assert await job.result(timeout=30) == 7
    await asyncio.to_thread(shop.app.close_sync)


async def test_jobs_are_fetched_by_messages_up_to_the_free_slots(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker(concurrency=5), shop.ready_worker(concurrency=5):
        await shop.app.enqueue_many([shop.work.call(number) for number in range(300)])
        await shop.completed(300)
        await all_settled(shop, nats_server, "all")
    assert set(shop.ran.values()) == {1}


async def test_a_call_that_is_given_the_holder_of_its_key_publishes_nothing(
    shop: Shop, nats_server: NatsServer
) -> None:
    """The holder is not due; a message that names it would be for nothing."""
    async with shop.ready_worker(queues=["other"]):
        holder = await shop.work.using(key="k", delay=NEVER).enqueue(1)
        again = await shop.work.using(key="k").enqueue(1)
        calls = [shop.work.using(key=key).call(2) for key in ("k", "l", "l")]
        many = await shop.app.enqueue_many(calls)
        assert [each.id for each in (again, many[0])] == [holder.id] * 2
        assert many[1].id == many[2].id
        named = [message["job_id"] for message in await published(shop, nats_server.url)]
        assert named == [many[1].id]


async def test_the_job_of_a_tick_is_announced_to_workers_of_its_queue(
    shop: Shop, nats_server: NatsServer
) -> None:
    """The worker that fires it may serve other queues."""
    shop.app.schedule("soon", shop.work.using(queue="ticks").call(7), every=1)
    async with (
        shop.ready_worker(queues=["other"]) as firing,
        shop.ready_worker(queues=["ticks"]),
    ):

        async def is_announced() -> bool:
            """One of them: a worker takes what it has fired itself, unpublished."""
            await sweep(firing)
            fired = {each["job_id"] for each in shop.events("schedule_fired")}
            if not fired & set(shop.ran):
                return False
            named = {message["job_id"] for message in await published(shop, nats_server.url)}
            return bool(named & fired & set(shop.ran))

        await shop.until_async(is_announced, "a message for a job of a tick that has run")
    assert set(shop.ran.values()) == {1}


async def test_messages_that_a_draining_worker_has_taken_go_to_another_one_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messenger, "HOLD_SECONDS", NEVER)
    async with shop.ready_worker(name="one") as worker:
        held = await shop.held.enqueue()
        await shop.until(lambda: shop.ran[held.id] == 1, "an attempt that keeps it from leaving")
        exchange = worker.services["exchange"]
        await exchange.stop()  # as where its trip is under way
        await shop.app.enqueue_many([shop.work.call(number) for number in range(3)])
        inbox = inbox_of(worker)
        await shop.until(lambda: len(inbox._waiting) > 0, "messages in its hands")
        worker.settings = msgspec.structs.replace(worker.settings, drain_timeout=NEVER)
        worker.request_drain()
        await shop.until(lambda: worker.registration.draining, "its drain")
        exchange.start()
        await shop.until(lambda: not inbox._waiting, "messages that go back")
        async with shop.ready_worker(name="two"):
            await shop.completed(3)
            shop.gate.set()
            await shop.completed(4)
    assert set(shop.ran.values()) == {1}


async def test_nothing_is_published_before_the_commit_and_a_sweep_announces_it_after(
    shop: Shop, nats_server: NatsServer, pg_url: str
) -> None:
    async with shop.ready_worker() as worker:
        connection = await asyncpg.connect(pg_url)
        try:
            async with connection.transaction():
                await shop.work.using(connection=connection).enqueue(1)
                await sweep(worker)
                assert await published(shop, nats_server.url) == []
        finally:
            await connection.close()
        await swept_until_completed(shop, worker, 1)


@pytest.mark.parametrize("delay", [0.0, 1.5])
async def test_a_sweep_announces_unpublished_jobs(
    shop: Shop, nats_server: NatsServer, delay: float
) -> None:
    async with shop.ready_worker() as worker:
        await shop.store.enqueue([NewJob(task="work", args="{}", delay=delay)])
        await swept_until_completed(shop, worker, 1)
        assert {message["task"] for message in await published(shop, nats_server.url)} == {"work"}


async def test_each_of_several_workers_publishes_a_job_once_while_it_waits(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with (
        shop.ready_worker(queues=["other"]) as one,
        shop.ready_worker(queues=["other"]) as two,
    ):
        await shop.store.enqueue([NewJob(task="work", args="{}")])

        async def announced() -> bool:
            await sweep(one)
            await sweep(two)
            return len(await published(shop, nats_server.url)) == 2

        await shop.until_async(announced, "an announcement by each")
        await sweep(one)
        await sweep(two)
        assert [each["repeat"] for each in await published(shop, nats_server.url)] == [1, 1]


async def test_a_job_that_is_requeued_after_its_announcement_is_announced_again(
    shop: Shop, nats_server: NatsServer
) -> None:
    """Within the duplicate window: each way into the queue is news."""
    async with shop.ready_worker(queues=["other"]) as worker:
        announcer = worker._announcer
        assert announcer is not None
        job_id = (await shop.store.enqueue([NewJob(task="work", args="{}")]))[0].job_id
        await announcer.sweep(0.0)
        await announcer.sweep(0.0)
        assert len(await first_announcements(shop, nats_server)) == 1
        for times in (2, 3):
            await shop.store.cancel([job_id])
            await shop.store.requeue([job_id])
            await announcer.sweep(0.0)
            assert len(await first_announcements(shop, nats_server)) == times
        async with shop.ready_worker(queues=["default"]):
            await shop.completed(1)


async def test_workers_with_a_messenger_count_each_other_and_peek_rarely(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those do that listen to the database: else a fleet's peeks grow with its size."""
    monkeypatch.setattr(pacing, "EASED_PEERS", 3)
    async with (
        shop.ready_worker() as one,
        shop.ready_worker() as two,
        shop.ready_worker() as three,
        shop.ready_worker(queues=["other"]) as other,
    ):
        workers = [one, two, three]
        await shop.until(lambda: all(each._turns.peers == 3 for each in workers), "a count")
        assert all(each._turns.are_among_many() for each in workers)
        await shop.work.enqueue(7)
        await shop.completed(1)
        assert other._turns.peers == 1


async def test_a_worker_of_some_queues_receives_only_their_messages(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker(queues=["mail", ODD]):
        odd = await shop.work.using(queue=ODD).enqueue(1)
        mail = await shop.work.using(queue="mail").enqueue(2)
        assert [await odd.result(timeout=30), await mail.result(timeout=30)] == [1, 2]
        other = await shop.work.using(queue="other").enqueue(3)
        async with shop.ready_worker():  # of all queues, by a consumer of its own
            assert await other.result(timeout=30) == 3


async def test_a_message_is_passed_to_a_worker_that_knows_its_task(shop: Shop) -> None:
    newer = outlast.App(shop.url, wakeup=shop.wakeup)

    @newer.task
    async def novelty() -> str:
        return "new"

    async with shop.ready_worker(), shop.ready_worker(app=newer):
        for _ in range(6):  # one by one: each message has to reach the right worker
            assert await (await novelty.enqueue()).result(timeout=30) == "new"
    await newer.close()


async def test_a_reclaimed_job_is_published_again_with_the_reason(
    shop: Shop, nats_server: NatsServer
) -> None:
    """MISSION A6: cleared and clear_reason."""
    async with shop.ready_worker(concurrency=1) as worker:
        await shop.held.enqueue()  # so that the job is for another worker
        await shop.until(lambda: len(shop.ran) == 1, "a worker that is full")
        hands = await Hands.on(shop.store, "dead", lease=NEVER)
        await shop.store.enqueue([NewJob(task="work", args="{}")])
        (claimed,) = await hands.claim(1, tasks=["work"])
        await hands.vanish()
        await shop.until(lambda: bool(shop.events("job_reenqueued")), "the reclaim")

        async def told() -> bool:
            await sweep(worker)
            return any("cleared" in each for each in await published(shop, nats_server.url))

        await shop.until_async(told, "the announcement of the cleared job")
        cleared = [m for m in await published(shop, nats_server.url) if "cleared" in m]
        assert [(each["job_id"], each["cleared"]) for each in cleared] == [(claimed.job_id, True)]
        assert "worker dead is gone" in cleared[0]["clear_reason"]
        shop.gate.set()


@pytest.mark.slow
async def test_ten_thousand_duplicate_and_stale_messages_are_harmless(
    shop: Shop, nats_server: NatsServer
) -> None:
    """MISSION A7: no job claimed twice, none lost, all acknowledged."""
    stale = await shop.app.enqueue_many([shop.work.call(number) for number in range(50)])
    async with shop.worker():
        await shop.completed(50)
    ids = [job.id for job in stale]
    async with shop.ready_worker(), shop.ready_worker():
        subject = await shop.subject()
        client = await nats.connect(nats_server.url)
        fresh: list[int] = []
        for round_ in range(100):
            if round_ % 10 == 0:
                jobs = await shop.app.enqueue_many([shop.work.call(0) for _ in range(10)])
                fresh += [job.id for job in jobs]
            known = [*ids, *fresh]
            for _ in range(100):
                body = json.dumps({"job_id": random.choice(known), "queue": "default"})
                await client.publish(subject, body.encode())
        await client.flush()
        await client.close()
        await shop.completed(150)
        await all_settled(shop, nats_server, "all", at_least=10_000)
    assert len(shop.ran) == 150
    assert set(shop.ran.values()) == {1}


async def test_a_message_about_a_job_that_runs_elsewhere_is_acknowledged_and_reported(
    shop: Shop, nats_server: NatsServer
) -> None:
    """MISSION A12: job_skipped_active_elsewhere."""
    async with shop.ready_worker(name="one", concurrency=1):
        job = await shop.held.enqueue()
        await shop.until(lambda: len(shop.ran) == 1, "a worker that is full")
        async with shop.ready_worker(name="two"):
            assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
            body = json.dumps({"job_id": job.id, "queue": "default"}).encode()
            async with jetstream(nats_server.url) as js:
                for _ in range(20):
                    await js.publish(await shop.subject(), body)
            await all_settled(shop, nats_server, "all", at_least=22)
            skipped = "job_skipped_active_elsewhere"
            await shop.until(lambda: bool(shop.events(skipped)), skipped)
        row = await job.refresh()
        told = [(each["job_id"], each["token"], each["worker"]) for each in shop.events(skipped)]
        assert set(told) == {(job.id, row.token, "one")}
        shop.gate.set()
        await shop.completed(2)
    assert shop.ran[job.id] == 1


NO_NOTICES = [
    b"",
    b"not json",
    b"[1, 2",
    b'{"job": 1}',
    b'{"job_id": "1"}',
    b'{"job_id": 0}',
    b'{"job_id": 99999999999999999999}',
    b"[" * 10_000,
    b'{"job_id": 1, "queue": "' + b"x" * 900_000 + b'"}',
    b"\xff\xfe\x00",
]
UNKNOWN = [b'{"job_id": 123456789}', b'{"job_id": 9223372036854775807, "queue": "unknown"}']


async def test_invalid_notices_and_unknown_jobs_are_acknowledged(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker():
        async with jetstream(nats_server.url) as js:
            for body in NO_NOTICES + UNKNOWN:
                await js.publish(await shop.subject(), body)
        await all_settled(shop, nats_server, "all", at_least=len(NO_NOTICES + UNKNOWN))
        assert [each["count"] for each in shop.events("notice_rejected")] == [1]  # once a minute
        assert not shop.events("duty_failed")
        job = await shop.work.enqueue(3)
        assert await job.result(timeout=30) == 3


async def test_headers_of_a_publisher_do_not_pass_for_the_servers(
    shop: Shop, nats_server: NatsServer
) -> None:
    """Each such message would cost the worker its connection."""
    async with shop.ready_worker():
        async with jetstream(nats_server.url) as js:
            for status in ("503", "404", "100"):
                await js.publish(await shop.subject(), b"", headers={"Status": status})
        await all_settled(shop, nats_server, "all", at_least=3)
        job = await shop.work.enqueue(3)
        assert await job.result(timeout=30) == 3
    assert not shop.events("wakeup_lost")


async def test_a_stranger_cannot_choose_where_a_worker_publishes(
    shop: Shop, nats_server: NatsServer
) -> None:
    """A worker may do more on its server than a client that can write to its inbox."""
    stranger = await nats.connect(nats_server.url)
    wishes = await stranger.subscribe("$JS.API.CONSUMER.MSG.NEXT.>")
    settled = await stranger.subscribe("elsewhere")
    async with shop.ready_worker():
        wish = await wishes.next_msg(timeout=30)
        for body in (b"", b'{"job_id": 1}', b"nothing"):
            await stranger.publish(wish.reply, body, reply="elsewhere")
        await stranger.flush()
        job = await shop.work.enqueue(3)
        assert await job.result(timeout=30) == 3
        await all_settled(shop, nats_server, "all")
    await stranger.flush()
    assert settled.pending_msgs == 0
    assert not shop.events("wakeup_lost")
    await stranger.close()


async def all_settled(shop: Shop, server: NatsServer, durable: str, *, at_least: int = 1) -> None:
    """Wait until every message has been delivered and acknowledged."""
    async with jetstream(server.url) as js:

        async def settled() -> bool:
            info = await js.consumer_info(await shop.stream(), durable)
            delivered = info.ack_floor.consumer_seq if info.ack_floor else 0
            return not info.num_ack_pending and not info.num_pending and delivered >= at_least

        await shop.until_async(settled, "all messages to be acknowledged")


async def first_announcements(shop: Shop, server: NatsServer) -> list[dict[str, Any]]:
    """Return what the stream holds of jobs that had waited for less than ten seconds."""
    return [each for each in await published(shop, server.url) if each["repeat"] == 1]


async def swept_until_completed(shop: Shop, worker: Worker, count: int) -> None:
    async def done() -> bool:
        await sweep(worker)
        return await shop.has_completed(count)

    await shop.until_async(done, "what was swept to be completed")
