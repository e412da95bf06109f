"""``outlast dev``: worker, reload and page in one terminal, and one Ctrl-C for all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import SECONDS, Outlast, environment
from tests.waiting import until

LINK = re.compile(r"http://\S+\?token=\S+")


@pytest.mark.slow_but("True")
@pytest.mark.parametrize("page", [True, False])
def test_one_ctrl_c_ends_the_worker_and_the_page(
    outlast: Outlast, folder: Path, page: bool
) -> None:
    log = folder / "dev.log"
    options = ["--port", "0"] if page else ["--no-page"]
    with log.open("wb") as out:
        running = subprocess.Popen(
            [sys.executable, "-u", "-m", "outlast.cli", "dev", "shop:app", *options],
            cwd=folder,
            env=environment(OUTLAST_RUN_DIR=str(folder / "run")),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # the group is what a terminal interrupts
        )
    try:
        until(lambda: "shop:app is ready" in log.read_text())
        assert outlast("enqueue", "shop:app", "mail", '"ada"').code == 0
        until(lambda: "attempt_ended" in log.read_text())
        link = until(lambda: LINK.findall(log.read_text()))[0] if page else None
        if link is not None:
            with httpx.Client(follow_redirects=True, timeout=SECONDS) as browser:
                assert browser.get(link).status_code == 200
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(SECONDS) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()
    if link is not None:
        with pytest.raises(httpx.ConnectError):
            httpx.get(link, timeout=SECONDS)
    lines = outlast("logs", 1, "--url", "sqlite:///shop.db", "--json").json()
    assert lines["attempts"] == []  # mail prints nothing


def test_an_application_that_does_not_import_is_refused(outlast: Outlast, folder: Path) -> None:
    (folder / "broken.py").write_text("import nothing_of_that_name\n")
    said = outlast("dev", "broken:app")
    assert said.code == 2
    assert "nothing_of_that_name" in said.err
