"""Holds the state of an attempt that a worker runs."""

from __future__ import annotations

import math

import msgspec

from outlast.model.crash import Progress
from outlast.model.job import JobFacts
from outlast.store.values import Claimed


class Running(msgspec.Struct, eq=False, gc=False):
    """An attempt that this worker runs. Times are on the worker's boot clock, in seconds."""

    claimed: Claimed
    token: int  # its fencing token
    started_at: float  # when it was claimed, then when it was given to its runner
    last_sign_at: float
    losses: int
    pid: int | None = None
    release: str | None = None  # release of the application in its runner
    python: str | None = None
    progress: Progress | None = None
    saved_at: float | None = None
    ended_at: float = 0.0
    began_at: float | None = None  # when its code began; only for attempts with a limit
    is_over: bool = False  # its function has ended; hooks around it may still run
    # its last checkpoint (a number) or step (a name) that the store has not answered
    saving: int | str | None = None
    stack: str = ""  # where it stood when it reached a limit
    shown: str | None = None  # where its coroutine stood when a person asked; None: no answer yet
    output: list[str] | None = None  # its last lines, if it ended badly
    stop_reason: str | None = None
    stopped_at: float | None = None

    def credit(self, seconds: float, now: float, most: float = math.inf) -> None:
        """Advance its clocks by time in which it was kept from running. The clock of its timeout is
        advanced to at most ``most`` seconds after it was given to its runner."""
        if self.began_at is not None:
            to = min(self.began_at + seconds, now, self.started_at + most)
            self.began_at = max(self.began_at, to)
        self.last_sign_at = max(self.last_sign_at, min(self.last_sign_at + seconds, now))

    def facts(self) -> JobFacts:
        """Return the facts that the decision about this attempt needs."""
        claimed = self.claimed
        return JobFacts(
            job_id=claimed.job_id,
            token=claimed.token,
            failures=claimed.failures,
            losses=self.losses,
            policy=claimed.policy,
            cancel_requested=self.stop_reason == "cancel",
            solo=claimed.solo,
            incident=claimed.incident,
            cohort=claimed.cohort,
            task=claimed.task,
        )
