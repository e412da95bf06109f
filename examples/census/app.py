"""The demo's application: one task, written as any user would write theirs.

A plain function, so each attempt has a runner process to itself. It reports how far it is after
every commit, saves a checkpoint every few, and begins from the last one that was saved.
"""

from __future__ import annotations

import time
from typing import Any

import outlast
from examples.census import analysis
from outlast.base.clock import SYSTEM
from outlast.base.text import span
from outlast.client.attempt import Attempt

PAYLOAD = 8 << 20
"""Bytes of a checkpoint or result; 1,000 commits of 100 languages stay well below."""
NAP = 0.05
"""Seconds between two looks of a waiting attempt at whether it is to stop."""

app = outlast.App(max_payload=PAYLOAD)


@app.task(name="examples.census.analyze", retries=0)  # a repository that cannot be read stays so
def analyze(repo: str, commits: int, pace: float = 0.0, every: int = 5) -> dict[str, Any]:
    """Count the lines by language at up to ``commits`` commits of the repository's history.

    ``pace``: seconds that each commit takes at least. ``every``: commits between checkpoints.
    """
    attempt = outlast.current()
    pacer = Pacer(attempt, pace)
    return analysis.analyze(
        repo,
        commits,
        checkpoint=attempt.checkpoint,
        report=pacer.report,
        save=attempt.save_sync,
        every=every,
        pause=pacer.pause,
    )


class Pacer:
    """Passes on an attempt's progress, slows the attempt down where it is too fast for a show,
    and says so; obeys when the attempt is asked to stop."""

    def __init__(self, attempt: Attempt, pace: float) -> None:
        self._attempt = attempt
        self._pace = pace
        self._stage = "counting"
        self._last = (0.0, "")
        self._since = SYSTEM.boot()

    def report(self, fraction: float, message: str) -> None:
        """Tell people how far the attempt is."""
        self._obey()
        self._last = (fraction, message)
        self._attempt.report(fraction, message, stage=self._stage)

    def pause(self) -> None:
        """Wait until the commit has taken its time; after the last one there is no need."""
        until = self._since + self._pace
        if self._last[0] < 1 and SYSTEM.boot() < until:
            self._stage = f"slowed to {_shown(self._pace)} a commit"
            self.report(*self._last)
            self._wait(until)
        self._since = SYSTEM.boot()

    def _wait(self, until: float) -> None:
        while (left := until - SYSTEM.boot()) > 0:
            self._obey()
            time.sleep(min(left, NAP))

    def _obey(self) -> None:
        self._attempt.check()


def _shown(seconds: float) -> str:
    return span(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"
