"""An application that cannot run is reported at once, and charges no job."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.scene import ROOT, Scene
from outlast.model.job import Policy, State
from outlast.store.values import NewJob

LIFE_WITH_A_THREAD = """
import outlast, threading, time
app = outlast.App()
@app.lifespan
def life():
    threading.Thread(target=time.sleep, args=(99,)).start()
    yield"""

ASYNC_LIFE = """
import asyncio, outlast
app = outlast.App()
@app.lifespan
async def life():
"""

BROKEN = {
    "no_such_module": (None, "no module named"),
    "raises": ("raise RuntimeError('no configuration')", "no configuration"),
    "misses_an_import": ("import a_library_that_is_missing", "a_library_that_is_missing"),
    "no_app": ("import outlast\njobs = outlast.App()", "jobs"),
    "not_an_app": ("app = 42", "not an outlast.App"),
    "syntax": ("def broken(:", "SyntaxError"),
    "lifespan": (
        "import outlast\napp = outlast.App()\n@app.lifespan\ndef life():\n    yield 1 / 0",
        "ZeroDivisionError",
    ),
    "lifespan_without_a_yield": (
        "import outlast\napp = outlast.App()\n@app.lifespan\ndef life():\n    if 0: yield",
        "generator didn't yield",
    ),
    "lifespan_that_cancels_itself": (
        f"{ASYNC_LIFE}    asyncio.current_task().cancel()\n    yield",
        "CancelledError",
    ),
    "leaves_a_thread": (f"{LIFE_WITH_A_THREAD} 1 / 0", "ZeroDivisionError"),
}


def start_quietly(folder: Path, spec: str, url: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a worker with one runner, which writes its events into the file."""
    arguments = ["worker", spec, "--url", url, "--runners", "1", "--log-format", "json"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "outlast", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OUTLAST_RUN_DIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def start(folder: Path, spec: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "outlast", "worker", spec, "--url", url],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OUTLAST_RUN_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", BROKEN)
async def test_an_application_that_does_not_import_ends_the_worker_with_a_clear_message(
    name: str, tmp_path: Path, sqlite_url: str
) -> None:
    source, word = BROKEN[name]
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source)
    worker = start(tmp_path, f"{name}:app", sqlite_url)
    try:
        out, err = await asyncio.to_thread(worker.communicate, timeout=60)
    except subprocess.TimeoutExpired:
        worker.kill()
        out, err = worker.communicate()
    assert worker.returncode == 2, err
    assert word in err
    assert "outlast/worker" not in err, "no traceback of our own at the user's prompt"
    assert out is not None


HANGS = """
import os, time, outlast
app = outlast.App()
if os.path.exists("seen"):  # by the look that the command line takes first
    while not os.path.exists("flag"):
        time.sleep(0.01)  # the line that hangs
open("seen", "w").close()
@app.task
def noop(value):
    return value"""
IMPATIENT = """
import sys
from outlast.worker.runners import startup
startup.SLOW_SECONDS, startup.START_SECONDS_MAX = 3.0, 6.0
from outlast.cli import main
sys.exit(main())"""


PATIENCE = 90.0  # seconds, in which several runners start


def start_impatient(folder: Path, url: str, log: Path) -> subprocess.Popen[bytes]:
    arguments = ["worker", "hangs:app", "--url", url, "--runners", "1", "--log-format", "json"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OUTLAST_RUN_DIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


async def test_a_hanging_import_is_reported_with_its_line_and_tried_again(
    tmp_path: Path, sqlite_stage: Scene
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    log = tmp_path / "log"
    worker = start_impatient(tmp_path, sqlite_stage.url, log)
    try:
        await sqlite_stage.until(lambda: _shows_the_line(log), "the line that hangs", PATIENCE)
        await sqlite_stage.until(lambda: _says(log, "runner_restart_delayed"), "a killed runner")
        (tmp_path / "flag").touch()
        job = (await sqlite_stage.store.enqueue([NewJob(task="noop", args='{"value": 8}')]))[0]
        assert (await sqlite_stage.ended(job.job_id)).result == "8"
        assert worker.poll() is None
    finally:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 30) == 0


async def _shows_the_line(log: Path) -> bool:
    """Of any runner: on a busy machine some have not started when their stacks are asked for."""
    slow = [line for line in log.read_text().splitlines() if "runner_slow" in line]
    return any("hangs.py" in line and "line 6 in <module>" in line for line in slow)


async def _says(log: Path, event: str) -> bool:
    return event in log.read_text()


async def test_a_deploy_that_breaks_the_application_blames_no_job(sqlite_stage: Scene) -> None:
    """New runners die at their start; the job waits, uncharged, until the application works."""
    switch = sqlite_stage.folder / "broken"
    env = {"OUTLAST_TEST_APP": "tests.crash.fragile:app", "OUTLAST_TEST_SWITCH": str(switch)}
    worker = await sqlite_stage.worker("--runners", "1", env=env)

    async def spare_is_warm() -> bool:
        return worker.log.read_text().count("runner_ready") == 2

    await sqlite_stage.until(spare_is_warm, "a runner and a spare")
    switch.write_text("1")
    first = await sqlite_stage.enqueue("exits_unless", path=str(sqlite_stage.folder / "flag"))

    async def warm_spare_is_used_up() -> bool:
        return len(await sqlite_stage.attempts(first)) >= 2

    await sqlite_stage.until(warm_spare_is_used_up, "two attempts")
    waiting = (await sqlite_stage.store.enqueue([NewJob(task="noop", args='{"value": 8}')]))[0]
    charged = (await sqlite_stage.job(first)).failures

    async def delayed() -> bool:
        return "runner_restart_delayed" in worker.log.read_text()

    await sqlite_stage.until(delayed, "a delayed restart")
    assert (await sqlite_stage.job(waiting.job_id)).state is State.QUEUED
    assert (await sqlite_stage.job(first)).failures == charged
    switch.unlink()
    assert (await sqlite_stage.ended(waiting.job_id)).result == "8"


async def test_a_job_of_an_unknown_task_waits_without_delaying_others(stage: Scene) -> None:
    await stage.worker()
    unknown = await stage.store.enqueue([NewJob(task="of.another.release", priority=100)] * 200)
    known = await stage.enqueue("noop", value=1)
    assert (await stage.ended(known)).state is State.COMPLETED
    row = await stage.job(unknown[0].job_id)
    assert (row.state, row.attempt_count) == (State.QUEUED, 0)


@pytest.mark.short("undecodable")
async def test_arguments_of_another_release_are_released_uncharged(stage: Scene) -> None:
    await stage.worker()
    new = NewJob(task="noop", args='{"value": 1, "of_another_release": true}')
    job = (await stage.store.enqueue([new]))[0].job_id

    async def tried() -> bool:
        return bool(await stage.attempts(job))

    await stage.until(tried, "the first attempt")
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("undecodable", "none")


LIFE = """
import asyncio, time, outlast
from pathlib import Path
app = outlast.App()
@app.task
def noop(value):
    return value
@app.task
async def waits():
    Path("began").touch()
    while not Path("mended").exists():
        await asyncio.sleep(0.01)
    return 8
async def fails_meanwhile():
    while not Path("began").exists():
        await asyncio.sleep(0.01)
    if not Path("mended").exists():
        raise LookupError("the engine stands still")
@app.lifespan
"""

ENDS = {
    "raises": (
        "def life():\n    yield\n    raise LookupError('the engine does not stop')",
        "lifespan has failed at its end: LookupError: the engine does not stop",
    ),
    "yields_twice": (
        "def life():\n    yield 1\n    yield 2",
        "lifespan has failed at its end: RuntimeError: generator didn't stop",
    ),
    "is_cancelled": (
        "async def life():\n    yield\n    raise asyncio.CancelledError",
        "lifespan has failed at its end: CancelledError",
    ),
    "hangs": (
        "def life():\n    yield\n    time.sleep(1000)  # does not stop",
        ", line 22 in life",  # in the stacks of runner_slow
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_lifespan_that_fails_at_its_end_is_told_and_harms_no_job(
    name: str, tmp_path: Path, sqlite_stage: Scene
) -> None:
    life, said = ENDS[name]
    (tmp_path / "leaves.py").write_text(LIFE + life)
    worker = start(tmp_path, "leaves:app", sqlite_stage.url)
    try:
        job = (await sqlite_stage.store.enqueue([NewJob(task="noop", args='{"value": 8}')]))[0]
        row = await sqlite_stage.ended(job.job_id)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    finally:
        worker.terminate()
        out, err = await asyncio.to_thread(worker.communicate, timeout=60)
    assert worker.returncode == 0
    assert said in out + err


GROUP = """
async def life():
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_meanwhile())
        yield"""
TIMEOUT = """
async def life():
    async with asyncio.timeout(None) as limit:
        asyncio.get_running_loop().create_task(ends(limit))
        yield
async def ends(limit):
    try:
        await fails_meanwhile()
    except LookupError:
        limit.reschedule(0)"""


@pytest.mark.parametrize(
    ("life", "error"),
    [(GROUP, "LookupError"), (TIMEOUT, "TimeoutError")],
    ids=["group", "timeout"],
)
async def test_a_lifespan_that_fails_under_an_attempt_is_told_and_charged_to_no_job(
    life: str, error: str, tmp_path: Path, sqlite_stage: Scene
) -> None:
    (tmp_path / "breaks.py").write_text(LIFE + life)
    log = tmp_path / "log"
    worker = start_quietly(tmp_path, "breaks:app", sqlite_stage.url, log)
    try:
        job = (await sqlite_stage.store.enqueue([NewJob(task="waits")]))[0].job_id
        await sqlite_stage.until(lambda: _says(log, "runner_restart_delayed"), "a failed lifespan")
        (tmp_path / "mended").touch()
        row = await sqlite_stage.ended(job)
        assert (row.state, row.failures) == (State.COMPLETED, 0)
    finally:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 60) == 0
    first = (await sqlite_stage.attempts(job))[0]
    assert (first.outcome, first.charge) == ("bystander", "loss")
    assert "lifespan has failed" in (first.message or "")
    (told, *_) = [line for line in log.read_text().splitlines() if "runner_restart_delayed" in line]
    assert "lifespan has failed" in told
    assert error in told


KILLERS = """
import asyncio, os, signal, outlast
app = outlast.App()
items = asyncio.Queue()
async def consume():
    raise ValueError(await items.get())
@app.lifespan
async def life():
    async with asyncio.TaskGroup() as group:
        group.create_task(consume())
        yield
@app.task
async def ends_its_runner(how):
    if how == "group":
        items.put_nowait("poison")
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(600)
"""


@pytest.mark.parametrize("how", ["group", "signal"])
async def test_a_job_that_ends_its_runner_as_if_from_outside_is_bounded(
    how: str, tmp_path: Path, stage: Scene
) -> None:
    """No attempt can be named; but alone in its runner it is no neighbour's victim."""
    (tmp_path / "killers.py").write_text(KILLERS)
    worker = start_quietly(tmp_path, "killers:app", stage.url, tmp_path / "log")
    try:
        new = NewJob(
            task="ends_its_runner",
            args=json.dumps({"how": how}),
            policy=Policy(max_losses=2, backoff_first=0.01, backoff_max=0.01),
        )
        job = (await stage.store.enqueue([new]))[0].job_id
        row = await stage.ended(job, 60.0)
        assert (row.state, row.failures, row.losses) == (State.DEAD, 0, 3)
        assert {one.outcome for one in await stage.attempts(job)} == {"bystander"}
    finally:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 60) == 0


QUICK = """
import asyncio, contextlib, os, outlast
app = outlast.App()
items = asyncio.Queue()
async def consume():
    raise ValueError(await items.get())
async def refresh():
    try:
        await asyncio.sleep(3600)
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)  # it closes its client, politely
@app.lifespan
async def life():
    async with asyncio.TaskGroup() as group:
        group.create_task(consume())
        group.create_task(refresh())
        yield
@app.task
async def quick(n):
    here = outlast.current()
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{here.token}\\n")
    if n == 300 and here.number == 1:
        items.put_nowait("poison")
        await asyncio.sleep(0.2)
"""


async def test_nothing_begins_in_a_runner_whose_lifespan_has_failed(
    tmp_path: Path, stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits there in a line goes back as not begun."""
    (tmp_path / "quick.py").write_text(QUICK)
    journal = tmp_path / "begun"
    monkeypatch.setenv("JOURNAL", str(journal))
    worker = start_quietly(tmp_path, "quick:app", stage.url, tmp_path / "log")
    try:
        # only when the runner is ready: a line is for attempts that end quickly
        first = NewJob(task="quick", args='{"n":0}')
        await stage.ended((await stage.store.enqueue([first]))[0].job_id)
        new = [NewJob(task="quick", args=f'{{"n":{n}}}') for n in range(1, 600)]
        jobs = [each.job_id for each in await stage.store.enqueue(new)]
        for job in jobs:
            assert (await stage.ended(job)).state is State.COMPLETED
    finally:
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 60) == 0
    begun = {int(line) for line in journal.read_text().split()}
    unbegun = {
        each.token
        for job in jobs
        for each in await stage.attempts(job)
        if "before it began" in (each.message or "")
    }
    assert not unbegun & begun  # on some machines none waits there, or few
