"""Explain why no worker can take a due job, and what would change that. Pure.

``availability.hindrance`` decides the reason, by the same rules for why, stats and doctor.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.base.text import line, span
from outlast.insight.availability import (
    dead,
    hindrance,
    holds,
    knows,
    list_alive,
    serves,
    sleeps,
    takes_nothing,
)
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.sentences import NAME_MAX, NAMES_SHOWN, fails, join_names, quote
from outlast.model.job import SHELL_TASK
from outlast.store.rows import WorkerRow


def describe_hindrance(about: JobDetails) -> Explanation | None:
    """Return why no worker can take the job now."""
    row, place = about.row, about.place
    task, queue = quote(row.task), quote(row.queue)
    live = list_alive(about.workers, about.now)
    knowing = [one for one in live if knows(one, row.task)]
    able = [one for one in knowing if serves(one, row.queue)]
    position = hindrance(live, row.queue, row.task)
    alike = place.due_alike
    match position:
        case None:
            return None
        case "no_workers":
            wanted = f"that knows the task {task}"
            if row.task == SHELL_TASK:
                wanted = "with --shell, since it is a command"
            said = f"No worker is alive{_describe_gone(about.workers)}."
            move, alike = f"Start a worker {wanted}.", place.due
            if asleep := [one for one in about.workers if sleeps(one, about.now)]:
                wait = span(asleep[-1].lease_expires_at - about.now)
                said = f"No worker is awake: {join_names(asleep[-1:])} is to be back within {wait}."
                move = "Nothing has to be done: it looks for jobs then. A restart wakes it."
        case "unservable" if row.task == SHELL_TASK:
            said = (
                f"It is a command, and no live worker runs commands; there is {join_names(live)}."
            )
            client = "every client that enqueues can execute commands there"
            move = f"Start a worker with --shell: {client}."
        case "unservable":
            said = f"No live worker knows the task {task}; there is {join_names(live)}."
            move = (
                f"Start a worker whose application has the task {task} (or an alias of that name)."
            )
        case "lacks_tags":
            lacking = sorted({tag for one in live for tag in one.lacks.get(row.task, ())})
            noun = "the tag" if len(lacking) == 1 else "all of the tags"
            if any("=" in each for each in lacking):  # what its tasks use: worker --has gpu=2
                noun = "enough (--has) of"
            tags = f"{noun} {', '.join(map(quote, lacking[:NAMES_SHOWN]))}"
            said = f"No worker that knows the task {task} has {tags}."
            move = f"Start a worker that knows it and has {tags}."
        case "queue_not_served":
            verb = "knows" if len(knowing) == 1 else "know"
            said = (
                f"No worker that knows the task {task} serves the queue {queue};"
                f" {join_names(knowing)} {verb} it."
            )
            name = line(row.queue, NAME_MAX)
            move = f"Start a worker with --queues {name}, or without --queues."
            alike = place.due_here
        case "draining":
            said = f"All workers that could take it are draining: {join_names(able)}."
            move = "The next worker that starts takes it."
        case _:
            ill = [one for one in able if takes_nothing(one)]
            named = f"All workers that could take it fail to take jobs: {join_names(ill)}."
            said = f"{named} {fails(ill[0], about.now)}"
            move = "Fix that: `outlast doctor` says how, or the log of that worker."
    return Explanation(position=position, sentences=[said], moves=[move], alike=alike)


def _describe_gone(workers: Sequence[WorkerRow]) -> str:
    killed = [one for one in workers if dead(one)]
    quiet = [one for one in workers if holds(one) and not dead(one)]
    seen = f" (nothing was heard of {join_names(quiet)} for a whole lease)" if quiet else ""
    return seen + (f" (the lock file of {join_names(killed)} is free: dead)" if killed else "")
