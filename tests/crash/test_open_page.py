"""A worker is killed while the page of its job is open in a browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from harness.page import serving

if TYPE_CHECKING:
    from harness.browser import Browser
    from harness.scene import Scene

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


async def test_the_death_and_the_second_attempt_appear_without_a_reload(
    sqlite_stage: Scene, browser: Browser
) -> None:
    stage = sqlite_stage
    holder = await stage.worker()
    job = await stage.enqueue("counts")
    await stage.started(1)
    await stage.worker()

    def watch(address: str) -> None:
        browser.open(f"{address}jobs/{job}")
        browser.run("window.same = true")
        browser.wait(lambda each: "Attempt 1" in each.text(".why"), "the first attempt")
        holder.kill_tree()
        browser.wait(lambda each: "lost worker" in each.text("table"), "the death")
        browser.wait(lambda each: "Attempt 2" in each.text(".why"), "the second attempt")
        assert "Crash report of attempt 1" in browser.text()
        assert browser.run("return window.same"), "no reload"
        assert browser.complaints() == []

    with serving(stage.url) as address:
        await asyncio.to_thread(watch, address)
    stage.enough()
    await stage.ended(job)
