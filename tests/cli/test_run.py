"""``outlast run``, ``checkpoint`` and ``report``, with a real worker that runs commands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from harness.stores import opened
from outlast.cli import main
from outlast.cli.run import _watch
from outlast.client.app import App
from outlast.model.job import SHELL_TASK
from outlast.model.limits import LimitSpec, Per
from outlast.store.limits import NewLimit
from tests.cases import each_case
from tests.cli.conftest import Outlast, Said, environment
from tests.cli.test_worker import SECONDS, worker
from tests.conformance.kit import Hands, enqueued, job
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

OUTLAST = f"{sys.executable} -m outlast.cli"
HERE = {"OUTLAST_URL": "sqlite:///q.db"}


@pytest.fixture
def at_work(folder: Path) -> Iterator[None]:
    """A worker that runs commands and has no application."""
    with worker(folder, "--shell", "--runners", "1", **HERE) as running:
        log = running.until("is ready")
        assert "tasks     outlast.shell" in log
        yield


Here = Callable[..., Said]


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Return what runs ``outlast`` in this process, for commands that end before they act."""
    monkeypatch.chdir(folder)

    def run(arguments: Sequence[str], **env: str) -> Said:
        for name, value in {**HERE, **env}.items():
            monkeypatch.setenv(name, value)
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return Said(subprocess.CompletedProcess([], code, out, err))

    return run


def sh(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


@pytest.mark.usefixtures("at_work")
def test_wait_ends_as_the_command_has_ended(outlast: Outlast, folder: Path) -> None:
    done = outlast("run", "--wait", *sh(r"printf 'one\n\377two'"), **HERE)
    assert (done.code, done.out) == (0, "one\n\ufffdtwo\n")
    assert done.err == "job 1 enqueued\n"

    ends = {
        "echo out; exit 7": (7, "error: the command exited with 7"),
        "kill -9 $$": (137, "error: the command died of SIGKILL"),
        "no-such-command": (127, "error: the command exited with 127"),
    }
    for script, (code, why) in ends.items():
        failed = outlast("run", "--wait", "--retries", "0", *sh(script), **HERE)
        assert (failed.code, why in failed.err) == (code, True), failed.err
    missing = outlast("run", "--wait", "--retries", "0", "no-such-command", **HERE)
    assert missing.code == 127
    assert "it cannot be started: No such file or directory" in missing.err

    late = outlast("run", "--wait", "--retries", "0", "--timeout", "0.3", "sleep", "1000", **HERE)
    assert (late.code, "timeout: it ran longer" in late.err) == (124, True), late.err


@pytest.mark.usefixtures("at_work")
def test_a_command_saves_reports_and_asks_for_a_retry(outlast: Outlast, folder: Path) -> None:
    script = (
        f'[ "$OUTLAST_CHECKPOINT" = "5 %" ] && echo "$OUTLAST_TENANT $OUTLAST_JOB_ID" && exit 0;'
        f"{OUTLAST} report 0.05 'five of 100' --stage first || exit 9;"
        f"{OUTLAST} checkpoint '5 %' || exit 9;"
        "exit 75"
    )
    log = folder / "log"
    options = ("--wait", "--retries", "0", "--output", "log", "--tenant", "acme")
    done = outlast("run", *options, *sh(script), **HERE)
    assert (done.code, done.out) == (0, "acme 1\n"), done.err
    assert log.read_text() == "acme 1\n"
    job = outlast("job", 1, "--json", **HERE).json()
    assert (job["task"], job["tenant"], job["checkpoint"]) == ("outlast.shell", "acme", "5 %")
    assert (job["attempt_count"], job["failures"]) == (2, 0)
    assert job["attempts"][0]["message"] == "the command exited with 75: again in 2 s"
    assert job["attempts"][0]["progress"] == {
        "fraction": 0.05,
        "stage": "first",
        "message": "five of 100",
        "waits_for": None,
    }
    assert job["result"] == {"exit_code": 0, "output": ["acme 1"]}


@pytest.mark.slow
@pytest.mark.usefixtures("at_work")
def test_an_interrupted_wait_leaves_the_job(outlast: Outlast, folder: Path) -> None:
    waiting = subprocess.Popen(
        [*OUTLAST.split(), "run", "--wait", "--cwd", str(folder), *sh("touch here; sleep 1000")],
        cwd=folder,
        env=environment(**HERE),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with waiting:
        until((folder / "here").exists)
        waiting.send_signal(signal.SIGINT)
        assert waiting.stderr is not None
        said = waiting.stderr.read().decode()
        assert waiting.wait(SECONDS) == 130
    assert "job 1 continues; `outlast cancel 1` ends it" in said
    assert outlast("job", 1, "--json", **HERE).json()["state"] == "running"
    assert outlast("cancel", 1, **HERE).code == 0
    until(lambda: outlast("job", 1, "--json", **HERE).json()["state"] == "cancelled")


def test_a_wait_for_a_store_that_goes_away_says_that_the_job_continues(
    outlast: Outlast, folder: Path
) -> None:
    waiting = subprocess.Popen(
        [*OUTLAST.split(), "run", "--wait", "true"],
        cwd=folder,
        env=environment(**HERE),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with waiting:
        until(lambda: (folder / "q.db").exists() and outlast("job", 1, **HERE).code == 0)
        (folder / "q.db").rename(folder / "moved.db")
        assert waiting.stderr is not None
        said = waiting.stderr.read().decode()
        assert waiting.wait(SECONDS) == 3
    assert "job 1 continues; `outlast job 1` shows it" in said
    (folder / "moved.db").rename(folder / "q.db")
    assert outlast("job", 1, "--json", **HERE).json()["state"] == "queued"


@pytest.mark.slow
def test_a_worker_without_the_flag_runs_no_command_and_why_says_so(
    outlast: Outlast, folder: Path
) -> None:
    stored = outlast("run", "--json", "touch", "here", **HERE).json()
    told = {"id": 1, "task": "outlast.shell", "created": True, "same_args": True}
    assert stored == {"schema": 1} | told
    alone = outlast("why", 1, **HERE)
    assert "Start a worker with --shell, since the job is a shell command." in alone.out
    with worker(folder, "shop:app", "--url", HERE["OUTLAST_URL"]) as running:
        running.until("is ready")
        mail = outlast("enqueue", "shop:app", "mail", '"a"', "--url", HERE["OUTLAST_URL"])
        assert mail.code == 0
        state = lambda number: outlast("job", number, "--json", **HERE).json()["state"]  # noqa: E731
        until(lambda: state(2) == "completed")  # enqueued behind it
        why = outlast("why", 1, "--json", **HERE).json()
        assert why["position"] == "unservable"
        assert "no live worker runs commands" in why["sentences"][0]
        assert why["moves"][0].startswith("Start a worker with --shell;")
    assert not (folder / "here").exists()
    assert outlast("jobs", "--json", **HERE).json()["jobs"][-1]["phase"] == "unservable"


@pytest.mark.on_both_stores
async def test_a_silent_worker_serves_nothing(store_url: str) -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    async with opened(store_url) as store, App(store_url) as app:
        await Hands.on(store, tasks=[SHELL_TASK], heartbeat=1e-7, lease=1e-6)
        (number,) = await enqueued(store, job(task=SHELL_TASK))
        handle = await app.get(number)
        assert await handle.status() == "unservable"
        with Live(console=console, auto_refresh=False) as live:
            watch = asyncio.ensure_future(_watch(store, number, live))
            async with asyncio.timeout(SECONDS):
                while "no worker with --shell serves its queue" not in shown.getvalue():
                    assert not watch.done()
                    await asyncio.sleep(0.01)
            await handle.cancel()
            await watch


@pytest.mark.slow
def test_commands_share_a_limit(outlast: Outlast, folder: Path, store_url: str) -> None:
    at = {"OUTLAST_URL": store_url}
    declare(store_url, NewLimit("host", LimitSpec(spacing=1.0, burst=5.0, per=Per.LIMIT_KEY)))
    host = ("--limit", "host", "--limit-key", "host=a b", "--cost", "host=2")
    with worker(folder, "--shell", "--runners", "2", **at) as running:
        running.until("is ready")
        assert outlast("run", "--limit", "encode=1", "--", "sleep", "1000", **at).code == 0
        state = lambda number: outlast("job", number, "--json", **at).json()["state"]  # noqa: E731
        until(lambda: state(1) == "running")
        assert outlast("run", "--limit", "encode", *host, "true", **at).code == 0
        until(lambda: "waits for 'encode': 1 of 1 is running" in outlast("why", 2, **at).out)
        assert outlast("cancel", 1, **at).code == 0
        until(lambda: state(2) == "completed")
    (permit,) = outlast("limits", "show", "host", "--json", **at).json()["permits"]
    assert permit["key"] == "a b"

    again = outlast("run", "--limit", "encode=2", "true", **at)
    again.refused(2, "is already declared: 1 at once", "`outlast limits set encode --running N`")
    outlast("run", "--limit", "decode", "true", **at).refused(1, "there is no limit 'decode'")
    outlast("run", "--limit", "host", "true", **at).refused(2, "'host', a limit per limit_key")
    outlast("run", "--limit", "encode=1", "--limit", "encode", "true", **at).refused(2, "twice")
    outlast("run", "--limit", "decode=x", "true", **at).refused(2, "--limit takes NAME, or NAME=N")
    assert len(outlast("jobs", "--json", **at).json()["jobs"]) == 2


def declare(url: str, limit: NewLimit) -> None:
    async def there() -> None:
        async with App(url) as app:
            assert await (await app.stores.store()).declare_limits([limit])

    asyncio.run(there())


@pytest.mark.slow
def test_an_application_and_commands_are_served_by_one_worker(
    outlast: Outlast, folder: Path
) -> None:
    with worker(folder, "shop:app", "--shell", "--runners", "1") as running:
        assert "outlast.shell, mail" in running.until("is ready")
        url = {"OUTLAST_URL": "sqlite:///shop.db"}
        assert outlast("run", "--wait", "--key", "k", "true", **url).code == 0
        assert outlast("enqueue", "shop:app", "mail", '"a"').code == 0
        until(lambda: outlast("job", 2, "--json", **url).json()["state"] == "completed")


@each_case(
    ("arguments", "words"),
    [
        ((), ("Missing argument",)),
        (("--timeout", "0", "true"), ("--timeout", "above")),
        (("--retries", "-1", "true"), ("--retries",)),
        (("--queue", "a b", "true"), ("queue",)),
        (("--key", "", "true"), ("--key",)),
        (("--wait", "--json", "true"), ("choose one",)),
        (("--limit", "=2", "true"), ("--limit takes NAME",)),
        (("true", os.fsdecode(b"\xff")), ("surrogate",)),
    ],
)
def test_what_cannot_be_a_job_is_refused(
    here: Here, folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    here(["run", *arguments]).refused(2, *words)
    assert not (folder / "q.db").exists()


def test_a_limit_that_does_not_exist_makes_no_store(here: Here, folder: Path) -> None:
    here(["run", "--limit", "encode", "true"]).refused(1, "there is no limit 'encode'")
    assert not (folder / "q.db").exists()


def test_options_behind_the_command_are_its_own(outlast: Outlast) -> None:
    assert outlast("run", "grep", "--wait", "-x", **HERE).code == 0
    args = outlast("job", 1, "--json", **HERE).json()["args"]
    assert args == {"argv": ["grep", "--wait", "-x"]}


@pytest.mark.parametrize("words", [("checkpoint", "x"), ("report", "0.5")])
def test_only_a_command_can_save_or_report(here: Here, words: tuple[str, ...]) -> None:
    here(words).refused(2, "only inside a command")
    here(words, OUTLAST_SOCKET="@missing", OUTLAST_TOKEN="7").refused(3, "is gone")


def test_a_checkpoint_fits_the_environment_of_the_next_attempt(here: Here) -> None:
    inside = {"OUTLAST_SOCKET": "@missing", "OUTLAST_TOKEN": "7"}
    here(["checkpoint", "x" * 100_001], **inside).refused(2, "at most 100,000 bytes")
    here(["checkpoint", os.fsdecode(b"\xff")], **inside).refused(2, "UTF-8")


@pytest.mark.slow_but("structlog")
@pytest.mark.parametrize("module", ["msgspec", "asyncpg", "structlog"])
def test_a_worker_of_commands_imports_nothing_from_the_folder_that_it_starts_in(
    outlast: Outlast, folder: Path, module: str
) -> None:
    """It may be a folder that others can write to, such as /tmp."""
    outlast("run", "--", "true", **HERE)
    (folder / f"{module}.py").write_text("open('imported', 'w'); raise SystemExit(9)\n")
    as_installed = (sys.executable, "-P", "-m", "outlast.cli")
    with worker(folder, "--shell", "--runners", "1", program=as_installed, **HERE) as running:
        running.until("attempt_ended")
        assert running.end() == 0
    assert not (folder / "imported").exists()
