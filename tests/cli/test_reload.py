"""``outlast worker --reload``: the new code runs, and bad code is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outlast
from tests.cli.test_worker import worker
from tests.waiting import until

URL = ("--url", "sqlite:///shop.db")


def code(speed: str, work: str) -> str:
    return (
        f'import time, outlast\n\napp = outlast.App("sqlite:///shop.db")\n\n\n'
        f"@app.task(backoff_first=0)\ndef version() -> str:\n{work}    return {speed!r}\n"
    )


@pytest.mark.slow
def test_jobs_run_in_the_code_as_it_was_saved_last(outlast: Outlast, folder: Path) -> None:
    source = folder / "jobs.py"
    source.write_text(code("slow", "    time.sleep(3600)\n"))

    def job(number: int) -> Any:
        return outlast("job", number, *URL, "--json").json()

    with worker(folder, "jobs:app", "--reload", "--runners", "1") as running:
        running.until("jobs:app is ready")
        outlast("enqueue", "jobs:app", "version")
        running.until("attempt_started")

        source.write_text(code("fast", ""))
        running.until("code_changed")
        until(lambda: job(1)["state"] == "completed")
        first = job(1)
        assert (first["result"], first["failures"], first["losses"]) == ("fast", 0, 0)
        assert first["attempts"][0]["outcome"] == "released"

        source.write_text("def broken(:\n")
        log = running.until("reload_failed")
        (told,) = [line for line in log.splitlines() if "reload_failed" in line]
        assert "SyntaxError" in told
        assert "Traceback" not in told
        running.until("    def broken(:")

        source.write_text(code("last", ""))
        until(lambda: running.log.read_text().count("code_changed") >= 3)
        outlast("enqueue", "jobs:app", "version")
        until(lambda: job(2)["state"] == "completed")
        assert job(2)["result"] == "last"
        assert running.end() == 0
