"""Open files for the code of a task so that their end is a point: what is not yet written is lost.

A killed process loses what its files have buffered. Here the ``with`` block of the task closes its
file as the exception passes, so the raw file of a killed attempt drops what is written to it.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

from outlast.testing.crashes.recorder import Recorder, is_ours
from outlast.testing.faults import Killed

Open = Callable[..., Any]
REAL_OPEN: Open = builtins.open


def make_open(recorder: Recorder, name_of: Callable[[str], str]) -> Open:
    """Return the ``open`` of a run. ``name_of`` returns the name of a file in the report, "" for
    one that does not last."""

    def open_file(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        is_written = isinstance(mode, str) and set(mode) & set("wax+")
        if isinstance(file, int) or not is_written or recorder.attempt() is None or is_ours():
            return REAL_OPEN(file, mode, *args, **kwargs)
        if not (name := name_of(os.fsdecode(file))):
            return REAL_OPEN(file, mode, *args, **kwargs)

        def make_raw(*, opener: Any = None) -> _Raw:
            raw = _Raw(file, mode.replace("b", "").replace("t", ""), opener=opener)
            raw.recorder, raw.shown = recorder, name
            return raw

        return _open(make_raw, mode, *args, **kwargs)

    return open_file


def _open(
    make_raw: Callable[..., _Raw],
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,  # noqa: FBT001, FBT002  # the signature of open
    opener: Any = None,
) -> Any:
    is_text = "b" not in mode
    if is_text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    raw = make_raw(opener=opener)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    buffer = _Random(raw, size) if "+" in mode else _Writer(raw, size)
    if not is_text:
        return buffer
    return _Text(buffer, encoding, errors, newline, line_buffering=buffering == 1)


class _Raw(io.FileIO):
    recorder: Recorder
    shown = ""
    is_lost = False

    def write(self, data: Any, /) -> int:
        return memoryview(data).nbytes if self.is_lost else super().write(data)

    def close(self) -> None:
        _close(self, super().close)

    def reach_end(self) -> None:
        """Come to the end of the file, once: a killed attempt loses what is still buffered."""
        name, self.shown = self.shown, ""
        if name:
            try:
                self.recorder.reach("file", f"write {name}")
            except Killed:
                self.is_lost = True
                raise


class _Writer(io.BufferedWriter):
    def close(self) -> None:
        _close(self.raw, super().close)


class _Random(io.BufferedRandom):
    def close(self) -> None:
        _close(self.raw, super().close)


class _Text(io.TextIOWrapper):
    def close(self) -> None:
        _close(self.buffer.raw, super().close)  # type: ignore[attr-defined]


def _close(raw: Any, close: Callable[[], None]) -> None:
    """Close a file, whether or not its attempt is killed now."""
    try:
        raw.reach_end()
    finally:
        close()
