"""Store a trace's context in the ``meta`` of a job: ``{"otel": {"traceparent": "…", "sent": …}}``.

``sent``, in seconds since 1970, is present if the attempt may be a child of the span that sent it.
A producer in another language may write ``traceparent`` (and ``tracestate``) there, in the format
of W3C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from outlast.client.task_options import META_MAX

KEY, SENT = "otel", "sent"
CHILD_SECONDS = 60.0  # after the enqueue; a first attempt within them is a child


class SentBy(NamedTuple):
    """The span that has sent a job, as propagators write it; ``sent_at``: as ``sent`` above."""

    carrier: dict[str, str]
    sent_at: float | None = None

    def is_fresh(self, now: float) -> bool:
        """Whether the job was sent lately. The clocks of two hosts may differ by as much."""
        return self.sent_at is not None and abs(now - self.sent_at) < CHILD_SECONDS


def note_context(meta: str | None, sent_by: SentBy) -> str | None:
    """Return ``meta`` with the context; unchanged if it has one already, or no space for it."""
    if read_context(meta) is not None:
        return meta
    own: dict[str, Any] = dict(sent_by.carrier)
    if sent_by.sent_at is not None:
        own[SENT] = round(sent_by.sent_at, 3)
    noted = msgspec.json.encode({**_decode(meta), KEY: own})
    return meta if len(noted) > META_MAX else noted.decode()


def read_context(meta: str | None) -> SentBy | None:
    """Return the context in ``meta``, if there is one."""
    if meta is None:
        return None
    own = _decode(meta).get(KEY)
    if not isinstance(own, dict):
        return None
    carrier = {name: text for name, text in own.items() if isinstance(text, str)}
    sent = own.get(SENT)
    if not carrier:
        return None
    return SentBy(carrier, sent if isinstance(sent, int | float) else None)


def _decode(meta: str | None) -> dict[str, Any]:
    try:
        notes = msgspec.json.decode(meta or "{}")
    except msgspec.MsgspecError:
        return {}
    return notes if isinstance(notes, dict) else {}
