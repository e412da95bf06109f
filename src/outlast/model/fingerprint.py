"""What deaths have in common: those of one task, kind, exception and place of the user's code.

A dead job carries the fingerprint of its last end, so that a store finds and counts alike deaths by
an index. Lines are left out, and folders above the last one: a new release moves both.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from outlast.model.crash import Crash

FINGERPRINT_BYTES = 8
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/outlast/runner/")
_FRAME = re.compile(r'^[ |]*File "([^"\n]+)", line \d+,? in ([^\n]+)$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_FATAL, _CURRENT = "Fatal Python error", "Current thread "


def fingerprint_of(task: str, outcome: str, crash: Crash | None) -> str:
    """Return what ends alike have in common, as 16 hexadecimal digits. ``outcome``: the word on the
    attempt's row."""
    told = ("", "") if crash is None else (crash.exception or "", find_place(crash) or "")
    text = "\0".join((task, outcome, *told))
    return blake2b(text.encode("utf-8", "replace"), digest_size=FINGERPRINT_BYTES).hexdigest()


def find_place(crash: Crash) -> str | None:
    """Return the innermost frame of the user's own code, ``shop/jobs.py in render``: of what was
    raised, else of where the attempt stood. Where all frames are of libraries, the innermost."""
    if crash.traceback:
        frames = _FRAME.findall(crash.traceback.rpartition(_TRACEBACK)[2])[::-1]
    else:
        frames = _FRAME.findall(_decisive_stack(crash.stacks or ""))
    if not frames:
        return None
    path, function = next((one for one in frames if _is_users(one[0])), frames[0])
    return f"{'/'.join(path.split('/')[-2:])} in {function}"


def _decisive_stack(stacks: str) -> str:
    """Return the stack of the thread that a fatal signal met; else the first with frames: that of
    the attempt (``runner.stacks.own_first``)."""
    parts = [part for part in stacks.split("\n\n") if _FRAME.search(part)]
    met = [part for part in parts if part.startswith(_CURRENT)] if _FATAL in stacks else []
    return (met or parts or [""])[0]


def _is_users(path: str) -> bool:
    return not path.startswith("<") and not any(part in path for part in NOT_THE_USERS)
