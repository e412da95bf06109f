"""List the short facts of a job and of a crash, as people read them in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from outlast.base.text import ago, cut, due, line, percent, size, span
from outlast.model.crash import Crash, MemoryEvidence, Progress, find_line
from outlast.model.job import State
from outlast.store.rows import AttemptRow, StoredJob

MESSAGE_MAX = 600  # characters of a crash report's message


class Fact(msgspec.Struct, frozen=True):
    """A fact: a text in one line, or a time that ``tell`` compares with now. ``meaning``: ``bad``,
    ``care`` or none. ``find``: the filter of all jobs with it; ``jobs``: the jobs it names."""

    label: str
    text: str = ""
    at: float | None = None
    tell: Callable[[float | None, float], str] = ago
    meaning: str = ""
    find: Mapping[str, str] = {}
    jobs: Sequence[int] = ()


def facts_of_job(row: StoredJob) -> list[Fact]:
    """Return the known facts of a job."""
    policy = row.policy
    worker = f"{line(row.worker, 80)}{_told(' on ', row.host, _name)}, token {row.token}"
    timeout = _told("timeout ", policy.timeout, span)
    stall = _told("stall timeout ", policy.stall_timeout, span)
    has_begun = row.state not in {State.QUEUED, State.BLOCKED}
    facts = (
        Fact("queue", f"{_name(row.queue)}, priority {row.priority}", find={"queue": row.queue}),
        Fact("key", line(row.key)),
        Fact("tenant", line(row.tenant)),
        *(Fact("label", line(each), find={"label": each}) for each in policy.labels),
        Fact("schedule", line(policy.schedule)),
        Fact("tick", at=policy.tick),
        _budget("failures", row.failures, "retries", policy.retries),
        _budget("losses", row.losses, "max_losses", policy.max_losses),
        Fact("time limits", _join(timeout, stall)),
        Fact("worker", worker if row.worker else ""),
        Fact("enqueued", at=row.enqueued_at),
        Fact("requeued", at=row.requeued_at),
        Fact("due", at=row.run_at if row.waiting else None, tell=due),
        Fact("expires", at=None if has_begun else row.expires_at, tell=due),
        Fact("claimed", at=row.started_at),
        Fact("ended", at=row.ended_at),
        Fact("unreadable", line(row.malformed, 200), meaning="bad"),
    )
    return _known(facts)


def _budget(what: str, used: int, option: str, most: int) -> Fact:
    if used > most:
        return Fact(what, f"{used}: used up, {option}={most}", meaning="bad")
    return Fact(what, f"{used} of {most}", meaning="care" if used else "")


def _known(facts: Iterable[Fact]) -> list[Fact]:
    return [one for one in facts if one.text or one.at is not None]


def facts_of_crash(crash: Crash, attempt: AttemptRow) -> list[Fact]:
    """Return the known facts of a crash, but for its long texts."""
    progress = format_progress(crash.progress, 200)
    if crash.progress is not None and crash.progress.fraction is not None:
        progress = progress or percent(crash.progress.fraction)
    age = crash.checkpoint_age_seconds
    age = attempt.checkpoint_age if age is None else age
    beside = ", ".join(map(str, crash.neighbours))
    told = {
        "at": line(find_line(crash), 300),
        "message": line(crash.message or attempt.message, MESSAGE_MAX),
        "exception": line(crash.exception, 300),
        "exit code": _told("", crash.exit_code),
        "signal": line(crash.signal, 60),
        "used": _join(
            _told("memory ", crash.rss_peak_bytes, size, " at its peak"),
            _told("CPU ", crash.cpu_seconds, span),
        ),
        "memory": _memory(crash.memory),
        "progress": progress,
        "checkpoint": _told("", age, span, " old at the end"),
        "beside it": cut(f"shared its runner with {beside}", 120) if beside else "",
        "where": _join(
            _told("worker ", crash.worker or attempt.worker or None, _name),
            _told("host ", crash.host or attempt.host or None, _name),
            _told("pid ", attempt.pid if crash.pid is None else crash.pid),
        ),
        "versions": _join(
            line(crash.release, 80),
            _told("Python ", crash.python, _name),
            _told("Outlast ", crash.outlast, _name),
        ),
    }
    jobs = {"beside it": crash.neighbours}
    return _known(Fact(label, text, jobs=jobs.get(label, ())) for label, text in told.items())


def _told(before: str, value: Any, shown: Callable[[Any], str] = str, behind: str = "") -> str:
    """Return a value with the words around it; "" if it is not known."""
    return "" if value is None else f"{before}{shown(value)}{behind}"


def _name(text: str) -> str:
    return line(text, 80)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _memory(seen: MemoryEvidence | None) -> str:
    if seen is None:
        return ""
    limit = "" if seen.limit_bytes is None else f"; limit {size(seen.limit_bytes)}"
    if seen.source != "cgroup":
        given = "" if seen.limit_bytes is None else f" of {size(seen.limit_bytes)}"
        had = f"its runner had {size(seen.rss_bytes or 0)}"
        return f"{had}, far above its max_rss{given}; killed by its worker"
    peak = "" if seen.peak_bytes is None else f", peak {size(seen.peak_bytes)}"
    return (
        f"the kernel has killed in its cgroup {line(seen.cgroup, 120)}:"
        f" {seen.oom_kills_before} times before, {seen.oom_kills_after} after{limit}{peak}"
        " (evidence, not proof: the cgroup is shared)"
    )


def format_progress(progress: Progress | None, most: int) -> str:
    """Return stage and message as one line."""
    if progress is None:
        return ""
    return line(": ".join(part for part in (progress.stage, progress.message) if part), most)
