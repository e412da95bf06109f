"""Why a job is where it is, what would move it, and how many others are in the same position.

Pure: from what a store shows to an answer in sentences. ``position`` is a stable name for
programs; the sentences are for people and may be worded anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.insight.availability import (
    dead,
    drains,
    hindrance,
    holds,
    knows,
    list_alive,
    serves,
    silent,
    takes_nothing,
    unheard,
)
from outlast.insight.documents import SCHEMA, Document
from outlast.insight.sentences import (
    HOLD_NO_SLOTS,
    NAME_MAX,
    NAMES_SHOWN,
    SAID_MAX,
    at_time,
    beats,
    by_worker,
    capitalize,
    describe_gone,
    describe_waits,
    fails,
    join_names,
    quote,
    timeout,
    took,
    tries,
)
from outlast.model.crash import Charge, CrashKind
from outlast.model.job import SHELL_TASK, State
from outlast.store.rows import AttemptRow, Held, StoredJob, WorkerRow
from outlast.store.statistics import COUNT_MAX, Place
from outlast.text import count_of, line, since, span, stamp

POSITIONS = {
    "completed": "it is done",
    "cancelled": "it was cancelled",
    "dead": "it used up a budget, or gave itself up",
    "running": "a worker runs it",
    "stopping": "it runs, and was asked to stop",
    "overdue": "it runs past its timeout, and is to be ended",
    "silent": "it runs, but its worker has not been heard of for its whole lease",
    "orphaned": "it is called running, but its worker is gone",
    "scheduled": "it waits for its time",
    "retrying": "it waits out the pause after a failure or a loss",
    "suspect": "it waits to be run alone",
    "no_workers": "it is due, but no worker is alive",
    "unservable": "it is due, but no live worker knows its task",
    "lacks_tags": "it is due, but the workers that know its task lack a tag that it requires",
    "queue_not_served": "it is due, but no worker that knows its task serves its queue",
    "draining": "it is due, but all workers that could take it are stopping",
    "failing": "it is due, but the workers that could take it fail at taking jobs",
    "slots_held": "it is due, but all that runs where it could waits for other jobs",
    "in_line": "it is due, and a worker takes it as soon as it has room",
}


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known. ``attempts`` are closed ones by token; ``now`` is seconds since 1970.
    ``held``: jobs that run, as many as were looked at."""

    row: StoredJob
    attempts: Sequence[AttemptRow]
    workers: Sequence[WorkerRow]
    place: Place
    now: float
    held: Sequence[Held] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why, and what next. ``others`` are in the same position (COUNT_MAX: that many or more)."""

    position: str
    sentences: list[str]
    moves: list[str]
    others: int = 0


def why(about: Situation) -> Explanation:
    """Return why a job is where it is."""
    row = about.row
    if row.state is State.RUNNING:
        return _running(about)
    if row.state is State.QUEUED:
        return _queued(about)
    if row.state is State.DEAD:
        return _dead(about)
    if row.state is State.CANCELLED:
        said = f"It was cancelled {at_time(row.ended_at, about.now)}, {tries(row)}."
        return Explanation(position="cancelled", sentences=[said], moves=_requeue(about))
    ended = at_time(row.ended_at, about.now)
    said = f"It was completed {ended}{by_worker(row.worker, row.host)}{took(row)}."
    return Explanation(position="completed", sentences=[said], moves=["Nothing: it is done."])


def why_document(row: StoredJob, answer: Explanation) -> Document:
    """Return the answer as one JSON document."""
    return {
        "schema": SCHEMA,
        "id": row.id,
        "task": row.task,
        "queue": row.queue,
        "state": row.state.value,
        "position": answer.position,
        "sentences": answer.sentences,
        "moves": answer.moves,
        "others": answer.others,
        "others_at_least": answer.others >= COUNT_MAX,
    }


def count_text(number: int, noun: str) -> str:
    """Return a bounded number in words: ``3 jobs``, ``10000 or more jobs``."""
    return f"{number} or more {noun}s" if number >= COUNT_MAX else count_of(number, noun)


# -- it has ended


def _dead(about: Situation) -> Explanation:
    row, policy = about.row, about.row.policy
    if row.failures > policy.retries:
        cause = f"its budget of failures is used up ({row.failures}, {policy.retries} forgiven)"
    elif row.losses > policy.max_losses:
        cause = f"its budget of losses is used up ({row.losses}, {policy.max_losses} forgiven)"
    else:
        cause = "it gave itself up (Dead), or could not be run any more"
    return Explanation(
        position="dead",
        sentences=[
            f"It died {at_time(row.ended_at, about.now)}, {tries(row)}: {cause}.",
            *_last_end(about.attempts),
        ],
        moves=_requeue(about),
        others=max(0, about.place.dead_alike - 1),
    )


def _requeue(about: Situation) -> list[str]:
    row = about.row
    holder = about.place.key_holder
    if holder is not None:
        return [
            (
                f"Nothing yet: its key {quote(row.key or '')} belongs to job {holder}, which is"
                " unfinished; it can be requeued after that has ended."
            )
        ]
    begin = "from its last checkpoint" if row.checkpoint is not None else "from the start"
    return [f"`outlast requeue {row.id}` runs it again with fresh budgets, {begin}."]


def _last_end(attempts: Sequence[AttemptRow]) -> list[str]:
    """Say how the last attempt ended that was charged, or else the last at all."""
    charged = [one for one in attempts if one.charge != Charge.NONE]
    ends = (charged or list(attempts))[-1:]
    return [f"Attempt {one.number} ended as {_ending(one)}." for one in ends]


def _ending(one: AttemptRow) -> str:
    message = line(one.message, SAID_MAX).rstrip(".")
    outcome = line(one.outcome, NAME_MAX)
    return f"{outcome}: {message}" if message else outcome


# -- it runs


def _running(about: Situation) -> Explanation:
    row = about.row
    mine = next((one for one in about.workers if one.id == row.worker_id), None)
    others = max(0, about.place.beside - 1)
    if mine is None or not holds(mine) or dead(mine):
        return Explanation(
            position="orphaned",
            sentences=[f"{_runs(about)}, but {describe_gone(mine, about.now)}: it is an orphan."],
            moves=_reclaimers(about),
            others=others,
        )
    if silent(mine, about.now):
        late = span(unheard(mine, about.now))
        said = f"{_runs(about)}, but nothing was heard of that worker for {late}."
        ends = f"Its lease is {span(mine.lease)}: it is found gone, unless it comes back."
        moves = _reclaimers(about, besides=mine)
        return Explanation(position="silent", sentences=[said, ends], moves=moves, others=others)
    sentences = [f"{_runs(about)}.", beats(mine, about.now), *_progress(row)]
    sentences += [fails(mine, about.now)] if mine.failing else []
    if row.progress is not None and row.progress.waits_for is not None:
        waits_for = row.progress.waits_for
        sentences.append(f"It waits for the result of job {waits_for}, and holds its slot.")
    position, standing, moves = _its_end(about)
    return Explanation(
        position=position, sentences=sentences + standing, moves=moves, others=others
    )


def _its_end(about: Situation) -> tuple[str, list[str], list[str]]:
    """Return what will end an attempt whose worker is well: position, sentences, moves."""
    row = about.row
    left = None if row.hard_deadline is None else row.hard_deadline - about.now
    if row.cancel_requested:
        said = "It was asked to stop, and has not obeyed yet."
        move = "It is cancelled once it stops; after a grace its runner is killed."
        return "stopping", [said], [move]
    if left is not None and left <= 0:
        said = f"Its timeout of {timeout(row)} was over {span(-left)} ago."
        return "overdue", [said], ["Its worker ends it; should that be stuck, any other does."]
    limits = [] if left is None else [f"Of its timeout of {timeout(row)}, {span(left)} are left."]
    if row.policy.stall_timeout is not None:
        limits.append(f"Without a report or save for {span(row.policy.stall_timeout)} it is ended.")
    if not limits:
        limits = ["It has no timeout: it may run as long as its worker beats."]
    return "running", limits, [f"Its own end; `outlast cancel {row.id}` asks it to stop."]


def _runs(about: Situation) -> str:
    row = about.row
    number = f"Attempt {row.attempt_count} (token {row.token})"
    lasts = since(row.started_at, about.now)
    return f"{number} has been running {lasts}{by_worker(row.worker, row.host)}"


def _reclaimers(about: Situation, besides: WorkerRow | None = None) -> list[str]:
    others = [
        one
        for one in list_alive(about.workers, about.now)
        if besides is None or one.id != besides.id
    ]
    if not others:
        return [
            (
                "Any live worker on this store would give it back to the queue, but there is none:"
                " start one."
            )
        ]
    return [f"One of {join_names(others)} gives it back to the queue."]


def _progress(row: StoredJob) -> list[str]:
    if row.progress is None:
        return []
    fraction, parts = row.progress.fraction, [row.progress.stage, row.progress.message]
    said = line(": ".join(part for part in parts if part), SAID_MAX)
    done = f"{int(fraction * 100)}%" if fraction is not None and 0 <= fraction <= 1 else ""
    told = ", ".join(part for part in (done, said) if part)
    return [f"It last reported {told}."] if told else []


# -- it waits


def _queued(about: Situation) -> Explanation:
    row = about.row
    if not row.waiting:
        return _due(about)
    again = row.failures > 0 or row.losses > 0
    if row.solo:
        position, others = "suspect", about.place.suspects
    elif again:
        position, others = "retrying", about.place.retrying
    else:
        position, others = "scheduled", about.place.waiting - about.place.retrying
    sentences = _past(about) if again else []
    sentences += _suspicion(about) + _repeated(about)
    number = f"Attempt {row.attempt_count + 1} is due" if row.attempt_count else "It is due"
    sentences.append(f"{number} in {span(row.run_at - about.now)}, at {stamp(row.run_at)}.")
    standing = _hindrance(about)
    sentences += standing[1] if standing else []
    then = standing[2] if standing else ["A worker takes it when it is due."]
    return Explanation(
        position=position, sentences=sentences, moves=then, others=max(0, others - 1)
    )


def _due(about: Situation) -> Explanation:
    row = about.row
    past = (_past(about) if row.failures or row.losses else []) + _suspicion(about)
    past += _repeated(about)
    standing = _hindrance(about)
    if standing is not None:
        position, sentences, moves, others = standing
        return Explanation(
            position=position, sentences=past + sentences, moves=moves, others=others
        )
    if row.solo:
        alone = "has a runner to spare" if row.solo == 1 else "runs nothing else"
        moves = [f"A worker that {alone}."]
        others = max(0, about.place.suspects - 1)
        return Explanation(position="suspect", sentences=past, moves=moves, others=others)
    able = _able(about)
    before = about.place.before
    line_up = f"{count_text(before, 'job')} before it" if before else "nothing before it"
    sentences = [
        f"It has been due {since(row.run_at, about.now)}, with {line_up} in its queue.",
        (
            f"{capitalize(join_names(able))} can take it and"
            f" {'runs' if len(able) == 1 else 'run'} {count_of(_load(able), 'attempt')} now."
        ),
    ]
    if held := _held(about, able):
        said = f"All that runs there waits for other jobs and holds its slot: {held}."
        return Explanation(
            position="slots_held",
            sentences=[*past, *sentences, said],
            moves=[HOLD_NO_SLOTS],
            others=max(0, about.place.due_here - 1),
        )
    first = "" if not before else ", after those before it"
    moves = [f"A worker takes it as soon as it has room{first}; more workers would be sooner."]
    others = max(0, about.place.due_here - 1)
    return Explanation(position="in_line", sentences=past + sentences, moves=moves, others=others)


def _held(about: Situation, able: Sequence[WorkerRow]) -> str:
    """Return who waits for whom, where all attempts of these workers wait; else ""."""
    ids = {one.id for one in able}
    there = [one for one in about.held if one.worker_id in ids]
    if not there or len(there) < _load(able) or any(one.waits_for is None for one in there):
        return ""
    return describe_waits(there)


Standing = tuple[str, list[str], list[str], int]


def _hindrance(about: Situation) -> Standing | None:
    """Return why no worker can take the job now: position, sentences, moves, others."""
    row, live = about.row, list_alive(about.workers, about.now)
    position = hindrance(live, row.queue, row.task)
    if position is None:
        return None
    sentence, move, others = _HINDRANCES[position](about, live)
    return position, [sentence], [move], max(0, others - 1)


Told = tuple[str, str, int]


def _no_workers(about: Situation, _live: list[WorkerRow]) -> Told:
    killed = [one for one in about.workers if dead(one)]
    quiet = [one for one in about.workers if holds(one) and not dead(one)]
    seen = f" (nothing was heard of {join_names(quiet)} for a whole lease)" if quiet else ""
    seen += f" (the lock file of {join_names(killed)} is free: dead)" if killed else ""
    wanted = f"that knows the task {quote(about.row.task)}"
    wanted = "with --shell, since it is a command" if about.row.task == SHELL_TASK else wanted
    move = f"Start a worker {wanted}."
    return f"No worker is alive{seen}.", move, about.place.due


def _unservable(about: Situation, live: list[WorkerRow]) -> Told:
    if about.row.task == SHELL_TASK:
        return _no_shell(about, live)
    task = quote(about.row.task)
    said = f"No live worker knows the task {task}; there is {join_names(live)}."
    move = f"Start a worker whose application has the task {task} (or an alias of that name)."
    return said, move, about.place.due_alike


def _no_shell(about: Situation, live: list[WorkerRow]) -> Told:
    said = f"It is a command, and no live worker runs commands; there is {join_names(live)}."
    move = "Start a worker with --shell: every client that enqueues can execute commands there."
    return said, move, about.place.due_alike


def _lacks_tags(about: Situation, live: list[WorkerRow]) -> Told:
    task = about.row.task
    lacking = sorted({tag for one in live for tag in one.lacks.get(task, ())})
    tags = ", ".join(map(quote, lacking[:NAMES_SHOWN]))
    noun = "the tag" if len(lacking) == 1 else "all of the tags"
    said = f"No worker that knows the task {quote(task)} has {noun} {tags}."
    return said, f"Start a worker that knows it and has {noun} {tags}.", about.place.due_alike


def _queue_not_served(about: Situation, live: list[WorkerRow]) -> Told:
    row = about.row
    knowing = [one for one in live if knows(one, row.task)]
    said = (
        f"No worker that knows the task {quote(row.task)} serves the queue {quote(row.queue)};"
        f" {join_names(knowing)} {'knows' if len(knowing) == 1 else 'know'} it."
    )
    name = line(row.queue, NAME_MAX)
    move = f"Start a worker with --queues {name}, or without --queues."
    return said, move, about.place.due_here


def _draining(about: Situation, live: list[WorkerRow]) -> Told:
    stopping = [one for one in live if knows(one, about.row.task) and serves(one, about.row.queue)]
    said = f"All that could take it are draining: {join_names(stopping)}."
    return said, "The next worker that starts takes it.", about.place.due_alike


def _failing(about: Situation, live: list[WorkerRow]) -> Told:
    those = [one for one in live if knows(one, about.row.task) and serves(one, about.row.queue)]
    ill = [one for one in those if takes_nothing(one)]
    said = (
        f"All that could take it fail at taking jobs: {join_names(ill)}. {fails(ill[0], about.now)}"
    )
    move = "Mend that: `outlast doctor` says how, or the log of that worker."
    return said, move, about.place.due_alike


_HINDRANCES = {
    "no_workers": _no_workers,
    "unservable": _unservable,
    "lacks_tags": _lacks_tags,
    "queue_not_served": _queue_not_served,
    "draining": _draining,
    "failing": _failing,
}


def _past(about: Situation) -> list[str]:
    row, policy = about.row, about.row.policy
    budgets = (
        f"It has used {row.failures} of {count_of(policy.retries, 'failure')}"
        f" and {row.losses} of {policy.max_losses} losses."
    )
    return [*_last_end(about.attempts), budgets]


def _suspicion(about: Situation) -> list[str]:
    row = about.row
    if not row.solo:
        return []
    beside = [one.crash.neighbours for one in about.attempts if one.crash is not None]
    others = sorted({*about.place.incident, *(beside[-1] if beside else [])} - {row.id})
    shared = ", ".join(map(str, others[:NAMES_SHOWN])) + (", …" if others[NAMES_SHOWN:] else "")
    company = f" with {'job' if len(others) == 1 else 'jobs'} {shared}" if others else ""
    where = "in a runner" if row.solo == 1 else "in a whole worker"
    return [
        (
            f"It shared a process that died{company}, so it runs alone {where}: then it is certain"
            " whether it was the cause."
        )
    ]


def _repeated(about: Situation) -> list[str]:
    """Say how many times in a row it came back in the same way, without being charged for it."""
    last = about.attempts[-1] if about.attempts else None
    if last is None or last.charge != Charge.NONE:
        return []
    times = count_of(last.repeats, "time")
    if last.outcome == CrashKind.UNDECODABLE:
        release = last.crash.release if last.crash else None
        by = f", last by release {line(release, NAME_MAX)}" if release else ""
        because = f": {line(last.message, SAID_MAX).rstrip('.')}" if last.message else ""
        return [
            f"It could not be decoded {times} in a row{by}{because}.",
            "It waits for a release that can; the pause between tries grows to 10 minutes.",
        ]
    return [f"It was {line(last.outcome, NAME_MAX)} {times} in a row."] if last.repeats > 1 else []


# -- workers


def _able(about: Situation) -> list[WorkerRow]:
    row = about.row
    return [
        one
        for one in list_alive(about.workers, about.now)
        if knows(one, row.task) and serves(one, row.queue) and not drains(one)
    ]


def _load(workers: Iterable[WorkerRow]) -> int:
    return sum(one.running for one in workers)
