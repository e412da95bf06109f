"""Leases count the time for which the machine was suspended, on both sides of the tether."""

from __future__ import annotations

import time

import pytest

from outlast.base.clock import SYSTEM
from outlast.runner import tether


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="CLOCK_BOOTTIME is Linux's")
def test_workers_and_their_tether_read_the_clock_that_goes_on_in_suspend() -> None:
    assert SYSTEM._boot_id == tether._CLOCK == time.CLOCK_BOOTTIME
