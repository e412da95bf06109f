"""Gives deaths of the same task, kind, exception and place in the user's code one fingerprint.

A dead job carries the fingerprint of its last end, so that a store finds and counts similar deaths
by an index. A fingerprint contains no line numbers, and no folders above the last one: a new
release moves both.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from outlast.model.crash import PROCESS_DEATHS, Crash

FINGERPRINT_BYTES = 8
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/outlast/runner/")
_FRAME = re.compile(r'^[ |]*File "([^"\n]+)", line (\d+),? in ([^\n]+)$', re.MULTILINE)
_PATH = re.compile(r'^[ |]*File "([^"\n]+)", line ', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_FATAL, _CURRENT = "Fatal Python error", "Current thread "
_ATTEMPT = " in outlast_attempt_"  # the frame that names an attempt (``runner.stacks``)


def fingerprint_of(task: str, outcome: str, crash: Crash | None) -> str:
    """Return the fingerprint of an end, as 16 hexadecimal digits. ``outcome``: the word on the
    attempt's row."""
    told = ("", "") if crash is None else (crash.exception or "", find_place(crash) or "")
    text = "\0".join((task, outcome, *told))
    return blake2b(text.encode("utf-8", "replace"), digest_size=FINGERPRINT_BYTES).hexdigest()


def find_place(crash: Crash) -> str | None:
    """Return the innermost frame of the user's own code, ``shop/jobs.py in render``, from the
    traceback of the exception, else from the attempt's stack. If all frames are of libraries,
    return the innermost one."""
    frame = _decisive_frame(crash)
    return None if frame is None else f"{_short(frame[0])} in {frame[2]}"


def find_line(crash: Crash) -> str | None:
    """Return the same frame with its line, for people: ``shop/jobs.py:41 in render``."""
    frame = _decisive_frame(crash)
    return None if frame is None else f"{_short(frame[0])}:{frame[1]} in {frame[2]}"


def find_line_of_death(crash: Crash | None) -> str | None:
    """Return that line for a process that died: its message does not say where it was."""
    is_death = crash is not None and crash.kind in PROCESS_DEATHS
    return find_line(crash) if crash is not None and is_death else None


def own_stack(stacks: str) -> tuple[str, int]:
    """Return the stack that shows the place of a death, without the frames of Outlast that called
    the task, and the number of other threads."""
    own, ours, _ = _decisive_stack(stacks).partition(_ATTEMPT)
    others = sum(bool(_FRAME.search(part)) for part in stacks.split("\n\n")) - bool(own)
    return own.rpartition("\n")[0] if ours else own, others


def _decisive_frame(crash: Crash) -> tuple[str, str, str] | None:
    if crash.traceback:
        frames = _FRAME.findall(crash.traceback.rpartition(_TRACEBACK)[2])[::-1]
    else:
        frames = _FRAME.findall(_decisive_stack(crash.stacks or ""))
    return next((one for one in frames if _is_users(one[0])), frames[0] if frames else None)


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _decisive_stack(stacks: str) -> str:
    """Return the stack of the thread that received a fatal signal, if that thread runs the user's
    code; else the stack of the attempt, since a signal to the process reaches the main thread,
    whichever thread caused it; else the first stack with frames (``runner.stacks.own_first``)."""
    parts = [part for part in stacks.split("\n\n") if _FRAME.search(part)]
    met = [part for part in parts if part.startswith(_CURRENT)] if _FATAL in stacks else []
    ranked = [*met, *(part for part in parts if _ATTEMPT in part), *parts]
    users = (part for part in ranked if any(map(_is_users, _PATH.findall(part))))
    return next(users, (ranked or [""])[0])


def _is_users(path: str) -> bool:
    return not path.startswith("<") and not any(part in path for part in NOT_THE_USERS)
