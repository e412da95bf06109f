"""Replaces the runners when the application's code has changed: ``outlast worker --reload``.

Only runners import the application, so the worker continues, with its lease, row and connections.
At a change runners take no more attempts, and leave once they have none. Running attempts have
``ATTEMPT_SECONDS`` to end, are asked to stop, and then killed with their runner: released, to run
again with the new code. The first new runner is on trial: if it cannot start, no other is started
until the next change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from outlast.base.clock import Clock
from outlast.errors import text_of
from outlast.events import emit
from outlast.worker.base import AttemptControl
from outlast.worker.runners.supervisor import RELOAD, RunnerSupervisor
from outlast.worker.service import Nudge

ATTEMPT_SECONDS = 1.0  # for attempts to end by themselves, and again once asked to stop
LOOK_SECONDS = 0.05
STEP_MS = 50  # without a further change before changes are reported
DEBOUNCE_MS = 400  # after which they are reported despite further ones
NAMES_SHOWN = 5

OnChange = Callable[[list[str]], object]


class CodeWatch:
    """A thread that reports changed Python files in folders and below them."""

    def __init__(self, folders: Sequence[str], on_change: OnChange) -> None:
        """``on_change`` is called in the thread."""
        import watchfiles

        self._changes = watchfiles.watch(
            *folders,
            watch_filter=watchfiles.PythonFilter(),
            step=STEP_MS,
            debounce=DEBOUNCE_MS,
            rust_timeout=1_000,
            stop_event=(stop := threading.Event()),
            raise_interrupt=False,
        )
        self._stop = stop
        self._on_change = on_change
        self._thread = threading.Thread(target=self._run, name="outlast-reload", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for changes in self._changes:
                self._on_change(sorted({path for _, path in changes}))
        except Exception as error:  # for example this user's limit of watches
            told = f"changes cannot be watched: {text_of(error)}"
            emit("reload_failed", error=told, stack=None)


class Reloader:
    """The duty that replaces the runners of a pool after a change."""

    name = "reload"

    def __init__(
        self,
        supervisor: RunnerSupervisor,
        control: AttemptControl,
        clock: Clock,
    ) -> None:
        self.nudge = Nudge()
        self._supervisor = supervisor
        self._control = control
        self._clock = clock
        self._changed: list[str] = []
        self._since: dict[int, float] = {}  # when runners with old code were retired, by pid

    def note(self, paths: Sequence[str]) -> None:
        """Note changed files, for the next run."""
        self._changed += paths

    async def run_once(self) -> float:
        """Begin to replace all runners if code has changed; end the runners with old code."""
        if self._changed:
            names, self._changed = self._changed, []
            emit("code_changed", files=_shorten(names))
            self._control.recall("the code of its task has changed")
            self._supervisor.start_over()
        self._end_old_ones()
        return LOOK_SECONDS

    def _end_old_ones(self) -> None:
        now = self._clock.boot()
        old = [each for each in self._supervisor.runners if each.retiring == RELOAD]
        self._since = {each.pid: self._since.get(each.pid, now) for each in old}
        for runner in old:
            waited = now - self._since[runner.pid]
            if waited >= ATTEMPT_SECONDS:
                for token in list(runner.tokens):
                    self._control.stop(token, "drain")
            if waited >= 2 * ATTEMPT_SECONDS:
                self._supervisor.kill(runner, RELOAD)


def _shorten(paths: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(Path(path).name for path in paths))
    more = [f"and {len(names) - NAMES_SHOWN} more"] if names[NAMES_SHOWN:] else []
    return [*names[:NAMES_SHOWN], *more]
