"""Check the history of a store against the guarantees, job by job, as far as its rows show it.

Pure functions of ``store.rows``, apart from the code that wrote the rows. A *violation* is
something that Outlast never does, not even after a crash. A *doubt* is odd, but the rows alone
cannot rule out an innocent cause: a clock that was stepped back, or a job that is about to be
reclaimed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import pairwise, product
from math import inf
from typing import TypeVar

import msgspec

from outlast.insight.pauses import name_of
from outlast.model.crash import Charge, CrashKind, charge_of
from outlast.model.job import ENDED, State
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import Pause, Pauses
from outlast.store.inspector import Inspector
from outlast.store.rows import AttemptPast, HistoryPage, JobPast, Unresolved, WorkerStatus

HOLDING = frozenset({WorkerStatus.ACTIVE, WorkerStatus.DRAINING})
NUMBERS_SHOWN = 20
ACKNOWLEDGED_SECONDS = 60.0  # after a pause: workers have acknowledged it by then, or are cut off
_KINDS = {kind.value: kind for kind in CrashKind}
_PLAIN = {kind.value for kind in OutcomeKind} - {OutcomeKind.COMPLETED, OutcomeKind.CRASHED}


class HistoryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One breach of a rule. ``rule`` is its stable name; ``doubt``: an innocent cause is
    possible."""

    rule: str
    sentence: str
    job_id: int | None = None
    doubt: bool = False


class Verified(msgspec.Struct, kw_only=True):
    """How much was checked, and the findings."""

    jobs: int = 0
    attempts: int = 0
    findings: list[HistoryFinding] = []

    @property
    def violations(self) -> list[HistoryFinding]:
        """The findings that no innocent cause explains."""
        return [finding for finding in self.findings if not finding.doubt]


class Memory(msgspec.Struct):
    """What rules about many jobs keep from page to page. ``pauses`` were read after the page;
    ``ticks``: the last of each schedule, and its job; ``streams``: the last attempts in each stream
    of an ordered limit."""

    pauses: list[Pause] = []
    ticks: dict[str, tuple[float, int]] = {}
    streams: dict[int, list[tuple[int, float, float]]] = {}


async def verify(
    inspector: Inspector,
    *,
    findings_max: int = 1_000,
    on_page: Callable[[Verified], object] = lambda _: None,
) -> Verified:
    """Check every job and attempt that the store keeps, page by page; safe while it is in use.

    Stops early after ``findings_max`` findings. ``on_page`` is called with the progress. Raises the
    store's errors.
    """
    verified, after, memory = Verified(), 0, Memory()
    while len(verified.findings) < findings_max:
        page = await inspector.history(after)
        memory.pauses = await inspector.pauses()
        verified.jobs += len(page.jobs)
        verified.attempts += sum(len(job.attempts) for job in page.jobs)
        verified.findings.extend(findings_in(page, memory))
        on_page(verified)
        if page.next_after is None:
            for name, rule in OF_A_STORE.items():
                async for job_id, sentence in rule(inspector):
                    found = HistoryFinding(rule=name, job_id=job_id, sentence=sentence)
                    verified.findings.append(found)
            break
        after = page.next_after
    del verified.findings[findings_max:]
    return verified


def findings_in(page: HistoryPage, memory: Memory) -> Iterator[HistoryFinding]:
    """Return everything that is wrong on one page."""
    for stray in page.strays:
        yield HistoryFinding(
            rule=STRAY,
            job_id=stray.job_id,
            sentence=f"attempt {stray.token} was kept, but its job {stray.job_id} was not",
        )
    for job in page.jobs:
        for name, rule in RULES.items():
            for doubt, sentence in rule(job, page.token_last):
                yield HistoryFinding(rule=name, job_id=job.id, sentence=sentence, doubt=doubt)
    for name, of_many in OF_MANY_JOBS.items():
        for job in page.jobs:
            for doubt, sentence in of_many(job, memory):
                yield HistoryFinding(rule=name, job_id=job.id, sentence=sentence, doubt=doubt)


# ------------------------------------------------------------------------------ rules of one job


Found = Iterator[tuple[bool, str]]


def one_accepted_end(job: JobPast, _: int) -> Found:
    """A token ends once: no job completed or runs under one whose attempt was closed."""
    if job.state not in {State.COMPLETED, State.RUNNING}:
        return
    for attempt in job.attempts:
        if attempt.token == job.token:
            now = f"it {_is(job)} under token {job.token}"
            yield False, f"{now}, but that attempt has ended as {attempt.outcome}"


def _is(job: JobPast) -> str:
    return "completed" if job.state is State.COMPLETED else "is running"


def tokens_rise(job: JobPast, token_last: int) -> Found:
    """Tokens rise from attempt to attempt, and none is above the highest ever drawn."""
    tokens = [attempt.token for attempt in job.attempts]
    for earlier, later in pairwise(sorted(job.attempts, key=lambda each: each.number)):
        if later.token <= earlier.token:
            before = f"the {earlier.token} of attempt {earlier.number}"
            yield False, f"attempt {later.number} has token {later.token}, not above {before}"
    if tokens and (job.token is None or job.token < max(tokens)):
        yield False, f"its token is {job.token}, but an attempt had the later token {max(tokens)}"
    if (job.token or 0) > token_last:
        yield False, f"its token {job.token} is above the highest ever drawn ({token_last})"


def whole_evidence(job: JobPast, _: int) -> Found:
    """Every attempt has left its row: numbers 1, 2, 3 … up to the count on the job. Between the
    first and the last some may be missing: as many as the last one counts."""
    closed = sorted(job.attempts, key=lambda attempt: attempt.number)
    numbers = [attempt.number for attempt in closed]
    dropped = closed[-1].dropped if closed else 0
    is_last_open = job.state in {State.COMPLETED, State.RUNNING}  # its facts are on the job's row
    last = job.attempt_count - is_last_open
    rise = all(later > earlier for earlier, later in pairwise(numbers))
    ends = not numbers or (numbers[0], numbers[-1]) == (1, last)
    if not (rise and ends and len(numbers) + dropped == last):
        counts = f", and counts {dropped} as dropped" if dropped else ""
        has = f"has evidence of {_some(numbers)}{counts}"
        yield False, f"it counts {job.attempt_count} attempts, but {has}"


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[-NUMBERS_SHOWN:]))
    return f"[{'…, ' if numbers[NUMBERS_SHOWN:] else ''}{shown}]"


def one_holder(job: JobPast, _: int) -> Found:
    """Attempts follow each other on the store's clock."""
    spans = _spans(job)
    for token, start, end in spans:
        if end is not None and end < start:
            yield True, f"attempt {token} ended {start - end:.3f} s before it started"
    for (first, _start, end), (second, start, _end) in pairwise(spans):
        if end is not None and start < end:
            yield True, f"attempt {second} started {end - start:.3f} s before {first} had ended"


def _spans(job: JobPast) -> list[tuple[int, float, float | None]]:
    """Return the token, start and end of each attempt; an end of None: it is running."""
    spans: list[tuple[int, float, float | None]] = [
        (attempt.token, attempt.started_at, attempt.ended_at) for attempt in job.attempts
    ]
    if job.state in {State.COMPLETED, State.RUNNING} and None not in {job.token, job.started_at}:
        spans.append((job.token or 0, job.started_at or 0.0, job.ended_at))
    return spans


def known_reason(job: JobPast, _: int) -> Found:
    """Every closed attempt has exactly one reason, with its evidence, charged as that reason is."""
    for attempt in job.attempts:
        if wrong := _wrong(attempt):
            yield False, f"attempt {attempt.token}: {wrong}"


_ALSO = {
    CrashKind.LOST_WORKER: Charge.FAILURE,  # for a job that had the whole worker to itself
    CrashKind.BYSTANDER: Charge.NONE,  # if losses are used up: neighbours make no job dead
}


def _wrong(attempt: AttemptPast) -> str | None:
    kind = _KINDS.get(attempt.outcome)
    if kind is None:
        if attempt.outcome not in _PLAIN:
            return f"its reason {attempt.outcome!r} is unknown"
        failed = attempt.outcome == OutcomeKind.DEAD
        return _charged(attempt, {Charge.FAILURE if failed else Charge.NONE})
    if not attempt.has_crash:
        return f"it ended as {attempt.outcome}, without a crash report"
    return _charged(attempt, {charge_of(kind), _ALSO.get(kind, charge_of(kind))})


def _charged(attempt: AttemptPast, right: set[Charge]) -> str | None:
    if attempt.charge in right:
        return None
    return f"it ended as {attempt.outcome}, but is charged as {attempt.charge}"


def budgets(job: JobPast, _: int) -> Found:
    """Each charge was made by an attempt, only a requeue takes failures off, and a used up budget
    ends the job."""
    for word, count, charge in (
        ("failures", job.failures, Charge.FAILURE),
        ("losses", job.losses, Charge.LOSS),
    ):
        charged = sum(attempt.charge == charge for attempt in job.attempts)
        is_whole = charge is Charge.LOSS or job.requeued_at is not None  # losses are forgiven
        if count > charged or (count < charged and not is_whole):
            yield False, f"it has {count} {word}, but {charged} attempts were charged so"
    if job.state in {State.QUEUED, State.RUNNING} and job.failures > job.policy.retries:
        yield (
            False,
            f"it has {job.failures} failures and {job.policy.retries} retries, but is not dead",
        )


def dead_for_a_reason(job: JobPast, _: int) -> Found:
    """A dead job has used up a budget, or its task said so."""
    if job.state is not State.DEAD:
        return
    spent = job.failures > job.policy.retries or job.losses > job.policy.max_losses
    said = bool(job.attempts) and job.attempts[-1].outcome == OutcomeKind.DEAD
    if not (spent or said):
        yield False, f"it is dead with {job.failures} failures and {job.losses} losses"


def held_by_a_live_worker(job: JobPast, _: int) -> Found:
    """A running job has a worker that holds its lease; otherwise it is about to be reclaimed."""
    if job.state is not State.RUNNING:
        if job.worker_id is not None:
            yield False, f"it is {job.state.value}, but held by worker {job.worker_id}"
    elif job.worker_status not in HOLDING:
        gone = "has no row" if job.worker_status is None else f"is {job.worker_status.value}"
        yield True, f"it is running, but its worker {job.worker_id} {gone}: any worker reclaims it"


def ended_once(job: JobPast, _: int) -> Found:
    """An ended job has the time of its end, and no other job has one."""
    if (job.state in ENDED) != (job.ended_at is not None):
        yield False, f"it is {job.state.value}, with an end at {job.ended_at}"


# ---------------------------------------------------------------------------- rules of many jobs

STREAM_KEPT, STREAMS_KEPT = 16, 10_000  # the last attempts of the last streams: neighbours by id


def one_job_for_a_tick(job: JobPast, memory: Memory) -> Found:
    """A tick of a schedule has at most one job, and ticks rise from job to job."""
    name, tick = job.policy.schedule, job.policy.tick
    if name is None or tick is None or job.policy.backfill:  # a backfill may repeat ticks
        return
    before, other = memory.ticks.get(name, (tick - 1, 0))
    memory.ticks[name] = tick, job.id
    if tick <= before:
        # one that was deleted, and put again while the clock was behind, begins earlier
        what = "is that of" if tick == before else "is before that of"
        yield tick < before, f"its tick {tick:.0f} of the schedule {name!r} {what} job {other}"


def ordered_jobs_do_not_overlap(job: JobPast, memory: Memory) -> Found:
    """Attempts of two jobs of one key of an ordered limit never overlap."""
    if job.ordered is None:
        return
    last = memory.streams.pop(job.ordered, [])
    own = [(job.id, start, inf if end is None else end) for _, start, end in _spans(job)]
    for (_, start, end), (other, began, ended) in product(own, last):
        if start < ended and began < end:  # a doubt: it compares the times of two rows
            at = f"an attempt of it ran at the same time as one of job {other}"
            yield True, f"{at}, which is under the same ordered limit"
    memory.streams[job.ordered] = (last + own)[-STREAM_KEPT:]
    if len(memory.streams) > STREAMS_KEPT:
        del memory.streams[next(iter(memory.streams))]


def nothing_of_a_pause_starts(job: JobPast, memory: Memory) -> Found:
    """Nothing of a pause starts once workers have acknowledged it."""
    for pause in memory.pauses:  # each was in force from its time to that of the page
        if Pauses([pause]).find(job.queue, job.task, job.tenant) is None:
            continue
        starts = [*(each.started_at for each in job.attempts), job.started_at]
        late = max((at - pause.paused_at for at in starts if at is not None), default=0.0)
        if late > ACKNOWLEDGED_SECONDS:  # a doubt: rows do not show when workers acknowledged it
            what = name_of(pause.kind, pause.name)
            yield True, f"an attempt of it began {late:.0f} s after {what} was paused"


# ------------------------------------------------------- rules of a store: each reads one snapshot

InStore = AsyncIterator[tuple[int | None, str]]


async def permits_are_counted(inspector: Inspector) -> InStore:
    """A permit counts exactly the attempts that run under it."""
    for each in await inspector.miscounted():
        counts = f"counts {each.counted or 0} running attempts, but there are {each.holders}"
        yield None, f"the permit {_permit(each.name, each.key)} {counts}"


async def no_stream_is_forgotten(inspector: Inspector) -> InStore:
    """A job that may start, under its limits or without any, is looked at."""
    for each in await inspector.forgotten():
        limit = f" for {_permit(each.name, each.key)}, which has room" if each.name else ""
        due = f"due jobs of the task {each.task!r} in the queue {each.queue!r} wait"
        yield None, f"{due}{limit}, but no worker would find them"


async def jobs_wait_for_those_upstream(inspector: Inspector) -> InStore:
    """A job is blocked exactly as long as a job upstream has not ended as wanted, and no event is
    missed."""
    for each in await inspector.unresolved():
        yield each.job_id, _unresolved(each)


async def one_job_for_a_key(inspector: Inspector) -> InStore:
    """A key has at most one unfinished job."""
    for job_id, holder in await inspector.doubled():
        yield job_id, f"its key is that of job {holder}"


def _unresolved(each: Unresolved) -> str:
    if each.event is not None:
        return f"it waits for the event {each.event!r}, but nothing would wake it"
    if each.is_open:
        return f"it did not wait for job {each.upstream_id}, which has not ended as required"
    if each.upstream_id is None:
        return "it is blocked, but waits for no job"
    return f"it waits for job {each.upstream_id}, but nothing would unblock it when that job ends"


def _permit(name: str | None, key: str | None) -> str:
    return f"{name!r} of {key!r}" if key else repr(name or "(unknown)")


# ------------------------------------------------------------------------------------- all rules

F = TypeVar("F", bound=Callable[..., object])


def _by_name(*rules: F) -> dict[str, F]:
    return {rule.__name__: rule for rule in rules}


RULES = _by_name(
    one_accepted_end,
    tokens_rise,
    whole_evidence,
    one_holder,
    known_reason,
    budgets,
    dead_for_a_reason,
    held_by_a_live_worker,
    ended_once,
)
OF_MANY_JOBS = _by_name(one_job_for_a_tick, ordered_jobs_do_not_overlap, nothing_of_a_pause_starts)
OF_A_STORE = _by_name(
    permits_are_counted, no_stream_is_forgotten, jobs_wait_for_those_upstream, one_job_for_a_key
)
STRAY = "evidence_of_a_job"
PROMISES = {
    name: " ".join((rule.__doc__ or "").split())
    for name, rule in (RULES | OF_MANY_JOBS | OF_A_STORE).items()
} | {STRAY: "Every attempt that was kept belongs to a job that was kept."}
"""Name of each rule -> what it holds the store to, in one sentence."""


def document(verified: Verified) -> dict[str, object]:
    """Return the JSON document of ``outlast verify --json``."""
    return {
        "schema": 1,
        "jobs": verified.jobs,
        "attempts": verified.attempts,
        "rules": list(PROMISES),
        "violations": len(verified.violations),
        "findings": [msgspec.structs.asdict(finding) for finding in verified.findings],
    }
