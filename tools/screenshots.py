"""Takes the pictures of the page that are in the docs: `make screenshots`. Given a folder, it takes
those of all pages into that, also dark and on a phone.

The store that they show is made here, on a clock of its own: each picture has the same jobs, of
a shop on whose host a worker was lost, while its mail server is down.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.browser import Browser
from harness.page import serving
from outlast.base.clock import SYSTEM
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import JobFacts, Policy
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.model.pause import PauseKind
from outlast.store import open_store
from outlast.store.actions import Note
from outlast.store.logs import JobLog, LogLine
from outlast.store.minutes import Counted, CountKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.schedules import NewSchedule
from outlast.store.stacks import Stack
from outlast.store.values import (
    Claimed,
    ClaimRequest,
    NewJob,
    NewPause,
    NewWorker,
    Report,
    Save,
    WorkerRef,
)
from outlast.web.render import NAVIGATION

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
TASKS = ["mail.send", "invoice.render", "picture.resize", "report.nightly", "import.orders"]
SCHEDULES = {
    "report.nightly": '{"cron":"15 3 * * *","zone":"Europe/Berlin"}',
    "import.orders": '{"every":3600}',
}
MINUTE = 60.0


class StoryClock:
    """The machine's time, set back by ``behind`` seconds."""

    def __init__(self, behind: float) -> None:
        self.behind = behind

    def wall(self) -> float:
        """Seconds since 1970."""
        return SYSTEM.wall() - self.behind

    def boot(self) -> float:
        """Seconds since the machine started."""
        return SYSTEM.boot()

    def random(self) -> float:
        """A number in [0, 1)."""
        return 0.5

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await SYSTEM.sleep(seconds)


class Story:
    """Makes the jobs of the pictures, by the store's own verbs. ``ids`` has them by name."""

    def __init__(self, store: Store, clock: StoryClock) -> None:
        self.store, self.clock = store, clock
        self.ids: dict[str, int] = {}

    def at(self, minutes_ago: float) -> None:
        """Go on at this time."""
        self.clock.behind = minutes_ago * MINUTE

    async def register(self, name: str, host: str, pid: int, **more: Any) -> WorkerRef:
        """Register a worker."""
        new: dict[str, Any] = {
            "heartbeat": 2.0,
            "lease": 60.0,
            "boot_id": host,
            "release": "2026.11.2",
        } | more
        return await self.store.register(
            NewWorker(name=name, host=host, pid=pid, tasks=TASKS, **new)
        )

    async def add(self, name: str, task: str, **fields: Any) -> int:
        """Enqueue a job."""
        (made,) = await self.store.enqueue([NewJob(task=task, **fields)])
        self.ids[name] = made.job_id
        return made.job_id

    async def claim(self, worker: WorkerRef, task: str, limit: int = 1) -> list[Claimed]:
        """Take jobs of a task."""
        request = ClaimRequest(tasks=[task], limit=limit)
        return (await self.store.exchange(worker, [], [request])).claimed

    async def end(self, worker: WorkerRef, claimed: Claimed, **outcome: Any) -> None:
        """End an attempt."""
        facts = JobFacts(
            job_id=claimed.job_id,
            token=claimed.token,
            failures=claimed.failures,
            losses=claimed.losses,
            policy=claimed.policy,
        )
        await self.store.exchange(worker, [decide(facts, Outcome(**outcome), lambda: 0.5)], [])

    async def count(
        self, worker: WorkerRef, batch: int, lane: tuple[str, str], good: int, bad: int
    ) -> None:
        """Note what a worker has counted in this minute of a queue and a task."""
        counted = []
        for outcome, number in (("completed", good), ("error", bad)):
            one = Counted(kind=CountKind.ATTEMPT, queue=lane[0], task=lane[1], outcome=outcome)
            one.jobs, one.seconds = number, number * 0.4
            one.durations[2], one.durations[3] = number - number // 5, number // 5
            one.waits[1], one.waits[2] = number - number // 9, number // 9
            one.waited = number * (0.04 + 0.01 * (batch * 7 % 5))
            counted += [one] if number else []
        await self.store.note_minute(worker.worker_id, batch, counted)

    async def crash(self, worker: WorkerRef, claimed: Claimed, crash: Crash, **more: Any) -> None:
        """End an attempt by a crash."""
        await self.end(worker, claimed, kind=OutcomeKind.CRASHED, crash=crash, delay=0.0, **more)


async def tell(story: Story) -> None:
    """Make all of it, in the order of time."""
    await _finish_invoices(story)
    await _import_orders(story)
    await _refuse_mails(story)
    await _go_on(story)


async def _finish_invoices(story: Story) -> None:
    story.at(48)
    worker = await story.register("web-1", "web-1.shop", 812)
    for number in range(40):
        story.at(46 - number)
        await story.add(f"invoice {number}", "invoice.render", queue="documents", tenant="acme")
        (claimed,) = await story.claim(worker, "invoice.render")
        await story.end(worker, claimed, kind=OutcomeKind.COMPLETED, result='{"pages": 3}')
    for minute in range(47):
        story.at(47 - minute)
        good, bad = 30 + minute * 7 % 23, minute % 11 // 10
        await story.count(worker, minute + 1, ("documents", "invoice.render"), good, bad)
    await story.store.set_status(worker, WorkerStatus.STOPPED)


async def _import_orders(story: Story) -> None:
    """Lose the worker of a long import, whose zombie writes too late; then crash, and go on."""
    store = story.store
    story.at(44)
    args = '{"file": "s3://orders/2026-11-22.csv", "rows": 1200000, "order": 9007199254740993}'
    policy = Policy(timeout=7200.0, retries=3, labels=("import", "nightly"))
    number = await story.add(
        "orders", "import.orders", queue="imports", tenant="acme", args=args, policy=policy,
        key="orders 2026-11-22",
    )  # fmt: skip
    first = await story.register("batch-1", "batch-1.shop", 4711)
    (lost,) = await story.claim(first, "import.orders")
    story.at(31)
    await store.checkpoint([Save(number, lost.token, 1, '{"row": 402000}')])
    story.at(29)
    looks = (await store.observe()).workers
    gone = next(look for look in looks if look.worker_id == first.worker_id)
    await store.reap(gone)
    crash = Crash(
        kind=CrashKind.LOST_WORKER, message="its worker was not heard from for a whole lease",
        worker="batch-1", host="batch-1.shop", pid=4711, release="2026.11.1",
    )  # fmt: skip
    await store.reclaim(
        lambda orphan: decide(
            orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash, delay=0.0), lambda: 0.5
        )
    )
    story.at(27)
    await store.checkpoint([Save(number, lost.token, 2, '{"row": 431000}')])
    await _crash_then_run(story, number)


async def _crash_then_run(story: Story, number: int) -> None:
    story.at(26)
    second = await story.register("batch-2", "batch-2.shop", 377, tags=["big"])
    (claimed,) = await story.claim(second, "import.orders")
    story.at(15)
    await story.store.checkpoint([Save(number, claimed.token, 1, '{"row": 730000}')])
    story.at(13)
    crash = Crash(
        kind=CrashKind.OUT_OF_MEMORY,
        message="the kernel has killed its runner: out of memory",
        signal="SIGKILL",
        rss_peak_bytes=3_900_000_000,
        cpu_seconds=714.2,
        output=["row 731000 of 1200000", "row 732000 of 1200000", "cache: 3.6 GiB"],
        checkpoint_age_seconds=120.0,
        worker="batch-2",
        host="batch-2.shop",
        pid=391,
        release="2026.11.2",
        python="3.12.8",
        stacks='Thread 0x7f00 (most recent call first):\n  File "/srv/shop/orders.py", line 88 in'
        ' merge\n  File "/srv/shop/orders.py", line 41 in load\n',
    )
    await story.crash(second, claimed, crash, pid=391)
    story.at(12)
    (again,) = await story.claim(second, "import.orders")
    story.at(1)
    await story.store.checkpoint([Save(number, again.token, 1, '{"row": 1044000}')])
    said = Progress(0.87, "loading", "row 1,044,000 of 1,200,000")
    await story.store.progress([Report(number, again.token, said)])
    now = story.clock.wall()
    lines = [
        LogLine(now - 4 * (60 - n), f"row {1_038_000 + n * 100} of 1200000") for n in range(60)
    ]
    await story.store.keep_logs([JobLog(number, again.token, again.number, lines, dropped=310)])
    await _show_where(story, again)
    story.at(0)
    await story.store.heartbeat(second)


async def _show_where(story: Story, running: Claimed) -> None:
    story.at(0.3)
    lines = [f'  File "/srv/shop/orders.py", line {line}' for line in ("88 in merge", "41 in load")]
    shown = Stack(
        token=running.token,
        asked=int(story.clock.wall() * 1000),
        text="\n".join(["Thread 0x7f00 (most recent call first):", *lines]),
        line=lines[0].strip(),
    )
    await story.store.keep_stack(running.job_id, shown)


async def _refuse_mails(story: Story) -> None:
    story.at(20)
    worker = await story.register("web-2", "web-2.shop", 990)
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/shop/mail.py", line 41, in send\n    server.deliver(message)\n'
        '  File "/srv/shop/smtp.py", line 17, in deliver\n    raise Refused(reply)\n'
        "shop.smtp.Refused: 451 the mail server is down\n"
    )
    crash = Crash(
        kind=CrashKind.ERROR, message="451 the mail server is down", traceback=trace,
        exception="shop.smtp.Refused", worker="web-2", host="web-2.shop", pid=1004,
        release="2026.11.2", python="3.12.8", output=["connecting to mail.shop:25", "451"],
    )  # fmt: skip
    for number in range(7):
        story.at(18 - number)
        args = f'{{"to": "customer-{number}@example.org", "template": "welcome"}}'
        await story.add(
            f"mail_{number}", "mail.send", queue="mail", args=args, policy=Policy(retries=0)
        )
        (claimed,) = await story.claim(worker, "mail.send")
        await story.crash(worker, claimed, crash, pid=1004)
    for minute in range(11):
        story.at(20 - minute)
        good = max(0, 9 - minute * 2)
        await story.count(worker, minute + 1, ("mail", "mail.send"), good, minute // 2)
    story.at(9)
    why = "the mail server is down"
    await story.store.pause(
        NewPause(kind=PauseKind.QUEUE, name="mail", reason=why, paused_by="ada"),
        record=Note(actor="ada", verb="pause", target="queue mail", reason=why),
    )
    for number in range(3):
        story.at(8 - number)
        await story.add(f"waiting mail {number}", "mail.send", queue="mail", args='{"to": "x@y.z"}')
    story.at(0)
    await story.store.heartbeat(worker)


async def _go_on(story: Story) -> None:
    story.at(6)
    worker = await story.register("web-3", "web-3.shop", 1200)
    for number, fraction in enumerate((0.25, 0.6)):
        one = await story.add(f"picture {number}", "picture.resize", queue="pictures", priority=5)
        (claimed,) = await story.claim(worker, "picture.resize")
        await story.store.progress([Report(one, claimed.token, Progress(fraction, "resizing"))])
    for name, spec in SCHEDULES.items():
        call = NewJob(task=name, queue="reports")
        await story.store.put_schedules([NewSchedule(name=name, call=call, spec=spec)])
    await story.add("unserved", "picture.classify", queue="pictures", tenant="globex")
    await story.add("later", "report.nightly", queue="reports", delay=5 * 3600.0)
    for number in range(12):
        story.at(5 - number / 4)
        await story.add(f"document {number}", "invoice.render", queue="documents", tenant="globex")
    story.at(0)
    await story.store.heartbeat(worker)


async def make_store(folder: Path) -> tuple[str, dict[str, int]]:
    """Make the store of the story; return its URL, and its jobs by name."""
    url, clock = f"sqlite:///{folder / 'shop.db'}", StoryClock(3600.0)
    store = open_store(url, clock=clock)
    try:
        await store.open()
        story = Story(store, clock)
        await tell(story)
    finally:
        await store.close()
    return url, story.ids


def take(
    browser: Browser,
    address: str,
    folder: Path,
    name: str,
    until: str | None = None,
    **look: Any,
) -> None:
    """Take one picture, of the whole page or as far as an element."""
    browser.look_like(**look)
    browser.open(address)
    browser.wait(lambda each: each.run("return document.readyState") == "complete")
    browser.photograph(folder / f"{name}.png", until)


def main(folder: Path, pages: dict[str, str], looks: dict[str, dict[str, Any]]) -> None:
    """Take the pictures of these pages, looking so."""
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary, Browser() as browser:
        url, ids = asyncio.run(make_store(Path(temporary)))
        with serving(url, name="production", colour="red") as address:
            for name, path in pages.items():
                whole = address + path.format(**ids)
                for suffix, look in looks.items():
                    take(browser, whole, folder, f"page-{name}{suffix}", **look)


IN_DOCS = {"overview": "", "job": "jobs/{orders}"}
IN_README = {"job": IN_DOCS["job"]}
PAGES = IN_DOCS | {
    "jobs": "jobs",
    "dead-job": "jobs/{mail_0}",
    "confirm": "jobs/{mail_0}/discard",
    "logs": "jobs/{orders}/logs",
    "search": "jobs?phase=dead&error=451&since=2h",
    "bulk": "jobs/requeue?phase=dead&queue=mail&error=451&since=2h",
    "queue": "queues/queue?name=mail",
    "task": "tasks/task?name=invoice.render",
    "worker": "workers/3",
    "schedule": "schedules/schedule?name=report.nightly",
    "missing": "jobs/999",
    **{name: name for name in (entry.path.removeprefix("/") for entry in NAVIGATION[2:])},
}
LOOKS: dict[str, dict[str, Any]] = {
    "": {},
    "-dark": {"dark": True},
    "-phone": {"width": 390, "height": 844},
    "-phone-dark": {"width": 390, "height": 844, "dark": True},
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), PAGES, LOOKS)
    else:
        main(PICTURES, IN_DOCS, {"": {}})
        main(PICTURES, IN_README, {"-top": {"width": 1120, "until": "#printed"}})
