"""Values of events that both stores share.

An attempt that waits for an event ends, and its job is queued for the time at which the wait is
over. The store makes it due sooner if the event is sent, and the next attempt looks for it.
"""

from __future__ import annotations

import msgspec

EVENTS_SECONDS = 30 * 86_400.0  # after which an event is deleted, if no unfinished job needs it


class NewEvent(msgspec.Struct, frozen=True):
    """An event to be sent; ``value``: a list with its value, as JSON, in its stored form."""

    name: str
    value: str
