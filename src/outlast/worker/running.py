"""An attempt that a worker runs, and what is known of it."""

from __future__ import annotations

import msgspec

from outlast.model.crash import Progress
from outlast.model.job import JobFacts
from outlast.store.values import Claimed


class Running(msgspec.Struct, eq=False, gc=False):
    """An attempt that this worker runs. Times are on the worker's boot clock, in seconds."""

    claimed: Claimed
    token: int  # its fencing token
    started_at: float
    last_sign_at: float
    losses: int
    pid: int | None = None
    release: str | None = None  # of the application in its runner
    python: str | None = None
    progress: Progress | None = None
    saved_at: float | None = None
    ended_at: float = 0.0
    blocked: float = 0.0  # seconds that another attempt has kept it from running: not its own
    stack: str = ""  # where it stood when it reached a limit
    shown: str | None = None  # where its coroutine stood when a person asked; None: not told yet
    output: list[str] | None = None  # its last lines, where it has ended badly
    stop_reason: str | None = None
    stopped_at: float | None = None

    def facts(self) -> JobFacts:
        """Return what the decision about this attempt needs."""
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


def begin(claimed: Claimed, now: float) -> Running:
    """Return an attempt as it begins."""
    return Running(claimed, claimed.token, now, now, claimed.losses)
