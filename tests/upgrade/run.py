"""One rehearsal: a storm of kills and drains over the five stages of an upgrade and its way back.

The tasks, the programs that enqueue, the faults and the verdict are those of tests/chaos. Here is
which release runs when, and what one release has to do for the other: hear its pauses and cancels,
and read its rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from harness.scene import Scene, boot
from harness.servers import free_port
from outlast.model.job import State
from outlast.store import open_store
from tests.chaos.deeds import PROCESSES
from tests.chaos.nemesis import Deed, Ground, Nemesis
from tests.chaos.run import DRAIN_SECONDS, QUIET_SECONDS, READY_SECONDS, Chaos, Plan
from tests.chaos.supervisor import Member
from tests.chaos.verdict import Verdict
from tests.conformance.hostile_kit import raw
from tests.upgrade.releases import Release

DEEDS = ("worker killed", "tree killed", "runner killed", "worker drained")
STAGES = 5
CALM_SECONDS, MORE_SECONDS = 8.0, 2.5  # without faults and with more, while a stage is not over
APP = "tests.chaos.tasks:app"
SPARED_SECONDS = 45.0  # for a worker's start and first attempt, on a machine that is busy
ENDLESS = ("endless", "0.05")  # the task, and seconds between its steps
ANSWER_SECONDS = 240.0  # for what other programs have to hear, with kills going on
ADDRESSES = ("jobs?limit=100", "schedules", "limits")  # what does not change while all is quiet
MORE = ("stats", "workers", "pauses", "deaths", "doctor")
COMPARED = 12  # jobs, each with all of its attempts
ASIDE = {"now", "age"}
UNREAD = "SELECT DISTINCT job_id, message FROM outlast_attempts WHERE outcome = 'undecodable'"


class UpgradePlan(Plan, frozen=True, kw_only=True):
    """A plan of a rehearsal. ``breaks``: the new release writes what the old one cannot read."""

    breaks: bool = False

    def command(self) -> str:
        """Return the command that runs the same plan again."""
        more = " --break" if self.breaks else ""
        more += f" --workers {self.workers}" if self.workers != 3 else ""
        plan = f"--seconds {self.seconds:g} --seed {self.seed}"
        return f"python -m tests.upgrade {self.store} {plan}{more}"


class Seat(Member):
    """A place whose worker is of the release that the place has at its start."""

    runs: Release | None = None
    _began_at = 0.0
    _log_size = 0

    def __init__(self, scene: Scene, number: int, url: str, release: Release) -> None:
        super().__init__(scene, number, url)
        self.release = release
        self._told: set[str] = set()
        self._options += ("--drain-timeout", "2")  # long jobs are handed over

    def start(self) -> None:
        """Start a worker of this release."""
        self.runs = self.release
        self._began_at = boot()
        self._told.clear()
        log = self._scene.folder / f"{self.name}.log"
        self._log_size = log.stat().st_size if log.exists() else 0
        super().start()

    @property
    def is_ready(self) -> bool:
        """Return whether its present worker has been ready."""
        return self._has_told("worker_ready")

    @property
    def may_be_harmed(self) -> bool:
        """Return whether a deed may be done to it: a worker that is killed whenever it starts is
        never of its new release, and no job ends. After a time it is harmed all the same."""
        is_spared = boot() - self._began_at < SPARED_SECONDS and not self._has_told("attempt_ended")
        return super().may_be_harmed and not is_spared

    def _has_told(self, event: str) -> bool:
        """Whether its present worker has logged this. The log is also that of all before it."""
        if event not in self._told and self.process is not None:
            with self.process.log.open("rb") as log:
                log.seek(self._log_size)
                if f'"{event}"'.encode() in log.read():
                    self._told.add(event)
        return event in self._told

    def _place(self) -> dict[str, str]:
        release = {"OUTLAST_RELEASE": self.release.name}
        return {**super()._place(), **release, "OUTLAST_TEST_PYTHON": str(self.release.python)}


class Upgrade(Chaos):
    """Plays one plan with two releases."""

    def __init__(self, plan: UpgradePlan, old: Release, new: Release) -> None:
        super().__init__(plan)
        self._old, self._new = old, new
        self._clients_release = old
        self._number = 0
        self._said: list[str] = []

    # --- the stage -----------------------------------------------------------------------------

    def _deeds(self, _ground: Ground) -> dict[str, Deed]:
        return {name: PROCESSES[name] for name in DEEDS}

    async def _scene(self, stack: contextlib.AsyncExitStack, url: str) -> Scene:
        """Let the old release make the store. It is looked at without being opened: that would ask
        for what this tree has to migrate."""
        await self._did(self._old, "migrate", url=url)
        store = open_store(url)
        stack.push_async_callback(store.close)
        await self._prepare(url)
        return Scene(url, self._plan.folder, store, app=APP)

    def _member(self, scene: Scene, number: int, url: str) -> Member:
        return Seat(scene, number, url, self._old)

    def _enqueuer(self, number: int) -> subprocess.Popen[bytes]:
        """Start a program that enqueues, of the release that they are to be of now. Each has a
        number of its own, and so its own keys."""
        self._number += 1
        self._clients_env = {"OUTLAST_RELEASE": self._clients_release.name}
        self._clients_python = str(self._clients_release.python)
        return super()._enqueuer(self._number)

    # --- the stages ----------------------------------------------------------------------------

    async def _storm(
        self, ground: Ground, nemesis: Nemesis, enqueuers: list[subprocess.Popen[bytes]]
    ) -> None:
        seats = [each for each in ground.supervisor.members if isinstance(each, Seat)]
        first, *others = seats
        url = ground.scene.url
        carried: list[int] = []  # a job that is too long for one worker

        async def under_load() -> None:
            """The old schema, and only old programs."""

        async def migrate() -> None:
            """Migrate; then old programs on the new schema."""
            await self._migrate(url)
            await self._across(ground, by=self._new)

        async def side_by_side() -> None:
            """One worker and one program that enqueues are new; each release reads."""
            carried.append(await self._begin_long(ground))
            await self._replace(ground, [first], self._new)
            await self._swap(ground, enqueuers, 0, self._new)
            for release in (self._old, self._new):
                await asyncio.to_thread(self._read_all, release, url)

        async def only_new() -> None:
            """All are new; the command line is old."""
            await self._replace(ground, others, self._new)
            await self._goes_on(ground, carried.pop(), self._new)
            await self._swap(ground, enqueuers, 1, self._new)
            await self._across(ground, by=self._old)

        async def back() -> None:
            """All are old again, on the new schema."""
            carried.append(await self._begin_long(ground))
            await self._replace(ground, seats, self._old)
            await self._goes_on(ground, carried.pop(), self._old)
            for number in range(len(enqueuers)):
                await self._swap(ground, enqueuers, number, self._old)

        stages: list[Callable[[], Coroutine[Any, Any, None]]] = [
            under_load, migrate, side_by_side, only_new, back,
        ]  # fmt: skip
        for stage in stages:
            began_at, before = time.monotonic(), sum(nemesis.done.values())
            doing = asyncio.ensure_future(stage())
            more = self._plan.seconds / STAGES
            try:
                while not doing.done() or sum(nemesis.done.values()) == before:
                    await nemesis.torment(more)
                    await asyncio.wait([doing], timeout=CALM_SECONDS)
                    more = MORE_SECONDS
                await doing
            finally:
                doing.cancel()
            spent, faults = time.monotonic() - began_at, sum(nemesis.done.values()) - before
            print(f"  {spent:5.1f} s, {faults:2} faults: {stage.__doc__}", flush=True)

    async def _migrate(self, url: str) -> None:
        code, said = await self._ask(self._new, "migrate", "--check", url=url)
        if code != 1:
            raise AssertionError(f"the old schema lacks nothing that the new release has: {said}")
        print(f"  {await self._did(self._new, 'migrate', url=url)}", flush=True)
        async with raw(url) as file:
            ((filled,),) = await file.rows("SELECT count(*) FROM outlast_jobs WHERE rehearsed = 1")
        if not filled:
            raise AssertionError("there was no row for the migration to fill: let it last longer")

    async def _replace(self, ground: Ground, seats: list[Seat], release: Release) -> None:
        """Replace workers one by one, by a drain, as a deploy does."""
        for seat in seats:
            seat.release = release
            if seat.alive:
                seat.drain()

            def is_there(seat: Seat = seat) -> bool:
                return seat.runs is release and seat.is_ready

            await ground.scene.until(is_there, f"{seat.name} of {release.name}", READY_SECONDS)

    async def _begin_long(self, ground: Ground) -> int:
        """Enqueue a job that goes on until it is cancelled; return it once it has a checkpoint."""
        scene = ground.scene
        job_id = await self._enqueue(self._clients_release, scene.url, *ENDLESS)
        what = f"a checkpoint of job {job_id}"
        await scene.until(lambda: scene.checkpoint(job_id), what, ANSWER_SECONDS)
        return job_id

    async def _goes_on(self, ground: Ground, job_id: int, release: Release) -> None:
        """Wait until a worker of this release, the only one now, goes on with what one of the other
        release had saved; or has given it back since it cannot read that."""
        scene = ground.scene
        before = await scene.checkpoint(job_id)

        async def does() -> bool:
            job, rows = await scene.job(job_id), await scene.worker_rows()
            at = {row.id: row.release for row in rows}.get(job.worker_id or 0)
            goes_on = at == release.name and job.checkpoint != before
            return goes_on or bool(await unread(scene.url))

        what = f"{release.name} to go on with job {job_id}, begun by the other release"
        await scene.until(does, what, ANSWER_SECONDS)
        await self._did(release, "cancel", str(job_id), url=scene.url)

    async def _swap(
        self,
        ground: Ground,
        enqueuers: list[subprocess.Popen[bytes]],
        number: int,
        release: Release,
    ) -> None:
        """Replace a program that enqueues; return when the new one has. Where many jobs cannot be
        read, the backlog is long, and nothing is enqueued: that is for the verdict."""
        enqueuers[number].terminate()
        if code := await asyncio.to_thread(enqueuers[number].wait, DRAIN_SECONDS):
            ground.supervisor.odd.append(f"an enqueuer ended with code {code}")
        # Else the backlog only grows: of a task that it paused, of jobs that wait for its events.
        await self._resume(ground.scene.url)
        await self._answer(ground.scene)
        self._clients_release = release
        enqueuers[number] = self._enqueuer(number)
        accepted = self._plan.folder / f"ledger-e{self._number}"

        async def has() -> bool:
            return accepted.exists() or bool(await unread(ground.scene.url))

        await ground.scene.until(has, f"jobs enqueued by {release.name}", ANSWER_SECONDS)

    # --- what one release does for the other -----------------------------------------------------

    async def _across(self, ground: Ground, *, by: Release) -> None:
        """Cancel and pause by the command line of one release what workers of the other run."""
        scene = ground.scene
        running = await self._enqueue(by, scene.url, *ENDLESS)
        await self._reaches(by, scene, running, State.RUNNING)
        await self._did(by, "cancel", str(running), url=scene.url)
        await self._reaches(by, scene, running, State.CANCELLED)

        await self._did(by, "pause", "task", "forks", "--wait", "90", url=scene.url)
        held = await self._enqueue(by, scene.url, "forks", "0.05", "false")
        passes = await self._enqueue(by, scene.url, "brief", "0.05")
        await self._reaches(by, scene, passes, State.COMPLETED, State.DEAD)
        job = json.loads(await self._did(by, "job", str(held), "--json", url=scene.url))
        if (job["state"], job["attempt_count"]) != ("queued", 0):
            self._said.append(f"UPGRADE job {held} ran though {by.name} had paused its task: {job}")
        await self._did(by, "resume", "task", "forks", url=scene.url)
        await self._reaches(by, scene, held, State.COMPLETED, State.DEAD)

    async def _enqueue(self, by: Release, url: str, task: str, *arguments: str) -> int:
        words = ("enqueue", APP, task, *arguments, "--priority", "9", "--json")
        return int(json.loads(await self._did(by, *words, url=url))["id"])

    async def _reaches(self, by: Release, scene: Scene, job_id: int, *states: State) -> None:
        async def is_there() -> bool:
            return (await scene.job(job_id)).state in states

        what = f"job {job_id}, which {by.name} has changed, to be {' or '.join(states)}"
        await scene.until(is_there, what, ANSWER_SECONDS)

    async def _ask(self, release: Release, *words: str, url: str) -> tuple[int, str]:
        return await asyncio.to_thread(release.ask, *words, url=url)

    async def _did(self, release: Release, *words: str, url: str) -> str:
        """Return what a command printed. Raises AssertionError if it could not do it."""
        code, said = await self._ask(release, *words, url=url)
        if code:
            raise AssertionError(f"outlast {' '.join(words)} of {release.name}: {code}\n{said}")
        return said

    # --- the verdict -----------------------------------------------------------------------------

    async def _until_all_ended(self, scene: Scene) -> float:
        """As for any storm, but do not wait for what no release here will read."""
        began_at = time.monotonic()

        async def is_over() -> bool:
            return await self._unfinished(scene) == 0 or bool(await unread(scene.url))

        with contextlib.suppress(AssertionError):
            await scene.until(is_over, "the end of all jobs", QUIET_SECONDS)
        return time.monotonic() - began_at

    async def _play(self, ground: Ground) -> Verdict:
        verdict = await super()._play(ground)
        url = ground.scene.url
        found = verdict.violations
        found += self._said
        found[:0] = [
            f"UNREADABLE job {job}: a worker of one release could not read what the other wrote:"
            f" {message}"
            for job, message in await unread(url)
        ]
        for release in (self._old, self._new):
            code, said = await self._ask(release, "verify", url=url)
            found += [f"verify of {release.name}: {said}"] if code else []
        found += await asyncio.to_thread(self._differences, url)
        return verdict

    def _differences(self, url: str) -> Iterator[str]:
        """Read all as each release has it, on the command line and by the page's API."""
        ((_, ours), (_, theirs)) = [
            each.ask("jobs", "--json", "--limit", "1000", url=url)
            for each in (self._new, self._old)
        ]
        yield from unlike(json.loads(ours), json.loads(theirs), "outlast jobs")
        many = sorted(json.loads(ours)["jobs"], key=lambda job: -job["attempt_count"])
        addresses = [*ADDRESSES, *(f"jobs/{job['id']}" for job in many[:COMPARED])]
        with serving(self._new, url, self._plan.folder) as new:
            told = [read(new, address) for address in addresses]
        with serving(self._old, url, self._plan.folder) as old:
            for address, document in zip(addresses, told, strict=True):
                yield from unlike(document, read(old, address), address)

    def _read_all(self, release: Release, url: str) -> None:
        """Read by the page's API, which answers with an error for what it cannot read."""
        with serving(release, url, self._plan.folder) as api:
            for address in (*ADDRESSES, *MORE):
                read(api, address)


async def unread(url: str) -> list[Any]:
    """Return the attempts that gave a job back because they could not read it."""
    async with raw(url) as file:
        return await file.rows(UNREAD)


@contextlib.contextmanager
def serving(release: Release, url: str, folder: Path) -> Iterator[str]:
    """Serve the page of a release; give the address of its API."""
    port = str(free_port())
    log = folder / "page.log"
    page = release.start("web", "--port", port, "--no-auth", "--url", url, log=log)
    address = f"http://127.0.0.1:{port}/api/v1"
    try:
        until = boot() + ANSWER_SECONDS
        while True:
            with contextlib.suppress(OSError):
                read(address, "stats")
                break
            if boot() > until or page.poll() is not None:
                raise AssertionError(f"the page of {release.name} is not served: {log.read_text()}")
            time.sleep(0.05)
        yield address
    finally:
        page.terminate()
        page.wait(DRAIN_SECONDS)


def read(api: str, address: str) -> Any:
    """Return a document of the page's API."""
    with urllib.request.urlopen(f"{api}/{address}", timeout=ANSWER_SECONDS) as answer:
        return json.load(answer)


def unlike(new: Any, old: Any, path: str) -> Iterator[str]:
    """Return where two documents differ in what both have."""
    if isinstance(new, dict) and isinstance(old, dict):
        for name in (new.keys() & old.keys()) - ASIDE:
            yield from unlike(new[name], old[name], f"{path}.{name}")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for number, (ours, theirs) in enumerate(zip(new, old, strict=True)):
            yield from unlike(ours, theirs, f"{path}[{number}]")
    elif new != old:
        yield f"UPGRADE {path}: the new release reads {new!r:.200}, the old one {old!r:.200}"
