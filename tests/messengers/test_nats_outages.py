"""NATS down, wiped, foreign or wrongly set up costs jobs latency, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from nats.js.api import RetentionPolicy, StreamConfig

from harness.nats_server import NatsCluster, NatsServer
from outlast.errors import ConfigError
from outlast.store.values import NewJob
from outlast.wakeup import check_messenger
from outlast.wakeup.kinds import parse
from outlast.wakeup.nats import NatsBroker
from tests.cases import each_case
from tests.messengers.kit import Shop, inbox_of, jetstream, row_says, sweep

NOWHERE = "nats://127.0.0.1:1"
POLL = 0.2
pytestmark = pytest.mark.usefixtures("nats_can_start")


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    """A server that the test may harm."""
    with NatsServer() as server:
        yield server


async def test_a_server_that_dies_and_comes_back_empty_costs_latency_only(
    pg_url: str, own_server: NatsServer
) -> None:
    async with Shop.opened(pg_url, own_server.url) as shop, shop.ready_worker(poll=POLL) as worker:
        await row_says(shop, "nats$")
        assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
        own_server.kill(wipe=True)
        jobs = [await shop.work.enqueue(number) for number in range(3)]  # neither slow nor refused
        assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2]
        await row_says(shop, "nats: ")
        assert {each["kind"] for each in shop.events("wakeup_lost")} == {"nats"}
        assert not worker.plan.may_wait()
        own_server.start()
        await shop.until(lambda: inbox_of(worker).healthy, "a messenger that is back")
        await row_says(shop, "nats$")
        async with jetstream(own_server.url) as js:  # recreated
            await js.consumer_info(await shop.stream(), "all")
        assert await (await shop.work.enqueue(5)).result(timeout=30) == 5
        assert inbox_of(worker).healthy
        await shop.completed(5)


async def test_jobs_enqueued_during_an_outage_are_announced_by_a_sweep(
    pg_url: str, own_server: NatsServer
) -> None:
    async with Shop.opened(pg_url, NOWHERE) as shop:
        lost = await shop.work.enqueue(1)  # not published
        shop.wakeup = own_server.url
    async with Shop.opened(pg_url, own_server.url) as shop, shop.ready_worker() as worker:
        assert await (await shop.app.get(lost.id)).result(timeout=30) == 1
        unheard = (await shop.store.enqueue([NewJob(task="work", args="{}")]))[0].job_id

        async def done() -> bool:
            await sweep(worker)
            row = await shop.store.inspector.job(unheard)
            return row is not None and row.state == "completed"

        await shop.until_async(done, "the unpublished job")


async def test_a_deleted_stream_is_recreated(pg_url: str, own_server: NatsServer) -> None:
    async with Shop.opened(pg_url, own_server.url) as shop, shop.ready_worker() as worker:
        name = await shop.stream()
        async with jetstream(own_server.url) as js:
            await js.delete_stream(name)
            await shop.until(lambda: bool(shop.events("wakeup_lost")), "the loss to be noticed")
            await shop.until(lambda: inbox_of(worker).healthy, "a stream that is back")
            assert (await js.stream_info(name)).config.name == name
        await (await shop.work.enqueue(1)).result(timeout=30)


@pytest.mark.slow  # three servers; the outages of one are short
async def test_the_leader_of_a_cluster_is_killed_under_load(pg_url: str) -> None:
    with NatsCluster() as cluster:
        url = f"{cluster.url}?replicas=3"
        async with (
            Shop.opened(pg_url, url) as shop,
            shop.ready_worker(poll=POLL) as one,
            shop.ready_worker(poll=POLL) as two,
        ):
            jobs = 0

            async def load(count: int) -> None:
                nonlocal jobs
                for _ in range(count):
                    await shop.work.enqueue(1)
                    jobs += 1

            await load(50)
            await shop.completed(50)
            leader = cluster.leader_of(await shop.stream())
            assert leader is not None
            loading = asyncio.create_task(load(200))
            await shop.completed(60)
            leader.kill()
            await loading
            await shop.completed(jobs)
            inboxes = [inbox_of(worker) for worker in (one, two)]
            await shop.until(lambda: all(each.healthy for each in inboxes), "another leader")
            await load(20)
            await shop.completed(jobs)
        assert set(shop.ran.values()) == {1}
        assert len(shop.ran) == jobs


async def test_wrong_credentials_are_reported_and_jobs_run_by_polling(pg_url: str) -> None:
    with NatsServer('authorization { user: "eve", password: "s3cret" }') as server:
        place = f"127.0.0.1:{server.port}"
        async with (
            Shop.opened(pg_url, f"nats://eve:wrong@{place}") as shop,
            shop.worker(poll=POLL),
        ):
            await row_says(shop, "authorization")
            assert "wrong" not in str([row.wakeup for row in await shop.store.inspector.workers()])
            assert await (await shop.work.enqueue(2)).result(timeout=30) == 2
        async with Shop.opened(pg_url, f"nats://eve:s3cret@{place}") as shop, shop.ready_worker():
            assert await (await shop.work.enqueue(3)).result(timeout=30) == 3


async def test_a_stream_with_other_settings_is_reported_and_left_alone(
    pg_url: str, nats_server: NatsServer
) -> None:
    async with Shop.opened(pg_url, f"{nats_server.url}?storage=file") as shop:
        async with jetstream(nats_server.url) as js:
            subjects = [await shop.subject(">")]
            await js.add_stream(name=await shop.stream(), subjects=subjects, storage="memory")
        async with shop.worker(poll=POLL):
            await row_says(shop, "storage=memory, and the wake-up's url says file")
            assert await (await shop.work.enqueue(2)).result(timeout=30) == 2


@pytest.mark.parametrize(
    ("made", "query", "said"),
    [
        ({"max_age": 60}, "max_age=120", "max_age=60"),
        ({"num_replicas": 1}, "replicas=3", "replicas=1"),
        ({"retention": RetentionPolicy.WORK_QUEUE}, "", "must be limits"),
        ({"subjects": ["elsewhere.>"]}, "", "does not take the subject"),
    ],
)
async def test_an_unusable_stream_is_reported_with_the_remedy(
    nats_server: NatsServer, made: dict[str, Any], query: str, said: str
) -> None:
    store_id = f"test{hash(said)}"
    async with jetstream(nats_server.url) as js:
        config = {"name": f"OUTLAST_{store_id}", "subjects": [f"outlast.{store_id}.jobs.>"]}
        await js.add_stream(StreamConfig(**(config | made)))
        broker = NatsBroker(parse(f"{nats_server.url}?{query}"), store_id, [])
        with pytest.raises(ConfigError, match=said):
            await broker.open()
        await broker.close()
        await js.delete_stream(f"OUTLAST_{store_id}")


async def test_a_server_without_jetstream_is_reported_with_the_remedy() -> None:
    with NatsServer("jetstream: disabled") as server:
        broker = NatsBroker(parse(server.url), "plain", [])
        with pytest.raises(ConnectionError, match="nats-server -js"):
            await broker.open()
        await broker.close()


async def test_a_close_that_is_cancelled_leaves_no_socket_open(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = NatsBroker(parse(nats_server.url), "closed", None)
    await broker.open()
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker._client, "_flush_pending", never)
    closing = asyncio.create_task(broker.close())
    await reached.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    transport: Any = broker._client._transport
    assert transport._io_writer.is_closing()
    async with jetstream(nats_server.url) as js:
        await js.delete_stream("OUTLAST_closed")


@each_case(
    ("wakeup", "said"),
    [
        ("http://broker", "not the URL of a messenger"),
        ("nats:broker", "not the URL of a messenger"),
        ("nats://", "does not name hosts"),
        ("nats://broker:99999", "does not name hosts"),
        ("nats://bro ker", "cannot be read: percent-encode"),
        ("nats://broker?replica=3", "'replica' is not a setting"),
        ("nats://broker?replicas=many", "whole number from 1 to"),
        ("nats://broker?storage=tape", "one of file, memory"),
        ("nats://broker?stream=a.b", "letters, digits"),
        ("nats://broker?tls_ca=/nowhere.pem", "TLS files"),
        ("nats://u:secret@broker?nix=1", "is not a setting"),
    ],
)
def test_a_url_that_cannot_work_is_refused(wakeup: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_messenger(wakeup, "postgresql://localhost/jobs")
    assert "secret" not in str(caught.value)


def test_a_messenger_for_a_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="for jobs on a server"):
        check_messenger("nats://broker", "sqlite:///jobs.db")
