"""Explain why a queued job does not run yet: it is not due, it is a suspect, other jobs precede it,
or no worker can take it (``availability.hindrance`` decides why). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.base.text import count_of, line, shell_word, since, span, stamp
from outlast.insight.availability import (
    dead,
    find_sleepers,
    hindrance,
    holds,
    knows,
    list_alive,
    serves,
    takes,
    takes_nothing,
)
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.limits import LIMITED, explain
from outlast.insight.pauses import command_to_resume, describe
from outlast.insight.sentences import (
    HOLD_NO_SLOTS,
    NAME_MAX,
    NAMES_SHOWN,
    SAID_MAX,
    capitalize,
    count_text,
    describe_last_end,
    describe_waits,
    fails,
    join_names,
    quote,
)
from outlast.model.crash import Charge, CrashKind
from outlast.model.job import SHELL_TASK
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import Pauses
from outlast.store.rows import WorkerRow


def explain_waiting(about: JobDetails) -> Explanation:
    """Return why a queued job waits and what it waits for, and how often it returned to the queue
    in the same way."""
    answer, last = _explain(about), about.attempts[-1] if about.attempts else None
    if last is None or last.charge != Charge.NONE or last.repeats == 1 or about.row.waiting:
        return answer
    if last.outcome == CrashKind.UNDECODABLE:  # ``_uncharged`` has said so
        return answer
    often = f"It was {line(last.outcome, NAME_MAX)} {count_of(last.repeats, 'time')} in a row."
    return msgspec.structs.replace(answer, sentences=[*answer.sentences, often])


def _explain(about: JobDetails) -> Explanation:
    row = about.row
    came_back = row.failures > 0 or row.losses > 0
    past = (_past(about) if came_back else []) + _suspicion(about) + _uncharged(about)
    blocked = _describe_obstacles(about)
    if row.waiting:
        said, sends = _describe_wait(about)
        past += said
        moves = sends or ["A worker takes it when it is due."]
        if blocked is not None:
            past, moves = past + blocked.sentences, [*sends, *blocked.moves]
        if row.solo:
            position = "suspect"
        elif row.event is not None:
            position = "waiting"
        elif came_back:
            position = "retrying"
        else:
            position = "scheduled"
        return Explanation(position=position, sentences=past, moves=moves)
    if blocked is not None:
        return msgspec.structs.replace(blocked, sentences=past + blocked.sentences)
    if about.locked_by and about.may_tell_others:
        past += [f"{holder}." for holder in about.locked_by]
        moves = [holder.fix for holder in about.locked_by]
        return Explanation(position=LIMITED, sentences=past, moves=moves)
    limit = about.stream and explain(about.stream, about.now, tells=about.may_tell_others)
    if limit:
        position, sentences, moves = limit
        past += [f"It has been due {since(row.run_at, about.now)}.", *sentences]
        return Explanation(position=position, sentences=past, moves=moves)
    if row.solo:
        alone = "has a spare runner" if row.solo == 1 else "runs nothing else"
        moves = [f"A worker takes it as soon as it {alone}."]
        return Explanation(position="suspect", sentences=past, moves=moves)
    return _in_line(about, past)


def _describe_wait(about: JobDetails) -> tuple[list[str], list[str]]:
    """Say until when a job waits; return also what ends the wait for its event, if it has one."""
    row = about.row
    until = f"in {span(row.run_at - about.now)}, at {stamp(row.run_at)}."
    if row.event is None:
        due = f"Attempt {row.attempt_count + 1} is due" if row.attempt_count else "It is due"
        return [f"{due} {until}"], []
    if about.is_sent:
        said = f"The event {quote(row.event)}, for which it waits, was sent."
        return [said], ["The next worker to check makes it due."]
    said = f"It waits for the event {quote(row.event)}."
    unless = ", unless that was done" if about.is_sent is None else ""
    move = f"`outlast event {shell_word(row.event)} JSON` sends it{unless}."
    return [said, f"It stops waiting {until}"], [move]


def _in_line(about: JobDetails, past: list[str]) -> Explanation:
    """Return why a job waits although some workers could take it."""
    row = about.row
    eligible = [one for one in list_alive(about.workers) if takes(one, row.queue, row.task)]
    load = sum(one.running for one in eligible)
    ids = {one.id for one in eligible}
    there = [one for one in about.held if one.worker_id in ids]
    sentences = past + _describe_line(about, eligible, load)
    if there and len(there) >= load and all(one.waits_for is not None for one in there):
        waits = f": {describe_waits(there)}" if about.may_tell_others else ""
        said = f"Every job running there waits for another job and holds its slot meanwhile{waits}."
        sentences.append(said)
        position, move = "slots_held", HOLD_NO_SLOTS
    else:
        first = ", after the jobs before it" if _before(about) and about.may_tell_others else ""
        position = "in_line"
        move = (
            f"A worker takes it once it has a free slot, and any units that its task uses{first};"
            " with more workers it starts sooner."
        )
    return Explanation(position=position, sentences=sentences, moves=[move])


def _describe_line(about: JobDetails, eligible: Sequence[WorkerRow], load: int) -> list[str]:
    """Say how long a job has been due, and which workers can take it."""
    lasts = f"It has been due {since(about.row.run_at, about.now)}"
    takers = f"{capitalize(join_names(eligible))} can take it"
    if not about.may_tell_others:
        return [f"{lasts}.", f"{takers}."]
    before = _before(about)
    line_up = f"{count_text(before, 'job')} before it" if before else "nothing before it"
    where = (
        "in its queue" if about.stream is None else "of its kind; other kinds take turns with it"
    )
    runs = f"{'runs' if len(eligible) == 1 else 'run'} {count_of(load, 'attempt')} now"
    return [f"{lasts}, with {line_up} {where}.", f"{takers} and {runs}."]


def _before(about: JobDetails) -> int:
    """Return how many jobs are claimed before it: of its queue, or of its kind under limits."""
    return about.place.before if about.stream is None else about.stream.ahead


def _describe_obstacles(about: JobDetails) -> Explanation | None:
    """Return what keeps all workers from the job: all its pauses, and that none can take it."""
    row, hindered = about.row, describe_hindrance(about)
    pauses = Pauses(about.pauses).find_all(row.queue, row.task, row.tenant)
    if not pauses:
        return hindered
    commands = " and ".join(f"`{command_to_resume(pause)}`" for pause in pauses)
    sentences = [describe(pause, about.now) for pause in pauses]
    moves = [f"{commands} {'let' if pauses[1:] else 'lets'} it start again."]
    if hindered is not None:
        sentences, moves = sentences + hindered.sentences, moves + hindered.moves
    return Explanation(position="paused", sentences=sentences, moves=moves)


def _past(about: JobDetails) -> list[str]:
    row, policy = about.row, about.row.policy
    budgets = (
        f"It has failed {count_of(row.failures, 'time')} ({policy.retries} allowed)"
        f" and was lost {count_of(row.losses, 'time')} ({policy.max_losses} allowed)."
    )
    last = ["Its next failure is its last."] if row.failures >= policy.retries else []
    return [*describe_last_end(about.attempts), budgets, *last]


def _suspicion(about: JobDetails) -> list[str]:
    row = about.row
    if not row.solo:
        return []
    beside = [one.crash.neighbours for one in about.attempts if one.crash is not None]
    others = sorted({*about.place.incident, *(beside[-1] if beside else [])} - {row.id})
    others = others if about.may_tell_others else []
    shared = ", ".join(map(str, others[:NAMES_SHOWN])) + (", …" if others[NAMES_SHOWN:] else "")
    company = f" with {'job' if len(others) == 1 else 'jobs'} {shared}" if others else ""
    where = "in a runner" if row.solo == 1 else "in a whole worker"
    return [
        (
            f"It shared a process that died{company}, so it runs alone {where} next, which shows"
            " whether it was the cause."
        )
    ]


def _uncharged(about: JobDetails) -> list[str]:
    """Say why its last attempt returned to the queue, if it was not charged and is why it waits."""
    last = about.attempts[-1] if about.attempts else None
    if last is None or last.charge != Charge.NONE or about.row.event is not None:
        return []
    if last.outcome == CrashKind.UNDECODABLE:
        release = last.crash.release if last.crash else None
        by = f", last by release {line(release, NAME_MAX)}" if release else ""
        because = f": {line(last.message, SAID_MAX).rstrip('.')}" if last.message else ""
        times = f" {count_of(last.repeats, 'time')} in a row" if last.repeats > 1 else ""
        return [
            f"It could not be decoded{times}{by}{because}.",
            "It waits for a release that can decode it; the delay between tries grows to 10 min.",
        ]
    if last.outcome == OutcomeKind.SNOOZED and about.row.waiting:
        return [f"Its last attempt ended with: {line(last.message, SAID_MAX)}."]
    return []


def describe_hindrance(about: JobDetails) -> Explanation | None:
    """Return why no worker can take the job now."""
    row = about.row
    task, queue = quote(row.task), quote(row.queue)
    live = list_alive(about.workers)
    knowing = [one for one in live if knows(one, row.task)]
    eligible = [one for one in knowing if serves(one, row.queue)]
    position = hindrance(live, row.queue, row.task)
    if position is None:
        return None
    if asleep := find_sleepers(about.workers, row.queue, row.task, about.now)[-1:]:
        wait = span(asleep[0].lease_expires_at - about.now)
        said = f"No worker that can take it is awake: {join_names(asleep)} wakes within {wait}."
        move = "Nothing needs to be done: it will claim jobs then. A restart wakes it now."
        return Explanation(position=position, sentences=[said], moves=[move])
    match position:
        case "no_workers":
            wanted = f"whose application has the task {task}"
            if row.task == SHELL_TASK:
                wanted = "with --shell, since the job is a shell command"
            said = f"No worker is alive{_describe_gone(about.workers)}."
            move = f"Start a worker {wanted}."
        case "unservable" if row.task == SHELL_TASK:
            said = (
                f"It is a shell command, and no live worker runs commands; alive:"
                f" {join_names(live)}."
            )
            client = "every client that can enqueue can then execute commands on its host"
            move = f"Start a worker with --shell; {client}."
        case "unservable":
            said = f"No live worker knows the task {task}; alive: {join_names(live)}."
            move = (
                f"Start a worker whose application has the task {task} (or an alias of that name)."
                " An application has the tasks of the modules that it imports."
            )
        case "lacks_tags":
            lacking = sorted({tag for one in live for tag in one.lacks.get(row.task, ())})
            noun = "the tag" if len(lacking) == 1 else "all of the tags"
            if any("=" in each for each in lacking):  # what its tasks use: worker --has gpu=2
                noun = "enough (--has) of"
            tags = f"{noun} {', '.join(map(quote, lacking))}"
            said = f"No worker that knows the task {task} has {tags}."
            move = f"Start a worker that knows the task and has {tags}."
        case "queue_not_served":
            verb = "knows" if len(knowing) == 1 else "know"
            said = (
                f"No worker that knows the task {task} serves the queue {queue};"
                f" {join_names(knowing)} {verb} the task."
            )
            move = f"Start a worker with `--queues {shell_word(row.queue)}`, or without `--queues`."
        case "draining":
            said = f"All workers that could take it are draining: {join_names(eligible)}."
            move = "Start a worker: it takes the job."
        case _:
            ill = [one for one in eligible if takes_nothing(one)]
            named = f"All workers that could take it fail to claim jobs: {join_names(ill)}."
            if len(ill) < len(eligible):
                both = f"{join_names(eligible)} fail or are draining"
                named = f"No worker that could take it claims jobs: {both}."
            said = f"{named} {fails(ill[0], about.now)}"
            move = "Fix that: `outlast doctor` or the log of that worker says how."
    return Explanation(position=position, sentences=[said], moves=[move])


def _describe_gone(workers: Sequence[WorkerRow]) -> str:
    killed = [one for one in workers if dead(one)]
    quiet = [one for one in workers if holds(one) and not dead(one)]
    verb = "was" if len(quiet) == 1 else "were"
    seen = f" ({join_names(quiet)} {verb} not heard from for a whole lease)" if quiet else ""
    locks = "its lock file is" if len(killed) == 1 else "their lock files are"
    return seen + (f" ({join_names(killed)} died: {locks} free)" if killed else "")
