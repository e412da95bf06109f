"""Several hosts in one URL: a primary, its standby, and hosts that say nothing.

A host that has lost its power refuses nothing and answers nothing: its packets are swallowed. A
stopped server, or one whose disk hangs, is mute: its kernel accepts, and no process answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest
import uvloop

from harness.certificates import Authority
from harness.servers import (
    PostgresMissing,
    PostgresServer,
    find_debian_binaries,
    free_port,
    unprivileged_user,
)
from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.backend import StoreOptions
from outlast.store.postgres import hosts
from outlast.store.postgres.connection import connect
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewJob, WorkerRef
from outlast.web.site import Site
from tests.cli import conftest as cli
from tests.cli.conftest import Outlast
from tests.conformance.kit import Hands, enqueued, eventually, row_of
from tests.crash.kit import scene
from tests.web.kit import Page, let_in

folder, fork_server, outlast = cli.folder, cli.fork_server, cli.outlast

READING = (
    *("jobs", "stats", "workers", "verify", "limits", "schedules", "pauses", "flows", "actions"),
    *("dead list", "dead groups", "job 1", "why 1", "logs 1", "doctor"),
)
WRITING = (
    *("worker --shell --runners 1", "enqueue --url URL shop:app nap 1", "run -- true"),
    *("cancel 1", "requeue 1", "workers drain --all", "pause queue q"),
)
AT_ONCE = (
    "migrate",
    "web --no-auth --port 0",
    "jobs",
    "why 1",
    "workers",
    "stats",
    "dead requeue 1",
)
SOON = 30.0  # seconds for a connection past a silent host
PATIENCE = 120.0  # seconds: half of it, for the silent host, would be too long as well
ENOUGH = 5.0  # seconds for those that answer, though a silent one is asked first
END_OF_LOCAL_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = 'pair' AND client_addr IS NULL"""
HERE, SILENT, NAME = "127.0.0.1", "127.0.0.9", "localhost"


class Pair:
    """A primary and a standby that follows it."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby

    def url(self, attrs: str | None = None, *hosts: str, database: str = "pair") -> str:
        """The URL of these hosts, in this order; the standby first if none are named."""
        named = ",".join(hosts or (self.standby_host, self.primary_host))
        return f"postgresql://postgres@{named}/{database}" + (
            f"?target_session_attrs={attrs}" if attrs else ""
        )

    @property
    def primary_host(self) -> str:
        return f"{HERE}:{self.primary.port}"

    @property
    def standby_host(self) -> str:
        return f"{HERE}:{self.standby.port}"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with PostgresServer() as primary:
        url = primary.create_database("pair")

        async def fill() -> None:
            store = PostgresStore(url)
            await store.open()
            await store.enqueue([NewJob(task="t")])
            await store.close()

        asyncio.run(fill())
        with PostgresServer(standby_of=primary) as standby:
            yield Pair(primary, standby)


@contextlib.contextmanager
def swallowing(port: int) -> Iterator[str]:
    """A host whose kernel drops each packet that opens a connection: its queue of them is full."""
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.socket())
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((SILENT, port))
        door.listen(0)
        while True:
            one = stack.enter_context(socket.socket())
            one.settimeout(0.3)
            try:
                one.connect(door.getsockname())
            except TimeoutError:
                break
        yield f"{SILENT}:{door.getsockname()[1]}"


@contextlib.contextmanager
def mute() -> Iterator[str]:
    """A host whose kernel accepts connections, while no process answers."""
    with socket.socket() as door:
        door.bind((SILENT, 0))
        door.listen(100)
        yield f"{SILENT}:{door.getsockname()[1]}"


class Hole:
    """A network of its own, in which nothing answers: its one way out leads to a device that drops
    each packet. A socket in the file system leads out of it."""

    host = "198.51.100.9"  # an address for documents, which no host has
    # No other kind of device is in each kernel, and a route to nowhere tells the sender.
    _MAKE = (
        "set -e; ip tuntap add mode tun name hole; ip address add 198.51.100.1/24 dev hole;"
        " ip link set lo up; ip link set hole up; echo ready; read -r _"
    )

    def __init__(self) -> None:
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
            pytest.skip("a network of its own needs root, ip, unshare and nsenter")
        self._anchor = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", self._MAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._anchor.stdout is not None
        if self._anchor.stdout.readline() != "ready\n":
            pytest.skip(f"no network of its own here: {self._anchor.communicate()[1].strip()}")
        self.enter = ("nsenter", f"--target={self._anchor.pid}", "--net", "--")

    def count(self) -> int:
        """Return how many packets it has swallowed."""
        show = ("ip", "-json", "-stats", "link", "show", "hole")
        seen = subprocess.run([*self.enter, *show], capture_output=True, check=True)
        dropped: int = json.loads(seen.stdout)[0]["stats64"]["tx"]["dropped"]
        return dropped

    def end(self) -> None:
        """Leave it; it is gone with its last process."""
        self._anchor.communicate()


@pytest.fixture
def hole() -> Iterator[Hole]:
    made = Hole()
    try:
        yield made
    finally:
        made.end()


Silence = Callable[[], AbstractContextManager[str]]
SILENCES: dict[str, Silence] = {"swallows": lambda: swallowing(0), "mute": mute}


def sockets() -> set[str]:
    """What the open descriptors of this process are."""
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return {each for each in found if each.startswith("socket:")}


async def closed(before: set[str]) -> None:
    """Wait until no socket is left of those that were opened since."""

    async def are_gone() -> bool:
        return sockets() <= before

    await eventually(are_gone, SOON)


# -- what reads


@pytest.mark.parametrize("how", ["url", "environment"])
def test_what_reads_works_with_each_attribute(pair: Pair, outlast: Outlast, how: str) -> None:
    wrong = []
    for attrs in ("any", "primary", "read-write", "read-only", "prefer-standby", "standby"):
        env = {} if how == "url" else {"PGTARGETSESSIONATTRS": attrs}
        url = pair.url(attrs if how == "url" else None)
        for command in READING if (how, attrs) == ("url", "read-write") else READING[:1]:
            said = outlast(*command.split(), "--url", url, **env)
            if (said.code and command != "doctor") or said.code > 1:
                wrong.append((attrs, command, said.code, said.err))
    assert not wrong


async def test_what_reads_cannot_write(pair: Pair) -> None:
    for attrs in ("any", "primary", "read-write"):
        store = PostgresStore(pair.url(attrs, pair.primary_host), read_only=True)
        await store.open()
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.enqueue([NewJob(task="t")])
        await store.close()


# -- hosts that say nothing


async def test_without_attributes_the_first_host_is_the_first_choice(pair: Pair) -> None:
    """A worker that has once reached a standby would stay there for good."""
    with mute() as silent:
        for first, is_standby in ((silent, True), (pair.primary_host, False)):
            store = PostgresStore(pair.url(None, first, pair.standby_host), read_only=True)
            async with store._connections.use() as connection:
                found = await connection.fetchval("SELECT pg_is_in_recovery()")
            await store.close()
            assert found is is_standby


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with two addresses, the first of which may be silent."""
    real = socket.getaddrinfo

    def resolve(host: object, port: object, *rest: object, **named: object) -> object:
        if host in (NAME, NAME.encode()):
            kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*kind, (each, int(str(port)))) for each in (SILENT, HERE)]
        return real(host, port, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


async def reached(url: str, patience: float = PATIENCE) -> None:
    """Write to a store, soon."""
    store = PostgresStore(url, connect_timeout=patience)
    try:
        async with asyncio.timeout(SOON):
            await store.open()
            await store.enqueue([NewJob(task="t")])
    finally:
        await store.close()


@pytest.mark.parametrize("attrs", ["any", "primary", "read-write", "prefer-standby"])
@pytest.mark.parametrize("silence", SILENCES.values(), ids=SILENCES)
async def test_a_silent_host_is_passed_over(pair: Pair, silence: Silence, attrs: str) -> None:
    with silence() as silent:
        for order in ((silent, pair.primary_host), (pair.primary_host, silent)):
            store = PostgresStore(pair.url(attrs, *order), connect_timeout=PATIENCE)
            before = sockets()
            for _ in range(2):
                async with asyncio.timeout(SOON):
                    await store.enqueue([NewJob(task="t")])
                await store.drop_connections()
            await store.close()
            await closed(before)


@pytest.mark.parametrize("attrs", ["any", "primary"])
async def test_a_worker_passes_over_a_host_whose_packets_are_lost(
    pair: Pair, hole: Hole, tmp_path: Path, attrs: str
) -> None:
    """From its start on, and after its sessions have ended."""
    server = pair.primary
    async with scene(server.url("pair"), tmp_path) as stage:
        hosts = f"host={hole.host},{server.folder}&port={server.port},{server.port}"
        stage.url = f"postgresql://postgres@/pair?{hosts}&target_session_attrs={attrs}"
        await stage.worker(prefix=hole.enter)
        assert hole.count() > 0
        for _ in range(2):
            await stage.ended(await stage.enqueue("noop"))
            await asyncio.to_thread(server.sql, END_OF_LOCAL_SESSIONS)


async def test_the_host_that_answered_last_is_asked_first(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mute() as silent:
        url = pair.url("primary", silent, pair.standby_host, pair.primary_host)
        store = PostgresStore(url)
        await store.enqueue([NewJob(task="t")])
        await store.drop_connections()
        monkeypatch.setattr(hosts, "STAGGER_SECONDS", 60.0)  # the silent one would use up the time
        await store.enqueue([NewJob(task="t")])
        await store.close()


async def test_a_silent_address_of_a_name_is_passed_over(pair: Pair, two_addresses: None) -> None:
    with swallowing(pair.primary.port):
        await reached(pair.url(None, f"{NAME}:{pair.primary.port}"))


def test_a_silent_address_is_passed_over_on_another_event_loop(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the system for addresses itself."""

    async def find(_: str, port: int) -> list[tuple[str, int]]:
        return [(SILENT, port), (HERE, port)]

    monkeypatch.setattr(hosts, "_addresses_of", find)
    with swallowing(pair.primary.port):
        uvloop.run(reached(pair.url("any", f"{NAME}:{pair.primary.port}")))


@pytest.mark.debian_postgres
@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_the_certificate_has_to_name_the_host_not_the_address(
    tmp_path: Path, two_addresses: None, mode: str
) -> None:
    try:
        server = PostgresServer(binaries=find_debian_binaries())
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    tls = server.folder / "tls"
    tls.mkdir()
    authority = Authority(tls)
    files = authority.sign("server")
    if user := unprivileged_user():
        for each in (tls, *files):
            os.chown(each, user["user"], user["group"])
    named = dict(zip(("ssl_cert_file", "ssl_key_file"), map(str, files), strict=True))
    server.settings |= {"ssl": "on", **named}
    with server, swallowing(server.port):
        url = f"postgresql://postgres@{NAME}:{server.port}/postgres?sslmode={mode}"
        await reached(f"{url}&sslrootcert={authority.cert}")
        strange = Authority(tmp_path).cert
        with pytest.raises(StoreUnavailable, match="certificate"):
            await reached(f"{url}&sslrootcert={strange}", ENOUGH)


async def test_an_error_names_each_host_with_its_reason(pair: Pair) -> None:
    with mute() as silent:
        refusing = f"{HERE}:{free_port()}"
        url = pair.url("primary", silent, refusing, pair.standby_host)
        store = PostgresStore(url, connect_timeout=ENOUGH)
        with pytest.raises(StoreUnavailable) as caught:
            await store.open()
        await store.close()
    said = str(caught.value)
    assert f"{silent}: no answer" in said
    assert f"{refusing}: " in said
    assert f"{pair.standby_host}: it is a standby" in said
    assert "ended the session" not in said


async def test_presence_that_is_off_names_each_host_with_its_reason(pair: Pair) -> None:
    with mute() as silent:
        url = pair.url("primary", silent, pair.standby_host)
        lock = PostgresPresence(url, patience=ENOUGH)
        with pytest.raises(StoreUnavailable) as caught:
            await lock.hold(WorkerRef(1, 1))
    assert f"{silent}: no answer" in str(caught.value)
    assert f"{pair.standby_host}: it is a standby" in str(caught.value)


async def test_a_worker_comes_back_when_its_first_host_falls_silent(tmp_path: Path) -> None:
    """The primary is stopped with all it has accepted, and its standby is promoted."""
    with PostgresServer() as primary:
        primary.create_database("pair")
        with PostgresServer(standby_of=primary) as standby:
            both = Pair(primary, standby)
            url = both.url("primary", both.primary_host, both.standby_host)
            async with scene(url, tmp_path) as stage:
                await stage.worker("--heartbeat", "1", "--lease", "6")
                await stage.ended(await stage.enqueue("noop"))
                postmaster = psutil.Process(primary.pid)
                stopped = [postmaster, *postmaster.children()]
                for each in stopped:
                    each.suspend()
                try:
                    await asyncio.to_thread(standby.promote)
                    there = PostgresStore(standby.url("pair"))
                    (job,) = await enqueued(there, NewJob(task="noop"))

                    async def done() -> bool:
                        return (await row_of(there, job)).state is State.COMPLETED

                    await eventually(done, 60.0)
                    await there.close()
                finally:
                    for each in stopped:
                        each.resume()


async def test_a_try_that_is_given_up_leaves_nothing(pair: Pair) -> None:
    with mute() as silent:
        url = pair.url("standby", silent, pair.primary_host)
        store, patient = (PostgresStore(url, connect_timeout=each) for each in (1.0, PATIENCE))
        before = sockets()
        with pytest.raises(StoreUnavailable):
            await store.open()
        opening = asyncio.create_task(patient.open())
        await asyncio.sleep(0.3)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        for each in (store, patient):
            await each.close()
        await closed(before)


async def test_a_try_that_is_cancelled_after_it_was_won_leaves_nothing(pair: Pair) -> None:
    """While the other tries end, no cancellation loses the session that was reached."""

    def count() -> int:
        names = [getattr(each.get_coro(), "__name__", "") for each in asyncio.all_tasks()]
        return names.count("open_host")

    with mute() as silent:
        url = pair.url(None, silent, pair.primary_host)
        before = sockets()
        for turns in range(6):
            hosts._answered.clear()
            opening = asyncio.create_task(connect(url, StoreOptions(connect_timeout=PATIENCE)))
            while count() < len((silent, pair.primary_host)):
                await asyncio.sleep(0)
            while count() > 1:
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await opening).terminate()
            await closed(before)


async def test_each_attribute_finds_its_host(pair: Pair) -> None:
    for attrs, is_standby in (("primary", False), ("read-write", False), ("standby", True)):
        url = pair.url(attrs, pair.standby_host, pair.primary_host)
        for _ in range(3):
            store = PostgresStore(url)
            async with store._connections.use() as connection:
                assert await connection.fetchval("SELECT pg_is_in_recovery()") is is_standby, attrs
            await store.close()
    for attrs in ("read-only", "prefer-standby"):
        for order in ((pair.primary_host, pair.standby_host), (pair.standby_host,)):
            store = PostgresStore(pair.url(attrs, *order))
            async with store._connections.use() as connection:
                assert await connection.fetchval("SELECT pg_is_in_recovery()"), attrs
            await store.close()


# -- a standby


def test_what_reads_a_standby_says_so(pair: Pair, outlast: Outlast) -> None:
    standby = pair.url(None, pair.standby_host)
    assert "a standby" in outlast("jobs", "--url", standby).err
    assert not outlast("jobs", "--url", pair.url("primary")).err


@contextlib.contextmanager
def read_only(pair: Pair) -> Iterator[None]:
    """The server refuses writes in new sessions, as one that protects itself does."""
    pair.primary.sql("ALTER DATABASE pair SET default_transaction_read_only = on")
    try:
        yield
    finally:
        pair.primary.sql("ALTER DATABASE pair RESET default_transaction_read_only", "postgres")


def test_what_reads_says_that_nothing_can_be_written_and_since_when(
    pair: Pair, outlast: Outlast
) -> None:
    """Otherwise a worker reads as active for a lease, and a job as about to start."""
    wrong, when = [], r"is .* old \(2\d{3}-\S+ \S+ UTC\)"

    async def beat() -> None:
        store = PostgresStore(pair.url("primary"))
        await store.heartbeat((await Hands.on(store)).me)
        await store.close()

    asyncio.run(beat())
    with read_only(pair):
        places = {
            f"a standby, and its last change {when}": pair.standby_host,
            rf"read-only \(.*\), and the last heartbeat of a worker {when}": pair.primary_host,
        }
        for pattern, host in places.items():
            for command in ("why 1", "workers", "jobs --json", "stats"):
                said = outlast(*command.split(), "--url", pair.url(None, host))
                if said.code or not re.search(pattern, said.err):
                    wrong.append((command, said.err))
    assert not wrong


def test_all_that_is_started_in_an_outage_says_why_it_ends(
    pair: Pair, outlast: Outlast, tmp_path: Path
) -> None:
    """Without a primary; or where that refuses to write, what has to write."""
    wrong = []
    gone = f"{HERE}:{free_port()}"

    def start(command: str, url: str, *reasons: str) -> None:
        env = {"OUTLAST_URL": url, "OUTLAST_RUN_DIR": str(tmp_path)}
        said = outlast(*command.replace("URL", url).split(), **env)
        if said.code != 3 or not all(each in said.err for each in reasons):
            wrong.append((command, said.code, said.err))

    for command in (*WRITING, *AT_ONCE):
        reasons = (f"{pair.standby_host}: it is a standby", f"{gone}: ")
        start(command, pair.url("primary", pair.standby_host, gone), *reasons)
    with read_only(pair):
        for command in WRITING:
            start(command, pair.url("primary", pair.primary_host), "the database is read-only")
    assert not wrong


def test_doctor_tells_the_role_of_each_host(pair: Pair, outlast: Outlast) -> None:
    gone = f"{HERE}:{free_port()}"
    said = outlast("doctor", "--url", pair.url(None, pair.standby_host, pair.primary_host, gone))
    told = " ".join(said.out.split())
    assert f"{pair.standby_host} is a standby" in told
    assert f"{pair.primary_host} is the primary" in told
    assert f"{gone} accepts no session: " in told
    assert "target_session_attrs=primary" in told


END_ALL = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = 'pair' AND pid <> pg_backend_pid()"""


async def test_a_worker_goes_on_once_a_primary_that_was_read_only_takes_writes(
    pair: Pair, tmp_path: Path
) -> None:
    """As a new leader may be for a while; after it nothing looks as if it still failed."""
    async with scene(pair.url("primary", pair.primary_host), tmp_path) as stage:
        worker = await stage.worker("--concurrency", "5")
        running = await stage.enqueue("waits")
        await stage.in_state(running, State.RUNNING)
        with read_only(pair):
            pair.primary.sql(END_ALL)

            def is_told() -> bool:
                told = worker.told("store_unavailable")
                return any("the database is read-only" in each["error"] for each in told)

            await stage.until(is_told, "the reason in the log")
        pair.primary.sql(END_ALL)
        await stage.ended(await stage.enqueue("noop"))

        async def is_well() -> bool:
            return all(row.failing is None for row in await stage.worker_rows())

        assert await eventually(is_well)
        assert not worker.told("lease_lost")
        assert not await stage.attempts(running)
        assert (await stage.job(running)).state is State.RUNNING


def test_a_worker_that_starts_on_a_standby_says_so(
    pair: Pair, outlast: Outlast, tmp_path: Path
) -> None:
    options = ("--shell", "--runners", "1")
    url = pair.url(None, pair.standby_host)
    said = outlast("worker", *options, "--url", url, OUTLAST_RUN_DIR=str(tmp_path))
    assert said.code == 3
    assert "a standby" in said.err


async def test_a_worker_that_finds_itself_on_a_standby_says_so(pair: Pair) -> None:
    """As after a failback, when the host that it reaches has become the standby."""
    store = PostgresStore(pair.url("primary"))
    hands = await Hands.on(store)
    hands.store = there = PostgresStore(pair.url(None, pair.standby_host))
    with pytest.raises(StoreUnavailable, match="a standby"):
        await hands.exchange(limit=1)
    await store.close()
    await there.close()


async def test_the_page_of_what_takes_no_writes_has_no_buttons(pair: Pair) -> None:
    forms = {}

    async def look(host: str, word: str) -> None:
        site = Site(pair.url(None, host), let_in())
        async with Page(site) as page:
            await page.see("/jobs/1")
            text = await page.see("/jobs/1")
        forms[word] = "/jobs/1/cancel" in text
        assert [each for each in ("standby", "read-only") if each in text] == [word][: bool(word)]
        await site.close()

    await look(pair.primary_host, "")
    await look(pair.standby_host, "standby")
    with read_only(pair):
        await look(pair.primary_host, "read-only")
    assert forms == {"": True, "standby": False, "read-only": False}
