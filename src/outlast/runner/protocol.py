"""Defines the frames between a worker and a runner: msgpack, length-prefixed, bounded.

Both sides, the tests and a simulated runner share one reader and one writer. A frame is four bytes
of length (big-endian) and one tagged message. A reader stops at a bad frame, since it cannot trust
anything after it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from outlast.base.config import VERSION
from outlast.base.credentials import make_hider, redact
from outlast.errors import OutlastError, text_of
from outlast.model.crash import Progress, hiding
from outlast.model.lifecycle import Outcome
from outlast.store.limits import CodeLimits
from outlast.store.schedules import NewSchedule
from outlast.store.values import Claimed

FRAME_MAX = 64 * 1024 * 1024  # bytes
BATCH_BYTES = 1024 * 1024  # of a frame that carries several attempts
PREFIX_BYTES = 4

T = TypeVar("T")
STACKS_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


class RunnerSettings(msgspec.Struct, frozen=True):
    """The settings of a runner. URLs in them have passwords, so they are sent over the socket, not
    as arguments, which every user of the machine can read.

    ``stacks`` and ``lock`` are inherited descriptors. ``shell``: whether commands may be run, too.
    ``redact``: patterns of text that reports must not show. ``version``: the worker's Outlast.
    """

    app: str
    stacks: int
    concurrency: int
    store_id: str
    url: str
    lock: int | None = None
    shell: bool = False
    wakeup: str | None = None
    redact: list[str] = []
    version: str = VERSION

    def __repr__(self) -> str:
        return f"<settings of a runner of {self.app} for {redact(self.url)}>"

    def make_hide(self) -> Callable[[str], str]:
        """Return a function that removes secrets and matches of the patterns from a text. Call it
        before the text is cut: a pattern may not match a piece of a secret."""
        secrets, patterns = make_hider(self.url, self.wakeup), hiding(self.redact)
        return lambda text: patterns(secrets(text))


class FrameError(OutlastError):
    """A frame is malformed or above the limit. User code never sees this error."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base of all messages."""


class TaskInfo(msgspec.Struct, frozen=True, array_like=True):
    """A task name under which a runner takes jobs, whether each has the runner to itself, the tags
    and units of the worker that it needs, and how many jobs one call takes (0: each is a call)."""

    name: str
    own_runner: bool
    requires: list[str] = []
    uses: dict[str, int] = {}
    batch: int = 0


class Configure(_Frame, frozen=True):
    """Worker: these are your settings. The first frame of all."""

    settings: RunnerSettings


class Run(_Frame, frozen=True):
    """Worker: start these attempts."""

    worker_id: int
    attempts: list[Claimed]


class Stop(_Frame, frozen=True):
    """Worker: end this attempt if its code has not begun, as ``Recall`` does; else ask it to
    stop."""

    token: int
    reason: str


class Recall(_Frame, frozen=True):
    """Worker: end the attempts among these whose code has not begun, and name them."""

    tokens: list[int]


class Saved(_Frame, frozen=True):
    """Worker: the store's answer to a save or a step; ``value``: the step's value, if found."""

    seq: int
    answer: str
    value: str | None = None


class Ping(_Frame, frozen=True):
    """Worker: does your event loop run?"""

    seq: int


class ShowStack(_Frame, frozen=True):
    """Worker: which line is this attempt's coroutine at?"""

    token: int


class Quit(_Frame, frozen=True):
    """Worker: leave the lifespan and exit; no attempt is running."""


class Hello(_Frame, frozen=True):
    """Runner: the application is ready; these are its tasks, and its declared schedules, limits."""

    tasks: list[TaskInfo]
    release: str | None
    python: str
    schedules: list[NewSchedule] = []
    limits: CodeLimits = CodeLimits()


class ApplicationFailed(_Frame, frozen=True):
    """Runner: the application cannot be imported, or its lifespan has failed; I exit."""

    message: str
    traceback: str


class End(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one attempt ended. ``completed_in``: in its own transaction; the worker has to check
    whether that was committed."""

    token: int
    outcome: Outcome
    completed_in: bool = False


class Began(_Frame, frozen=True):
    """Runner: the code of these attempts, which have a limit, began at these boot times."""

    attempts: list[tuple[int, float]]


class FunctionsEnded(_Frame, frozen=True):
    """Runner: the functions of these attempts have ended; the hooks around them still run."""

    tokens: list[int]


class AttemptsEnded(_Frame, frozen=True):
    """Runner: these attempts ended."""

    ends: list[End]


class Recalled(_Frame, frozen=True):
    """Runner: the attempts among these that had not begun have ended. Sent by the reading
    thread."""

    tokens: list[int]


class SaveRequest(_Frame, frozen=True):
    """Runner: save this checkpoint (JSON text) and answer with ``seq``. ``again``: its value equals
    that from which the attempt resumed."""

    seq: int
    token: int
    number: int
    value: str
    again: bool = False


class StepRequest(_Frame, frozen=True):
    """Runner: keep this value of a step (JSON text), or read it (None); answer with ``seq``."""

    seq: int
    token: int
    name: str
    value: str | None


class Reported(_Frame, frozen=True):
    """Runner: progress of an attempt."""

    token: int
    progress: Progress


class Pong(_Frame, frozen=True):
    """Runner: the loop runs. Sent by the loop itself. ``still``: the spans, on the boot clock, in
    which the runner did not run, each reported once."""

    seq: int
    still: list[tuple[float, float]] = []


class StackAtLimit(_Frame, frozen=True):
    """Runner: the stack of this attempt's coroutine when it was asked to stop at a limit."""

    token: int
    stack: str


class StackShown(_Frame, frozen=True):
    """Runner: the stack of this attempt's coroutine; "" if it is not a coroutine, or does not wait.
    Sent by the loop itself."""

    token: int
    stack: str


class Restored(_Frame, frozen=True):
    """Runner: this attempt, or one of ``others`` that ran since the runner was last idle, has made
    these changes to the process. ``spoiled``: they cannot be undone, and the runner returns its
    stock."""

    token: int
    others: int
    changes: list[str]
    spoiled: bool = False


ToRunner = Configure | Run | Stop | Recall | Saved | Ping | ShowStack | Quit
ToWorker = (
    Hello
    | ApplicationFailed
    | Began
    | FunctionsEnded
    | AttemptsEnded
    | Recalled
    | SaveRequest
    | StepRequest
    | Reported
    | StackAtLimit
    | StackShown
    | Restored
    | Pong
)

_encoder = msgspec.msgpack.Encoder()
TO_RUNNER: msgspec.msgpack.Decoder[ToRunner] = msgspec.msgpack.Decoder(ToRunner)
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def pack(frame: ToRunner | ToWorker) -> bytes:
    """Return the frame as bytes. Raises FrameError above the limit."""
    body = _encoder.encode(frame)
    if len(body) > FRAME_MAX:
        raise FrameError(f"a frame of {len(body):,} bytes is above the limit of {FRAME_MAX:,}")
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


class Unpacker(Generic[T]):
    """Cuts a stream of bytes into frames of one direction."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T], limit: int = FRAME_MAX) -> None:
        self._decoder = decoder
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the complete frames. Raises FrameError at the first bad one."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= PREFIX_BYTES:
                size = int.from_bytes(self._buffer[at : at + PREFIX_BYTES], "big")
                if size > self._limit:
                    raise FrameError(f"a frame of {size:,} bytes is above the limit")
                if len(self._buffer) - at - PREFIX_BYTES < size:
                    break
                at += PREFIX_BYTES
                body = memoryview(self._buffer)[at : at + size]
                try:
                    frame = self._decoder.decode(body)
                finally:
                    body.release()
                at += size
                yield frame
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"a malformed frame: {text_of(error)}") from error
        finally:
            del self._buffer[:at]


def in_batches(attempts: list[Claimed]) -> Iterator[list[Claimed]]:
    """Yield attempts in groups for one frame each: many small ones together, a large one alone."""
    batch: list[Claimed] = []
    size = 0
    for claimed in attempts:
        if batch and size + claimed.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(claimed)
        size += claimed.size
    if batch:
        yield batch
