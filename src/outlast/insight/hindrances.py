"""Explain why no worker can take a due job, and what would change that. Pure.

``availability.hindrance`` decides the reason, by the same rules for why, stats and doctor.
"""

from __future__ import annotations

from outlast.base.text import line
from outlast.insight.availability import (
    dead,
    hindrance,
    holds,
    knows,
    list_alive,
    serves,
    takes_nothing,
)
from outlast.insight.explanation import WhyFacts
from outlast.insight.sentences import NAME_MAX, NAMES_SHOWN, fails, join_names, quote
from outlast.model.job import SHELL_TASK
from outlast.store.rows import WorkerRow

Standing = tuple[str, list[str], list[str], int]


def describe_hindrance(about: WhyFacts) -> Standing | None:
    """Return why no worker can take the job now: position, sentences, moves, others."""
    row, live = about.row, list_alive(about.workers, about.now)
    position = hindrance(live, row.queue, row.task)
    if position is None:
        return None
    sentence, move, others = _HINDRANCES[position](about, live)
    return position, [sentence], [move], max(0, others - 1)


Told = tuple[str, str, int]


def _no_workers(about: WhyFacts, _live: list[WorkerRow]) -> Told:
    killed = [one for one in about.workers if dead(one)]
    quiet = [one for one in about.workers if holds(one) and not dead(one)]
    seen = f" (nothing was heard of {join_names(quiet)} for a whole lease)" if quiet else ""
    seen += f" (the lock file of {join_names(killed)} is free: dead)" if killed else ""
    wanted = f"that knows the task {quote(about.row.task)}"
    wanted = "with --shell, since it is a command" if about.row.task == SHELL_TASK else wanted
    move = f"Start a worker {wanted}."
    return f"No worker is alive{seen}.", move, about.place.due


def _unservable(about: WhyFacts, live: list[WorkerRow]) -> Told:
    if about.row.task == SHELL_TASK:
        return _no_shell(about, live)
    task = quote(about.row.task)
    said = f"No live worker knows the task {task}; there is {join_names(live)}."
    move = f"Start a worker whose application has the task {task} (or an alias of that name)."
    return said, move, about.place.due_alike


def _no_shell(about: WhyFacts, live: list[WorkerRow]) -> Told:
    said = f"It is a command, and no live worker runs commands; there is {join_names(live)}."
    move = "Start a worker with --shell: every client that enqueues can execute commands there."
    return said, move, about.place.due_alike


def _lacks_tags(about: WhyFacts, live: list[WorkerRow]) -> Told:
    task = about.row.task
    lacking = sorted({tag for one in live for tag in one.lacks.get(task, ())})
    tags = ", ".join(map(quote, lacking[:NAMES_SHOWN]))
    noun = "the tag" if len(lacking) == 1 else "all of the tags"
    said = f"No worker that knows the task {quote(task)} has {noun} {tags}."
    return said, f"Start a worker that knows it and has {noun} {tags}.", about.place.due_alike


def _queue_not_served(about: WhyFacts, live: list[WorkerRow]) -> Told:
    row = about.row
    knowing = [one for one in live if knows(one, row.task)]
    said = (
        f"No worker that knows the task {quote(row.task)} serves the queue {quote(row.queue)};"
        f" {join_names(knowing)} {'knows' if len(knowing) == 1 else 'know'} it."
    )
    name = line(row.queue, NAME_MAX)
    move = f"Start a worker with --queues {name}, or without --queues."
    return said, move, about.place.due_here


def _draining(about: WhyFacts, live: list[WorkerRow]) -> Told:
    stopping = [one for one in live if knows(one, about.row.task) and serves(one, about.row.queue)]
    said = f"All workers that could take it are draining: {join_names(stopping)}."
    return said, "The next worker that starts takes it.", about.place.due_alike


def _failing(about: WhyFacts, live: list[WorkerRow]) -> Told:
    those = [one for one in live if knows(one, about.row.task) and serves(one, about.row.queue)]
    ill = [one for one in those if takes_nothing(one)]
    named = f"All workers that could take it fail to take jobs: {join_names(ill)}."
    said = f"{named} {fails(ill[0], about.now)}"
    move = "Fix that: `outlast doctor` says how, or the log of that worker."
    return said, move, about.place.due_alike


_HINDRANCES = {
    "no_workers": _no_workers,
    "unservable": _unservable,
    "lacks_tags": _lacks_tags,
    "queue_not_served": _queue_not_served,
    "draining": _draining,
    "failing": _failing,
}
