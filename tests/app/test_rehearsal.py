"""A release that would treat waiting jobs differently: each change is found, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

import outlast
from outlast.client.rehearsal import Area, Rehearsal, rehearse
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.schedules import Origin
from outlast.store.values import Save
from tests.cases import each_case
from tests.conformance.kit import Hands, ended

KEYS = {"old": outlast.Encryption.make_key(), "new": outlast.Encryption.make_key()}
PAID = 260  # jobs: more than one page

OLD = """
app = outlast.App(url, payloads=[outlast.Encryption({"old": KEYS["old"]})])
bank = app.limit("bank", running=5)

@app.task(queue="mails", timeout=60)
def mail(to: str, subject: str, copies: float = 1.0) -> None: ...

@app.task(limits=[bank])
def pay(card: str) -> None: ...

@app.task(aliases=["draw"])
def render(book: str) -> None: ...

app.schedule("nightly", mail.call("ada", "hello"), cron="30 2 * * *")
"""
LATER = """
@app.task
def later(day: str) -> None: ...

app.schedule("weekly", later.call("monday"), cron="0 0 * * 1")
"""


def make_app(source: str, url: str) -> outlast.App:
    found: dict[str, Any] = {"outlast": outlast, "url": url, "KEYS": KEYS}
    exec(compile(source, "release.py", "exec"), found)
    app = found["app"]
    assert isinstance(app, outlast.App)
    return app


async def fill(store: Store, url: str) -> None:
    """Store what the old release leaves: jobs, one with a checkpoint, its worker and its
    declarations."""
    app = make_app(OLD, url)
    mail, pay, render = (app.tasks[name] for name in ("mail", "pay", "render"))
    await render.using(key="emma").enqueue("Emma")
    text = app.stores.payloads.encode("checkpoint", '{"page":7}')
    hands = await Hands.on(store, lease=600.0, tasks=[*app.tasks], queues=["mails", "default"])
    (claimed,) = await hands.claim(1, tasks=["render"])
    await store.checkpoint([Save(claimed.job_id, claimed.token, 1, text)])
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    await app.enqueue_many([pay.call(f"card {number}") for number in range(PAID)])
    await mail.using(delay=3600).enqueue("ada", "hello")
    await mail.using(queue="default", keep=60, priority=5).enqueue("bob", "hello", copies=2.5)
    await store.put_schedules([*app.schedules.declared.values()], Origin.CODE)
    await store.declare_limits(app.limits._news())
    await app.close()


async def rehearsed(store: Store, url: str, source: str, **given: Any) -> Rehearsal:
    app = make_app(source, url)
    try:
        return await rehearse(app, store.inspector, **given)
    finally:
        await app.close()


COMPATIBLE = [
    ("subject: str,", "subject: str | int,"),
    ("copies: float = 1.0", "copies: float = 2.0, urgent: bool = False"),
    ("book: str", "title: str = '', book: str = ''"),
    ('aliases=["draw"])\ndef render', 'aliases=["render"])\ndef draw'),
    ('{"old": KEYS["old"]}', '{"new": KEYS["new"], "old": KEYS["old"]}'),
    ("aliases=[", "checkpoint=dict[str, int], aliases=["),
    ("limits=[bank]", "limits=[bank], keep=9, retry_on=(OSError,)"),
    ("\napp.schedule", f"{LATER}\napp.schedule"),
]


@pytest.fixture
async def filled(store: Store, store_url: str) -> Store:
    """A store with what the old release leaves; a rehearsal only reads it."""
    await fill(store, store_url)
    return store


async def test_a_compatible_release_is_no_finding(filled: Store, store_url: str) -> None:
    source = OLD
    for old, new in COMPATIBLE:
        assert old in source
        source = source.replace(old, new, 1)
    found = await rehearsed(filled, store_url, source)
    assert found.findings == []
    assert (found.unfinished, found.read, found.schedules) == (PAID + 3, PAID + 3, 1)


# what is changed in the release -> the kind, the name, words, and the number of jobs
CHANGES: dict[str, tuple[str, str, Area, str, str, int]] = {
    "a task is gone": ("def pay(", "def charge(", Area.TASK, "pay", "no task is called 'pay'", 260),
    "a key is of a task that is gone": (
        'aliases=["draw"])\ndef render', 'name="new")\ndef render', Area.KEY, "render", "keys", 1,
    ),
    "a checkpoint has another shape": (
        "aliases=[", "checkpoint=dict[str, str], aliases=[",
        Area.CHECKPOINT, "render", "does not fit dict[str, str]", 1,
    ),
    "an argument is renamed": (
        "def mail(to", "def mail(address", Area.ARGUMENTS, "mail", "does not take 'to'", 2,
    ),
    "an argument is removed": (
        ", copies: float = 1.0", "", Area.ARGUMENTS, "mail", "does not take 'copies'", 1,
    ),
    "an argument is new and required": (
        "card: str", "card: str, bank: str", Area.ARGUMENTS, "pay", "needs 'bank'", 260,
    ),
    "a type is narrowed": (
        "copies: float", "copies: int", Area.ARGUMENTS, "mail", "does not fit int", 1,
    ),
    "a key of payloads is gone": (
        '"old": KEYS["old"]', '"new": KEYS["new"]', Area.CHECKPOINT, "render", "cannot be read", 1,
    ),
    "an option differs": (
        "timeout=60", "timeout=30", Area.OPTION, "mail", "timeout=60.0; the release has 30.0", 2,
    ),
    "a limit is gone from a task": (
        "limits=[bank]", "", Area.LIMIT, "pay", "the limits bank; the release has no limits", 260,
    ),
    "a limit is lower": ("running=5", "running=4", Area.LIMIT, "bank", "from 5 at once to 4", 0),
    "a queue that no worker takes": (
        'queue="mails"', 'queue="post"', Area.WORKER, "mail", "its queue is 'post'", 0,
    ),
    "a tag that no worker has": (
        'aliases=["draw"]', 'requires=["gpu"]', Area.WORKER, "render", "it requires gpu", 0,
    ),
    "a schedule changes": (
        'cron="30 2', 'cron="30 3', Area.SCHEDULE, "nightly", "cron from '30 2 * * *' to '30 3", 0,
    ),
    "the call of a schedule changes": (
        '"ada", "hello"', '"bob", "hello"', Area.SCHEDULE, "nightly", "the args of its jobs", 0,
    ),
    "a schedule is gone": (
        'app.schedule("nightly"', 'app.schedule("daily"', Area.SCHEDULE, "nightly", "it ends", 0,
    ),
}  # fmt: skip


@each_case("what", CHANGES)
async def test_each_incompatible_change_is_found(filled: Store, store_url: str, what: str) -> None:
    old, new, kind, name, words, count = CHANGES[what]
    assert old in OLD
    found = await rehearsed(filled, store_url, OLD.replace(old, new, 1))
    (one,) = [each for each in found.findings if (each.kind, each.name) == (kind, name)]
    assert words in one.sentence
    assert one.count == count
    assert one.fix
    if count:
        row = await filled.inspector.job(one.job or 0)
        assert row is not None
        assert row.task == name
    others = {(each.kind, each.name) for each in found.findings} - {(kind, name)}
    assert others <= ALSO.get(what, set())


ALSO = {
    "a key is of a task that is gone": {(Area.TASK, "render")},
    "a key of payloads is gone": {(Area.ARGUMENTS, name) for name in ("mail", "pay", "render")}
    | {(Area.SCHEDULE, "nightly")},
    "an option differs": {(Area.SCHEDULE, "nightly")},  # its next jobs have the new one
    "a queue that no worker takes": {(Area.SCHEDULE, "nightly")},
    "an argument is renamed": {(Area.SCHEDULE, "nightly")},
}
"""What a change brings about besides."""


async def test_queues_that_the_release_will_serve_are_given(filled: Store, store_url: str) -> None:
    found = await rehearsed(filled, store_url, OLD, queues=["mails"])
    assert {(one.kind, one.name, one.count) for one in found.findings} == {
        *((Area.WORKER, name, 0) for name in ("pay", "render")),  # their next jobs
        *((Area.WORKER, name, count) for name, count in (("pay", 260), ("render", 1), ("mail", 1))),
    }


async def test_a_part_is_read_evenly_and_said_so(filled: Store, store_url: str) -> None:
    found = await rehearsed(filled, store_url, OLD.replace("def render", "def other"), most=20)
    assert (found.unfinished, found.read) == (PAID + 3, 20)
    assert {(one.kind, one.count) for one in found.findings} >= {(Area.TASK, 1)}  # the oldest job


async def test_a_schedule_put_at_run_time_is_read_as_its_jobs_are(
    filled: Store, store_url: str
) -> None:
    app = make_app(OLD, store_url)
    await app.schedules.put("own", app.tasks["render"].call("Emma"), every=60)
    await app.close()
    found = await rehearsed(filled, store_url, OLD.replace("book: str", "title: str"))
    sentences = {one.name: one.sentence for one in found.findings if one.kind is Area.SCHEDULE}
    assert list(sentences) == ["own"]
    assert "its jobs cannot run: task render does not take 'book'" in sentences["own"]
