"""``app.schedule`` and ``app.schedules``, on each store: what is refused, and what is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import outlast
from outlast.errors import BadArguments, ConfigError, ScheduleNotFound, UsageError
from outlast.store.schedules import Origin
from tests.cases import each_case
from tests.unit.client import app_kit
from tests.unit.client.app_kit import application

app = app_kit.app
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


async def declare(app: outlast.App, name: str) -> None:
    """As a worker does whose code has this schedule."""
    store = await app.stores.store()
    await store.put_schedules([app.schedules.declared[name]], Origin.CODE)


@each_case(
    ("options", "message"),
    [
        ({"cron": "61 2 * * *"}, "'61' is not valid for the minute"),
        ({"every": timedelta(milliseconds=1500)}, "every must be whole seconds"),
        ({"every": 60, "jitter": "1"}, "jitter must be seconds or a timedelta"),
        ({"every": 60, "catch_up": "all"}, "catch_up='all' needs overlap='allow'"),
        ({"every": 60, "catch_up": "some"}, "catch_up must be one of 'last', 'all', 'none'"),
        ({"every": 60, "overlap": True}, "overlap must be one of 'skip', 'allow'"),
        ({"every": 60, "grace": -1}, "grace must be seconds from 0"),
        ({"every": 60, "grace": 0.5}, "grace must be at least 1 second, not 0.5"),
        ({"every": 60, "when": 1}, "a schedule has no option when; choose from: cron, every"),
    ],
)
async def test_a_wrong_option_is_refused_where_it_is_written(options, message: str) -> None:
    app = application(None)
    call = app.tasks["mail"].call("a")
    with pytest.raises(ConfigError, match=message):
        app.schedule("nightly", call, **options)
    with pytest.raises(ConfigError, match=message):
        await app.schedules.put("nightly", call, **options)
    assert app.schedules.declared == {}


def test_a_wrong_call_is_refused_where_it_is_written() -> None:
    app = application(None)
    mail = app.tasks["mail"]
    wrong = {
        "takes a call, such as report.call": mail,
        "a task of another application": application(None).tasks["mail"].call("a"),
        "cannot have at=… or delay=…": mail.using(delay=5).call("a"),
        "has a key=…, which needs overlap='allow'": mail.using(key="k").call("a"),
        "cannot have connection=…": mail.using(connection=object()).call("a"),
        "takes expires=… in seconds": mail.using(expires=datetime(2099, 1, 1, tzinfo=UTC)).call(
            "a"
        ),
    }
    for message, call in wrong.items():
        with pytest.raises(ConfigError, match=message):
            app.schedule("nightly", call, every=60)  # type: ignore[arg-type]
    with pytest.raises(BadArguments):
        app.schedule("nightly", mail.call("a", "b"), every=60)
    app.schedule("nightly", mail.using(key="k").call("a"), every=60, overlap="allow")
    with pytest.raises(ConfigError, match="another schedule is already called 'nightly': give"):
        app.schedule("nightly", mail.call("a"), every=60)
    with pytest.raises(ConfigError, match="a schedule's name must be a text"):
        app.schedule("every night", mail.call("a"), every=60)


def test_jobs_of_a_schedule_must_be_able_to_begin_before_they_expire() -> None:
    app = application(None)
    mail = app.tasks["mail"]
    with pytest.raises(ConfigError, match=r"expires \(30 s\) must be above jitter \(30 s\)"):
        app.schedule("nightly", mail.using(expires=30).call("a"), every=60, jitter=30)
    app.schedule("nightly", mail.using(expires=31).call("a"), every=60, jitter=30)


async def test_a_schedule_is_shown_as_it_was_put(app: outlast.App) -> None:
    call = app.tasks["analyze"].using(queue="slow", priority=3).call("a", depth=5)
    await app.schedules.put("digest:acme", call, cron="0 7 * * 1-5", zone="Europe/Berlin")
    await app.schedules.put("poll", call, every=timedelta(minutes=10), jitter=60, overlap="allow")
    digest, poll = await app.schedules.list()
    assert digest == await app.schedules.get("digest:acme")
    assert (digest.name, digest.task, digest.queue) == ("digest:acme", "analyze", "slow")
    assert digest.args == {"repo": "a", "depth": 5}
    assert (digest.cron, digest.zone, digest.origin) == ("0 7 * * 1-5", "Europe/Berlin", "run_time")
    assert (digest.overlap, digest.catch_up, digest.grace) == ("skip", "last", 86_400)
    assert digest.next_tick is not None
    assert digest.next_tick > datetime.now(UTC)
    assert digest.next_tick.astimezone(ZoneInfo("Europe/Berlin")).hour == 7
    assert (poll.every, poll.jitter, poll.overlap, poll.state) == (600, 60, "allow", "active")


async def test_a_deleted_schedule_is_gone_and_an_unknown_one_is_an_error(app: outlast.App) -> None:
    await app.schedules.put("poll", app.tasks["mail"].call("a"), every=60)
    await app.schedules.delete("poll")
    assert await app.schedules.list() == []
    acts = app.schedules
    calls: list[Any] = [acts.get, acts.delete, acts.pause, acts.resume, acts.trigger]
    for call in calls:
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'poll'"):
            await call("poll")
    with pytest.raises(ScheduleNotFound):
        await acts.backfill("poll", NEW_YEAR, NEW_YEAR)


async def test_what_the_code_declares_is_changed_and_deleted_only_there(app: outlast.App) -> None:
    call = app.tasks["mail"].call("a")
    app.schedule("nightly", call, cron="30 2 * * *")
    with pytest.raises(UsageError, match="delete it in that code"):  # no worker has declared it yet
        await app.schedules.delete("nightly")
    await declare(app, "nightly")
    other = application(app.url)
    for each in (app, other):  # one that knows by itself, and one that is told by the store
        with pytest.raises(UsageError, match="declared by the code of an application: change it"):
            await each.schedules.put("nightly", each.tasks["mail"].call("a"), every=60)
        with pytest.raises(UsageError, match="declared by the code of an application: delete it"):
            await each.schedules.delete("nightly")
    nightly = await other.schedules.get("nightly")
    assert (nightly.origin, nightly.cron, nightly.declared) == ("code", "30 2 * * *", True)
    await other.close()


async def test_a_trigger_enqueues_the_call_now_with_this_second_as_its_tick(app) -> None:
    await app.schedules.put("poll", app.tasks["mail"].using(tenant="t").call("a"), cron="@yearly")
    before = int(datetime.now(UTC).timestamp())
    first, second = await app.schedules.trigger("poll"), await app.schedules.trigger("poll")
    assert (first.created, second.created, second.id) == (True, False, first.id)
    row = (await app.get(first.id)).row
    assert (row.task, row.args, row.tenant, row.waiting) == ("mail", {"to": "a"}, "t", False)
    assert (row.key, row.policy.schedule) == ("outlast:schedule:poll", "poll")
    assert row.policy.tick - before in range(60)


async def test_a_backfill_enqueues_a_job_for_each_tick_and_repeats_none(app) -> None:
    await app.schedules.put("daily", app.tasks["mail"].call("a"), cron="30 2 * * *")
    jobs = await app.schedules.backfill("daily", NEW_YEAR, NEW_YEAR + timedelta(days=3))
    rows = [(await app.get(job.id)).row for job in jobs]
    half_past_two = NEW_YEAR + timedelta(hours=2, minutes=30)
    expected = [(half_past_two + timedelta(days=n)).timestamp() for n in range(3)]
    assert [row.policy.tick for row in rows] == expected
    assert not any(row.waiting for row in rows)
    again = await app.schedules.backfill("daily", NEW_YEAR, NEW_YEAR + timedelta(days=1))
    assert [(job.id, job.created) for job in again] == [(jobs[0].id, False)]


async def test_a_backfill_without_a_zone_or_without_end_is_refused(app) -> None:
    await app.schedules.put("poll", app.tasks["mail"].call("a"), every=1)
    with pytest.raises(UsageError, match="start must be a datetime with a zone"):
        await app.schedules.backfill("poll", NEW_YEAR.replace(tzinfo=None), NEW_YEAR)
    with pytest.raises(
        UsageError, match="more than 10000 ticks in that time: backfill it in parts"
    ):
        await app.schedules.backfill("poll", NEW_YEAR, NEW_YEAR + timedelta(days=1))


async def test_the_job_of_a_tick_is_told_its_tick(app) -> None:
    seen: list[datetime | None] = []

    @app.task
    async def note() -> None:
        seen.append(outlast.current().tick)

    await app.schedules.put("yearly", note.call(), cron="0 0 1 1 *", zone="Asia/Tokyo")
    async with app.worker(queues=["default"]):
        (job,) = await app.schedules.backfill("yearly", NEW_YEAR - timedelta(days=1), NEW_YEAR)
        await job.result(timeout=30)
        await (await note.enqueue()).result(timeout=30)
    assert seen == [datetime(2029, 12, 31, 15, tzinfo=UTC), None]


async def test_every_call_has_its_form_for_plain_code(app) -> None:
    def plain() -> list[str]:
        acts = app.schedules
        acts.put_sync("poll", app.tasks["mail"].call("a"), every=60)
        acts.pause_sync("poll")
        acts.resume_sync("poll")
        acts.trigger_sync("poll")
        acts.backfill_sync("poll", NEW_YEAR, NEW_YEAR + timedelta(minutes=2))
        names = [acts.get_sync("poll").name, *(each.name for each in acts.list_sync())]
        acts.delete_sync("poll")
        return names

    assert await asyncio.to_thread(plain) == ["poll", "poll"]
