"""The checks of ``outlast doctor``: what each finds, and that a healthy store passes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast import Encryption
from outlast.errors import SchemaMismatch
from outlast.insight.doctor.facts import Application, Exposure, Facts, Locks, MessengerUrl
from outlast.insight.doctor.findings import (
    APPLICATION,
    HOST,
    LIMITS,
    SCHEDULES,
    STORE,
    WORKERS,
    examine,
)
from outlast.insight.doctor.host import locks_of, look_at
from outlast.model.limits import LimitSpec
from outlast.model.pause import Pause, PauseKind
from outlast.payload.payloads import Payloads
from outlast.store.finding import Check, Each, Level, Route, Table, judge
from outlast.store.limits import LimitRow, LockHolder
from outlast.store.migrations import Applied, Step, check_usable
from outlast.store.postgres import checks as postgres
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.hangs import WAITS_FOR_STANDBY
from outlast.store.postgres.route import TLS, Way, read_sslmode
from outlast.store.rows import Held, WorkerStatus
from outlast.store.schedules import ScheduleRow, call_text
from outlast.store.sqlite import checks as sqlite
from outlast.store.sqlite.checks import SqliteFacts
from outlast.store.statistics import DueJobs, QueueCount, Statistics, Undecodable, Unencrypted
from outlast.store.values import NewJob
from outlast.web.overview import PAGES
from tests.cases import each_case
from tests.unit.insight.rows_kit import NOW, worker
from tests.unit.insight.test_schedules import row as a_schedule

SERVER = PostgresFacts(
    version=160_004,
    clock=NOW + 3,
    read_at=NOW,
    fsync="on",
    synchronous_commit="on",
    full_page_writes="on",
    autovacuum="on",
    pooled=False,
    standby=False,
    connections=12,
    connections_max=97,
    prepared=0,
    two_phase=False,
    notify_queue=0.0,
    not_vacuumed=[],
    role="shop",
    oldest_transaction=1.0,
)
FILE = SqliteFacts(
    version="3.53.0",
    faults=[],
    path="/srv/jobs.db",
    journal_mode="wal",
    synchronous=2,
    writable=True,
    free_bytes=50 * 1024**3,
    wal_bytes=0,
)
STATISTICS = Statistics(
    now=NOW,
    lanes=[DueJobs(queue="q", task="render", number=2, oldest=NOW)],
    scheduled=[],
    running=[QueueCount("q", 1)],
    suspects=[],
    blocked=[],
    dead=[],
    ended=[],
)
ENCRYPTS = Application(spec="shop:app", tasks=["render"], encryption="optional")
REQUIRES = msgspec.structs.replace(ENCRYPTS, encryption="required")
PLAIN_JOBS = [
    Unencrypted(task="other", looked_at=3, number=3),
    Unencrypted(task="render", looked_at=9, number=2),
]
MANY_JOBS = Unencrypted(task="render", looked_at=10_000, number=0)
SEALED = Payloads([Encryption({"k": Encryption.make_key()})]).encode("args", "{}")


def scheduled(args: str) -> ScheduleRow:
    call = call_text(NewJob(task="render", args=args))
    return a_schedule(name="nightly", call=call, spec='{"cron":"0 3 * * *","zone":"UTC"}')


PLAIN_SCHEDULE, SEALED_SCHEDULE = scheduled("{}"), scheduled(SEALED)
LEFT_BEHIND = Undecodable(queue="q", task="old", number=2, repeats=37, release="2026.1")
WELL = Facts(
    place="postgresql://db/shop",
    now=NOW,
    locks=Locks(path="/run/outlast", mode=0o755),
    environment=SERVER,
    workers=[worker()],
    statistics=STATISTICS,
    application=Application(spec="shop:app", tasks=["render"]),
)


def facts(**changes: Any) -> Facts:
    return msgspec.structs.replace(WELL, **changes)


def server(**changes: Any) -> Facts:
    return facts(environment=msgspec.structs.replace(SERVER, **changes))


def file(**changes: Any) -> Facts:
    return facts(environment=msgspec.structs.replace(FILE, **changes))


def lane(task: str, queue: str = "q") -> Facts:
    other = DueJobs(queue=queue, task=task, number=7, oldest=NOW)
    return facts(statistics=msgspec.structs.replace(STATISTICS, lanes=[other]), application=None)


def waiting(**row: Any) -> Facts:
    fields = {"declared": LimitSpec(running=2), "waiting": 7, "at_least": ["waiting"], **row}
    numbers = msgspec.structs.replace(STATISTICS, limits=[LimitRow(name="api", **fields)])
    return facts(statistics=numbers)


def idle(**numbers: Any) -> Facts:
    found = msgspec.structs.replace(STATISTICS, lanes=[], running=[])
    return facts(statistics=msgspec.structs.replace(found, **numbers), workers=[])


def locks(**changes: Any) -> Facts:
    return facts(locks=msgspec.structs.replace(WELL.locks, **changes))


def exposed(**changes: Any) -> Facts:
    return facts(exposure=Exposure(**changes))


def reached(sslmode: str, *, authority: bool = False) -> Facts:
    return exposed(route=Route([*judge(TLS, Way(sslmode, authority))]))


NATS = MessengerUrl(place="nats.example:4222", secured=False, login=True)
OTHERS = {"/srv/jobs.db": "alice"}
FAILING = facts(workers=[worker(failing="exchange: NotPermitted: no", failing_since=NOW - 60)])
LOST = worker(2, status=WorkerStatus.LOST, stopped_at=NOW - 60)
ASLEEP = worker(status=WorkerStatus.STOPPED, cause="asleep")
LIMITED = msgspec.structs.replace(SERVER, limited_to="enqueue", lacking=["all"])
BERLIN, NOWHERE = (
    f'{{"cron":"*/30 2 * * *","zone":"{zone}"}}' for zone in ("Europe/Berlin", "No/Where")
)
HOLDER = LockHolder("the lock of limits", 1, "guest", "psql", may_work=False, seconds=None)
LATE = msgspec.structs.replace(PLAIN_SCHEDULE, since=NOW - 86_400, next_tick=NOW - 86_400)
CASES: list[tuple[Facts, str, str, str]] = [
    (file(open_to={"/srv/jobs.db": 0o644}), "warning", "private", "Every user of this machine can"),
    (file(open_to={"/srv/jobs.db": 0o644, "/srv/jobs.db-locks": 0o2770}), "warning", "private",
     "store through /srv/jobs.db (0644)."),
    (file(open_to={"/srv/jobs.db": 0o660}), "hint", "private", "group"),
    (file(open_to={"/srv/jobs.db": 0o644}, owners=OTHERS), "warning", "private", "(0644)"),
    (file(directory_mode=0o777), "warning", "replaceable", "mode 0777"),
    (facts(error="PostgreSQL: refused", environment=None), "problem", "store", "refused"),
    (facts(error="no file x.db\ngive --url", environment=None), "problem", "store", "x.db."),
    (facts(mismatch="it lacks 0007"), "problem", "schema", "0007"),
    (server(track_activities="off"), "warning", "stuck_sessions", "track_activities is off"),
    (server(borrowed=True), "warning", "stuck_sessions", "A setting of the login"),
    (server(worker_roles=["a", "b"]), "warning", "stuck_sessions", "several roles (a, b)"),
    (server(strangers=["guest"]), "hint", "strangers", "may connect (guest)"),
    (server(standby=True), "problem", "standby", "no writes"),
    (server(read_only=True), "problem", "read_only", "no job is accepted"),
    (server(hosts={"a:1": "the primary", "b:1": "a standby"}), "hint", "hosts",
     "a:1 is the primary, b:1 is a standby; the URL takes the first that answers"),
    (server(hosts={"a:1": "the primary", "b:1": "a standby"}, attributes="primary"), "ok", "hosts",
     "a:1 is the primary, b:1 is a standby."),
    (server(hosts={"a:1": "the primary", "b:1": "the primary"}), "problem", "hosts",
     "Several hosts of the URL take writes: a:1 is the primary, b:1 is the primary."),
    (server(hosts={"a:1": "the primary", "b:1": "no answer"}), "warning", "lost_host",
     "b:1 accepts no session: no answer."),
    (server(standby_names="*", standby_wait=42.0), "problem", "replication", "oldest for 42 s"),
    (server(standby_names="*", synchronous_commit="local"), "warning", "replication",
     "synchronous_commit is local: commits do not wait"),
    (server(standby_names="*", standbys=1), "ok", "replication", "Commits wait for a standby (*)."),
    (server(standbys=1), "hint", "replication", "a failover loses the last jobs"),
    (server(idle_slots=["gone"]), "warning", "replication_slots", "The replication slot gone"),
    (server(lacking=["UPDATE ON SEQUENCE s"]), "warning", "privileges", "UPDATE ON SEQUENCE s"),
    (server(open_schemas=["public"]), "warning", "open_schema", "in the schema public"),
    (facts(denied="permission denied", environment=None), "problem", "privileges", "denied"),
    (server(superuser=True, owner=True), "warning", "role", "shop is a superuser"),
    (server(owner=True), "hint", "role", "any task can change the tables"),
    (server(fsync="off"), "problem", "fsync", "destroy"),
    (server(full_page_writes="off"), "warning", "full_page_writes", "half written"),
    (server(synchronous_commit="off"), "warning", "synchronous_commit", "loses its last commits"),
    (server(pooled=True), "warning", "pooler", "through a pooler: no session lock"),
    (server(connections=80), "warning", "connections", "80 of 97"),
    (server(connections=94), "problem", "connections", "at most 5 of them by the 1 live"),
    (server(autovacuum="off"), "warning", "autovacuum", "whole server"),
    (server(behind=["outlast_turn_seq"]), "problem", "numbers", "next one of outlast_turn_seq"),
    (server(lanes=1_001), "warning", "many_queues", "were in 1,001 queues"),
    (server(misled={"renamed": ["outlast_room_v1"]}), "problem", "functions", "theirs was renamed"),
    (server(misled={"open": ["outlast_label_v1"]}), "problem", "functions", "every role may call"),
    (server(misled={"owner": ["outlast_label_v1"]}), "problem", "functions", "may not use the"),
    (server(collation="1, now 2"), "warning", "collation", "version 1, now 2"),
    (server(unlogged=["outlast_jobs"]), "problem", "unlogged", "outlast_jobs is unlogged"),
    (server(track_counts="off"), "problem", "track_counts", "never cleans"),
    (server(encoding="LATIN1"), "warning", "encoding", "LATIN1"),
    (server(not_vacuumed=["outlast_jobs"]), "warning", "autovacuum", "outlast_jobs"),
    (server(oldest_transaction=3_000.0, oldest_holder="process 7 of bob, pg_dump"), "warning",
     "long_transaction", "for 50 min (process 7 of bob, pg_dump), and dead rows are kept for it"),
    (server(feedback=["north"]), "warning", "replication", "a query on the standby north"),
    (server(prepared=2, oldest_prepared=61.0), "warning", "prepared_transactions", "2 prepared"),
    (server(two_phase=True), "hint", "two_phase", "refuses to prepare"),
    (server(notify_queue=0.75), "warning", "notify_queue", "75%"),
    (file(faults=["SQLite 3.40.1 has a fault"]), "warning", "sqlite_library", "3.40.1"),
    (file(journal_mode="delete"), "problem", "durability", "'delete' mode"),
    (file(synchronous=1), "problem", "durability", "below FULL"),
    (file(network="nfs4"), "problem", "file_system", "nfs4"),
    (file(writable=False, synchronous=None), "problem", "writable", "may not write"),
    (file(free_bytes=500 * 1024**2), "warning", "disk", "500 MiB"),
    (file(free_bytes=5 * 1024**2), "problem", "disk", "5.0 MiB"),
    (file(wal_bytes=1024**3), "warning", "wal", "1.0 GiB"),
    (file(writer="process 7 (python)"), "warning", "long_transaction", "by process 7 (python)"),
    (facts(workers=[]), "problem", "workers", "jobs wait"),
    (facts(workers=[], statistics=None), "warning", "workers", "No worker is alive."),
    (facts(workers=[worker(), LOST]), "warning", "lost_workers", "1 worker was lost: W-2"),
    (facts(workers=[worker(release="1"), worker(2, release="2")]), "hint", "releases", "1, 2"),
    (facts(workers=[worker(presence_off="a pooler")]), "warning", "presence", "a pooler"),
    (facts(workers=[worker(wakeup="nats: OSError: refused")]), "warning", "wakeup", "refused"),
    (facts(workers=[worker(wakeup="file; looks often: why")]), "hint", "wakeup", "often: why"),
    (facts(workers=[worker(wakeup="nats: broken; gone")]), "warning", "wakeup", "broken; gone"),
    (facts(workers=[worker(lock_free=True)]), "warning", "dead_workers", "so these are dead: W-1"),
    (facts(workers=[worker(lock_free=True)]), "problem", "workers", "No worker is alive, and jobs"),
    (facts(workers=[worker(), worker(2, unheard=61.0)]), "warning", "silent_workers", "W-2"),
    (facts(held=[Held(12, 1, 14)]), "warning", "slots_held", "holds its slot: job 12 for job 14"),
    (FAILING, "problem", "failing_duty", "no end is reported on W-1, for 1 min: NotPerm"),
    (FAILING, "warning", "failing", "2 jobs of the task 'render'"),
    (facts(workers=[worker(failing="pruner: RuntimeError: x", failing_since=NOW - 60)]), "warning",
     "failing_duty", "A duty (pruner) fails on W-1, for 1 min: RuntimeError: x."),
    (facts(workers=[worker(failing="reaper: RuntimeError: x", failing_since=NOW - 60)]), "problem",
     "failing_duty", "A duty (reaper) fails on W-1, for 1 min: RuntimeError: x."),
    (facts(workers=[worker(lease=6.0)]), "hint", "leases", "6 s"),
    (facts(workers=[worker(lease=900.0)]), "hint", "leases", "15 min"),
    (lane("mail"), "warning", "unservable", "7 jobs of the task 'mail'"),
    (facts(workers=[worker(queues=["z"])]), "warning", "queue_not_served", "queue 'q'"),
    (facts(workers=[worker(lacks={"render": ["gpu"]})]), "warning", "lacks_tags", "render"),
    (facts(workers=[worker(drain_requested=True)]), "warning", "draining", "render"),
    (waiting(declared=None, running=0), "warning", "limit_unknown", "7+ due jobs wait for the lim"),
    (waiting(declared=None, running=0, waiting=1, at_least=[]), "warning", "limit_unknown",
     "1 due job waits for the limit"),
    (waiting(running=0), "warning", "limit_closed", "its count is 0"),
    (waiting(running=2, held_until=NOW + 60), "warning", "limit_held", "nothing starts for 1 min"),
    (waiting(waiting=0, recounted_at=NOW - 60), "warning", "limit_recounted",
     "The limit 'api' had a wrong count of running attempts"),
    (facts(statistics=msgspec.structs.replace(STATISTICS, undecodable=[LEFT_BEHIND])), "warning",
     "undecodable", "up to 37 times in a row, last by release 2026.1"),
    (facts(application=REQUIRES, unencrypted=PLAIN_JOBS), "warning", "encryption",
     "requires that payloads are encrypted, and refuses 2 unfinished jobs of render."),
    (facts(application=REQUIRES, schedules=[PLAIN_SCHEDULE]), "warning", "encryption",
     "refuses 1 schedule (nightly)."),
    (facts(application=ENCRYPTS, unencrypted=PLAIN_JOBS, schedules=[PLAIN_SCHEDULE]), "hint",
     "encryption", "ones: 2 unfinished jobs of render, 1 schedule (nightly)."),
    (facts(application=ENCRYPTS, unencrypted=PLAIN_JOBS[:1], schedules=[SEALED_SCHEDULE]), "hint",
     "encryption", "but also runs plain ones: there are none."),
    (facts(application=ENCRYPTS, unencrypted=[MANY_JOBS]), "hint", "encryption",
     "ones: perhaps more after the first 10000 jobs."),
    (facts(malformed={7: "policy"}), "warning", "malformed_jobs", "1 dead job cannot be read (pol"),
    (facts(malformed=dict.fromkeys(range(1, 9), "policy")), "warning", "malformed_jobs",
     "1, 2, 3, 4, 5 and 3 more"),
    (facts(workers=[worker(malformed="tasks, tags")]), "warning", "malformed_workers",
     "rows of W-1 cannot be read: tasks, tags"),
    (reached(sslmode="prefer"), "warning", "tls", "sslmode=prefer accepts"),
    (reached(sslmode="disable", authority=True), "warning", "tls", "sslmode=disable accepts"),
    (reached(sslmode="require"), "hint", "tls", "accepts any certificate"),
    (exposed(messenger=NATS), "warning", "messenger_tls", "nats.example:4222), without TLS"),
    (exposed(messenger=msgspec.structs.replace(NATS, login=False)), "hint", "messenger_tls",
     "anyone who listens in learns the names of queues"),
    (exposed(in_arguments=True), "warning", "secret_in_arguments", "every user"),
    (exposed(keys={"/etc/nats.creds": 0o644}), "warning", "key_file", "/etc/nats.creds (0644)"),
    (locks(mode=0o777, owner="alice"), "warning", "lock_directory", "a directory of alice"),
    (locks(writable=False, owner="alice"), "warning", "lock_directory", "cannot create lock files"),
    (locks(network="nfs"), "problem", "lock_directory", "nfs"),
    (locks(mode=0o777), "warning", "lock_directory", "Anyone may delete the lock files"),
    (locks(cleaned_by="tmp.conf: q /tmp 1777 root root 10d"), "hint", "lock_directory", "10d"),
    (facts(kubernetes=True), "hint", "drain_timeout", "30 s"),
    (facts(application=Application(spec="a:b", error="no module a")), "problem", "application",
     "a:b does not import: no module a"),
    (facts(pauses=[Pause(id=1, kind=PauseKind.QUEUE, name="q", paused_at=NOW - 90_000)]), "warning",
     "long_paused", "The queue 'q' has been paused for 1 d 1 h"),
    (facts(application=Application(spec="a:b", tasks=["mail"])), "warning", "unknown_tasks",
     "tasks that a:b lacks: render"),
    (facts(denied="no", environment=LIMITED), "hint", "unread", "may not read was not checked"),
    (facts(environment=LIMITED), "ok", "privileges", "shop may enqueue, and is not for workers."),
    (facts(schedules=[a_schedule(name="s", spec=BERLIN)]), "warning", "clock_changes",
     "Schedule s, cron '*/30 2 * * *' in Europe/Berlin: on 2030-03-31 it skips 02:00, 02:30; on"),
    (facts(schedules=[LATE], workers=[]), "problem", "late_schedules",
     "Schedule nightly was due 21 h ago (2029-12-31 03:00:00 UTC), and no worker has fired it."),
    (facts(schedules=[LATE]), "problem", "late_schedules", "Schedule nightly was due 21 h ago"),
    (idle(suspects=[QueueCount("q", 1)]), "problem", "workers", "No worker is alive, and jobs"),
    (idle(blocked=[QueueCount("q", 1)]), "warning", "workers", "No worker is alive."),
    (facts(workers=[msgspec.structs.replace(ASLEEP, tasks=["mail"])]), "warning", "unservable",
     "No live worker can take 2 jobs of the task 'render' in the queue 'q'."),
    (facts(schedules=[a_schedule(name="s", spec=NOWHERE)]), "warning", "schedules",
     "This host cannot fire schedule s: zone 'No/Where'"),
    (server(lock_holders=[HOLDER]), "problem", "locks_of_limits",
     "The role guest has taken the lock of limits (process 1, application psql): limits or"),
    (server(clock=NOW + 303, read_at=NOW + 300), "ok", "clock", "3 s ahead of ours"),
    (server(clock=NOW, read_at=NOW + 3), "ok", "clock", "3 s behind ours"),
    (facts(workers=[ASLEEP]), "ok", "workers", "No worker is awake: W-1 will check for jobs soon."),
    (locks(mode=None), "ok", "lock_directory", "the first worker creates it"),
]  # fmt: skip


HEALTHY = [
    WELL,
    waiting(waiting=0, running=0),
    facts(workers=[worker(2, tasks=["mail"]), ASLEEP]),
    *(
        facts(schedules=[msgspec.structs.replace(LATE, **changes)])
        for changes in ({"paused": True}, {"declared": False}, {"since": NOW})
    ),
    waiting(running=2, held_until=NOW - 1),
    file(),
    facts(workers=[worker(), worker(2)]),
    facts(application=REQUIRES, unencrypted=[MANY_JOBS]),
    facts(application=Application(spec="a:b", tasks=["draw"], aliases=["render"])),
    locks(mode=0o1777),  # like /tmp: lock files are readable only by their user
    exposed(messenger=msgspec.structs.replace(NATS, secured=True)),
    *(reached(mode, authority=True) for mode in ("verify-full", "verify-ca", "require")),
]


@each_case("well", HEALTHY)
def test_a_healthy_store_has_only_ok_findings(well: Facts) -> None:
    assert {(one.level, one.fix) for one in examine(well)} == {("ok", "")}


@each_case(("facts", "level", "name", "words"), CASES)
def test_each_row_is_found_with_its_remedy(facts: Facts, level: str, name: str, words: str) -> None:
    (found,) = (one for one in examine(facts) if one.name == name)
    assert found.level == level
    assert words in found.sentence
    assert bool(found.fix) == (level != "ok")


@each_case(
    ("schedule", "name", "more"),
    [
        (a_schedule(spec=BERLIN), "clock_changes", "3 more schedules fall into a change of the"),
        (LATE, "late_schedules", "3 more schedules are late."),
    ],
)
def test_of_many_schedules_the_first_are_named(schedule: ScheduleRow, name: str, more: str) -> None:
    many = [msgspec.structs.replace(schedule, name=f"s{number}") for number in range(8)]
    found = [one for one in examine(facts(schedules=many)) if one.name == name]
    assert [one.sentence[:11] for one in found[:-1]] == [
        f"Schedule s{number}" for number in range(5)
    ]
    assert more in found[-1].sentence


def rows_of(table: Table[Any]) -> Iterator[Check[Any]]:
    for one in table:
        yield from rows_of(one.rows) if isinstance(one, Each) else [one]


TABLES = (STORE, postgres.FINDINGS, sqlite.FINDINGS, WORKERS, LIMITS, SCHEDULES, TLS, HOST)
NAMES = {(row.level, row.name) for table in (*TABLES, APPLICATION) for row in rows_of(table)}


def test_each_row_has_a_case() -> None:
    fine = {(one.level, one.name) for well in HEALTHY for one in examine(well)}
    assert NAMES - fine - {(Level(level), name) for _, level, name, _ in CASES} == set()


ROOT = Path(__file__).parents[3]


def names_under(heading: str, page: str) -> set[str]:
    """Return the names in the table or list under a heading."""
    pattern = rf"^## What `outlast doctor` {heading}.*?\n((?:\||- ).*?)\n\n"
    (listed,) = re.findall(pattern, (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return set(re.findall(r"`(\w+)`", listed))


def test_the_docs_and_pages_name_findings_of_the_doctor() -> None:
    names = {name for _, name in NAMES}
    assert names_under("checks", "docs/diagnose.md") == names
    security = names_under("sees", "SECURITY.md")
    assert security
    assert security - names == set()
    assert set(PAGES) - names == {"dead_jobs"}, "which the first page finds itself"


@each_case(
    "amiss",
    [
        file(open_to={"/srv/jobs.db": 0o666}, owners=OTHERS),
        locks(mode=0o777, owner="alice"),
        exposed(keys={"/srv/jobs.db": 0o644}, owners=OTHERS),
    ],
)
def test_the_mode_of_another_users_file_has_another_remedy(amiss: Facts) -> None:
    (fix,) = (one.fix for one in examine(amiss) if one.level == "warning")
    assert "chmod" not in fix.partition("as root")[0]
    assert "alice" in fix or "OUTLAST_RUN_DIR" in fix


ELSEWHERE = "postgresql://shop:secret@db.example:5432/shop"


@each_case(
    ("url", "environ", "mode"),
    [
        ("postgresql://shop@localhost/shop", {}, None),
        ("postgresql://shop@127.0.0.1:5433/shop", {}, None),
        ("postgresql://shop@[::1]:5433/shop", {}, None),
        ("postgresql:///shop", {}, None),
        ("postgresql:///shop?host=/run/postgresql", {}, None),
        ("postgresql:///shop", {"PGHOST": "db.example"}, "prefer"),
        ("postgresql:///shop?host=db.example", {}, "prefer"),
        (ELSEWHERE, {}, "prefer"),
        (ELSEWHERE, {"PGSSLMODE": "verify-full"}, "verify-full"),
        (f"{ELSEWHERE}?sslmode=require", {"PGSSLMODE": "verify-full"}, "require"),
        ("postgresql://shop@localhost,[2001:db8::1]:5432/shop", {}, "prefer"),
    ],
)
def test_the_tls_mode_is_read_from_url_and_environment(
    url: str, environ: dict[str, str], mode: str | None
) -> None:
    assert read_sslmode(url, environ) == mode


def test_there_is_no_way_to_a_file() -> None:
    assert look_at("sqlite:///jobs.db", None, [], {"PGHOST": "db.example"}).route is None


@each_case(
    ("wakeup", "found"),
    [
        (None, None),
        ("nats://u:p@localhost:4222", None),
        ("no messenger at all", None),
        ("nats://u:p@nats.example", NATS),
        ("tls://nats.example", MessengerUrl(place="nats.example:4222", secured=True, login=False)),
        ("amqp://127.0.0.1,mq.example?tls_ca=/ca.pem",
         MessengerUrl(place="127.0.0.1:5672,mq.example:5672", secured=True, login=False)),
    ],
)  # fmt: skip
def test_the_tls_of_a_messenger_is_read_from_its_url(
    wakeup: str | None, found: MessengerUrl | None
) -> None:
    assert look_at("sqlite:///jobs.db", wakeup, [], {}).messenger == found


def test_keys_that_others_can_read_and_a_password_among_the_arguments_are_found(
    tmp_path: Path,
) -> None:
    wide, own = tmp_path / "wide.creds", tmp_path / "own.key"
    for path, mode in ((wide, 0o644), (own, 0o600)):
        path.touch()
        path.chmod(mode)
    found = look_at(f"{ELSEWHERE}?sslkey={own}", f"nats://h?creds={wide}", [ELSEWHERE], {})
    assert found.keys == {str(wide): 0o644}
    assert found.in_arguments
    assert not look_at(ELSEWHERE, None, ["postgresql://shop@db.example/shop"], {}).in_arguments


def test_the_remedy_of_a_missing_privilege_is_no_migration() -> None:
    for amiss in (facts(denied="no", environment=None), server(lacking=["SELECT ON TABLE t"])):
        (found,) = (one for one in examine(amiss) if one.name == "privileges")
        assert "outlast migrate --grant" in found.fix
        assert found.level == "problem" or found.fix.endswith("--grant shop`.")
        assert "schema" not in {one.name for one in examine(amiss) if one.level == "problem"}


def test_that_commits_wait_is_said_once() -> None:
    fails = f"exchange: StoreUnavailable: {WAITS_FOR_STANDBY}"
    workers = [worker(failing=fails, failing_since=NOW - 60)]
    for waiting, name in ((42.0, "replication"), (None, "failing_duty")):
        seen = facts(
            workers=workers,
            environment=msgspec.structs.replace(SERVER, standby_names="*", standby_wait=waiting),
        )
        amiss = [one for one in examine(seen) if one.level == "problem"]
        assert [one.name for one in amiss] == [name]
        assert "ommits wait for a synchronous standby" in amiss[0].sentence


def test_the_remedy_is_a_migration_only_for_an_old_schema() -> None:
    steps = [Step(1, "core", "", "a", "0.1"), Step(2, "more", "", "b", "0.1")]
    newer = Applied(3, "new", "c", "99.0", NOW)
    others = Applied(1, "core", "another", "0.1", NOW)
    behind = Applied(1, "core", "a", "0.1", NOW)
    for row, helps in ((behind, True), (newer, False), (others, False)):
        with pytest.raises(SchemaMismatch) as caught:
            check_usable(steps, [row])
        found = examine(facts(mismatch=str(caught.value), environment=None))
        (amiss,) = (one for one in found if one.name == "schema")
        assert ("Run `outlast migrate`" in amiss.fix) == helps
        assert amiss.fix


def test_without_an_answer_of_the_store_only_the_host_is_checked() -> None:
    found = examine(Facts(place="p", now=NOW, locks=WELL.locks, error="down"))
    assert [one.name for one in found] == ["store", "lock_directory"]


def test_a_cleaner_of_temporary_files_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    (tmp_path / "tmp.conf").write_text(f"# tmp\nq {temporary} 1777 root root 10d\n")
    (tmp_path / "x11.conf").write_text(f"D! {temporary}/.X11-unix 1777 root root 10d\n")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(temporary / "run"))
    found = locks_of("postgresql://db/shop", [str(tmp_path)])
    assert found.cleaned_by == f"{tmp_path / 'tmp.conf'}: q {temporary} 1777 root root 10d"
    assert found.mode is None
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path))
    assert locks_of("postgresql://db/shop", [str(tmp_path)]).cleaned_by is None
    (tmp_path / "tmp.conf").write_text(f"q {temporary} 1777 root root -\n")
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(temporary / "run"))
    assert locks_of("postgresql://db/shop", [str(tmp_path)]).cleaned_by is None
