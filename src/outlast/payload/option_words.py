"""Translate other queues' names of commands, options and states, so that an error can name ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches


def by_name(ours: Mapping[str, str]) -> dict[str, str]:
    """Return other queues' names, each with ours, from ours, each with theirs."""
    return {name: mine for mine, names in ours.items() for name in names.split()}


_NOTHING = "nothing to set: a job is finished only once its end is stored"
OF_TASKS = by_name(
    {
        _NOTHING: "acks_late reject_on_worker_lost",
        "name": "actor_name",
        "retry_on": "autoretry_for retry_when",
        "batch_wait": "batch_flush_interval flush_interval",
        "batch": "batch_flush_size batch_size flush_every",
        "outlast.current() in the task": "bind pass_context",
        "backoff_first": "default_retry_delay min_backoff",
        "dead_on": "dont_autoretry_for throws",
        "keep=0": "ignore_result",
        "timeout": "job_timeout time_limit",
        "expires": "max_age",
        "retries, one less": "max_attempts",
        "backoff_max": "max_backoff retry_backoff_max",
        "retries": "max_retries retry retry_kwargs",
        "queue": "queue_name",
        "limits=[app.limit('NAME', running=…)]": "concurrency concurrency_limit max_concurrency",
        "limits=[app.limit('NAME', rate='600/min')]": "rate_limit",
        "keep": "result_ttl",
        "backoff_first, or backoff": "retry_backoff",
        "nothing to set: there is always jitter, unless backoff is given": "retry_jitter",
        "timeout, and cancel_grace": "soft_time_limit",
    }
)
OF_CALLS = by_name(
    {
        "using(priority=…)": "at_front",
        "using(delay=…)": "countdown schedule_in",
        "using(at=…)": "eta schedule_at",
        "using(expires=…)": "expires",
        "using(key=…)": "job_id lock queueing_lock task_id",
    }
) | {
    name: f"using({name}=…)"
    for name in ("delay", "at", "queue", "priority", "key", "tenant", "keep", "connection")
}
OF_LINKS = {
    "chain": "outlast.chain(…)",
    "chord": "outlast.group(…).then(…)",
    "depends_on": "using(after=…)",
    "link": "using(then=…)",
    "link_error": "using(on_dead=…)",
}
OF_TASK_OBJECTS = by_name(
    {
        "to call it here, call it as a function": "apply",
        "using(…).enqueue(…)": "apply_async send_with_options",
        "using(connection=…).enqueue(…)": "apply_async_on_commit",
        "outlast.group(task.call(each) for each in …)": "chunks map",
        "using(…)": "configure kicker",
        "enqueue_sync(…)": "defer",
        "enqueue(…)": "defer_async kiq",
        "enqueue(…), or enqueue_sync(…) in plain code": "delay send",
        "using(connection=…).enqueue(…), or app.on_commit(…)": "delay_on_commit",
        "outlast.current() in the task": "request",
        "raise outlast.Retry(…) in the task": "retry",
        "call(…)": "s si signature",
        "using(delay=…).enqueue(…), or using(at=…)": "schedule",
        "outlast.group(task.call(*each) for each in …)": "starmap",
        "outlast.current().report(…) in the task": "update_state",
    }
)
OF_JOBS = by_name(
    {
        "status()": "failed ready state successful",
        "result(timeout=…), or result_sync(timeout=…) in plain code": "get wait",
        "row, its progress": "info",
        "cancel()": "revoke",
    }
)
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
OF_STATES = by_name(
    {
        "cancelled": "aborted canceled revoked",
        "running": "active doing started",
        "scheduled": "deferred",
        "completed": "done finished succeeded success",
        "retrying, or dead": "failed failure",
        "queued": "pending todo",
        "retrying": "retry",
    }
)


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
