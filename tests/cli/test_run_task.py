"""``outlast run-task``: one call here and now, its output, and its exit code."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.cli.conftest import SECONDS, Outlast, environment

APPLICATION = """
import contextlib
import outlast

app = outlast.App("sqlite:///shop.db")


@app.task
def render(title: str, pages: int = 2) -> list[int]:
    attempt = outlast.current()
    print(f"rendering {title}")
    done = []
    for page in range(attempt.checkpoint or 0, pages):
        attempt.check()
        attempt.report(page / pages, f"page {page}", stage="drawing")
        done.append(page)
        attempt.save_sync(page + 1)
    return done


@app.task
async def order(number: int) -> int:
    job = await render.enqueue(f"order {number}")
    return job.id


@app.task(dead_on=ValueError, backoff=[3])
async def fails(kind: str) -> None:
    await outlast.current().save("here")
    raise {"value": ValueError, "os": OSError}[kind]("no such page")


@app.task
def decides(what: str) -> None:
    raise {
        "snooze": outlast.Snooze(5),
        "cancel": outlast.Cancel("sold out"),
        "dead": outlast.Dead("no use"),
        "retry": outlast.Retry("not yet", after=7),
    }[what]


@app.task
def odd() -> int:
    return "three"


@app.task
def unstorable() -> object:
    return object()


ACCOUNT = app.limit("account", running=1, per="tenant")
HOST = app.limit("host", running=1, per="limit_key")


@app.task(limits=[ACCOUNT, HOST])
async def sync() -> str | None:
    return outlast.current().tenant


@app.task
async def completes() -> None:
    await outlast.current().complete_in(object())
"""
HOOKED = """
import contextlib
import threading
import outlast

app = outlast.App("sqlite:///shop.db")


@app.lifespan
{kind}def engine():
    print("engine on")
    yield "engine"
    print("engine off")


@app.around
def swallows(attempt):
    with contextlib.suppress(KeyError):
        yield


@app.task
def drive() -> str:
    main = threading.current_thread() is threading.main_thread()
    return f"{{outlast.current().resources}} {{main}}"


@app.task
def stalls() -> str:
    raise KeyError("no key")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APPLICATION)
    for name, kind in (("plainly", ""), ("looped", "async ")):
        (tmp_path / f"{name}.py").write_text(HOOKED.format(kind=kind))
    return tmp_path


def test_a_call_runs_here_and_leaves_no_store(outlast: Outlast, folder: Path) -> None:
    said = outlast("run-task", "jobs:app", "render", '"Emma"')
    assert said.code == 0, said.err
    assert said.out == "rendering Emma\n[0,1]\n"
    assert said.err.splitlines()[:2] == ["report: 0% drawing page 0", "save: 1"]
    assert not (folder / "shop.db").exists()


def test_it_resumes_from_a_checkpoint(outlast: Outlast) -> None:
    said = outlast("run-task", "jobs:app", "render", '"Emma"', "pages=5", "--checkpoint", " 3")
    assert said.out.splitlines()[-1] == "[3,4]"
    outlast("run-task", "jobs:app", "render", '"Emma"', "--checkpoint", "{").refused(
        2, "'{' is not JSON"
    )


def test_a_task_under_a_limit_for_each_tenant_and_key_runs_for_one(outlast: Outlast) -> None:
    assert "tenant" in outlast("run-task", "jobs:app", "sync").err
    said = outlast("run-task", "jobs:app", "sync", "--tenant", "acme", "--limit-key", "host=a.org")
    assert said.out == '"acme"\n', said.err


def test_what_a_task_enqueues_is_a_job(outlast: Outlast, store_url: str) -> None:
    said = outlast("run-task", "jobs:app", "order", "7", "--url", store_url)
    assert (said.code, said.out) == (0, "1\n"), said.err
    (job,) = outlast("jobs", "--url", store_url, "--json").json()["jobs"]
    assert (job["task"], job["state"]) == ("render", "queued")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fails", '"value"'], "dead_on names ValueError)\na worker would not try it again"),
        (["fails", '"os"'], "OSError: no such page\na worker would try it again in 3 s"),
        (["decides", '"snooze"'], "it wants to run again in 5 s (Snooze)"),
        (["decides", '"cancel"'], "it cancels its job: sold out"),
        (["decides", '"dead"'], "no use\na worker would not try it again"),
        (["decides", '"retry"'], "not yet\na worker would try it again in 7 s"),
        (["unstorable"], "outlast: the result cannot be stored as JSON: a value of class object"),
        (["completes"], "complete_in() works only in the attempt of a job"),
    ],
)
def test_a_task_that_does_not_finish_makes_the_exit_code_1(outlast, arguments, says):
    said = outlast("run-task", "jobs:app", *arguments)
    assert (said.code, said.out) == (1, "")
    assert says in said.err


def test_the_traceback_shows_the_task_s_own_frames_alone(outlast: Outlast) -> None:
    trace = outlast("run-task", "jobs:app", "fails", '"os"').err
    assert trace.count("  File ") == 1
    assert "jobs.py" in trace


def test_a_result_of_another_type_is_reported(outlast: Outlast) -> None:
    said = outlast("run-task", "jobs:app", "odd")
    assert (said.code, said.out) == (0, '"three"\n')
    assert "does not fit" in said.err


@pytest.mark.parametrize(("module", "main"), [("plainly", True), ("looped", False)])
def test_the_hooks_of_the_application_run_around_it(outlast, module, main):
    """In the main thread, unless a hook needs an event loop."""
    said = outlast("run-task", f"{module}:app", "drive")
    assert said.code == 0, said.err
    assert said.out == f'engine on\nengine off\n"engine {main}"\n'


@pytest.mark.parametrize("module", ["plainly", "looped"])
def test_a_hook_that_swallows_an_error_does_not_make_it_a_success(outlast, module):
    said = outlast("run-task", f"{module}:app", "stalls")
    assert said.code == 1
    assert "KeyError: 'no key'" in said.err


@each_case(
    ("arguments", "says"),
    [
        (["jobs:app", "rendr"], "did you mean render"),
        (["jobs:app", "render"], "title"),
        (["jobs:app", "render", "Emma"], "is not JSON"),
        (["jobs:app", "render", "3"], "title"),
        (["none:app", "render"], "no module named 'none'"),
    ],
)
def test_what_cannot_be_called_is_wrong_usage(outlast, arguments, says):
    outlast("run-task", *arguments).refused(2, says)


def test_a_breakpoint_has_the_terminal(folder: Path) -> None:
    """The debugger stops in the task, reads what is typed, and continues."""
    (folder / "paused.py").write_text(
        "import outlast\napp = outlast.App()\n\n\n@app.task\ndef stops(n: int) -> int:\n"
        "    breakpoint()\n    return n + 1\n"
    )
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "outlast.cli", "run-task", "paused:app", "stops", "41"],
            cwd=folder,
            env=environment(TERM="dumb"),
            stdin=theirs,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.write(ours, b"p n + 100\ncontinue\n")
        out, _ = child.communicate(timeout=SECONDS)
    finally:
        os.close(ours)
        os.close(theirs)
    assert child.returncode == 0
    assert "(Pdb) 141" in out
    assert out.endswith("42\n")
