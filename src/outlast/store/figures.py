"""Numbers that a store counts for people: bounded, so that a look costs little however many jobs
there are. A number that has reached its bound means "or more"."""

from __future__ import annotations

import msgspec

COUNT_MAX = 10_000  # rows that are counted to place one job
NAMED_MAX = 10  # jobs that are named one by one


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job stands among the others. Each number is at most COUNT_MAX.

    Attributes:
        before: due jobs of its queue that are claimed before it.
        due: due jobs of all queues, those in the line.
        due_here, due_alike: those of its queue; those of its queue and its task.
        waiting, retrying: jobs of its queue that wait for their time; those of them that have
            failed or were lost before.
        suspects: jobs of its queue that wait to be run alone.
        beside: running jobs of the same worker.
        dead_alike: dead jobs of its task, among the newest.
        incident: other jobs of the shared death that made it a suspect, at most NAMED_MAX.
        key_holder: another job with its key that is unfinished.
    """

    before: int = 0
    due: int = 0
    due_here: int = 0
    due_alike: int = 0
    waiting: int = 0
    retrying: int = 0
    suspects: int = 0
    beside: int = 0
    dead_alike: int = 0
    incident: list[int] = []
    key_holder: int | None = None
