"""Gathers the attempts of a batch task for one call, and gives each of them its own end.

A call begins when it is full, or when the first attempt has waited for ``batch_wait``. Until then
each can be recalled, and a death of this process does not affect it: the worker is told first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from outlast.base.clock import Clock
from outlast.client.app import App
from outlast.client.attempt import Attempt, StopReason
from outlast.client.batches import BatchTask, sort_out
from outlast.client.task import Task
from outlast.errors import ItemErrors, UsageError
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.outcomes import judge
from outlast.runner.stacks import MANY
from outlast.store.values import Claimed

_CANCELLED = Outcome(kind=OutcomeKind.CANCELLED, message="it was cancelled while its batch ran")


class Gathering:
    """The attempts that wait for a task's next call, which ``begin`` makes when time is over."""

    def __init__(
        self,
        name: str,
        task: BatchTask[Any, Any],
        begin: Callable[[Gathering], None],
        clock: Clock,
    ) -> None:
        self.name, self.task = name, task
        self.waiting: dict[int, Claimed] = {}
        self.hurries = False  # suspects run by themselves: no others will come
        self._begin = begin
        self._timer = asyncio.get_running_loop().create_task(self._wait(clock))

    def add(self, claimed: Claimed) -> None:
        """Let an attempt wait behind the others."""
        self.waiting[claimed.token] = claimed
        self.hurries = self.hurries or bool(claimed.solo)

    def is_full(self) -> bool:
        """Whether its call takes no more."""
        return len(self.waiting) >= self.task.batch

    def close(self) -> None:
        """Wait no longer."""
        self._timer.cancel()

    async def _wait(self, clock: Clock) -> None:
        await clock.sleep(self.task.batch_wait)
        self._begin(self)


class BatchCall:
    """One call for many attempts, in the order of their items."""

    def __init__(self, task: Task[..., Any], attempts: list[Attempt]) -> None:
        self.task = task
        self.attempts = attempts
        self.mark = attempts[0].token if len(attempts) == 1 else MANY
        self._rules = task._error_rules  # noqa: SLF001
        self._is_asked = False

    def stop(self, asyncio_task: asyncio.Task[None]) -> None:
        """Cancel the call, once, if it has to stop: not for a cancel of only some of its jobs."""
        reasons = [attempt._stop_reason for attempt in self.attempts]  # noqa: SLF001
        if not self._is_asked and (_first(reasons) or all(reasons)):
            self._is_asked = True
            asyncio_task.cancel()

    def judge(
        self,
        returned: Any,
        error: BaseException | None,
        complete: Callable[[Attempt, Any], Outcome],
    ) -> list[Outcome]:
        """Return the end of each attempt, from what the function returned or raised."""
        if error is None or isinstance(error, ItemErrors):
            try:
                found = sort_out(len(self.attempts), returned, error)
            except UsageError as misfit:
                error = misfit
            else:
                return self._judge_items(found, complete)
        reason = _first(attempt._stop_reason for attempt in self.attempts)  # noqa: SLF001
        return [self._judge_failed(attempt, error, reason) for attempt in self.attempts]

    def _judge_failed(
        self, attempt: Attempt, error: BaseException, reason: StopReason | None
    ) -> Outcome:
        if reason is not None and attempt._stop_reason is None:  # noqa: SLF001
            return _release(reason)
        return judge(error, attempt, self._rules)

    def _judge_items(
        self,
        found: list[tuple[Any, BaseException | None]],
        complete: Callable[[Attempt, Any], Outcome],
    ) -> list[Outcome]:
        if self._is_asked:  # its code was interrupted wherever it waited
            for attempt in self.attempts:
                attempt._noticed = True  # noqa: SLF001
        # once the call knows that it is to stop, no result is whole
        known = _first(attempt._obeys() for attempt in self.attempts)  # noqa: SLF001
        outcomes = []
        for attempt, (result, error) in zip(self.attempts, found, strict=True):
            if error is not None:
                outcomes.append(judge(error, attempt, self._rules))
            elif attempt._stop_reason is StopReason.CANCEL:  # noqa: SLF001
                outcomes.append(_CANCELLED)
            elif known and not attempt._finished and not attempt.stopping:  # noqa: SLF001
                outcomes.append(_release(known))  # one that is asked itself has noticed by now
            else:
                outcomes.append(self._complete(attempt, result, complete))
        return outcomes

    def _complete(
        self, attempt: Attempt, result: Any, complete: Callable[[Attempt, Any], Outcome]
    ) -> Outcome:
        try:
            return complete(attempt, result)
        except BaseException as error:
            return judge(error, attempt, self._rules)


class Batches:
    """The calls of an application's batch ``tasks``: those that gather, and those that run.
    ``begin`` is called with the items collected for a call."""

    def __init__(
        self, app: App, begin: Callable[[BatchTask[Any, Any], list[Claimed]], None], clock: Clock
    ) -> None:
        tasks = [task for task in app.tasks.values() if isinstance(task, BatchTask)]
        self.tasks = {name: task for task in tasks for name in (task.name, *task.aliases)}
        self._begin = begin
        self._clock = clock
        self._gathering: dict[str, Gathering] = {}  # by the name of their jobs' task
        self.calls = 0  # those that run

    def gather(self, attempts: Sequence[Claimed]) -> list[Claimed]:
        """Let attempts of batch tasks gather, and begin calls that are full. Return the others."""
        others = []
        for claimed in attempts:
            if (task := self.tasks.get(claimed.task)) is None:
                others.append(claimed)
                continue
            if (gathering := self._gathering.get(claimed.task)) is None:
                gathering = Gathering(claimed.task, task, self._end_gathering, self._clock)
                self._gathering[claimed.task] = gathering
            gathering.add(claimed)
            if gathering.is_full():
                self._end_gathering(gathering)
        for gathering in [each for each in self._gathering.values() if each.hurries]:
            self._end_gathering(gathering)
        return others

    def count_gathered(self) -> dict[str, int]:
        """Return how many attempts of each batch task wait for their call."""
        return {name: len(each.waiting) for name, each in self._gathering.items()}

    def count_calls(self) -> int:
        """Return the number of calls, including gathering ones."""
        return len(self._gathering) + self.calls

    def begin_gathered(self) -> None:
        """Begin the calls that gather, as if their time were over."""
        for gathering in list(self._gathering.values()):
            self._end_gathering(gathering)

    def take(self, which: Callable[[int], bool]) -> list[Claimed]:
        """Remove and return those of the attempts that gather whose tokens ``which`` selects."""
        taken = []
        for gathering in list(self._gathering.values()):
            taken += [gathering.waiting.pop(token) for token in filter(which, [*gathering.waiting])]
            if not gathering.waiting:
                self._gathering.pop(gathering.name).close()
        return taken

    def _end_gathering(self, gathering: Gathering) -> None:
        self._gathering.pop(gathering.name).close()
        self._begin(gathering.task, list(gathering.waiting.values()))

    def close(self) -> None:
        """Begin no more calls."""
        for gathering in self._gathering.values():
            gathering.close()


def _first(reasons: Iterable[StopReason | None]) -> StopReason | None:
    """Return the first reason for which a whole call stops: any but a cancel of one job."""
    return next((reason for reason in reasons if reason not in {None, StopReason.CANCEL}), None)


def _release(reason: StopReason) -> Outcome:
    message = f"another job of its batch was asked to stop ({reason}), and so the call stopped"
    return Outcome(kind=OutcomeKind.RELEASED, message=message)
