"""Emit everything that happens as an event: logs, metrics, traces and tests listen here.

The code that does a thing calls ``emit`` once; subscribers decide what to make of it (a line of
log, a counter, nothing). A process that does not opt in gets no output at all: importing Outlast
into a program must not touch its logging.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple


class Event(NamedTuple):
    """A kind of event: ``sentence`` describes what has happened; ``fields`` are the names of
    exactly the facts that it always carries."""

    sentence: str
    fields: tuple[str, ...] = ()
    level: Literal["info", "warning", "error"] = "info"


CATALOGUE: dict[str, Event] = {
    # workers
    "worker_registered": Event(
        "A worker has a row in the store and a lease; it replaced this many workers of its"
        " instance.",
        ("worker", "worker_id", "replaced"),
    ),
    "secret_in_arguments": Event(
        "The arguments of a worker hold the password of a URL, and every user of the machine can"
        " read them: set it in the environment instead, OUTLAST_URL and OUTLAST_WAKEUP.",
        (),
        "warning",
    ),
    "worker_started": Event("A worker is ready and takes work.", ("worker", "worker_id")),
    "worker_draining": Event(
        "A worker claims no more jobs and waits for its running attempts.",
        ("worker_id", "running"),
    ),
    "drain_timed_out": Event(
        "--drain-timeout has passed, in seconds: the worker asks its running attempts to stop, and"
        " soon kills each runner whose attempt goes on. The jobs return to the queue, uncharged.",
        ("worker_id", "seconds", "running"),
        "warning",
    ),
    "pauses_changed": Event(
        "A worker has read that something was paused or resumed, and obeys it: this many pauses"
        " are in force.",
        ("worker_id", "pauses"),
    ),
    "worker_stopped": Event("A worker has ended.", ("worker", "worker_id")),
    "worker_sleeps": Event(
        "An idle worker went to sleep; it wakes after this many seconds.",
        ("worker_id", "seconds"),
    ),
    "worker_reaped": Event(
        "A worker was found dead, and its row was marked lost.",
        ("worker", "worker_id", "cause", "age"),
        "warning",
    ),
    "reap_failed": Event(
        "A worker was found dead, but its row cannot be marked, for example because another session"
        " holds it. Each check for dead workers tries again; reported with the second failure, then"
        " once a minute.",
        ("worker", "worker_id", "error"),
        "warning",
    ),
    "workers_deactivated": Event(
        "One check of all workers found this many dead.", ("count",), "warning"
    ),
    "worker_gave_up": Event(
        "A worker's heartbeats succeed, but for minutes the store has refused its exchanges:"
        " the worker drains and ends with this error.",
        ("worker", "worker_id", "error", "seconds"),
        "error",
    ),
    "lease_lost": Event(
        "A worker can no longer trust its lease and stops its attempts.",
        ("worker_id", "reason", "running"),
        "warning",
    ),
    "lease_kept": Event(
        "The store answers again and the lease is still valid: attempts that were kept continue.",
        ("worker_id", "running"),
    ),
    "tether_restarted": Event(
        "The process that kills runners if their worker cannot was restarted.", (), "warning"
    ),
    "tether_missing": Event(
        "The process that kills runners if their worker cannot has died, or was stopped, and"
        " cannot be restarted: each heartbeat tries again. Until then a worker that is stopped"
        " leaves its runners running.",
        ("error",),
        "error",
    ),
    "presence_taken": Event("A worker holds its lock in the database.", ("worker_id",)),
    "presence_off": Event(
        "A worker holds no lock in the database: its death is noticed by other means.",
        ("worker_id", "reason"),
        "warning",
    ),
    "lock_file_missing": Event(
        "No lock file can be made here: a death on this host is noticed by other means.",
        ("error",),
        "warning",
    ),
    "queue_unknown": Event(
        "No task, schedule or job has a queue named in --queues: probably a typo for the queue"
        " named here.",
        ("queue", "near"),
        "warning",
    ),
    # runners
    "runner_started": Event("A child process was started to run attempts.", ("pid",)),
    "runner_ready": Event(
        "A runner has imported the application and announced its tasks.", ("pid", "seconds")
    ),
    "runner_slow": Event(
        "A runner is late: it still imports the application or enters its lifespan, and is killed"
        " after five minutes; or it was asked to exit, and was killed after three seconds because"
        " its lifespan had not ended. The stacks show the line.",
        ("pid", "seconds", "stacks"),
        "warning",
    ),
    "runner_stopped": Event(
        "A runner exited as asked, or was killed by a stop while it started.",
        ("pid", "exit_code", "signal", "attempts", "killed_for"),
    ),
    "runner_died": Event(
        "A runner exited without being asked to.",
        ("pid", "exit_code", "signal", "attempts", "killed_for"),
        "warning",
    ),
    "runner_stood_still": Event(
        "A runner and its worker did not run for this time, as in a suspended machine or a paused"
        " container: the time limits of the runner's attempts do not count it.",
        ("pid", "seconds", "attempts"),
    ),
    "runner_unkillable": Event(
        "Processes of a runner are still alive after a kill, as in a system call that does not"
        " return. The worker no longer waits for them.",
        ("pid", "attempts"),
        "warning",
    ),
    "runner_restored": Event(
        "A task changed the process state of its runner and did not restore it: the task named, or"
        " one of the `others` that ran since the runner was last idle. The worker restored the"
        " state; where that is impossible, as with threads that became greenlets,"
        " `runner_recycled` follows.",
        ("job_id", "token", "task", "others", "pid", "changes"),
        "warning",
    ),
    "runner_not_waited_for": Event(
        "The exit status of a runner is not available: other code in the worker's process has"
        " waited for it. The worker takes the runner for dead and kills its remaining processes.",
        ("pid", "error"),
        "warning",
    ),
    "runner_recycled": Event(
        "A runner has reached a limit, or a task changed it for good (`runner_restored` says how):"
        " it takes no more attempts and is replaced.",
        ("pid", "reason", "rss", "attempts"),
    ),
    "runner_restart_delayed": Event(
        "Runners die while they start, or because their lifespan fails, so the next one is started"
        " later.",
        ("seconds", "error", "stack"),
        "warning",
    ),
    "code_changed": Event("Code has changed: all runners are replaced (--reload).", ("files",)),
    "reload_failed": Event(
        "A runner with changed code cannot start: the worker waits for the next change.",
        ("error", "stack"),
        "error",
    ),
    "loop_blocked": Event(
        "A runner's event loop has been blocked for five seconds, or past the time limit of an"
        " attempt. The fields name the attempt that blocks it, the line and the stacks.",
        ("pid", "seconds", "job_id", "token", "line", "stack"),
        "warning",
    ),
    "loop_unblocked": Event(
        "The event loop of a runner runs again, after this many seconds.", ("pid", "seconds")
    ),
    "application_failed": Event(
        "No runner could import the application: the worker ends.",
        ("error", "stack"),
        "error",
    ),
    "frame_rejected": Event(
        "A malformed or oversized frame came from a runner.", ("pid", "error"), "warning"
    ),
    # attempts
    "attempt_started": Event(
        "A job is being run under a new token.", ("job_id", "token", "task", "number")
    ),
    "attempt_stopping": Event(
        "An attempt has reached a limit and is asked to stop.", ("token", "reason"), "warning"
    ),
    "attempt_unheld": Event(
        "A worker held an attempt that none of its runners ran: its job was returned to the queue.",
        ("job_id", "token"),
        "warning",
    ),
    "attempt_overdue": Event(
        "An attempt was far past its timeout, and its own worker had not ended it: another worker"
        " closed it.",
        ("job_id", "token", "state", "reason"),
        "warning",
    ),
    "attempt_superseded": Event(
        "An attempt that runs on this worker was closed by another one; this worker ends it.",
        ("job_id", "token"),
        "warning",
    ),
    "slots_held_by_waiting": Event(
        "All attempts of a worker wait for the results of other jobs, and the worker has no free"
        " slot for those jobs: unless other workers run them, nothing makes progress. `running`:"
        " how many attempts; `job_id`: one of their jobs.",
        ("running", "job_id", "waits_for"),
        "warning",
    ),
    "attempt_ended": Event(
        "An attempt has ended, and its outcome goes to the store. After `complete_in`, the store"
        " has said whether it was committed.",
        ("job_id", "token", "task", "outcome", "state", "seconds"),
    ),
    "attempt_failed": Event(
        "An attempt failed, died or was ended at a limit. `kind` and `message`: the kind of its"
        " crash report and its first line; `state`: the next state of its job. Emitted in addition"
        " to `attempt_ended`.",
        ("job_id", "token", "task", "kind", "message", "state"),
        "warning",
    ),
    "job_dead": Event(
        "A job has used up a budget, or has raised `Dead`: it is kept as a dead letter and"
        " does not run again. `kind` and `message` are from the report of its last attempt;"
        " `attempts` is the number of its attempts.",
        ("job_id", "token", "task", "queue", "kind", "message", "attempts"),
        "error",
    ),
    "attempt_refused": Event(
        "The store refused a write about an attempt that is no longer current.",
        ("job_id", "token"),
        "warning",
    ),
    "transaction_left_open": Event(
        "An attempt has ended, but a transaction that its runner left open (after `complete_in`)"
        " keeps the job's row locked: the runner is killed. Or a runner keeps the whole SQLite file"
        " locked, while an attempt in it has ended or saves: it is killed at once if no attempt"
        " runs in it, and after a minute otherwise.",
        ("job_id", "token", "pid", "seconds"),
        "warning",
    ),
    "result_mismatched": Event(
        "A task has returned a value that does not fit its return annotation. Its job is"
        " completed.",
        ("job_id", "token", "task", "error"),
        "warning",
    ),
    "result_rejected": Event(
        "The store refused the values of an attempt's end, or they never reached the store.",
        ("job_id", "token", "error"),
        "warning",
    ),
    "progress_rejected": Event("The store refused a report of progress.", ("error",), "warning"),
    "claim_reconciled": Event(
        "A claim whose reply never reached its worker was released.", ("job_id", "token"), "warning"
    ),
    # recovery
    "reconciliation_complete": Event(
        "A worker that has just started has searched for orphans.", ("orphaned_count",)
    ),
    "orphaned_jobs_detected": Event(
        "A worker that has just started found running jobs whose worker is not alive.",
        ("count",),
        "warning",
    ),
    "stale_jobs_detected": Event(
        "Running jobs were found whose worker is no longer alive.", ("count",), "warning"
    ),
    "job_reenqueued": Event(
        "An orphan's attempt was closed, with a reason. `state`: the next state of its job.",
        ("job_id", "token", "state", "reason"),
        "warning",
    ),
    # wake-ups
    "job_skipped_active_elsewhere": Event(
        "A message named a job that another worker runs: the message was acknowledged, and the job"
        " left alone. Reported within a second, once for each attempt, and for at most a hundred"
        " jobs a second.",
        ("job_id", "token", "worker", "worker_id"),
    ),
    "wakeup_ready": Event("Wake-ups work, by `file`, `notify`, `nats` or `amqp`.", ("kind",)),
    "wakeup_lost": Event(
        "Wake-ups do not work: until they do, jobs are found by polling.",
        ("kind", "error"),
        "warning",
    ),
    "notice_rejected": Event(
        "A message from the messenger is not a notice of Outlast; it was acknowledged. Reported at"
        " most once a minute, with their number since the last report and the last one's error.",
        ("kind", "error", "count"),
        "warning",
    ),
    # the store
    "store_unavailable": Event(
        "The store cannot be reached, or closed the connection. Reported for each duty when an"
        " outage begins, and once a minute while it lasts, with the number of failed tries since.",
        ("duty", "error", "count"),
        "warning",
    ),
    "store_recovered": Event("The store can be reached again.", ("duty",)),
    "duty_failed": Event(
        "A duty of the worker raised an error; the worker tries again.", ("duty", "error"), "error"
    ),
    "probes_answered": Event("The worker answers probes over HTTP on this port.", ("port",)),
    "liveness_failed": Event(
        "The worker answers `/livez` with 503 until the reason no longer holds: a supervisor that"
        " asks may restart it.",
        ("reason",),
        "error",
    ),
    "jobs_expired": Event("Queued jobs had not begun in time, and were cancelled.", ("rows",)),
    "limit_set": Event(
        "A limit, or one key of it, was set at run time, which takes precedence over the code: a"
        " null field is unchanged. `spacing`: seconds between two starts; `by`: who did it, null"
        " for a program. Emitted in the program that did it.",
        ("limit", "key", "running", "spacing", "burst", "by"),
    ),
    "limit_reset": Event(
        "A limit, or one key of it, was reset to the values in the code.", ("limit", "key", "by")
    ),
    "limit_held": Event(
        "Nothing under a limit, or one key of it, starts for this long; 0: the hold was lifted.",
        ("limit", "key", "seconds", "by"),
    ),
    "limit_throttled": Event(
        "An attempt raised `Throttled`: nothing under this limit (of one per tenant or key, under"
        " the job's own) starts for this long.",
        ("limit", "job_id", "token", "seconds"),
    ),
    "event_sent": Event(
        "An event of this name was sent; jobs may be waiting for it.",
        ("sent", "by"),
    ),
    "limit_recounted": Event(
        "The count of a limit did not match the attempts that ran under it, and was corrected: this"
        " happens only if rows were changed by other means.",
        ("limit", "key", "counted", "running"),
        "warning",
    ),
    "limits_locked": Event(
        "A database session holds a lock that limits or counters are waiting for.",
        ("holder", "fix"),
        "warning",
    ),
    "jobs_pruned": Event("Old rows were deleted.", ("rows",)),
    # schedules
    "schedule_fired": Event(
        "A tick of a schedule has its job. `late`: seconds from the tick until the job was stored.",
        ("schedule", "tick", "job_id", "late"),
    ),
    "schedule_skipped": Event(
        "A tick of a schedule has no job, because an earlier tick's job, `in_the_way` (null if it"
        " has ended since), was unfinished. Reported once a minute, with the `ticks` since then.",
        ("schedule", "tick", "in_the_way", "ticks"),
        "warning",
    ),
    "schedule_missed": Event(
        "Ticks of a schedule have no job: no worker was alive in time (they are past its grace, or"
        " are not caught up), or the schedule was paused or changed.",
        ("schedule", "ticks", "until"),
        "warning",
    ),
    "schedule_failed": Event(
        "A schedule is due but cannot be fired, for example because its zone is unknown here or the"
        " store refuses its call; other schedules are not delayed. Reported once a minute.",
        ("schedule", "error"),
        "error",
    ),
    "schedule_declared": Event(
        "A schedule of the code is new in the store, or has replaced an older declaration.",
        ("schedule", "what"),
    ),
    "schedule_not_declared": Event(
        "A schedule of this worker's code is not in use: a newer release declares another, a"
        " schedule that was put at run time has its name, or another transaction holds its row.",
        ("schedule", "reason"),
        "warning",
    ),
    "schedules_asleep": Event(
        "Schedules are due that no worker's code declares any longer; they are not fired, and are"
        " removed after a week.",
        ("count",),
        "warning",
    ),
}
"""Name of the event -> what it says. The site shows this table to people (tools/reference.py)."""

_FIELDS = {name: frozenset(event.fields) for name, event in CATALOGUE.items()}


Subscriber = Callable[[str, dict[str, Any]], object]
"""A listener, called in the thread that emits, so it must be quick; what it raises stays there."""


_lock = threading.Lock()
_subscribers: tuple[Subscriber, ...] = ()


def emit(name: str, **fields: Any) -> None:
    """Notify all subscribers that ``name`` has happened, with the fields of the catalogue.

    A subscriber's error never reaches the caller. An assertion checks name and fields against the
    catalogue.
    """
    assert name in _FIELDS, f"{name!r} is not in outlast.events.CATALOGUE"
    assert fields.keys() == _FIELDS[name], f"the fields of {name!r} are not {[*fields]}"
    for subscriber in _subscribers:
        try:
            subscriber(name, fields)
        except Exception:
            logging.getLogger("outlast").exception("a subscriber failed on event %s", name)


def count_wanted(name: str, count: int) -> int:
    """Return how many of ``count`` events, each of another job, should be emitted: emitting one
    that no subscriber wants costs as much as a small job.

    A subscriber that drops most of them anyway has a method ``thin(name, count)``. It returns how
    many it would take, and counts the others as dropped.
    """
    if not count or len(_subscribers) != 1:
        return count if _subscribers else 0
    thin = getattr(_subscribers[0], "thin", None)
    return count if thin is None else int(thin(name, count))


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call ``subscriber(name, fields)`` at each event from now on; return a function that ends
    that."""
    global _subscribers
    with _lock:
        _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        with _lock:
            _subscribers = tuple(other for other in _subscribers if other is not subscriber)

    return unsubscribe


def log_to_structlog() -> Callable[[], None]:
    """Opt in: write each event to the structlog logger ``outlast``; return a function that ends
    that.

    The caller configures how structlog renders, and where it writes.
    """
    import structlog

    logger = structlog.get_logger("outlast")

    def write(name: str, fields: dict[str, Any]) -> None:
        getattr(logger, CATALOGUE[name].level)(name, **fields)

    return subscribe(write)
