"""Translate other queues' names of commands, options and states, so that an error can name ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

_NOTHING = "nothing to set: a job is finished only once its end is stored"
OF_TASKS = {
    "acks_late": _NOTHING,
    "actor_name": "name",
    "autoretry_for": "retry_on",
    "batch_flush_interval": "batch_wait",
    "batch_flush_size": "batch",
    "batch_size": "batch",
    "bind": "outlast.current() in the task",
    "default_retry_delay": "backoff_first",
    "dont_autoretry_for": "dead_on",
    "flush_every": "batch",
    "flush_interval": "batch_wait",
    "ignore_result": "keep=0",
    "job_timeout": "timeout",
    "max_age": "expires",
    "max_attempts": "retries, one less",
    "max_backoff": "backoff_max",
    "max_retries": "retries",
    "min_backoff": "backoff_first",
    "pass_context": "outlast.current() in the task",
    "queue_name": "queue",
    "concurrency": "limits=[app.limit('NAME', running=…)]",
    "concurrency_limit": "limits=[app.limit('NAME', running=…)]",
    "max_concurrency": "limits=[app.limit('NAME', running=…)]",
    "rate_limit": "limits=[app.limit('NAME', rate='600/min')]",
    "reject_on_worker_lost": _NOTHING,
    "result_ttl": "keep",
    "retry": "retries",
    "retry_backoff": "backoff_first, or backoff",
    "retry_backoff_max": "backoff_max",
    "retry_jitter": "nothing to set: there is always jitter, unless backoff is given",
    "retry_kwargs": "retries",
    "retry_when": "retry_on",
    "soft_time_limit": "timeout, and cancel_grace",
    "throws": "dead_on",
    "time_limit": "timeout",
}
OF_CALLS = {
    "at_front": "using(priority=…)",
    "countdown": "using(delay=…)",
    "eta": "using(at=…)",
    "expires": "using(expires=…)",
    "job_id": "using(key=…)",
    "lock": "using(key=…)",
    "queueing_lock": "using(key=…)",
    "schedule_at": "using(at=…)",
    "schedule_in": "using(delay=…)",
    "task_id": "using(key=…)",
    **{
        name: f"using({name}=…)"
        for name in ("delay", "at", "queue", "priority", "key", "tenant", "keep", "connection")
    },
}
OF_LINKS = {
    "chain": "outlast.chain(…)",
    "chord": "outlast.group(…).then(…)",
    "depends_on": "using(after=…)",
    "link": "using(then=…)",
    "link_error": "using(on_dead=…)",
}
OF_TASK_OBJECTS = {
    "apply": "to call it here, call it as a function",
    "apply_async": "using(…).enqueue(…)",
    "apply_async_on_commit": "using(connection=…).enqueue(…)",
    "chunks": "outlast.group(task.call(each) for each in …)",
    "map": "outlast.group(task.call(each) for each in …)",
    "configure": "using(…)",
    "defer": "enqueue_sync(…)",
    "defer_async": "enqueue(…)",
    "delay": "enqueue(…), or enqueue_sync(…) in plain code",
    "delay_on_commit": "using(connection=…).enqueue(…), or app.on_commit(…)",
    "kicker": "using(…)",
    "kiq": "enqueue(…)",
    "request": "outlast.current() in the task",
    "retry": "raise outlast.Retry(…) in the task",
    "s": "call(…)",
    "schedule": "using(delay=…).enqueue(…), or using(at=…)",
    "send": "enqueue(…), or enqueue_sync(…) in plain code",
    "send_with_options": "using(…).enqueue(…)",
    "si": "call(…)",
    "signature": "call(…)",
    "starmap": "outlast.group(task.call(*each) for each in …)",
    "update_state": "outlast.current().report(…) in the task",
}
OF_JOBS = {
    "failed": "status()",
    "get": "result(timeout=…), or result_sync(timeout=…) in plain code",
    "info": "row, its progress",
    "ready": "status()",
    "revoke": "cancel()",
    "state": "status()",
    "successful": "status()",
    "wait": "result(timeout=…), or result_sync(timeout=…) in plain code",
}
OF_APPS = {
    "AsyncResult": "get(id)",
    "add_periodic_task": 'schedule("name", task.call(), cron="…")',
    "autodiscover_tasks": "import the modules of tasks in the module that makes the app",
    "conf": "options of App, of @app.task and of `outlast worker`",
    "control": "cancel(id), or `outlast cancel`",
    "send_task": 'find("name").enqueue(…)',
    "worker_main": "`outlast worker MODULE:APP`",
}
_OF_OBJECTS = {"Task": OF_TASK_OBJECTS, "Job": OF_JOBS, "App": OF_APPS}
OF_APP_OPTIONS = {
    "backend": "nothing to set: results are in the store",
    "broker": "the URL of the store, as the first argument",
    "include": "import the modules of tasks in the module that makes the app",
}
OF_COMMANDS = {
    "beat": "schedules",
    "init": "migrate",
    "inspect": "jobs",
    "list": "jobs",
    "ls": "jobs",
    "purge": "cancel",
    "retry": "requeue",
    "revoke": "cancel",
    "show": "job",
    "start": "worker",
    "status": "stats",
}
OF_STATES = {
    "aborted": "cancelled",
    "active": "running",
    "canceled": "cancelled",
    "deferred": "scheduled",
    "doing": "running",
    "done": "completed",
    "failed": "retrying, or dead",
    "failure": "retrying, or dead",
    "finished": "completed",
    "pending": "queued",
    "retry": "retrying",
    "revoked": "cancelled",
    "started": "running",
    "succeeded": "completed",
    "success": "completed",
    "todo": "queued",
}


def no_such_options(what: str, unknown: Mapping[str, str | None], known: Iterable[str]) -> str:
    """Return that these options do not exist, each with the option of ours that is meant; with all
    of ours, if that is unknown of one."""
    told = ", ".join(f"{name}{hint(meant)}" for name, meant in unknown.items())
    rest = "" if all(unknown.values()) else f"; choose from: {', '.join(known)}"
    return f"{what} has no option {told}{rest}"


def meant_for_tasks(unknown: Iterable[str], known: Iterable[str]) -> dict[str, str | None]:
    """Return for each unknown option of a task the option of ours that is meant, if known."""
    return {name: OF_TASKS.get(name) or near(name, known) for name in unknown}


def describe_call_options(unknown: Iterable[str]) -> str:
    """Return the unknown arguments of a call, each with the option that it may stand for."""
    return ", ".join(f"{name!a}{hint((OF_CALLS | OF_LINKS).get(name))}" for name in unknown)


def meant_for_apps(unknown: Iterable[str], known: Iterable[str]) -> dict[str, str | None]:
    """Return for each unknown option of an App the option of ours that is meant, if known."""
    return {name: OF_APP_OPTIONS.get(name) or near(name, known) for name in unknown}


def meant_for_using(
    unknown: Iterable[str], known: Collection[str], of_tasks: Collection[str]
) -> dict[str, str | None]:
    """Return for each unknown option of ``using`` the option of ours that is meant, if known."""

    def meant(name: str) -> str | None:
        if (ours := (OF_CALLS | OF_LINKS).get(name)) is not None:
            return ours
        if name in of_tasks:
            return f"@app.task({name}=…)"
        if (ours := OF_TASKS.get(name)) is None:
            return near(name, known)
        first = ours.partition("=")[0].partition(",")[0]
        return f"in @app.task: {ours}" if first in {*of_tasks} - {*known} else ours

    return {name: meant(name) for name in unknown}


def describe_attribute(kind: str, unknown: str) -> str:
    """Return that a Task, Job or App lacks this attribute, and the attribute that is meant."""
    return f"{kind!r} object has no attribute {unknown!r}{hint(_OF_OBJECTS[kind].get(unknown))}"


def describe_state(unknown: str) -> str:
    """Return an unknown state, with the one of ours that it may stand for."""
    return f"{unknown!r}{hint(OF_STATES.get(unknown.lower()))}"


def hint(meant: str | None) -> str:
    """Return the meant option, in brackets; nothing, if it is unknown."""
    return f" (here: {meant})" if meant else ""


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like this one, if one is."""
    return next(iter(get_close_matches(name, [*names], n=1, cutoff=0.75)), None)
