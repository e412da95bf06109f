"""The findings of ``outlast doctor``: one table for each kind of fact, and all of them in order.

Those of a server or a file are beside the facts: store/{postgres,sqlite}/checks.py, postgres/route.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from outlast.base.text import count_of, line, shell_word, since, span
from outlast.errors import ConfigError, UsageError
from outlast.insight.availability import dead, health, list_untaken, sleeps
from outlast.insight.doctor.facts import Application, Facts, Locks, MessengerUrl
from outlast.insight.limits import counted
from outlast.insight.pauses import command_to_resume, describe
from outlast.insight.schedules import call_of, falling_into_changes, find_malformed, spec_of
from outlast.insight.sentences import (
    HOLD_NO_SLOTS,
    NAME_MAX,
    at_time,
    describe_waits,
    list_some,
    quote,
)
from outlast.model.pause import Pauses
from outlast.payload.payloads import is_encrypted
from outlast.store.finding import HINT, OK, PROBLEM, WARNING, Check, Each, Finding, Table, judge
from outlast.store.limits import LimitRow
from outlast.store.rows import WorkerRow, WorkerStatus
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import UNENCRYPTED_MAX, DueJobs
from outlast.wakeup.kinds import TLS_SCHEMES

HOUR, DAY = 3_600.0, 86_400.0
LEASE_SHORT, LEASE_LONG = 10.0, 300.0  # seconds
SAID_MAX, PATH_MAX = 600, 200  # characters
SCHEDULES_SHOWN, TASKS_SHOWN = 5, 10
LATE_SECONDS = 60.0  # the workers' clocks may differ
GRANT = "Run `outlast migrate --grant ROLE` as the owner of the tables."


def examine(facts: Facts) -> list[Finding]:
    """Return all findings, in a fixed order."""
    environment, route = facts.environment, facts.exposure.route
    return [
        *judge(STORE, facts),
        *(() if environment is None else environment.check(len(facts.live))),
        *judge(WORKERS, facts),
        *judge(LIMITS, facts),
        *judge(SCHEDULES, facts),
        *(() if route is None else route.findings),
        *judge(HOST, facts),
        *judge(APPLICATION, facts),
    ]


# ------------------------------------------------------------------------------------ the store


def _first_line(text: str) -> str:
    """Return an error without the advice below it."""
    first = line(text.partition("\n")[0], SAID_MAX)
    return first if first.endswith("?") else f"{first}."


def _is_limited(facts: Facts) -> bool:
    return facts.environment is not None and bool(facts.environment.limited_to)


STORE: Table[Facts] = (
    Check(PROBLEM, "store", lambda f: f.error, lambda f: _first_line(f.error),
        lambda f: "Check --url or $OUTLAST_URL; `outlast migrate` creates a new store."
        if "outlast migrate" in f.error else "Check --url or $OUTLAST_URL, and the store itself."),
    Check(OK, "store", True, lambda f: f"{f.place} answers."),
    Check(PROBLEM, "schema", lambda f: f.mismatch, lambda f: f"{line(f.mismatch, SAID_MAX)}.",
        lambda f: "Run `outlast migrate`." if "outlast migrate" in f.mismatch
        else "Follow that advice; `outlast migrate` does not help."),
    Check(HINT, "unread", lambda f: f.denied and _is_limited(f),
        "What this role may not read was not checked.",
        "Run this as the role of a worker, or as one that was granted `--only view`."),
    Check(PROBLEM, "privileges", lambda f: f.denied and not _is_limited(f),
        lambda f: f"{line(f.denied, SAID_MAX)}.", GRANT),
    Check(OK, "schema", lambda f: f.is_read, "The schema is one that this program works on."),
)  # fmt: skip


# ---------------------------------------------------------------------------------- the workers


class Group(NamedTuple):
    """Workers of whom the same is to be said; ``words``: what they report, often ``kind: trouble``,
    or what follows for them."""

    words: str
    workers: list[WorkerRow]
    facts: Facts

    @property
    def names(self) -> str:
        """Their names, or some of them."""
        return list_some([one.name for one in self.workers])

    @property
    def kind(self) -> str:
        """The words up to the colon."""
        return self.words.partition(": ")[0]

    @property
    def trouble(self) -> str:
        """The words after the colon."""
        return self.words.partition(": ")[2]


def _group(
    facts: Facts, some: Sequence[WorkerRow], words_of: Callable[[WorkerRow], object]
) -> list[Group]:
    """Group workers by words; leave out those of whom nothing is to be said."""
    groups: dict[str, list[WorkerRow]] = {}
    for one in some:
        if words := words_of(one):
            groups.setdefault(str(words), []).append(one)
    return [Group(words, groups[words], facts) for words in sorted(groups)]


def _asleep(facts: Facts) -> str:
    """Return the names of workers that sleep: each has a row for every time that it was awake."""
    return list_some([*dict.fromkeys(one.name for one in _sleepers(facts))])


def _sleepers(facts: Facts) -> list[WorkerRow]:
    return [one for one in facts.workers if sleeps(one, facts.now)]


def _releases(facts: Facts) -> list[str]:
    return sorted({one.release for one in facts.live if one.release})


def _was_lost(one: WorkerRow, now: float) -> bool:
    return one.status is WorkerStatus.LOST and now - (one.stopped_at or 0.0) < HOUR


def _failing(facts: Facts) -> list[Group]:
    """Group workers by what fails there, unless a finding about the server says that already."""
    found = () if facts.environment is None else facts.environment.check(len(facts.live))
    said = [one.sentence.lower() for one in found]

    def is_said(failing: str) -> bool:
        return any(each.startswith(failing.rpartition(": ")[2].lower()) for each in said)

    return _group(facts, facts.live, lambda one: not is_said(one.failing or "") and one.failing)


def _failing_for(group: Group) -> str:
    first = min(one.failing_since or 0.0 for one in group.workers)
    error = group.trouble.rstrip(".")
    return f"{group.names}, {since(first, group.facts.now)}: {line(error, 300)}."


def _fix_duty(group: Group) -> str:
    refused = group.trouble.startswith("NotPermitted")
    return GRANT if refused else "Check the log of that worker; it tries again by itself."


class Untaken(NamedTuple):
    """Due jobs that no live worker takes, and why: as a position of ``outlast why``."""

    jobs: DueJobs
    why: str

    def __str__(self) -> str:
        return (
            f"No live worker can take {count_of(self.jobs.number, 'job')} of the task"
            f" {quote(self.jobs.task)} in the queue {quote(self.jobs.queue)}."
        )


def _untaken(facts: Facts) -> list[Untaken]:
    present = [*facts.live, *_sleepers(facts)]
    lanes = facts.lanes if present else []
    return [Untaken(*each) for each in list_untaken(lanes, present, Pauses(facts.pauses))]


def _check_untaken(why: str, fix: str) -> Check[Untaken]:
    return Check(WARNING, why, lambda due: due.why == why, str, fix)


START = "Start one: `outlast worker MODULE:APP`."
FIND_WRITER = "Outlast writes no such rows: find out who else writes to the tables."
NO_INOTIFY = (
    "They poll instead, which costs about 1% of a core. If there are too many open files, raise"
    " fs.inotify.max_user_instances, a limit for each user."
)

WAKEUP: Table[Group] = (
    Check(HINT, "wakeup", lambda g: "; " in g.kind,
        lambda g: f"inotify does not wake {g.names}: {line(g.words.partition('; ')[2], 200)}.",
        NO_INOTIFY),
    Check(WARNING, "wakeup", lambda g: ": " in g.words,
        lambda g: f"No wake-ups by {g.kind} reach {g.names}: {line(g.trouble, 200)}.",
        "Until that is fixed, they find jobs by polling, about a second later."),
)  # fmt: skip
DUTIES: Table[Group] = (
    Check(PROBLEM, "failing_duty", lambda g: g.kind == "exchange",
        lambda g: f"No job is claimed and no end is reported on {_failing_for(g)}", _fix_duty),
    Check(PROBLEM, "failing_duty", lambda g: g.kind == "reaper",
        lambda g: f"A duty ({g.kind}) fails on {_failing_for(g)}", _fix_duty),
    Check(WARNING, "failing_duty", True,
        lambda g: f"A duty ({g.kind}) fails on {_failing_for(g)}", _fix_duty),
)  # fmt: skip
OF_SHORT, OF_LONG = "a short stall stops their attempts", "a dead host goes unnoticed for as long"
LEASE: Check[Group] = Check(
    HINT, "leases", True,
    lambda g: f"The lease of {g.names} is {span(g.workers[0].lease)}: {g.words}.",
    "The defaults are --lease 60 --heartbeat 2.",
)  # fmt: skip
MOVES = {
    "unservable": "Start a worker of a release that has this task, or give the task this name as an"
    " alias; `outlast cancel` ends jobs that are no longer wanted.",
    "lacks_tags": "Start a worker with the tags that the task requires.",
    "queue_not_served": "Start a worker with this queue in --queues, or without --queues.",
    "draining": "Start a worker: all workers that know this task are stopping.",
    "failing": "Fix what `failing_duty` reports about the workers that could take it.",
}
WORKERS: Table[Facts] = (
    Check(OK, "workers", lambda f: f.live,
        lambda f: f"{count_of(len(f.live), 'worker')} alive:"
        f" {list_some([one.name for one in f.live])}."),
    Check(OK, "workers", _asleep,
        lambda f: f"No worker is awake: {_asleep(f)} will check for jobs soon."),
    Check(PROBLEM, "workers",
        lambda f: f.is_read and (it := f.statistics) and (f.lanes or it.suspects or it.running),
        "No worker is alive, and jobs wait for one.", START),
    Check(WARNING, "workers", lambda f: f.is_read, "No worker is alive.", START),
    Each(lambda f: _group(f, f.workers, dead),
        Check(WARNING, "dead_workers", True,
            lambda g: f"Their lock files are free, so these are dead: {g.names}.",
            lambda g: f"{'A live worker' if g.facts.live else 'Start a worker: it'} returns their"
            f" {count_of(sum(one.running for one in g.workers), 'job')} to the queue.")),
    Each(lambda f: _group(f, f.workers, lambda one: health(one) == "silent"),
        Check(WARNING, "silent_workers", True,
            lambda g: f"No heartbeat has come from {g.names} for a whole lease.",
            "Make sure that a worker is alive: it returns their jobs to the queue.")),
    Each(lambda f: _group(f, f.workers, lambda one: _was_lost(one, f.now)),
        Check(WARNING, "lost_workers", True,
            lambda g: f"In the last hour {count_of(len(g.workers), 'worker')}"
            f" {'was' if len(g.workers) == 1 else 'were'} lost: {g.names}.",
            "Check their logs, and whether the kernel (dmesg) or the platform killed them.")),
    Check(HINT, "releases", lambda f: len(_releases(f)) > 1,
        lambda f: f"Workers of {len(_releases(f))} releases are alive: {list_some(_releases(f))}.",
        "That is normal during a rollout; after it, restart the workers of the old release."),
    Each(lambda f: [(pause, f.now) for pause in f.pauses if f.now - pause.paused_at > DAY],
        Check(WARNING, "long_paused", True,
            lambda at: describe(*at),
            lambda at: f"If that was forgotten: `{command_to_resume(at[0])}`.")),
    Each(lambda f: _group(f, f.live, lambda one: one.presence_off),
        Check(WARNING, "presence", True,
            lambda g: f"Presence is off for {g.names}: {line(g.words, 200)}.",
            "Until that is fixed, other hosts notice their death only when their lease expires.")),
    Each(lambda f: _group(f, f.live, lambda one: one.wakeup), *WAKEUP),
    Each(_failing, *DUTIES),
    Each(lambda f: _group(f, f.live, lambda one: one.lease < LEASE_SHORT and OF_SHORT), LEASE),
    Each(lambda f: _group(f, f.live, lambda one: one.lease > LEASE_LONG and OF_LONG), LEASE),
    Each(_untaken, *(_check_untaken(why, fix) for why, fix in MOVES.items())),
    Check(WARNING, "slots_held",
        lambda f: f.lanes and f.held and all(one.waits_for is not None for one in f.held),
        lambda f: "Jobs are due, and each running job waits for another and holds its slot:"
        f" {describe_waits(f.held)}.", HOLD_NO_SLOTS),
    Each(lambda f: f.statistics.undecodable if f.statistics else (),
        Check(WARNING, "undecodable", True,
            lambda one: f"{count_of(one.number, 'job')} of the task {quote(one.task)} in the queue"
            f" {quote(one.queue)} could not be decoded: up to {count_of(one.repeats, 'time')} in a"
            f" row{f', last by release {line(one.release, NAME_MAX)}' if one.release else ''}.",
            "Start a worker of a release that has this task with these arguments, or `outlast"
            " cancel` the jobs; until then they are tried again every 10 minutes or sooner.")),
    Check(WARNING, "malformed_jobs", lambda f: f.malformed,
        lambda f: f"{count_of(len(f.malformed), 'dead job')} cannot be read"
        f" ({line(', '.join(sorted(set(f.malformed.values()))), 100)}):"
        f" {list_some([str(number) for number in f.malformed])}.",
        "`outlast job ID` names the columns: fix the row and `outlast requeue ID`, or"
        f" `outlast dead discard ID`. {FIND_WRITER}"),
    Each(lambda f: _group(f, f.workers, lambda one: one.malformed is not None),
        Check(WARNING, "malformed_workers", True,
            lambda g: f"The rows of {g.names} cannot be read:"
            f" {line(', '.join(sorted({one.malformed for one in g.workers})), 100)}.",
            f"Restart that worker; if there is none, delete the row. {FIND_WRITER}")),
)  # fmt: skip


# ----------------------------------------------------------------------- limits and schedules


class LimitNow(NamedTuple):
    """A limit, and the time."""

    row: LimitRow
    now: float

    @property
    def why(self) -> str | None:
        """Why nothing starts under it, though jobs wait."""
        if not self.row.waiting:
            return None
        if self.row.declared is None:
            return "unknown"
        if self.row.running == 0:
            return "closed"
        return "held" if (self.row.held_until or 0.0) > self.now else None

    @property
    def due(self) -> str:
        """The beginning of the sentences about jobs that wait."""
        number = counted(self.row, "waiting")
        wait = "job waits" if number == "1" else "jobs wait"
        return f"{number} due {wait} for the limit {quote(self.row.name)}"


def _late(facts: Facts) -> list[tuple[str, float]]:
    """Return the schedules whose next tick has been due for LATE_SECONDS, with that tick."""
    by, found = facts.now - LATE_SECONDS, []
    for row in facts.schedules:
        if row.declared and not row.paused:
            with suppress(ConfigError):
                tick = spec_of(row).next_after(row.since)
                found += [] if tick is None or tick > by else [(row.name, tick)]
    return found


def _unreadable(facts: Facts) -> list[str]:
    told = ((row.name, find_malformed(row)) for row in facts.schedules)
    return [f"{line(name)}: {line(why, SAID_MAX)}" for name, why in told if why is not None]


LIMIT: Table[LimitNow] = (
    Check(WARNING, "limit_unknown", lambda at: at.why == "unknown",
        lambda at: f"{at.due}, which no worker's code has declared.",
        "Start a worker whose code declares it with app.limit(…)."),
    Check(WARNING, "limit_closed", lambda at: at.why == "closed",
        lambda at: f"{at.due}, which lets no job run: its count is 0.",
        lambda at: f"`outlast limits set {shell_word(at.row.name)} --running N` opens it, `outlast"
        f" limits reset {shell_word(at.row.name)}` restores the values in the code."),
    Check(WARNING, "limit_held", lambda at: at.why == "held",
        lambda at: f"{at.due}, under which nothing starts for"
        f" {span((at.row.held_until or 0.0) - at.now)}.",
        lambda at: f"`outlast limits hold {shell_word(at.row.name)} 0` ends that."),
    Check(WARNING, "limit_recounted",
        lambda at: at.row.recounted_at is not None and at.now - at.row.recounted_at < DAY,
        lambda at: f"The limit {quote(at.row.name)} had a wrong count of running attempts, which"
        f" was corrected {at_time(at.row.recounted_at, at.now)}.",
        "If some tables were restored, or rows were changed by hand: run `outlast verify` to see"
        " what else is wrong. If not, please report it: this must never happen."),
)  # fmt: skip
LIMITS: Table[Facts] = (
    Each(lambda f: [LimitNow(row, f.now) for row in f.statistics.limits] if f.statistics else (),
        *LIMIT),
)  # fmt: skip
CLOCK_CHANGES: Table[list[tuple[str, str]]] = (
    Each(lambda found: found[:SCHEDULES_SHOWN],
        Check(WARNING, "clock_changes", True,
            lambda one: f"Schedule {line(one[0])}, {line(one[1], SAID_MAX)}.",
            "Choose an hour in which the zone's clocks do not change, or zone='UTC'.")),
    Check(WARNING, "clock_changes", lambda found: len(found) > SCHEDULES_SHOWN,
        lambda found: f"{len(found) - SCHEDULES_SHOWN} more schedules fall into a change of the"
        " clocks.",
        "`outlast schedules show NAME --next 1000` shows when each of them fires."),
)  # fmt: skip
LATE: Table[tuple[Facts, list[tuple[str, float]]]] = (
    Each(lambda at: [(one, at[0]) for one in at[1][:SCHEDULES_SHOWN]],
        Check(PROBLEM, "late_schedules", True,
            lambda at: f"Schedule {line(at[0][0])} was due {at_time(at[0][1], at[1].now)}, and no"
            " worker has fired it.",
            lambda at: "Check the logs of the workers that declare it." if at[1].live else START)),
    Check(PROBLEM, "late_schedules", lambda at: len(at[1]) > SCHEDULES_SHOWN,
        lambda at: f"{len(at[1]) - SCHEDULES_SHOWN} more schedules are late.",
        "`outlast schedules` lists them."),
)  # fmt: skip
SCHEDULES: Table[Facts] = (
    Each(lambda f: [[*falling_into_changes(f.schedules, f.now)]], *CLOCK_CHANGES),
    Each(lambda f: [(f, _late(f))], *LATE),
    Check(WARNING, "schedules", _unreadable,
        lambda f: f"This host cannot fire schedule {_unreadable(f)[0]}"
        f"{f', and {len(_unreadable(f)) - 1} more' if _unreadable(f)[1:] else ''}.",
        "Update tzdata on the hosts that lack the zone, or store the schedule again."),
)  # fmt: skip


# -------------------------------------------------------------- this machine, and the way to others


def _keys(facts: Facts) -> Iterator[tuple[str, int, str]]:
    """Yield key files that other users can use, with their mode, and who has to fix that."""
    for path, mode in facts.exposure.keys.items():
        owner = facts.exposure.owners.get(path)
        who = f"As {line(owner, 60)}, whose file it is, or as root: " if owner else ""
        yield line(path, PATH_MAX), mode, who


def _place(locks: Locks) -> str:
    return f"{locks.path}, a directory of {line(locks.owner, 60)}" if locks.owner else locks.path


def _choose(locks: Locks) -> str:
    return OWN_FILE if locks.beside else OWN_DIRECTORY


OWN_DIRECTORY = "Set OUTLAST_RUN_DIR to a directory of the workers' user on a local disk."
OWN_FILE = (
    "Keep the file in a directory that belongs to the workers' user, as must the directory of lock"
    " files beside it. To share it with a group, before its first use: install -d -m 2770 -g GROUP"
    " DIRECTORY; install -m 660 -g GROUP /dev/null DIRECTORY/FILE."
)
USE_TLS = (
    f"Write {' or '.join(f'{scheme}://' for scheme in TLS_SCHEMES)} in the URL, with ?tls_ca=PATH"
    " for an authority of your own."
)

MESSENGER: Table[MessengerUrl] = (
    Check(OK, "messenger_tls", lambda to: to.secured,
        lambda to: f"{line(to.place, PATH_MAX)} must present a certificate first."),
    Check(WARNING, "messenger_tls", lambda to: to.login,
        lambda to: f"The messenger is on another host ({line(to.place, PATH_MAX)}), without TLS:"
        " anyone who listens in learns its login, and the names of queues and tasks.", USE_TLS),
    Check(HINT, "messenger_tls", True,
        lambda to: f"The messenger is on another host ({line(to.place, PATH_MAX)}), without TLS:"
        " anyone who listens in learns the names of queues and tasks.", USE_TLS),
)  # fmt: skip
LOCKS: Table[Locks] = (
    Check(PROBLEM, "lock_directory", lambda at: at.network is not None,
        lambda at: f"{at.path} is on {at.network}, whose locks prove nothing.", _choose),
    Check(WARNING, "lock_directory",
        lambda at: (at.mode or 0) & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH,
        lambda at: f"Anyone may delete the lock files in {_place(at)}: they prove a worker's"
        " death.",
        lambda at: _choose(at) if at.owner else f"chmod o-w {at.path}"),
    Check(WARNING, "lock_directory", lambda at: not at.writable,
        lambda at: f"A worker that runs as this user cannot create lock files in {_place(at)}.",
        _choose),
    Check(HINT, "lock_directory", lambda at: at.cleaned_by is not None,
        lambda at: f"Old files in {at.path} are deleted ({line(at.cleaned_by, 120)}).", _choose),
    Check(OK, "lock_directory", lambda at: at.mode is None,
        lambda at: f"Lock files are in {at.path} (the first worker creates it)."),
    Check(OK, "lock_directory", True, lambda at: f"Lock files are in {at.path}."),
)  # fmt: skip
HOST: Table[Facts] = (
    Each(lambda f: [f.exposure.messenger] if f.exposure.messenger else (), *MESSENGER),
    Check(WARNING, "secret_in_arguments", lambda f: f.exposure.in_arguments,
        "The arguments of this command contain a password: every user of this machine can read it,"
        " and the shell keeps it in its history.",
        "Set it in the environment instead: OUTLAST_URL, OUTLAST_WAKEUP; or ~/.pgpass."),
    Each(_keys,
        Check(WARNING, "key_file", True,
            lambda key: f"Users other than the owner can use the key in {key[0]} ({key[1]:04o}).",
            lambda key: f"{key[2]}chmod go-rwx {key[0]}")),
    Each(lambda f: [f.locks], *LOCKS),
    Check(HINT, "drain_timeout", lambda f: f.kubernetes,
        "This is Kubernetes, which kills a pod 30 s after it was asked to stop.",
        "Keep terminationGracePeriodSeconds 15 s or more above --drain-timeout (25)."),
)  # fmt: skip


# ------------------------------------------------------------------------------ the application


class Compared(NamedTuple):
    """The application beside the store. ``missing``: tasks of due jobs that it does not have;
    ``plain``: its payloads that are not encrypted, in words."""

    it: Application
    missing: list[str]
    plain: list[str]


def _compare(facts: Facts) -> Iterator[Compared]:
    if (it := facts.application) is not None:
        own = {*it.tasks, *it.aliases}
        missing = [] if it.error else sorted({lane.task for lane in facts.lanes} - own)
        yield Compared(it, missing, [*_describe_plain(facts, it, own)])


def _describe_plain(facts: Facts, it: Application, own: set[str]) -> Iterator[str]:
    jobs = [one for one in facts.unencrypted if one.number and one.task in own]
    schedules = [row.name for row in facts.schedules if _is_plain(row, own)]
    if jobs:
        number = count_of(sum(one.number for one in jobs), "unfinished job")
        yield f"{number} of {list_some([one.task for one in jobs])}"
    if schedules:
        yield f"{count_of(len(schedules), 'schedule')} ({list_some(schedules)})"
    looked_at = sum(one.looked_at for one in facts.unencrypted)
    if it.encryption == "optional" and looked_at >= UNENCRYPTED_MAX:
        yield f"perhaps more after the first {UNENCRYPTED_MAX} jobs"


def _is_plain(row: ScheduleRow, own: set[str]) -> bool:
    try:
        call = call_of(row)
    except UsageError:
        return False  # such a schedule cannot fire either
    return call.task in own and not is_encrypted(call.args)


COMPARED: Table[Compared] = (
    Check(PROBLEM, "application", lambda at: at.it.error,
        lambda at: f"{at.it.spec} does not import: {line(at.it.error, 300)}",
        "Workers of this release cannot run anything: fix the import."),
    Check(OK, "application", True,
        lambda at: f"{at.it.spec} imports; its tasks are"
        f" {list_some(at.it.tasks, TASKS_SHOWN) or 'none'}."),
    Check(WARNING, "unknown_tasks", lambda at: at.missing,
        lambda at: f"Some due jobs have tasks that {at.it.spec} lacks:"
        f" {list_some(at.missing, TASKS_SHOWN)}.",
        "Let it import the modules that define them, give its tasks these names as aliases, or keep"
        " a worker that has these tasks."),
    Check(HINT, "encryption", lambda at: at.it.encryption == "optional",
        lambda at: f"{at.it.spec} encrypts payloads, but also runs plain ones:"
        f" {', '.join(at.plain) or 'there are none'}.",
        lambda at: (
            "Wait until these jobs have ended, and store these schedules again; then set"
            if at.plain else "Set"
        ) + " Encryption(…, required=True)."),
    Check(WARNING, "encryption", lambda at: at.it.encryption == "required" and at.plain,
        lambda at: f"{at.it.spec} requires that payloads are encrypted, and refuses"
        f" {', '.join(at.plain)}.",
        "If you know who stored them: let a worker of a release without required=True run the jobs,"
        " and store the schedules again. If not, someone may have changed rows."),
    Check(OK, "encryption", lambda at: at.it.encryption == "required",
        lambda at: f"{at.it.spec} requires that payloads are encrypted."),
)  # fmt: skip
APPLICATION: Table[Facts] = (Each(_compare, *COMPARED),)
