"""Explain why a queued job does not run yet: its time, a suspicion, its place in the queue.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outlast.base.text import count_of, line, since, span, stamp
from outlast.insight.availability import drains, knows, list_alive, serves
from outlast.insight.explanation import Explanation, WhyFacts
from outlast.insight.hindrances import Standing, describe_hindrance
from outlast.insight.limits import explain
from outlast.insight.pauses import command_to_resume, describe, pause_of
from outlast.insight.sentences import (
    HOLD_NO_SLOTS,
    NAME_MAX,
    NAMES_SHOWN,
    SAID_MAX,
    capitalize,
    count_text,
    describe_last_end,
    describe_waits,
    join_names,
)
from outlast.model.crash import Charge, CrashKind
from outlast.model.pause import PauseKind, Pauses
from outlast.store.rows import WorkerRow


def explain_waiting(about: WhyFacts) -> Explanation:
    """Return why a queued job waits, and what it waits for."""
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
    standing = _describe_pause(about) or describe_hindrance(about)
    sentences += standing[1] if standing else []
    then = standing[2] if standing else ["A worker takes it when it is due."]
    return Explanation(
        position=position, sentences=sentences, moves=then, others=max(0, others - 1)
    )


def _due(about: WhyFacts) -> Explanation:
    row = about.row
    past = (_past(about) if row.failures or row.losses else []) + _suspicion(about)
    past += _repeated(about)
    standing = _describe_pause(about) or describe_hindrance(about)
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
    if about.stream is not None:
        position, sentences, moves = explain(about.stream, about.now, tells=about.may_tell_others)
        if position:
            lasts = f"It has been due {since(row.run_at, about.now)}."
            others = about.stream.ahead
            return Explanation(
                position=position, sentences=[*past, lasts, *sentences], moves=moves, others=others
            )
        past += sentences
    able = _able(about)
    before = about.place.before if about.may_tell_others else 0
    sentences = _describe_line(about, able)
    if held := _held(about, able):
        said = "Every job that runs there waits for another and holds its slot"
        said += f": {held}." if about.may_tell_others else "."
        return Explanation(
            position="slots_held",
            sentences=[*past, *sentences, said],
            moves=[HOLD_NO_SLOTS],
            others=max(0, about.place.due_here - 1),
        )
    first = "" if not before else ", after those before it"
    moves = [
        f"A worker takes it once it has a free slot{first}; more workers would take it sooner."
    ]
    others = max(0, about.place.due_here - 1)
    return Explanation(position="in_line", sentences=past + sentences, moves=moves, others=others)


def _describe_line(about: WhyFacts, able: Sequence[WorkerRow]) -> list[str]:
    """Say since when a job has been due, and who can take it."""
    lasts = f"It has been due {since(about.row.run_at, about.now)}"
    takers = f"{capitalize(join_names(able))} can take it"
    if not about.may_tell_others:
        return [f"{lasts}.", f"{takers}."]
    before = about.place.before
    line_up = f"{count_text(before, 'job')} before it" if before else "nothing before it"
    runs = f"{'runs' if len(able) == 1 else 'run'} {count_of(_load(able), 'attempt')} now"
    return [f"{lasts}, with {line_up} in its queue.", f"{takers} and {runs}."]


def _describe_pause(about: WhyFacts) -> Standing | None:
    pause = pause_of(about.row, Pauses(about.pauses))
    if pause is None:
        return None
    others = about.place.due_alike if pause.kind is PauseKind.TASK else about.place.due_here
    moves = [f"`{command_to_resume(pause)}` lets it start again."]
    return "paused", [describe(pause, about.now)], moves, max(0, others - 1)


def _held(about: WhyFacts, able: Sequence[WorkerRow]) -> str:
    """Return which jobs wait for which if all attempts of these workers wait; otherwise ""."""
    ids = {one.id for one in able}
    there = [one for one in about.held if one.worker_id in ids]
    if not there or len(there) < _load(able) or any(one.waits_for is None for one in there):
        return ""
    return describe_waits(there)


def _past(about: WhyFacts) -> list[str]:
    row, policy = about.row, about.row.policy
    budgets = (
        f"It has used {row.failures} of {count_of(policy.retries, 'failure')}"
        f" and {row.losses} of {policy.max_losses} losses."
    )
    return [*describe_last_end(about.attempts), budgets]


def _suspicion(about: WhyFacts) -> list[str]:
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
            f"It shared a process that died{company}, so it runs alone {where}: then it is certain"
            " whether it was the cause."
        )
    ]


def _repeated(about: WhyFacts) -> list[str]:
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


def _able(about: WhyFacts) -> list[WorkerRow]:
    row = about.row
    return [
        one
        for one in list_alive(about.workers, about.now)
        if knows(one, row.task) and serves(one, row.queue) and not drains(one)
    ]


def _load(workers: Iterable[WorkerRow]) -> int:
    return sum(one.running for one in workers)
