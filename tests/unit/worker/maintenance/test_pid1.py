"""Adopted dead children are reaped; children that other code started are left to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from outlast.worker.maintenance.pid1 import Pid1, dead_children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


async def died() -> subprocess.Popen[bytes]:
    """A child that is dead, and not waited for."""
    child = await asyncio.to_thread(subprocess.Popen, ["true"])
    while child.pid not in dead_children():
        await asyncio.sleep(0.01)
    return child


async def test_a_dead_child_is_reaped_at_the_second_look():
    known = dead_children()  # of other code in this process
    pid1 = Pid1(lambda: known)
    child = await died()
    await pid1.run_once()
    assert child.pid in dead_children()
    await pid1.run_once()
    assert child.pid not in dead_children()
    child.wait()


async def test_a_known_child_is_left_to_its_starter():
    known = dead_children()
    pid1 = Pid1(lambda: known)
    child = await died()
    known.add(child.pid)
    for _ in range(3):
        await pid1.run_once()
    assert child.pid in dead_children()
    child.wait()
