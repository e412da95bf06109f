"""What all fuzzers share: content by hypothesis, a check, and bounds in time and memory.

A fuzzer states one property: any input of a stranger causes only documented errors, its reader
still works for valid input, and memory stays bounded. The same seed gives the same examples.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

PEAK_MAX = 200 * 1024 * 1024  # resident bytes of a process that fuzzes
CHUNK = 4  # long runs draw this many times the examples of a test from one seed
SECONDS = 60.0  # of one example, after which it counts as hanging


@dataclass(frozen=True)
class Fuzzer:
    """``check`` raises for content that shows a fault. ``few``: the number of examples in ``make
    test``. ``database``: the check also takes the URL of an empty PostgreSQL database."""

    name: str
    content: st.SearchStrategy[Any]
    check: Callable[..., None]
    few: int
    database: bool = False

    def run(self, number: int, examples: int, *more: Any) -> int:
        """Check examples of the seed; return how many were checked. Raises what is found."""
        count = 0

        def one(content: Any) -> None:
            nonlocal count
            count += 1
            with no_thread_fails():
                self.check(content, *more)

        chosen = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            print_blob=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HypothesisWarning)  # a long example is shown anyway
            seed(number)(chosen(given(self.content)(one)))()
        return count


@contextlib.contextmanager
def no_thread_fails() -> Iterator[None]:
    """Raise errors of threads and destructors that occurred in the block."""
    found: list[BaseException | None] = []
    before = threading.excepthook, sys.unraisablehook
    threading.excepthook = lambda one: found.append(one.exc_value)
    sys.unraisablehook = lambda one: found.append(one.exc_value)
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before
    for error in found:
        raise AssertionError(f"in a thread or a destructor: {error!r}") from error


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Capture what is written to stderr meanwhile."""
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        yield stream


def begin_peak() -> None:
    """Measure the peak from now on. Before its first example hypothesis reads all our code, which
    takes more memory than any fuzzer; that is done here first."""
    settings(max_examples=1, database=None)(given(st.text())(lambda text: None))()
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the peak of resident memory since ``begin_peak``, in bytes."""
    for line in Path("/proc/self/status").read_text("utf-8", "replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no VmHWM")


# --- content that several of them share

INT64 = 2**63
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=20)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
DIGITS = "9" * 5_000
BOMBS = [
    "[" * 20_000,
    '{"a":' * 20_000,
    "[" * 3_000 + "]" * 3_000,
    DIGITS,
    f"-{DIGITS}",
    f"1e{DIGITS}",
    "1e999",
    f"0.{DIGITS}",
    '"\\ud800"',
    '"\\u0000"',
    '"' + "\\" * 5_001,
    "NaN",
    "-Infinity",
    "\ufeff1",
    "1" + " " * 10_000,
]


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes], most: int = 4) -> bytes:
    """Sound bytes, some of them flipped, cut off, doubled, moved, or replaced by others."""
    data = draw(sound)
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        until = min(len(data), at + draw(st.integers(0, 40)))
        how = draw(st.sampled_from(["flip", "cut", "double", "drop", "insert", "swap"]))
        piece = data[at:until]
        if how == "flip" and data:
            piece = bytes([data[at] ^ draw(st.integers(1, 255))])
            data = data[:at] + piece + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
        elif how == "double":
            data = data[:until] + piece * draw(st.integers(1, 3)) + data[until:]
        elif how == "drop":
            data = data[:at] + data[until:]
        elif how == "insert":
            data = data[:at] + draw(st.binary(max_size=20)) + data[at:]
        else:
            data = data[until:] + piece + data[:at]
    return data
