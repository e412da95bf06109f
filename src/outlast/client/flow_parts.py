"""Turns the parts of flows into jobs to store: what each waits for, which results it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from outlast.client.job import Job
from outlast.errors import ConfigError, UsageError
from outlast.store.values import NewJob, Upstream, Wants

if TYPE_CHECKING:
    from outlast.client.stores import StoreProvider
    from outlast.payload.payloads import Payloads
    from outlast.store.values import Claimed

FLOW_MAX = 100_000  # jobs; and links, each of one job that waits for one other
DEPTH_MAX = 100  # levels: a part within a part


class FlowPart(Protocol):
    """A part of a flow: a call, such as ``parse.call(outlast.RESULT)``, or a flow."""

    def _lay(self, plan: Plan, upstream: tuple[Upstream, ...]) -> list[int]:
        """Add its jobs to a plan; return the places of the last ones."""
        ...


class _Placeholder:
    """Stands for an argument that is known once the jobs upstream have ended."""

    def __init__(self, name: str, doc: str) -> None:
        self._name = name
        self.__doc__ = doc

    def __repr__(self) -> str:
        return self._name


RESULT: Final[Any] = _Placeholder(
    "outlast.RESULT",
    "As an argument of a call that runs after one other call: the result of that call. None, if it"
    " has no result (``outlast.ended``).",
)
RESULTS: Final[Any] = _Placeholder(
    "outlast.RESULTS",
    "As an argument of a call that runs after others: the list of their results, in their order.",
)


class AnyEnd:
    """Jobs to wait for, however they end: what ``outlast.ended`` returns."""

    def __init__(self, jobs: Sequence[Job[Any] | int]) -> None:
        self.jobs = jobs


def ended(*jobs: Job[Any] | int) -> AnyEnd:
    """Return these jobs for ``using(after=…)``: the new job waits until they have ended, whether
    completed, dead or cancelled."""
    return AnyEnd(jobs)


class Plan:
    """The jobs of calls and flows, in the order in which they are stored, each with its call."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []
        self.calls: list[Any] = []
        self._links = 0
        self._depth = 0

    def add(self, part: FlowPart, upstream: tuple[Upstream, ...] = ()) -> list[int]:
        """Add a part that waits for ``upstream``; return the places of its last jobs."""
        if self._depth > DEPTH_MAX:
            raise UsageError(
                f"a flow is nested more than {DEPTH_MAX} levels deep: write chain(first, second, …)"
                " instead of parts within parts"
            )
        self._depth += 1
        last = part._lay(self, upstream)  # noqa: SLF001
        self._depth -= 1
        return last

    def add_call(
        self,
        call: Any,
        job: NewJob,
        upstream: tuple[Upstream, ...],
        followers: Iterable[tuple[FlowPart, Wants]],
    ) -> list[int]:
        """Add the job of a call, and what follows it."""
        place = len(self.jobs)
        if place >= FLOW_MAX:
            raise UsageError(f"a flow has at most {FLOW_MAX:,} jobs")
        self._links += len(upstream)
        if self._links > FLOW_MAX:
            raise UsageError(
                f"a flow has at most {FLOW_MAX:,} links, and each job of a group that runs after"
                " another group waits for each job of that group: put one call between the two"
            )
        if upstream:
            job = msgspec.structs.replace(job, after=(*upstream, *job.after))
        _check_inputs(job)
        self.jobs.append(job)
        self.calls.append(call)
        for follower, wants in followers:
            self.add(follower, (Upstream(-1 - place, wants),))
        return [place]


def plan_of(parts: Iterable[FlowPart]) -> tuple[Plan, list[int]]:
    """Return the jobs of these parts, and the places of their last jobs."""
    plan = Plan()
    return plan, [place for part in parts for place in plan.add(part)]


def gives_list(part: object) -> bool:
    """Whether a part of a flow ends with a group, of any size: its result is a list."""
    return getattr(part, "_gives_list", False)


def check_part(part: object) -> None:
    """Raise UsageError for anything but a part of a flow."""
    if not hasattr(part, "_lay"):
        raise UsageError(
            f"a flow is made of calls, such as parse.call(outlast.RESULT), and flows, not of"
            f" {part!r:.80}"
        )


_CONTAINERS = (list, tuple, dict)


def take_inputs(bound: dict[str, Any], task: str) -> tuple[tuple[str, bool], ...]:
    """Remove the arguments that stand for results from bound ones; return their names, each with
    whether it stands for the list of all results."""
    found: list[tuple[str, bool]] = []
    for name, value in bound.items():
        if isinstance(value, _Placeholder):
            found.append((name, value is RESULTS))
        elif isinstance(value, _CONTAINERS):
            parts = value.values() if isinstance(value, dict) else value
            if _Placeholder in map(type, parts):
                raise UsageError(
                    f"argument {name!r} of task {task} contains RESULT or RESULTS, which must be a"
                    " whole argument"
                )
    for name, _ in found:
        del bound[name]
    return tuple(found)


def _check_inputs(job: NewJob) -> None:
    for name, is_list in job.policy.inputs:
        told = f"argument {name!r} of task {job.task}"
        if not job.after:
            raise UsageError(
                f"{told} stands for a result, but its job waits for no other job: use it in chain,"
                " group(…).then, using(then=…) or using(after=…)"
            )
        if any(each.wants is Wants.DEAD for each in job.after):
            raise UsageError(f"{told} stands for a result, but a dead job has none")
        if not is_list and len(job.after) != 1:
            raise UsageError(
                f"{told} stands for one result, but its job waits for {len(job.after):,} others:"
                " use RESULTS, the list of their results"
            )


def make_after(after: object, stores: StoreProvider) -> tuple[Upstream, ...]:
    """Return what ``using(after=…)`` names, or raise ConfigError."""
    found: list[Upstream] = []
    listed = [after] if isinstance(after, AnyEnd | Job | int) else after
    if isinstance(listed, str | Mapping) or not isinstance(listed, Iterable):
        raise ConfigError(_AFTER)
    for each in listed:
        jobs, wants = (
            (each.jobs, Wants.ENDED) if isinstance(each, AnyEnd) else ([each], Wants.COMPLETED)
        )
        found += [Upstream(_id_of(one, stores), wants) for one in jobs]
    if not found:
        raise ConfigError(_AFTER)
    return tuple({each.job: each for each in found}.values())


_AFTER = "after takes jobs, their ids, or outlast.ended(…), such as after=[first, 17]"


def _id_of(job: object, stores: StoreProvider) -> int:
    if isinstance(job, Job):
        if job._stores is not stores:  # noqa: SLF001
            raise ConfigError(f"{job!r} is a job of another application")
        return job.id
    if isinstance(job, bool) or not isinstance(job, int) or job < 1:
        raise ConfigError(f"{_AFTER}; not {job!r:.80}")
    return job


def read_inputs(claimed: Claimed, payloads: Payloads) -> dict[str, str]:
    """Return, as JSON, the arguments of an attempt that stand for results of upstream jobs.
    BadArguments for one that cannot be decoded."""
    texts = [
        "null" if each is None else payloads.decode("result", each)
        for each in claimed.results or ()
    ]
    return {
        name: f"[{','.join(texts)}]" if is_list else (texts[0] if texts else "null")
        for name, is_list in claimed.policy.inputs
    }
