"""Keeps a pool's notes on one runner: its announced tasks, its attempts, why it leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from outlast.runner.protocol import Hello
from outlast.store.limits import CodeLimits
from outlast.store.schedules import NewSchedule
from outlast.worker.runners.tags import NOTHING, split_by_tags


class RunnerState:
    """The pool's notes on one runner; the process itself is ``RunnerProcess``.

    ``started_at`` is on the boot clock. ``taken`` counts attempts since the start; ``rss`` is the
    bytes of its process group, at the last check. ``left_by``: the jobs that have ended in it since
    its memory was last found within ``max_rss``: they may have left that memory behind.
    """

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.pid = 0
        self.ready = False
        self.tasks: dict[str, bool] = {}  # name -> whether it has a runner to itself
        self.lacks: dict[str, list[str]] = {}
        self.uses: dict[str, dict[str, int]] = {}
        self.schedules: list[NewSchedule] = []
        self.limits = CodeLimits()
        self.release: str | None = None
        self.python: str | None = None
        self.tokens: set[int] = set()
        self._unended: dict[int, None] = {}  # running or waiting, in the order of assignment
        self.ended_at = float("-inf")  # when an attempt last ended in it
        # tokens about which the runner was asked whether they have begun
        self.recalling: set[int] = set()
        self.begun: set[int] = set()  # tokens that have begun, of those that were asked
        self.exclusive = False  # whether its attempt shares it with no other
        self.batches: dict[str, int] = {}  # name of a batch task -> the most attempts of a call
        self.batch: str | None = None  # the task of the call that gathers or runs in it
        self.gathering: set[int] = set()  # attempts whose call has not begun
        self.taken = 0
        self.rss = 0
        self.left_by: set[int] = set()
        self.retiring: str | None = None  # why it takes no more attempts
        self.quit_at: float | None = None
        self.kill_reason: str | None = None

    def note_ready(
        self, hello: Hello, tags: Collection[str], has: Mapping[str, int] = NOTHING
    ) -> None:
        """Note what the runner announced. Only tasks are served for which the worker has the
        tags and the units."""
        self.ready = True
        self.tasks, self.lacks = split_by_tags(hello.tasks, tags, has)
        self.uses = {info.name: info.uses for info in hello.tasks if info.uses}
        self.batches = {info.name: info.batch for info in hello.tasks if info.batch}
        self.schedules = hello.schedules
        self.limits = hello.limits
        self.release, self.python = hello.release, hello.python

    @property
    def takes_attempts(self) -> bool:
        """Whether it is ready and not leaving."""
        return self.ready and self.retiring is None and self.kill_reason is None

    def take(self, tokens: Collection[int]) -> None:
        """Note that these attempts are assigned to it, in their order."""
        self.tokens.update(tokens)
        self._unended.update(dict.fromkeys(tokens))

    def gather(self, token: int, task: str) -> None:
        """Note that this attempt gathers in it for a call of this batch task."""
        self.batch = task
        self.gathering.add(token)

    def places_to_gather(self, task: str) -> int:
        """Return how many more attempts the call that gathers here takes: 0 once it has begun."""
        if self.batch != task or len(self.gathering) < len(self.tokens):
            return 0
        return max(0, self.batches.get(task, 0) - len(self.tokens))

    def note_call(self, tokens: Collection[int]) -> list[int]:
        """Note that a call has begun with these attempts; return those that came too late."""
        self.gathering.difference_update(tokens)
        return sorted(self.gathering)

    def find_line(self, slots: int) -> list[int]:
        """Return the attempts that wait in the runner because its ``slots`` are taken. None of
        them has begun. A batch takes no slots."""
        if self.batch is not None:
            return []
        return list(islice(self._unended, slots, None))

    def note_ended(self, tokens: Collection[int], now: float) -> None:
        """Note that attempts have ended in it, including these; ``let_go`` follows later."""
        self.ended_at = now
        for token in tokens:
            self._unended.pop(token, None)

    def let_go(self, tokens: Collection[int]) -> None:
        """Note that these attempts are no longer in it."""
        self.tokens.difference_update(tokens)
        for token in tokens:
            self._unended.pop(token, None)
        self.recalling.difference_update(tokens)
        self.begun.difference_update(tokens)
        self.exclusive = self.exclusive and bool(self.tokens)
        self.gathering.difference_update(tokens)
        if not self.tokens:
            self.batch = None

    def note_recalling(self, tokens: Collection[int]) -> list[int]:
        """Note that it is asked whether these attempts have begun; return those that it was not
        asked about before."""
        new = sorted(set(tokens) - self.recalling - self.begun)
        self.recalling.update(new)
        return new

    def note_recalled(self, tokens: Collection[int]) -> None:
        """Note that those of these attempts that are still in it have begun."""
        self.recalling.difference_update(tokens)
        self.begun |= self.tokens.intersection(tokens)

    def doom(self, reason: str | None) -> None:
        """Note why it is killed; the first reason stays."""
        self.kill_reason = self.kill_reason or reason
