"""Gives the suite the signals that a program started at a terminal has.

Where a script starts `make test` in the background (`&`, `nohup`, some CI runners), SIGINT, SIGQUIT
or SIGHUP are ignored, and each process inherits that. A test that interrupts would never end.
"""

from __future__ import annotations

import signal


def restore_signals() -> None:
    """End the ignoring of signals that this process has inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
