"""Explain why a job is where it is, and what would move it. Of a queued job, ``waiting.py``
says it.

Pure: it turns facts from a store into an answer in sentences. ``position`` is a stable name for
programs; the sentences are for people and may be reworded.
"""

from __future__ import annotations

import msgspec

from outlast.base.text import line, percent, since, span, stamp
from outlast.insight.availability import dead, holds, list_alive, silent, sleeps
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.sentences import (
    SAID_MAX,
    at_time,
    beats,
    by_worker,
    capitalize,
    describe_gone,
    describe_last_end,
    fails,
    join_names,
    quote,
    timeout,
    took,
    tries,
)
from outlast.insight.waiting import explain_waiting
from outlast.model.job import ENDED, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.rows import EXPIRED, UPSTREAM, DependencyRow, StoredJob
from outlast.store.values import Wants


def why(about: JobDetails) -> Explanation:
    """Return why a job is where it is; for a schedule's job, first its tick."""
    answer = _with_steps(about, _why(about))
    policy = about.row.policy
    if policy.schedule is None or policy.tick is None:
        return answer
    asked = ", as a person asked" if policy.backfill else ""
    name = quote(policy.schedule)
    said = f"The schedule {name} has enqueued it for its tick of {stamp(policy.tick)}{asked}."
    return msgspec.structs.replace(answer, sentences=[said, *answer.sentences])


def _why(about: JobDetails) -> Explanation:
    row = about.row
    if row.state is State.RUNNING:
        return _running(about)
    if row.state is State.QUEUED:
        return _with_expiry(about, explain_waiting(about))
    if row.state is State.BLOCKED:
        return _with_expiry(about, _blocked(about))
    if row.state is State.DEAD:
        return _dead(about)
    if row.state is State.CANCELLED and row.reason == EXPIRED:
        return _expired(about)
    if row.state is State.CANCELLED and row.reason == UPSTREAM:
        return _failed_upstream(about)
    if row.state is State.CANCELLED:
        return _cancelled(about)
    ended = at_time(row.ended_at, about.now)
    said = f"It was completed {ended}{by_worker(row.worker, row.host)}{took(row)}."
    return Explanation(position="completed", sentences=[said], moves=["Nothing: it is done."])


def _with_expiry(about: JobDetails, answer: Explanation) -> Explanation:
    """Return the answer with the time at which the job expires, if it does."""
    end = about.row.expires_at
    if end is None:
        return answer
    said = f"It expires in {span(end - about.now)}, at {stamp(end)}, unless it has begun by then."
    if end <= about.now:
        said = f"It expired at {stamp(end)}: the next worker to check will cancel it."
        again = f"`outlast requeue {about.row.id}` runs it all the same, once it is cancelled."
        answer = msgspec.structs.replace(answer, moves=[*_start_one(about), again])
    return msgspec.structs.replace(answer, sentences=[*answer.sentences, said])


def _start_one(about: JobDetails) -> list[str]:
    """Say that a worker has to be started, if what comes next takes any worker, and none is there
    or will be back."""
    present = list_alive(about.workers) or [one for one in about.workers if sleeps(one, about.now)]
    return [] if present else ["No worker is alive: start one."]


def _with_steps(about: JobDetails, answer: Explanation) -> Explanation:
    """Return the answer with the kept steps, which no attempt will call again."""
    if not about.steps or about.row.state is State.COMPLETED:
        return answer
    last, many = about.steps[-1], len(about.steps)
    kept = f"{quote(last.name)} was kept {at_time(last.at, about.now)}"
    said = f"Its step {kept}: it is not called again."
    if many > 1:
        said = f"Its {many} kept steps are not called again; the last, {kept}."
    return msgspec.structs.replace(answer, sentences=[*answer.sentences, said])


# -- it waits for others

_WANTED = {Wants.COMPLETED: "to complete", Wants.ENDED: "to end", Wants.DEAD: "to die"}


def _blocked(about: JobDetails) -> Explanation:
    left = [one for one in about.upstream if not one.is_met]
    first = next((one for one in left if one.state is not None and one.state not in ENDED), None)
    if left and left[0].number_left <= len(left) and first is None:
        left = []  # no worker has noticed the last end yet
    told = [f"{_name(about, one)} {_WANTED[one.wants]}" for one in left[:3]]
    more = left[0].number_left - len(told) if left else 0
    told += [f"{more:,} {'other' if more == 1 else 'others'}"] if more > 0 else []
    said = f"It waits for {_listed(told)}." if told else "All jobs that it waited for have ended."
    moves = ["The next worker to check will queue it, or cancel it if one ended otherwise."]
    moves += _start_one(about)
    if left:
        moves = ["It is queued once all have ended that way, and cancelled once one no longer can."]
    if first is not None:
        moves.append(f"`outlast why {first.job_id}` explains the first of them.")
    return Explanation(position="blocked", sentences=[said], moves=moves)


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _failed_upstream(about: JobDetails) -> Explanation:
    row = about.row
    failed = [one for one in about.upstream if one.has_failed]
    said = f"It was cancelled {at_time(row.ended_at, about.now)}, since it waited for a job"
    if not failed:
        return Explanation(
            position="upstream",
            sentences=[f"{said} that did not end as required, or was a child of such a job."],
            moves=_requeue(about),
        )
    had = f"{said} {_WANTED[failed[0].wants]}: {_name(about, failed[0])}."
    moves = [*_requeue(about), "It then runs without waiting."]
    ended = [one for one in failed if one.state in {State.DEAD, State.CANCELLED}]
    if ended == failed and about.may_tell_others:
        each = " and ".join(f"`outlast requeue {one.job_id}`" for one in ended)
        does, them = ("run those jobs", "them") if ended[1:] else ("runs that job", "it")
        cancelled = [one for one in ended if one.state is State.CANCELLED]
        whys = [f"`outlast why {one.job_id}` explains that job." for one in cancelled[:1]]
        moves = [*whys, f"{each} {does} again, and this one waits for {them} again.", *moves]
    return Explanation(position="upstream", sentences=[had], moves=moves)


def _name(about: JobDetails, one: DependencyRow) -> str:
    if not about.may_tell_others or one.task is None or one.state is None:
        return f"job {one.job_id}" + (", which no longer exists," if one.task is None else "")
    return f"job {one.job_id} ({quote(one.task)}, {one.state.value})"


# -- it has ended


def _expired(about: JobDetails) -> Explanation:
    row = about.row
    limit = f"it had not begun by {stamp(row.expires_at)}"
    said = f"It expired {at_time(row.ended_at, about.now)}, {tries(row)}: {limit}."
    return Explanation(position="expired", sentences=[said], moves=_requeue(about))


def _cancelled(about: JobDetails) -> Explanation:
    row, last = about.row, about.attempts[-1:]
    said = [f"It was cancelled {at_time(row.ended_at, about.now)}, {tries(row)}."]
    if last and last[0].message:  # where it was, or why it gave up
        said += describe_last_end(last)
    return Explanation(position="cancelled", sentences=said, moves=_requeue(about))


def _dead(about: JobDetails) -> Explanation:
    row, policy = about.row, about.row.policy
    again = " since it was requeued" if row.requeued_at is not None else ""
    if row.failures > policy.retries:
        cause = (
            f"its budget of failures is used up{again} ({row.failures}, retries={policy.retries})"
        )
    elif row.losses > policy.max_losses:
        cause = (
            f"its budget of losses is used up{again} ({row.losses}, max_losses={policy.max_losses})"
        )
    else:
        cause = "a retry could not help (Dead, dead_on, retry_on), or was not possible"
    released = sum(one.repeats for one in about.attempts if one.outcome == OutcomeKind.RELEASED)
    back = f", {released} of them returned to the queue uncharged" if released else ""
    died = f"It died {at_time(row.ended_at, about.now)}, {tries(row)}{back}"
    return Explanation(
        position="dead",
        sentences=[f"{died}: {cause}.", *describe_last_end(about.attempts)],
        moves=_requeue(about),
    )


def _requeue(about: JobDetails) -> list[str]:
    row = about.row
    holder = about.place.key_holder
    if holder is not None:
        other = f"job {holder}" if about.may_tell_others else "another job"
        return [
            (
                f"Nothing yet: its key {quote(row.key or '')} belongs to {other}, which is"
                " unfinished; this job can be requeued after that one has ended."
            )
        ]
    begin = "from its last checkpoint" if row.checkpoint is not None else "from the start"
    begin = "keeping its steps" if row.checkpoint is None and about.steps else begin
    return [f"`outlast requeue {row.id}` runs it again with fresh budgets, {begin}."]


# -- it runs


def _running(about: JobDetails) -> Explanation:
    row = about.row
    mine = next((one for one in about.workers if one.id == row.worker_id), None)
    if mine is None or not holds(mine) or dead(mine):
        return Explanation(
            position="orphaned",
            sentences=[
                f"{_runs(about)}, but {describe_gone(mine, about.now)}: the job is an orphan."
            ],
            moves=_reclaimers(about),
        )
    if silent(mine):
        late = span(mine.unheard)
        said = f"{_runs(about)}, but that worker has not been heard from for {late}."
        ends = f"Its lease is {span(mine.lease)}: without a heartbeat it is declared lost."
        return Explanation(position="silent", sentences=[said, ends], moves=_reclaimers(about))
    sentences = [f"{_runs(about)}.", beats(mine, about.now), *_progress(row)]
    sentences += [fails(mine, about.now)] if mine.failing else []
    if row.progress is not None and row.progress.waits_for is not None:
        waits_for = row.progress.waits_for
        sentences.append(f"It waits for the result of job {waits_for}, and holds its slot.")
    position, standing, moves = _its_end(about)
    return Explanation(position=position, sentences=sentences + standing, moves=moves)


def _its_end(about: JobDetails) -> tuple[str, list[str], list[str]]:
    """Return what will end an attempt whose worker is well: position, sentences, moves."""
    row = about.row
    left = None if row.hard_deadline is None else row.hard_deadline - about.now
    if row.cancel_requested:
        said = "It was asked to stop, and has not stopped yet."
        move = "It is cancelled once it stops; after a grace period its runner is killed."
        return "stopping", [said], [move]
    if left is not None and left <= 0:
        said = f"Its timeout of {timeout(row)} ran out {span(-left)} ago."
        return "overdue", [said], ["Its worker ends it; if that is stuck, any other worker does."]
    limits = [] if left is None else [f"{span(left)} of its timeout of {timeout(row)} are left."]
    if row.policy.stall_timeout is not None:
        stall = span(row.policy.stall_timeout)
        limits.append(f"It is ended if it neither reports nor saves for {stall}.")
    if not limits:
        limits = ["It has no timeout: it may run as long as its worker sends heartbeats."]
        limits.append(f"`outlast stack {row.id}` shows which line it is executing.")
    return (
        "running",
        limits,
        [f"It will end by itself, or `outlast cancel {row.id}` asks it to stop."],
    )


def _runs(about: JobDetails) -> str:
    row = about.row
    number = f"Attempt {row.attempt_count} (token {row.token})"
    lasts = since(row.started_at, about.now)
    return f"{number} has been running {lasts}{by_worker(row.worker, row.host)}"


def _reclaimers(about: JobDetails) -> list[str]:
    others = list_alive(about.workers)
    which = f"One of {join_names(others)}" if others[1:] else capitalize(join_names(others))
    which = which if others else "Any live worker"
    does = "returns it to the queue"
    if about.row.cancel_requested:
        does = "cancels it, as it was asked to stop"
    elif about.row.losses >= about.row.policy.max_losses:
        does = "declares it dead: its budget of losses is used up"
    return [f"{which} {does}.", *_start_one(about)]


def _progress(row: StoredJob) -> list[str]:
    if row.progress is None:
        return []
    fraction, parts = row.progress.fraction, [row.progress.stage, row.progress.message]
    said = line(": ".join(part for part in parts if part), SAID_MAX)
    done = "" if fraction is None else percent(fraction)
    told = ", ".join(part for part in (done, said) if part)
    return [f"It last reported {told}."] if told else []
