"""A worker is killed halfway through a real job, and the job finishes: ``make demo``.

The job counts the lines of code by language through the history of a git repository, and saves a
checkpoint every few commits. Two workers are started; the one that runs the job is killed with
kill -9 at half, with everything below it. The other one notices and continues from the last
checkpoint. The results are a picture of how the repository grew, and a check of the store by
`outlast verify`: exit code 1 if it finds a violation.

Examples:
    make demo
    make demo ARGS="--repo ~/src/django --commits 200"
    make demo ARGS="--url postgresql://app@db/playground"
"""

import argparse
import asyncio
import contextlib
import fcntl
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from examples.census.app import analyze, app
from examples.census.evolution import Evolution
from examples.census.git import NotARepository
from examples.census.history import SAMPLES_LEAST, SAMPLES_LIMIT, History
from examples.census.picture import Interruption, write_numbers, write_pictures
from outlast.base.clock import SYSTEM
from outlast.cli.connect import closing
from outlast.cli.demo_story import (
    Play,
    Story,
    Workers,
    cancel_when_terminated,
    own_command,
    print_facts,
)
from outlast.cli.errors import DONE, INTERRUPTED, NOT_SO, WRONG_USAGE, Failed, say, tell
from outlast.cli.loop import run_loop
from outlast.cli.show import console
from outlast.cli.verify import verdict
from outlast.errors import text_of
from outlast.insight.verify import verify
from outlast.store.backend import describe_place, file_of, resolve_url

SHOW_SECONDS = 4.0
"""The least time the job takes, so that there is something to see and to kill."""
EVERY, PARTS = 5, 8
"""The most commits between two checkpoints, and the fewest checkpoints of a job."""
FAREWELL_SECONDS = 5.0
"""How long the workers may take to end the job of an interrupted demo."""
STORE = "outlast-demo.db"
FILES = {"picture": "evolution.png", "to zoom": "evolution.svg", "numbers": "evolution.json"}
ROOT = str(Path(__file__).parents[2])


def main() -> int:
    """Return the exit code: that of a command of Outlast, whose errors are told in the same way."""
    asked = parse()
    if importlib.util.find_spec("matplotlib") is None:
        say("the picture needs matplotlib: `make demo` installs it")
        return WRONG_USAGE
    try:
        plan = _plan(asked.repo, asked.commits)
        folder = _folder(asked.out)
        app.url = _absolute(asked.url) if asked.url else _new_store(folder)
        return run_loop(lambda: _play(plan, folder))
    except KeyboardInterrupt:
        say("interrupted: the workers are gone, and all below them")
        return INTERRUPTED
    except Exception as error:
        return tell(error)


def parse() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m examples.census",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repo", metavar="PATH", default=".", help="a git repository, or a folder in one"
    )
    parser.add_argument(
        "--commits", metavar="N", default=100, type=_commits, help="how many to count (100)"
    )
    parser.add_argument(
        "--url", metavar="URL", help="the store; by default a new SQLite file in --out"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="outlast-demo",
        help="the folder for the picture and the numbers (outlast-demo)",
    )
    return parser.parse_args()


def _commits(text: str) -> int:
    if not text.isdecimal() or not SAMPLES_LEAST <= int(text) <= SAMPLES_LIMIT:
        raise argparse.ArgumentTypeError(f"from {SAMPLES_LEAST} to {SAMPLES_LIMIT:,}, not {text}")
    return int(text)


# -- before anything is started ------------------------------------------------------------------


def _plan(repo: str, wanted: int) -> Play:
    """Look at the repository. Raises Failed where there is nothing to walk."""
    path = os.path.abspath(os.path.expanduser(repo))
    try:
        history = History.find(path)
    except NotARepository as error:
        other = "; --repo names another repository" if shutil.which("git") else ""
        raise Failed(f"{text_of(error)}{other}") from error
    if history.total < SAMPLES_LEAST:
        cut = " in this shallow clone (git fetch --unshallow gets the rest)"
        raise Failed(
            f"{history.name} has one commit{cut if history.shallow else ''}: the demo needs two,"
            " one to be done with and one to go on with; --repo names another repository"
        )
    goal = min(history.total, wanted)
    every, pace = max(1, min(EVERY, goal // PARTS)), SHOW_SECONDS / goal
    queue = f"outlast-demo-{int(SYSTEM.random() * 16**8):08x}"
    return Play(
        application="examples.census.app:app",
        call=f"the lines of {history.name} at {goal:,} of {history.total:,} commits",
        enqueue=lambda: analyze.using(queue=queue).enqueue(path, wanted, pace=pace, every=every),
        goal=goal,
        unit="commit",
        saved=lambda row: int(row.checkpoint["commit"]) if row.checkpoint else 0,
        queue=queue,
    )


def _folder(out: str) -> Path:
    """Return the folder for what comes out; until this process ends, no other demo gets it."""
    folder = Path(os.path.abspath(os.path.expanduser(out)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"--out {out}: {error.strerror}") from error
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed(f"--out {out}: another demo is running there") from None
    return folder


def _new_store(folder: Path) -> str:
    """The address of a SQLite file of this demo's own; what an earlier demo left is removed."""
    path = folder / STORE
    try:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error
    shutil.rmtree(f"{path}-locks", ignore_errors=True)
    return f"sqlite:///{quote(str(path))}"


def _absolute(url: str) -> str:
    """The same store for processes that stand in another directory. Raises ConfigError."""
    file = file_of(resolve_url(url))
    return url if file is None else _url_of(url, str(file))


def _url_of(url: str, path: str) -> str:
    """The URL with another path of its file."""
    scheme, settings = url.partition(":")[0], url.partition("?")[1:]
    return f"{scheme}:///{quote(path)}{''.join(settings)}"


# -- the demo itself -----------------------------------------------------------------------------


async def _play(plan: Play, folder: Path) -> int:
    """Play the story, leave no process behind, and write the picture; return the exit code."""
    cancel_when_terminated()
    os.environ["PYTHONPATH"] = ROOT  # from where a worker can import this example
    out = console()
    async with closing(app):
        inspector = (await app.stores.store()).inspector
        with Workers(folder, app.url, plan) as workers:
            story = Story(out, inspector, workers, plan)
            try:
                await story.play()
            except BaseException:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(story.give_up(), FAREWELL_SECONDS)
                raise
        assert story.job is not None
        result = await story.job.result()
        lost = await story.show_end(result)
        verified = await verify(inspector)
    killed_at = int(((lost.progress and lost.progress.fraction) or 0) * plan.goal)
    _write(folder, result, Interruption(max(killed_at, story.saved), story.saved))
    files = {what: str(folder / name) for what, name in FILES.items()}
    url = describe_place(app.url) if file_of(app.url) is None else app.url
    look = f"{own_command()} job {story.job.id} --url {url}"
    print_facts(out, {"verify": verdict(verified), **files, "look": look})
    return NOT_SO if verified.violations else DONE


def _write(folder: Path, result: Any, interruption: Interruption) -> None:
    evolution = Evolution.unpack(result)
    try:
        pictures = (folder / "evolution.png", folder / "evolution.svg")
        write_pictures(evolution, *pictures, interruption=interruption)
        write_numbers(folder / "evolution.json", evolution, interruption=interruption)
    except OSError as error:
        raise Failed(f"{folder}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
