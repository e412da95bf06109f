"""Introduce a worker once it is ready: its store, its limits, its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.base.config import WorkerSettings
from outlast.base.text import count_of, span
from outlast.events import subscribe
from outlast.model.job import SHELL_TASK
from outlast.store.backend import describe_place, file_of

if TYPE_CHECKING:
    from outlast.cli.application import Found
    from outlast.cli.logs import LogWriter

TASKS_SHOWN = 12


def introduce_once_ready(writer: LogWriter, facts: dict[str, Any], *, as_json: bool) -> None:
    """Write these facts to the log when the first runner is ready."""

    def listen(name: str, fields: dict[str, Any]) -> None:
        if name == "runner_ready":
            unsubscribe()
            if as_json:
                import structlog

                structlog.get_logger("outlast").info("worker_ready", **facts)
            else:
                writer.put(introduction(facts))

    unsubscribe = subscribe(listen)


def collect_facts(
    app: str, url: str, settings: WorkerSettings, found: Found, *, made: bool
) -> dict[str, Any]:
    """Return the facts that introduce a worker; ``made``: whether it creates its store's file."""
    from outlast.worker.runners.tags import lacking, missing

    needed = {name: missing(tags, settings.tags) for name, tags in found.requires.items()}
    for name, uses in found.uses.items():
        needed.setdefault(name, []).extend(lacking(uses, settings.has))
    lacks = {name: each for name, each in needed.items() if each}
    return {
        "application": app,
        "database": describe_place(url),
        "new_file": made if file_of(url) else None,
        "queues": settings.queues,
        "tags": settings.tags,
        "runners": settings.runners,
        "concurrency": settings.concurrency,
        "heartbeat": settings.heartbeat,
        "lease": settings.lease,
        "keep_completed": settings.keep_completed,
        "keep_workers": settings.keep_workers,
        "keep_dead": settings.keep_dead,
        "tasks": [SHELL_TASK] * settings.shell
        + [name for name in found.tasks if name not in lacks],
        "lacks": lacks,
    }


def introduction(facts: dict[str, Any]) -> str:
    """Return the text that a worker prints once it is ready."""
    origin = {True: " (a new file)", False: " (an existing one)", None: ""}[facts["new_file"]]
    tasks = facts["tasks"]
    more = f" and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else ""
    rows = {
        "database": f"{facts['database']}{origin}",
        "queues": ", ".join(facts["queues"]) or "all",
        "runners": f"{facts['runners']}, each with up to"
        f" {count_of(facts['concurrency'], 'async attempt')} or one plain function",
        "lease": f"{facts['lease']:g} s, renewed every {facts['heartbeat']:g} s",
        "keeps": _kept(facts),
        "tags": ", ".join(facts["tags"]),
        "tasks": (", ".join(tasks[:TASKS_SHOWN]) + more) or "none",
    }
    lacks = [f"{name} (needs {', '.join(tags)})" for name, tags in sorted(facts["lacks"].items())]
    rows["not here"] = ", ".join(lacks[:TASKS_SHOWN]) + (" …" if lacks[TASKS_SHOWN:] else "")
    body = "".join(f"  {name:<9} {value}\n" for name, value in rows.items() if value)
    return f"{facts['application']} is ready. Ctrl-C drains, a second one stops at once.\n{body}"


def _kept(facts: dict[str, Any]) -> str:
    """Return for how long the worker keeps ended jobs, unless that is the default."""
    usual = WorkerSettings()
    named = {"completed": "completed jobs", "workers": "gone workers", "dead": "dead jobs"}
    return ", ".join(
        f"{what} {span(facts[f'keep_{name}'])}"
        for name, what in named.items()
        if facts[f"keep_{name}"] != getattr(usual, f"keep_{name}")
    )
