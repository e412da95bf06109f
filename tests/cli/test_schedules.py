"""``outlast schedules`` on both stores, and what ``why`` and ``doctor`` say of schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlast.model.schedule_plan import Overlap
from outlast.store.schedules import NewSchedule, Origin
from tests.cli.conftest import Outlast
from tests.cli.rows import opened
from tests.conformance.kit import job
from tests.conformance.test_schedules import aged
from tests.unit.insight.rows_kit import names

NIGHTLY = NewSchedule(
    name="nightly",
    call=job(task="report", queue="slow"),
    spec='{"cron":"30 2 * * *","zone":"Europe/Berlin"}',
)
POLL = NewSchedule(name="poll", call=job(task="refresh"), spec='{"every":600}')
LISTED = names(
    "name task queue args cron every zone jitter overlap catch_up grace origin paused declared"
    " next_tick last_tick last_job fired skipped missed last_skip last_skip_job malformed state"
)


async def put(url: str, schedules: Sequence[NewSchedule], origin: Origin = Origin.RUN_TIME) -> None:
    async with opened(url) as store:
        await store.put_schedules(schedules, origin)


async def let_sleep(url: str, name: str) -> None:
    async with opened(url) as store:
        assert await store.note_undeclared([name]) == 1


@pytest.fixture
def url(store_url: str) -> str:
    asyncio.run(put(store_url, [NIGHTLY, POLL]))
    return store_url


def test_a_schedule_is_shown_with_its_next_ticks_in_its_zone_and_in_utc(
    outlast: Outlast, url: str
) -> None:
    said = outlast("schedules", "show", "nightly", "--next", 3, "--url", url)
    assert said.code == 0, said.err
    *_, first, second, third = said.out.splitlines()
    for tick in (first, second, third):
        assert " 02:30:00 CE" in tick or " 03:00:00 CEST" in tick
        assert tick.endswith(" UTC")
    document = outlast("schedules", "show", "nightly", "--next", 2, "--json", "--url", url).json()
    assert set(document) == LISTED | {"schema", "next_ticks"}
    assert [set(tick) for tick in document["next_ticks"]] == [{"utc", "local"}] * 2


def test_a_paused_schedule_says_so_until_it_is_resumed(outlast: Outlast, url: str) -> None:
    said = outlast("schedules", "pause", "nightly", "poll", "--url", url)
    assert said.out == "schedule nightly is paused\nschedule poll is paused\n"
    document = outlast("schedules", "show", "nightly", "--json", "--url", url).json()
    assert (document["state"], document["next_tick"]) == ("paused", None)
    assert outlast("schedules", "resume", "nightly", "--url", url).code == 0
    states = [row.split()[1] for row in outlast("schedules", "--url", url).out.splitlines()[1:]]
    assert states == ["active", "paused"]


def test_a_trigger_enqueues_now_and_why_names_schedule_and_tick(outlast: Outlast, url: str) -> None:
    first = outlast("schedules", "trigger", "nightly", "--json", "--url", url).json()
    again = outlast("schedules", "trigger", "nightly", "--url", url)
    assert first["created"]
    assert f"job {first['id']} of an earlier tick is unfinished" in again.out
    said = outlast("why", first["id"], "--url", url).out
    assert "The schedule 'nightly' has enqueued it for its tick of " in said
    assert "as a person asked" in said
    document = outlast("why", first["id"], "--json", "--url", url).json()
    assert document["schedule"] == "nightly"
    assert document["tick"].endswith("Z")
    assert "schedule" in outlast("job", first["id"], "--url", url).out


def test_a_backfill_shows_its_ticks_first_and_takes_times_of_the_schedules_zone(
    outlast: Outlast, url: str
) -> None:
    times = ("--from", "2026-03-28", "--to", "2026-03-30T02:30", "--url", url)
    dry = outlast("schedules", "backfill", "nightly", *times, "--dry-run")
    assert dry.code == 0, dry.err
    assert dry.out.splitlines() == [
        "Sat 2026-03-28 02:30:00 CET      2026-03-28 01:30:00 UTC",
        "Sun 2026-03-29 03:00:00 CEST     2026-03-29 01:00:00 UTC",
        "2 jobs would be enqueued",
    ]
    assert outlast("jobs", "--json", "--url", url).json()["jobs"] == []
    assert outlast("schedules", "backfill", "nightly", *times).out == "2 jobs enqueued\n"
    again = outlast("schedules", "backfill", "nightly", *times)
    assert again.out == "0 jobs enqueued, 2 of an earlier backfill are unfinished\n"


def test_a_schedule_is_deleted_unless_code_declares_it(outlast: Outlast, url: str) -> None:
    asyncio.run(put(url, [NewSchedule(name="coded", call=job(), spec=POLL.spec)], Origin.CODE))
    assert outlast("schedules", "delete", "poll", "--url", url).out == "schedule poll is deleted\n"
    refused = outlast("schedules", "delete", "coded", "--url", url)
    refused.refused(2, "'coded' is declared by the code of an application: delete it in that code")
    asyncio.run(aged(url, 120.0))
    asyncio.run(let_sleep(url, "coded"))
    shown = outlast("schedules", "show", "coded", "--url", url).out
    assert "it fires once a worker with that code starts" in shown


def test_an_unknown_schedule_is_not_so(outlast: Outlast, url: str) -> None:
    for verb in ("show", "pause", "resume", "trigger", "delete", "backfill"):
        more = ("--from", "2026-01-01", "--to", "2026-01-02") if verb == "backfill" else ()
        said = outlast("schedules", verb, "weekly", *more, "--url", url)
        said.refused(1, "there is no schedule 'weekly'")


def test_wrong_times_and_misplaced_options_are_refused(outlast: Outlast, url: str) -> None:
    wrong = outlast("schedules", "backfill", "poll", "--from", "soon", "--to", "x", "--url", url)
    wrong.refused(2, "--from takes a time such as 2026-03-01")
    misplaced = outlast("schedules", "--json", "show", "poll", "--url", url)
    misplaced.refused(2, "the options before show belong to the list: leave them out, or show")
    years = ("--from", "2020-01-01", "--to", "2026-01-01", "--url", url)
    outlast("schedules", "backfill", "poll", *years).refused(2, "more than 10000 ticks")


def test_no_schedules_are_no_error(outlast: Outlast, store_url: str) -> None:
    asyncio.run(put(store_url, []))
    assert outlast("schedules", "--url", store_url).out == (
        "no schedules: a worker whose code has app.schedule(…) declares them\n"
    )


def test_doctor_names_ticks_in_a_change_of_the_clocks_with_their_dates(
    outlast: Outlast, url: str
) -> None:
    often = '{"cron":"*/30 2 * * *","zone":"Europe/Berlin"}'
    odd = '{"cron":"0 0 * * *","zone":"Mars/Olympus"}'
    asyncio.run(
        put(
            url,
            [
                NewSchedule(name="often", call=job(), spec=often, overlap=Overlap.ALLOW),
                NewSchedule(name="z-odd", call=job(), spec=odd),
                NewSchedule(name="z-odder", call=job(), spec=odd),
            ],
        )
    )
    said = outlast("doctor", "--json", "--url", url)
    said.code = 0  # the server of the tests has settings that are a problem
    found = {one["name"]: one for one in said.json()["findings"]}
    changes = found["clock_changes"]
    assert changes["level"] == "warning"
    assert changes["sentence"].startswith(
        "Schedule often, cron '*/30 2 * * *' in Europe/Berlin: on "
    )
    assert "it skips 02:00, 02:30" in changes["sentence"]
    assert "it repeats 02:00, 02:30" in changes["sentence"]
    assert "cannot fire schedule z-odd: zone 'Mars/Olympus'" in found["schedules"]["sentence"]
    assert found["schedules"]["sentence"].endswith(", and 1 more.")
    listed = outlast("schedules", "--url", url).out.splitlines()
    assert listed[-1].split()[:2] == ["z-odder", "malformed"]
