"""Find the job that a test means by a task and some arguments, and describe how others differ.

Arguments are compared in their stored form, in which a UUID or a dataclass is encoded.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from outlast.client.task import Task
from outlast.errors import UsageError
from outlast.insight.row import plain, read_payload
from outlast.payload.codec import to_json
from outlast.store.rows import StoredJob

SHOWN_MAX = 5  # jobs in a message
VALUE_MAX = 200  # characters


class WantedCall:
    """A task, and arguments that its job must have, among others. UsageError for an argument that
    the task does not take."""

    def __init__(
        self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.task = task
        if not isinstance(task, Task):
            raise UsageError(f"{ascii(task)[:80]} is not a task")
        names = list(task.signature.fields)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        if len(args) > len(names) or not given.keys() <= set(names):
            raise UsageError(f"{task.name} takes {', '.join(names) or 'no arguments'}")
        self.args = {name: _as_stored(name, value) for name, value in given.items()}

    def __str__(self) -> str:
        return _show_call(self.task.name, self.args)

    def is_of(self, job: StoredJob) -> bool:
        """Whether a job is of this task."""
        return job.task == self.task.name or job.task in self.task.aliases

    def find_differences(self, job: StoredJob) -> list[str]:
        """Return the differences of a job's arguments from the wanted ones, in words."""
        stored = _defaults_of(self.task) | self._read(job)
        return [
            f"{name} is {_show(stored[name])}, not {_show(value)}"
            if name in stored
            else f"{name} was not given"
            for name, value in self.args.items()
            if name not in stored or not _is_same(stored[name], value)
        ]

    def _read(self, job: StoredJob) -> dict[str, Any]:
        stored = read_payload("args", job.args, self.task.stores.payloads)
        return stored if isinstance(stored, dict) else {}

    def _show_job(self, job: StoredJob) -> str:
        return f"job {job.id} {_show_call(job.task, self._read(job))} [{job.state}]"

    def describe_missing(self, jobs: Sequence[StoredJob]) -> str:
        """Return the jobs that were enqueued instead, the most similar first."""
        own = [(self.find_differences(job), job) for job in jobs if self.is_of(job)]
        own.sort(key=lambda each: len(each[0]))
        lines = [f"no job was enqueued that matches {self}"]
        lines += [f"  {self._show_job(job)}: {'; '.join(why)}" for why, job in own[:SHOWN_MAX]]
        if len(own) > SHOWN_MAX:
            lines.append(f"  and {len(own) - SHOWN_MAX} more of {self.task.name}")
        others = Counter(job.task for job in jobs if not self.is_of(job))
        if others:
            told = ", ".join(f"{task} ({count})" for task, count in sorted(others.items()))
            lines.append(f"  {'of other tasks' if own else f'none of {self.task.name}'}: {told}")
        elif not own:
            lines.append("  nothing was enqueued at all")
        return "\n".join(lines)

    def describe_unwanted(self, found: Sequence[StoredJob]) -> str:
        """Return which jobs should not exist."""
        shown = "\n".join(f"  {self._show_job(job)}" for job in found[:SHOWN_MAX])
        which = "a job matches" if len(found) == 1 else f"{len(found)} jobs match"
        return f"{which} {self}:\n{shown}"


def _as_stored(name: str, value: Any) -> Any:
    return plain(to_json(name, value).decode())


def _defaults_of(task: Task[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(task.fn).parameters
    return {
        name: _as_stored(name, each.default)
        for name, each in parameters.items()
        if each.default is not inspect.Parameter.empty
    }


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _show_call(task: str, args: Mapping[str, Any]) -> str:
    return f"{task}({', '.join(f'{name}={_show(value)}' for name, value in args.items())})"


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"
