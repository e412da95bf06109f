"""Defines a messenger's messages: "check queue Q, job J". A hint, never a claim: the store decides.

A notice names the job, the token of its last attempt and its position in the line, so that each
entry into the queue has its own name, which no worker announces twice. Incoming messages may come
from anyone; they are bounded and checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from outlast.errors import text_of
from outlast.store.values import Enqueued, NewJob, Unpublished

BODY_MAX = 16_384  # bytes
NAME_MAX = 1_000  # characters; programs use shorter names, a row may hold any
REASON_MAX = 500  # characters
_PLAIN = re.compile(r"(?!x-)[A-Za-z0-9_-]{1,64}")

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. ``token``: that of the job's last attempt, or 0. ``cleared``: the job was taken
    from a worker that is gone, for ``clear_reason``. ``repeat``: the ordinal of the announcement.
    ``position``: in the line. Both are 0 when it is announced as it became due."""

    job_id: Positive
    queue: Text = ""
    task: Text = ""
    token: int = 0
    cleared: bool = False
    clear_reason: str = ""
    repeat: int = 0
    position: int = 0

    @property
    def name(self) -> str:
        """The name by which a worker knows that it has announced the same before."""
        return f"{self.job_id}-{self.token}-{self.position}-{self.repeat}"

    def body(self) -> bytes:
        """Return the message as JSON."""
        return _encode(self)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Notice).decode


def token_of(queue: str) -> str:
    """Return a queue's name in a form for subjects, routing keys and names of consumers."""
    if _PLAIN.fullmatch(queue):
        return queue
    return f"x-{hashlib.sha256(queue.encode()).hexdigest()[:32]}"


def read(body: bytes) -> Notice:
    """Return the notice in a message's body. ValueError says what is wrong with it."""
    if len(body) > BODY_MAX:
        raise ValueError(f"{len(body)} bytes, and a notice has at most {BODY_MAX}")
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(text_of(error)) from error


def notices_of(jobs: Sequence[NewJob], stored: Sequence[Enqueued]) -> list[Notice]:
    """Return the notices for the just stored jobs that are new and due."""
    return [
        Notice(job_id=one.job_id, queue=job.queue, task=job.task)
        for job, one in zip(jobs, stored, strict=True)
        if one.created and job.delay <= 0 and job.run_at is None
    ]


def can_carry(job: Unpublished) -> bool:
    """Return whether a notice can name the job within the limits of workers and messengers."""
    return len(job.queue) <= NAME_MAX and len(job.task) <= NAME_MAX


def notice_of(job: Unpublished, reason: str | None, repeat: int) -> Notice:
    """Return the notice for a job that waits unpublished, or was cleared for ``reason``."""
    cleared = reason is not None
    return Notice(
        job_id=job.job_id,
        queue=job.queue,
        task=job.task,
        token=job.token,
        cleared=cleared,
        clear_reason=(reason or "")[:REASON_MAX],
        repeat=repeat,
        position=job.position,
    )
