"""The exit code of ``outlast run --wait``, as a shell gives it."""

from __future__ import annotations

from outlast.cli.run import _code
from outlast.model.crash import Crash, CrashKind
from tests.cases import each_case


@each_case(
    ("name", "code"),
    [
        ("SIGKILL", 137),
        ("signal 40", 168),
        ("signal 40 and more", 128),
        ("strsignal", 128),
        ("", 128),
    ],
)
def test_a_death_by_a_signal_is_told_by_its_number(name: str, code: int) -> None:
    """Real-time signals have no name; a row that was damaged may hold any."""
    assert _code(Crash(kind=CrashKind.ERROR, signal=name)) == code
