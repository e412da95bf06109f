"""An application that cannot run is reported at once, and charges no job."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from harness.scene import Scene, WorkerProcess
from outlast.base.config import VERSION
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
    "threads_are_greenlets": (
        "from gevent import monkey; monkey.patch_all()\nimport outlast\napp = outlast.App()",
        "gevent's monkey.patch_all() has turned Python's threads into greenlets",
    ),
    "leaves_a_thread": (f"{LIFE_WITH_A_THREAD} 1 / 0", "ZeroDivisionError"),
}


def start(stage: Scene, source: str, **env: str) -> WorkerProcess:
    """Start a worker of the application in ``source``."""
    (stage.folder / "bad.py").write_text(source)
    env |= {"OUTLAST_TEST_APP": "bad:app", "PYTHONPATH": str(stage.folder)}
    return stage.start(env=env)


@pytest.mark.parametrize("name", BROKEN)
async def test_an_application_that_does_not_import_ends_the_worker_with_a_clear_message(
    name: str, tmp_path: Path, sqlite_url: str
) -> None:
    source, word = BROKEN[name]
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "outlast", "worker", f"{name}:app", "--url", sqlite_url],
        cwd=tmp_path,
        env={**os.environ, "OUTLAST_RUN_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "outlast/worker" not in done.stderr, "no traceback of our own at the user's prompt"


HANGS = """
import time, outlast
from tests.crash.told import FOLDER
app = outlast.App()
if (FOLDER / "seen").exists():  # by the look that the command line takes first
    while not (FOLDER / "flag").exists():
        time.sleep(0.01)  # the line that hangs
(FOLDER / "seen").touch()
@app.task
def noop(value):
    return value"""
IMPATIENT = """
import sys
from outlast.worker.runners import supervisor
supervisor.SLOW_SECONDS, supervisor.START_SECONDS_MAX = 3.0, 6.0
from outlast.cli import main
sys.exit(main())"""


async def test_a_hanging_import_is_reported_with_its_line_and_tried_again(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    (stage.folder / "impatient.py").write_text(IMPATIENT)
    worker = start(stage, HANGS, OUTLAST_TEST_MODULE="impatient")

    def shows_the_line() -> bool:
        """Of any runner: on a busy machine some have not started when they are asked."""
        told = map(repr, worker.told("runner_slow"))
        return any("bad.py" in each and "line 7 in <module>" in each for each in told)

    await stage.until(shows_the_line, "the line that hangs")
    await stage.told(worker, "runner_restart_delayed")
    (stage.folder / "flag").touch()
    assert (await stage.ended(await stage.enqueue("noop", value=8))).result == "8"
    await worker.left(signal.SIGTERM)


async def test_a_deploy_that_breaks_the_application_blames_no_job(sqlite_stage: Scene) -> None:
    """New runners die at their start; the job waits, uncharged, until the application works."""
    switch = sqlite_stage.folder / "broken"
    env = {"OUTLAST_TEST_APP": "tests.crash.fragile:app", "OUTLAST_TEST_SWITCH": str(switch)}
    worker = await sqlite_stage.worker(env=env)

    stage = sqlite_stage
    await stage.until(lambda: len(worker.told("runner_ready")) == 2, "a runner and a spare")
    switch.write_text("1")
    first = await stage.enqueue("exits_unless", path=str(stage.folder / "flag"))
    await stage.tried(first, 2)  # the spare is used up
    waiting = await stage.enqueue("noop", value=8)
    charged = (await stage.job(first)).failures
    await stage.told(worker, "runner_restart_delayed")
    assert (await stage.job(waiting)).state is State.QUEUED
    assert (await stage.job(first)).failures == charged
    switch.unlink()
    assert (await stage.ended(waiting)).result == "8"


async def test_another_outlast_that_is_installed_under_a_worker_blames_no_job(
    sqlite_stage: Scene,
) -> None:
    """New runners refuse to work for a worker whose frames they may not understand."""
    stage, source = sqlite_stage, Path(outlast.__file__).parent
    installed = stage.folder / "installed"
    shutil.copytree(source, installed / "outlast", ignore=shutil.ignore_patterns("__pycache__"))
    worker = await stage.worker(env={"PYTHONPATH": str(installed)})
    await stage.until(lambda: len(worker.told("runner_ready")) == 2, "a runner and a spare")
    code = (source / "__init__.py").read_text()
    newer = code.replace(f'__version__ = "{VERSION}"', '__version__ = "99.0"')
    (installed / "outlast" / "__init__.py").write_text(newer)
    first = await stage.enqueue("exits_unless", path=str(stage.folder / "flag"))
    await stage.tried(first, 2)  # the spare is used up
    waiting = await stage.enqueue("noop", value=8)
    charged = (await stage.job(first)).failures
    told = str(await stage.told(worker, "runner_restart_delayed"))
    assert f"Outlast 99.0 is installed, and this worker runs {VERSION}: restart it" in told
    assert (await stage.job(waiting)).state is State.QUEUED
    assert (await stage.job(first)).failures == charged
    (installed / "outlast" / "__init__.py").write_text(code)
    assert (await stage.ended(waiting)).result == "8"


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

    (closed,) = await stage.tried(job)
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    assert (closed.outcome, closed.charge) == ("undecodable", "none")


LIFE = """
import asyncio, time, outlast
from tests.crash.told import FOLDER
app = outlast.App()
@app.task
def noop(value):
    return value
@app.task
async def waits():
    (FOLDER / "began").touch()
    while not (FOLDER / "mended").exists():
        await asyncio.sleep(0.01)
    return 8
async def fails_meanwhile():
    while not (FOLDER / "began").exists():
        await asyncio.sleep(0.01)
    if not (FOLDER / "mended").exists():
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
    name: str, sqlite_stage: Scene
) -> None:
    life, said = ENDS[name]
    worker = start(sqlite_stage, LIFE + life)
    row = await sqlite_stage.ended(await sqlite_stage.enqueue("noop", value=8))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    await worker.left(signal.SIGTERM)
    assert said in worker.log.read_text()


GROUP = """
async def life():
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_meanwhile())
        yield"""
STUCK_GROUP = """
async def life():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails_meanwhile())
            yield
    finally:
        is_mended = (FOLDER / "mended").exists()
        await asyncio.sleep(0 if is_mended else 600)  # its client does not close"""
SILENT_GROUP = """
async def life():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails_meanwhile())
            yield
    except* LookupError:
        pass  # it is logged"""
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
    [
        (GROUP, "LookupError"),
        (STUCK_GROUP, "did not end"),
        (SILENT_GROUP, "it ended"),
        (TIMEOUT, "TimeoutError"),
    ],
    ids=["group", "stuck group", "silent group", "timeout"],
)
async def test_a_lifespan_that_fails_under_an_attempt_is_told_and_charged_to_no_job(
    life: str, error: str, sqlite_stage: Scene
) -> None:
    worker = start(sqlite_stage, LIFE + life)
    job = (await sqlite_stage.store.enqueue([NewJob(task="waits")]))[0].job_id
    told = str(await sqlite_stage.told(worker, "runner_restart_delayed"))
    (sqlite_stage.folder / "mended").touch()
    row = await sqlite_stage.ended(job)
    assert (row.state, row.failures) == (State.COMPLETED, 0)
    await worker.left(signal.SIGTERM)
    first = (await sqlite_stage.attempts(job))[0]
    assert (first.outcome, first.charge) == ("bystander", "loss")
    assert "lifespan has failed" in (first.message or "")
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
    how: str, stage: Scene
) -> None:
    """No attempt can be named; but alone in its runner it is no neighbour's victim."""
    worker = start(stage, KILLERS)
    new = NewJob(
        task="ends_its_runner",
        args=json.dumps({"how": how}),
        policy=Policy(max_losses=2, backoff_first=0.01, backoff_max=0.01),
    )
    job = (await stage.store.enqueue([new]))[0].job_id
    row = await stage.ended(job, 60.0)
    assert (row.state, row.failures, row.losses) == (State.DEAD, 0, 3)
    assert {one.outcome for one in await stage.attempts(job)} == {"bystander"}
    await worker.left(signal.SIGTERM)


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
    tmp_path: Path, stage: Scene
) -> None:
    """What waits there in a line goes back as not begun."""
    journal = tmp_path / "begun"
    worker = start(stage, QUICK, JOURNAL=str(journal))
    # only when the runner is ready: a line is for attempts that end quickly
    first = NewJob(task="quick", args='{"n":0}')
    await stage.ended((await stage.store.enqueue([first]))[0].job_id)
    new = [NewJob(task="quick", args=f'{{"n":{n}}}') for n in range(1, 600)]
    jobs = [each.job_id for each in await stage.store.enqueue(new)]
    for job in jobs:
        assert (await stage.ended(job)).state is State.COMPLETED
    await worker.left(signal.SIGTERM)
    begun = {int(line) for line in journal.read_text().split()}
    unbegun = {
        each.token
        for job in jobs
        for each in await stage.attempts(job)
        if "before it began" in (each.message or "")
    }
    assert not unbegun & begun  # on some machines none waits there, or few
