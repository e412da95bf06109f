"""Check the workers, jobs that wait for one, and limits under which nothing starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from outlast.base.text import count_of, line, shell_word, since, span
from outlast.insight.availability import (
    dead,
    duty_of,
    health,
    hindrance,
    list_alive,
    sleeps,
    takes_nothing,
)
from outlast.insight.doctor.facts import Facts
from outlast.insight.doctor.store import GRANT
from outlast.insight.limits import counted
from outlast.insight.pauses import command_to_resume, describe
from outlast.insight.sentences import (
    HOLD_NO_SLOTS,
    NAME_MAX,
    at_time,
    describe_waits,
    list_some,
    quote,
)
from outlast.store.finding import Finding, hint, ok, problem, warning
from outlast.store.limits import LimitRow
from outlast.store.rows import WorkerRow, WorkerStatus

HOUR, DAY = 3_600.0, 86_400.0
LEASE_SHORT, LEASE_LONG = 10.0, 300.0  # seconds
NO_INOTIFY = (
    "That costs some 1% of a core. Too many open files: raise fs.inotify.max_user_instances, a"
    " limit per user."
)
FIND_WRITER = "Outlast writes no such rows: see who else may write to the tables."
FIXES = {
    "unservable": "Start a worker of a release that has this task, or give the task this name as"
    " an alias; `outlast cancel` ends jobs that are no longer wanted.",
    "lacks_tags": "Start a worker with the tags that the task requires.",
    "queue_not_served": "Start a worker with this queue in --queues, or without --queues.",
    "draining": "Start a worker: those that know this task are stopping.",
    "failing": "Fix what `failing_duty` reports of the workers that could take it.",
}


def workers(facts: Facts) -> Iterator[Finding]:
    """Whether there is a worker at all."""
    live = list_alive(facts.workers, facts.now)
    if live:
        yield ok("workers", f"{count_of(len(live), 'worker')} alive: {_named(live)}.")
    elif asleep := {one.name: one for one in facts.workers if sleeps(one, facts.now)}:
        yield ok(
            "workers", f"No worker is awake: {_named([*asleep.values()])} looks for jobs soon."
        )
    elif facts.error is None and facts.mismatch is None and facts.denied is None:
        waiting = facts.statistics is not None and (
            facts.statistics.lanes or facts.statistics.running
        )
        level, also = (problem, ", and jobs wait for one") if waiting else (warning, "")
        yield level(
            "workers", f"No worker is alive{also}.", "Start one: `outlast worker MODULE:APP`."
        )
    killed = [one for one in facts.workers if dead(one)]
    if killed:
        held = count_of(sum(one.running for one in killed), "job")
        yield warning(
            "dead_workers",
            f"Their lock files are free, so these are dead: {_named(killed)}.",
            f"A live worker gives their {held} back" + ("." if live else ": start one."),
        )
    quiet = [one for one in facts.workers if health(one, facts.now) == "silent"]
    if quiet:
        yield warning(
            "silent_workers",
            f"Nothing was heard of {_named(quiet)} for a whole lease.",
            "Any live worker finds them gone and gives their jobs back; see that one runs.",
        )


def lost(facts: Facts) -> Iterator[Finding]:
    """Whether workers were lost lately."""
    gone = [
        one
        for one in facts.workers
        if one.status is WorkerStatus.LOST and facts.now - (one.stopped_at or 0.0) < HOUR
    ]
    if gone:
        count = f"{count_of(len(gone), 'worker')} {'was' if len(gone) == 1 else 'were'}"
        yield warning(
            "lost_workers",
            f"In the last hour {count} lost: {_named(gone)}.",
            "Look at their logs, and for kills by the kernel (dmesg) or by the platform.",
        )


def pauses(facts: Facts) -> Iterator[Finding]:
    """Whether something has been paused for long: usually it was forgotten."""
    for pause in facts.pauses:
        if facts.now - pause.paused_at > DAY:
            yield warning(
                "long_paused",
                describe(pause, facts.now),
                f"If that was forgotten: `{command_to_resume(pause)}`.",
            )


def releases(facts: Facts) -> Iterator[Finding]:
    """Whether workers of several releases run side by side."""
    found = sorted({one.release for one in list_alive(facts.workers, facts.now) if one.release})
    if len(found) > 1:
        yield hint(
            "releases",
            f"Workers of {len(found)} releases are alive: {list_some(found)}.",
            "Normal during a rollout; after it, restart the workers of the old release.",
        )


def presence(facts: Facts) -> Iterator[Finding]:
    """Whether live workers go without a presence, and why."""
    for reason, those in _by(facts, lambda one: one.presence_off):
        yield warning(
            "presence",
            f"Presence is off for {_named(those)}: {line(reason, 200)}.",
            "Their death on another host is noticed by lease only, until that is fixed.",
        )


def wakeups(facts: Facts) -> Iterator[Finding]:
    """Whether live workers are woken in time, and why not."""
    for words, those in _by(facts, lambda one: one.wakeup):
        kind, is_ill, trouble = words.partition(": ")
        if "; " in kind:
            note = words.partition("; ")[2]
            yield hint(
                "wakeup", f"inotify does not wake {_named(those)}: {line(note, 200)}.", NO_INOTIFY
            )
        elif is_ill:
            yield warning(
                "wakeup",
                f"No wake-ups by {kind} reach {_named(those)}: {line(trouble, 200)}.",
                "They find jobs by polling, about a second later, until that is fixed.",
            )


def failing(facts: Facts) -> Iterator[Finding]:
    """Whether a live worker fails at one of its duties."""
    for words, those in _by(facts, lambda one: one.failing):
        one = min(those, key=lambda each: each.failing_since or 0.0)
        error = words.partition(": ")[2].rstrip(".")
        idle = takes_nothing(one)
        what = "No job is taken or handed in" if idle else f"A duty ({duty_of(one)}) fails"
        refused = error.startswith("NotPermitted")
        level = problem if idle or duty_of(one) == "reaper" else warning
        yield level(
            "failing_duty",
            f"{what} on {_named(those)}, {since(one.failing_since, facts.now)}:"
            f" {line(error, 300)}.",
            GRANT if refused else "Look at the log of that worker; it tries again by itself.",
        )


def leases(facts: Facts) -> Iterator[Finding]:
    """Whether live workers have odd leases."""
    live = list_alive(facts.workers, facts.now)
    for odd, harm in (
        ([one for one in live if one.lease < LEASE_SHORT], "a short stall stops their attempts"),
        ([one for one in live if one.lease > LEASE_LONG], "a dead host goes unnoticed for as long"),
    ):
        if odd:
            terms = span(odd[0].lease)
            yield hint(
                "leases",
                f"The lease of {_named(odd)} is {terms}: {harm}.",
                "--lease 60 --heartbeat 2 are the defaults.",
            )


def slots_held(facts: Facts) -> Iterator[Finding]:
    """Whether jobs are due while all running attempts wait for other jobs."""
    due = facts.statistics is not None and facts.statistics.lanes
    if due and facts.held and all(one.waits_for is not None for one in facts.held):
        yield warning(
            "slots_held",
            "Jobs are due, and each running job waits for another and holds its slot:"
            f" {describe_waits(facts.held)}.",
            HOLD_NO_SLOTS,
        )


def unservable(facts: Facts) -> Iterator[Finding]:
    """Whether jobs are due that no live worker takes."""
    live = list_alive(facts.workers, facts.now)
    lanes = [] if facts.statistics is None or not live else facts.statistics.lanes
    for lane in lanes:
        reason = hindrance(live, lane.queue, lane.task)
        if reason is not None:
            yield warning(
                reason,
                f"No live worker can take {count_of(lane.number, 'job')} of the task"
                f" {quote(lane.task)} in the queue {quote(lane.queue)}.",
                FIXES[reason],
            )


def undecodable(facts: Facts) -> Iterator[Finding]:
    """Whether jobs wait for a release that can decode them."""
    for one in [] if facts.statistics is None else facts.statistics.undecodable:
        release = f", last by release {line(one.release, NAME_MAX)}" if one.release else ""
        yield warning(
            "undecodable",
            f"{count_of(one.number, 'job')} of the task {quote(one.task)} in"
            f" the queue {quote(one.queue)} could not be decoded: up to"
            f" {count_of(one.repeats, 'time')} in a row{release}.",
            "Start a worker of a release that has this task with these arguments, or `outlast"
            " cancel` the jobs; until then they are tried again every 10 minutes or sooner.",
        )


def malformed(facts: Facts) -> Iterator[Finding]:
    """Whether rows hold values that Outlast does not write."""
    if facts.malformed:
        ids = list_some(list(map(str, facts.malformed)))
        columns = ", ".join(sorted(set(facts.malformed.values())))
        yield warning(
            "malformed_jobs",
            f"{count_of(len(facts.malformed), 'dead job')} cannot be read"
            f" ({line(columns, 100)}): {ids}.",
            "`outlast job ID` names the columns: fix the row and `outlast requeue ID`, or"
            f" `outlast dead discard ID`. {FIND_WRITER}",
        )
    if odd := [one for one in facts.workers if one.malformed is not None]:
        columns = ", ".join(sorted({one.malformed or "" for one in odd}))
        yield warning(
            "malformed_workers",
            f"The rows of {_named(odd)} cannot be read: {line(columns, 100)}.",
            f"Restart that worker; if there is none, delete the row. {FIND_WRITER}",
        )


def _by(
    facts: Facts, words_of: Callable[[WorkerRow], str | None]
) -> list[tuple[str, list[WorkerRow]]]:
    """Group live workers by what they report about themselves."""
    said: dict[str, list[WorkerRow]] = {}
    for one in list_alive(facts.workers, facts.now):
        if words := words_of(one):
            said.setdefault(words, []).append(one)
    return sorted(said.items())


def _named(some: Sequence[WorkerRow]) -> str:
    return list_some([one.name for one in some])


CHECKS = (
    workers,
    lost,
    releases,
    pauses,
    presence,
    wakeups,
    failing,
    leases,
    unservable,
    slots_held,
    undecodable,
    malformed,
)


_RECOUNTED_FOR = 86_400.0  # seconds for which a recount is told


def limits(facts: Facts) -> Iterator[Finding]:
    """Whether jobs wait for a limit that is not declared, set to 0, or held; and whether a limit
    counted other attempts than those that ran, which is never so by itself."""
    for row in [] if facts.statistics is None else facts.statistics.limits:
        if row.waiting:
            yield from _judge(row, facts.now)
        if row.recounted_at is not None and facts.now - row.recounted_at < _RECOUNTED_FOR:
            yield warning(
                "limit_recounted",
                f"The limit {quote(row.name)} counted other attempts than those that ran under it,"
                f" and was set right {at_time(row.recounted_at, facts.now)}.",
                "Rows were changed by other means: a restore of some tables, a statement by hand."
                " `outlast verify` looks for what else is wrong. If there was none of these, please"
                " report it: this is never to happen.",
            )


def _judge(row: LimitRow, now: float) -> Iterator[Finding]:
    due = f"{counted(row, 'waiting')} due jobs wait for the limit {quote(row.name)}"
    if row.declared is None:
        yield warning(
            "limit_unknown",
            f"{due}, which no worker's code has declared.",
            "Start a worker whose code declares it with app.limit(…).",
        )
    elif row.running == 0:
        yield warning(
            "limit_closed",
            f"{due}, which lets none run: its count is 0.",
            f"`outlast limits set {shell_word(row.name)} --running N` opens it,"
            f" `outlast limits reset {shell_word(row.name)}` goes"
            " back to what the code says.",
        )
    elif row.held_until is not None and row.held_until > now:
        yield warning(
            "limit_held",
            f"{due}, under which nothing starts for {span(row.held_until - now)}.",
            f"`outlast limits hold {shell_word(row.name)} 0` ends that.",
        )


LIMITS = (limits,)
