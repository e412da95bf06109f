"""``outlast worker`` as a process: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipapp
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cases import each_case
from tests.cli.conftest import Outlast, environment
from tests.waiting import until

SECONDS = 40.0  # until a test fails because something did not happen


class Running:
    """A worker under way, with its stderr in a file."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        stderr: int | IO[bytes] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "outlast.cli"),
        **env: str,
    ) -> None:
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, "worker", *options],
                cwd=folder,
                env=environment(OUTLAST_RUN_DIR=str(folder / "run"), **env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
            )

    def until(self, text: str, times: int = 1, seconds: float = SECONDS) -> str:
        """Return the log once it holds ``text``, ``times`` times."""
        end = time.monotonic() + seconds
        while (log := self.log.read_text()).count(text) < times:
            assert self.process.poll() is None, log
            assert time.monotonic() < end, log
            time.sleep(0.05)
        return log

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextlib.contextmanager
def worker(folder: Path, *options: str, **settings: Any) -> Iterator[Running]:
    running = Running(folder, *options, **settings)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def until_completed(outlast: Outlast, url: str, count: int) -> None:
    listed = ("jobs", "--state", "completed", "--limit", "9999", "--json", "--url", url)
    until(lambda: len(outlast(*listed).json()["jobs"]) == count)


def test_a_worker_prints_its_store_in_one_line_runs_jobs_and_drains(
    outlast: Outlast, folder: Path
) -> None:
    with worker(folder, "shop:app", "--queues", "default,slow", "--runners", "1") as running:
        log = running.until("shop:app is ready")
        assert f"database  {folder / 'shop.db'} (a new file)" in log
        assert "queues    default, slow" in log
        assert "runners   1, each with up to 10 async attempts" in log
        assert "tasks     mail, nap" in log
        outlast("enqueue", "shop:app", "nap", "0.01")
        log = running.until("attempt_ended")
        assert running.end() == 0
        entries = [each for each in log.splitlines() if "[info" in each]
        assert "attempt_started" in entries[0]
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b""
    document = outlast("job", 1, "--url", "sqlite:///shop.db", "--json").json()
    assert (document["state"], document["result"]) == ("completed", "rested")
    (row,) = outlast("workers", "--url", "sqlite:///shop.db", "--json").json()["workers"]
    assert row["status"] == "stopped"


LEFT = """
import atexit, threading
from outlast.cli import program

program.END_SECONDS = 1.0
wait = threading.Event().wait

def start():
    threading.Thread(target=wait, name="feed").start()

def wait_at_exit():
    atexit.register(wait)
"""
UNTIL_EMPTY = ("worker", "shop:app", "--until-empty", "--setup")
ENQUEUE = ("enqueue", "left:app", "nap", "1")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ((*UNTIL_EMPTY, "left:start"), LEFT, "make its threads daemons: feed"),
        ((*UNTIL_EMPTY, "left:wait_at_exit"), LEFT, "its functions of atexit go on"),
        (ENQUEUE, f"{LEFT}\nstart()\nfrom shop import app\n", "make its threads daemons: feed"),
    ],
    ids=["a thread of a worker", "the exit of a worker", "a thread of an application"],
)
def test_a_command_ends_although_code_of_the_user_goes_on(
    folder: Path, command: Sequence[str], code: str, words: str
) -> None:
    (folder / "left.py").write_text(code)
    program = [sys.executable, "-m", "outlast.cli", *command]
    env = environment(OUTLAST_RUN_DIR=str(folder / "run"))
    said = subprocess.run(
        program, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (said.returncode, words in said.stderr) == (0, True), said.stderr


BOOTSTRAP = """
import sys
sys.path.append({!r})
from outlast.cli import main
sys.exit(main())
"""
BUNDLED = """
import os, pathlib, outlast, library
app = outlast.App()

@app.task
def tell():
    pathlib.Path("told").write_text(os.environ["PYTHONPATH"])
"""


def test_a_bundle_has_the_application_of_its_worker(tmp_path: Path) -> None:
    """Of zipapp; shiv and PEX also unpack libraries, which their first code adds to the path."""
    made, archive, more = tmp_path / "made", tmp_path / "shop.pyz", tmp_path / "unpacked"
    made.mkdir()
    more.mkdir()
    (made / "__main__.py").write_text(BOOTSTRAP.format(str(more)))
    (made / "jobs.py").write_text(BUNDLED)
    (more / "library.py").touch()
    zipapp.create_archive(made, archive)
    command = [sys.executable, str(archive), "worker", "jobs:app", "--until-empty"]
    env = environment(OUTLAST_RUN_DIR=str(tmp_path), PYTHONPATH=str(tmp_path / "other"))
    for each in (["enqueue", "jobs:app", "tell"], command[2:]):
        subprocess.run([*command[:2], *each], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "told").read_text() == env["PYTHONPATH"], "what programs of tasks inherit"


PROBED = """
import gc, sys
from outlast.cli import main
from outlast.events import subscribe

def listen(name, fields):
    if name == "worker_started":
        # One write: `print` makes several, and the thread of the log writes between them.
        sys.stderr.write(f"kept by the worker: {gc.get_freeze_count()}\\n")

subscribe(listen)
sys.exit(main())
"""
COUNTS = """

@app.task
def count() -> None:
    import gc
    print(f"kept by the runner: {gc.get_freeze_count()}")
"""


@pytest.mark.slow
def test_loaded_modules_are_frozen_for_the_garbage_collector(
    outlast: Outlast, folder: Path
) -> None:
    (folder / "shop.py").write_text((folder / "shop.py").read_text() + COUNTS)
    outlast("enqueue", "shop:app", "count")
    program = [sys.executable, "-c", PROBED]
    with worker(folder, "shop:app", "--runners", "1", program=program) as running:
        running.until("kept by the runner: ")
        running.until("attempt_ended")
        assert running.end() == 0
    kept = re.findall(r"kept by the \w+: (\d+)", running.log.read_text())
    assert len(kept) == 2
    assert all(int(count) > 1_000 for count in kept)


def test_a_worker_prints_the_tasks_that_its_tags_exclude(outlast: Outlast, folder: Path) -> None:
    shop = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(shop.replace("@app.task", "@app.task(requires=['gpu'])", 1))
    with worker(folder, "shop:app", "--tags", "eu,west", "--runners", "1") as running:
        log = running.until("shop:app is ready")
    assert "tags      eu, west" in log
    assert "tasks     nap\n" in log
    assert "not here  mail (needs gpu)" in log


@pytest.mark.slow_on("sqlite")
def test_the_url_of_the_command_line_wins(
    outlast: Outlast, folder: Path, bare_store_url: str
) -> None:
    with worker(
        folder, "shop:app", "--url", bare_store_url, "--name", "one", "--runners", "1"
    ) as one:
        one.until("shop:app is ready")
        outlast("enqueue", "shop:app", "mail", '"ada"', "--url", bare_store_url)
        until_completed(outlast, bare_store_url, 1)
        (row,) = outlast("workers", "--url", bare_store_url, "--json").json()["workers"]
        assert (row["name"], row["status"], row["pid"]) == ("one", "active", one.process.pid)
        assert one.end(signal.SIGINT) == 0
    assert not (folder / "shop.db").exists()


LOUD = """
import os
import sys

import outlast

app = outlast.App("sqlite:///shop.db")
print("imported")


@app.task
def speaks() -> None:
    sys.stdout.write('{"half": \\xfc\\u2028')
    sys.stdout.flush()
    sys.stderr.write("another\\nthird\\n" + "x" * 20_000)


@app.task(retries=0)
def dies() -> None:
    os.write(1, b"last \\xff words")
    os._exit(3)
"""


@pytest.mark.slow_but("by flag")
@pytest.mark.parametrize(
    ("options", "env"),
    [(["--log-format", "json"], {}), ([], {"OUTLAST_LOG_FORMAT": "json", "OUTLAST_LOG": "debug"})],
    ids=["by flag", "by environment"],
)
def test_the_json_log_has_one_document_per_line_also_when_tasks_print(
    outlast: Outlast, folder: Path, options: list[str], env: dict[str, str]
) -> None:
    (folder / "loud.py").write_text(LOUD)
    outlast("enqueue", "loud:app", "speaks")
    outlast("enqueue", "loud:app", "dies")
    kept = ("--keep-completed", "3d", "--keep-dead", "90d")
    with worker(folder, "loud:app", *options, *kept, "--runners", "1", **env) as running:
        running.until("last \\ufffd words")
        running.until("xxx")
        running.until("worker_ready")
        assert running.end() == 0
    entries = [json.loads(line) for line in running.log.read_text().split("\n")[:-1]]
    assert all({"event", "level", "timestamp"} <= set(entry) for entry in entries)
    trips = [entry for entry in entries if entry["event"].startswith("a trip to the store: ")]
    assert bool(trips) == ("OUTLAST_LOG" in env), "why a worker looks is told who asks for it"
    ready = next(entry for entry in entries if entry["event"] == "worker_ready")
    assert ready["database"] == str(folder / "shop.db")
    assert ready["new_file"] is False
    assert ready["tasks"] == ["dies", "speaks"]
    assert (ready["keep_completed"], ready["keep_workers"]) == (259_200, 604_800)
    assert ready["keep_dead"] == 7_776_000
    printed = [entry["text"] for entry in entries if entry["event"] == "runner_output"]
    assert {"imported", '{"half": \u00fc\u2028another', "third", "last \ufffd words"} <= set(
        printed
    )
    assert sum(text.count("x") for text in printed if set(text) == {"x"}) == 20_000
    died = next(entry for entry in entries if entry["event"] == "runner_died")
    assert (died["exit_code"], died["level"]) == (3, "warning")
    assert entries[-1]["event"] == "worker_stopped"


@pytest.mark.slow
def test_a_full_log_pipe_does_not_block_the_worker(outlast: Outlast, folder: Path) -> None:
    jobs = 1_500  # some 200 KB of log; a pipe takes 64
    (folder / "fill.py").write_text(
        "from shop import app, mail\n"
        f"app.enqueue_many_sync([mail.call('ada') for _ in range({jobs})])\n"
    )
    subprocess.run([sys.executable, "fill.py"], cwd=folder, env=environment(), check=True)
    read, write = os.pipe()
    with worker(folder, "shop:app", "--runners", "1", stderr=write) as running:
        until_completed(outlast, "sqlite:///shop.db", jobs)
        assert running.end() == 0
    os.close(write)
    os.close(read)


@each_case(
    ("options", "words"),
    [
        (["--runners", "0"], ["--runners must be"]),
        (["--concurrency", "0"], ["--concurrency must be"]),
        (["--heartbeat", "0"], ["--heartbeat must be above 0"]),
        (["--lease", "3"], ["--lease", "at least three times the heartbeat"]),
        (["--drain-timeout", "-1"], ["--drain-timeout must be"]),
        (["--queues", "a,,b"], ["--queues takes names"]),
        (["--queues", "a b"], ["--queues", "without blanks"]),
        (["--name", "a b"], ["--name", "without blanks"]),
        (["--log-format", "xml"], ["--log-format", "text"]),
        (["--lease", "long"], ["--lease"]),
        (["--keep-dead", "-1"], ["--keep-dead must be seconds from 0"]),
        (["--url", "nonsense"], ["is not the URL of a store"]),
        (["--url", "sqlite:///:memory:"], [":memory:"]),
    ],
)
def test_a_setting_that_cannot_work_is_named(
    outlast: Outlast, options: list[str], words: list[str]
) -> None:
    outlast("worker", "shop:app", *options).refused(2, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import outlast\nraise OSError('no route to db')\n", ["OSError: no route to db"]),
        ("import os\nos._exit(7)\n", ["the process that imported it died (exit code 7)"]),
        ("import os\nos.kill(os.getpid(), 9)\n", ["died (signal 9)"]),
    ],
    ids=["raises", "exits", "killed"],
)
def test_an_application_that_does_not_import_starts_nothing(
    outlast: Outlast, folder: Path, text: str, words: list[str]
) -> None:
    (folder / "broken.py").write_text(text)
    said = outlast("worker", "broken:app")
    assert said.code == 2, said.err
    for word in words:
        assert word in said.err
    assert not list(folder.glob("*.db"))


def test_an_interrupt_during_the_import_is_quiet(folder: Path) -> None:
    slow = "import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(60)\n"
    (folder / "slow.py").write_text(slow)
    with worker(folder, "slow:app") as running:
        until((folder / "here").exists)
        assert running.end(signal.SIGINT) == 130
    assert running.log.read_text() == ""


def test_a_missing_directory_is_no_store(outlast: Outlast, folder: Path) -> None:
    said = outlast("worker", "shop:app", "--url", "sqlite:///missing/shop.db")
    assert said.code == 3
    assert "the directory" in said.err
    assert "Traceback" not in said.err
    assert not (folder / "missing").exists()
