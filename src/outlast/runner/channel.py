"""Connects a runner with its worker: when the socket closes, its whole process group ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from outlast.base import forks
from outlast.errors import StoreUnavailable, UsageError, text_of
from outlast.runner.protocol import (
    PREFIX_BYTES,
    TO_RUNNER,
    Configure,
    FrameError,
    RunnerSettings,
    Saved,
    SaveRequest,
    StepRequest,
    ToRunner,
    ToWorker,
    Unpacker,
    pack,
)
from outlast.runner.tether import groups_of, kill_group
from outlast.store.values import Answer, StepFound

READ_BYTES = 1 << 16  # a larger buffer is mapped, and unmapped, for each frame
IN_CHILD = (
    "a child process of the task cannot save or report: return the value to the task's own process"
    " (as a pool does), and save it there"
)


class Channel:
    """The socket to the worker: a thread reads, any thread writes, also a signal handler or a
    finalizer in the middle of a frame: its own frame follows that one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.RLock()
        self._is_writing = False
        self._unsent: deque[bytes] = deque()
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[Future[StepFound], str]] = {}
        self._on_frame: Callable[[ToRunner], None] | None = None
        self._forks = forks.generation

    def read_settings(self) -> RunnerSettings:
        """Wait for the settings, the first frame; later frames are not read yet."""
        unpacker = Unpacker(TO_RUNNER)
        data = self._socket.recv(PREFIX_BYTES, socket.MSG_WAITALL)
        left = int.from_bytes(data, "big")
        while data:
            for frame in unpacker.feed(data):
                if isinstance(frame, Configure):
                    return frame.settings
            data = self._socket.recv(min(left, READ_BYTES))
            left -= len(data)
        end_with_worker()
        raise FrameError("the first frame to a runner must be Configure")

    def start(self, on_frame: Callable[[ToRunner], None]) -> None:
        """Begin to read, on a separate thread; frames go to ``on_frame`` on that thread."""
        self._on_frame = on_frame
        threading.Thread(target=self._read, name="outlast-channel", daemon=True).start()

    @property
    def started(self) -> bool:
        """Whether ``start`` was called."""
        return self._on_frame is not None

    def send(self, frame: ToWorker) -> None:
        """Send a frame. If the worker is gone, this process ends. UsageError in a child that a task
        has forked: it shares the socket, and never reads an answer."""
        if self._forks != forks.generation:
            raise UsageError(IN_CHILD)
        data = pack(frame)
        try:
            with self._sending:
                self._unsent.append(data)
                while self._unsent and not self._is_writing:
                    self._is_writing = True
                    try:
                        while self._unsent:
                            self._socket.sendall(self._unsent.popleft())
                    finally:
                        self._is_writing = False
        except OSError as error:
            _tell(f"the socket to the worker cannot be written: {text_of(error)}")
            end_with_worker()

    def save(self, token: int, number: int, value: str, *, again: bool) -> Future[StepFound]:
        """Request a save; return the answer to come."""
        seq, answer = self._ask("checkpoint")
        self.send(SaveRequest(seq, token, number, value, again))
        return answer

    def step(self, token: int, name: str, value: str | None) -> Future[StepFound]:
        """Keep a step, or look for it; return the answer to come."""
        seq, answer = self._ask("step")
        self.send(StepRequest(seq, token, name, value))
        return answer

    def _ask(self, what: str) -> tuple[int, Future[StepFound]]:
        seq, answer = next(self._numbers), Future[StepFound]()
        self._asked[seq] = (answer, what)
        return seq, answer

    def _read(self) -> None:
        unpacker = Unpacker(TO_RUNNER)
        try:
            while data := self._socket.recv(READ_BYTES):
                for frame in unpacker.feed(data):
                    self._handle(frame)
        except Exception as error:  # any error: a runner that reads nothing would hold its attempts
            _tell(f"the worker's frames cannot be read: {text_of(error)}")
        finally:
            end_with_worker()

    def _handle(self, frame: ToRunner) -> None:
        if isinstance(frame, Saved):
            if (asked := self._asked.pop(frame.seq, None)) is not None:
                settle(*asked, frame.answer, frame.value)
        elif self._on_frame is not None:
            self._on_frame(frame)


def settle(answer: Future[StepFound], what: str, word: str, value: str | None) -> None:
    """Settle a save or a step: StoreUnavailable for any word that is not an answer of the store."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(StepFound(Answer(word), value))
    except ValueError:
        answer.set_exception(StoreUnavailable(f"the {what} was {word} by the store"))


def _tell(text: str) -> None:
    with contextlib.suppress(Exception):  # user code may have closed it
        sys.stderr.write(f"outlast: {text}\n")


def end_with_worker() -> None:
    """End this process and its children: the worker is gone."""
    with contextlib.suppress(OSError):  # user code may have left no descriptor to read /proc
        for pgid in groups_of({os.getpid()}) - {os.getpgrp()}:
            kill_group(pgid)
    kill_group(os.getpgrp())
