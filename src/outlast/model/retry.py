"""The pause until a job is tried again: exponential back-off with jitter.

"Full jitter" spreads best but can retry at once; here half of the delay is kept ("equal
jitter" in M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.model.crash import PROCESS_DEATHS, CrashKind
from outlast.model.job import Policy

_DOUBLINGS_MAX = 60


def delay_seconds(
    policy: Policy, kind: CrashKind, charged: int, random: Callable[[], float]
) -> float:
    """Return the seconds until the next attempt.

    ``charged`` counts the attempts on the budget that this end was charged to, itself
    included. The first death of a process is retried at once: its cause is most often the
    machine, not the job.
    """
    if kind in PROCESS_DEATHS:
        charged -= 1
    if charged <= 0:
        return 0.0
    full = min(policy.backoff_max, policy.backoff_first * 2.0 ** min(charged - 1, _DOUBLINGS_MAX))
    return full * (0.5 + 0.5 * random())
