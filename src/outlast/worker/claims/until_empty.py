"""Stops a worker once there is nothing left for it to claim: for cron, CI, and jobs of a cluster.

A worker that has nothing in flight, and to which the store has offered nothing, drains and leaves.
Jobs that are due later, such as a retry in its back-off, and jobs that are paused are left to other
workers. A count of attempts, if there is one, bounds what it claims; then it also leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from outlast.store.values import ClaimRequest, Exchanged

SOON_SECONDS = 0.5  # what is due so soon is waited for


class UntilEmpty:
    """Narrows the requests of an exchange, and asks for the stop.

    Args:
        stop: called, perhaps several times, once there is nothing left.
        most: how many attempts may be claimed; None: any number.
    """

    def __init__(self, stop: Callable[[], None], most: int | None) -> None:
        self.stop = stop
        self._left = most

    def narrow(self, requests: list[ClaimRequest]) -> list[ClaimRequest]:
        """Return the requests for no more jobs than may still be claimed."""
        if self._left is None:
            return requests
        narrowed, left = [], self._left
        for request in requests:
            if count := min(left, request.limit):
                narrowed.append(msgspec.structs.replace(request, limit=count))
                left -= count
        return narrowed

    def take_reply(self, requests: list[ClaimRequest], reply: Exchanged, *, is_idle: bool) -> None:
        """Note the reply to these requests. ``is_idle``: nothing is in flight after it."""
        if self._left is not None:
            self._left -= len(reply.claimed)
        looks_again = reply.cut or reply.next_look is not None or reply.solo_waiting
        is_due_soon = reply.next_due is not None and reply.next_due < SOON_SECONDS
        is_over = requests and not (reply.claimed or looks_again or is_due_soon)
        if is_idle and (is_over or self._left == 0):
            self.stop()
