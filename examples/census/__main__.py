"""A worker is killed halfway through a real job, and the job finishes: ``make demo``.

The job counts the lines of code by language through the history of a git repository, and saves a
checkpoint every few commits. Two workers are started; the one that runs the job is killed with
kill -9 at about half, with everything below it. The other one notices and continues from the last
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
import io
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from examples.census.app import app
from examples.census.evolution import Evolution
from examples.census.git import NotARepository
from examples.census.history import SAMPLES_LEAST, SAMPLES_LIMIT, History
from examples.census.picture import Interruption, load_drawing, write_numbers, write_pictures
from examples.census.show import Show, show_on, timeline
from examples.census.story import Ending, Plan, Story
from examples.census.watch import Watch
from examples.census.workers import DemoWorkers
from outlast.base.clock import SYSTEM
from outlast.base.text import span
from outlast.cli.errors import DONE, INTERRUPTED, NOT_SO, WRONG_USAGE, NotSoError, say, tell
from outlast.cli.loop import run_loop
from outlast.cli.verify import verdict
from outlast.errors import text_of
from outlast.insight.verify import Verified, verify
from outlast.store.backend import describe_place, file_of, resolve_url

SHOW_SECONDS = 4.0
"""The least time the job takes, so that there is something to see and to kill."""
EVERY, PARTS = 5, 8
"""The most commits between two checkpoints, and the fewest checkpoints of a job."""
FAREWELL_SECONDS = 3.0
"""How long the store may take to take back the job of an interrupted demo."""
STORE = "outlast-demo.db"
FILES = {"picture": "evolution.png", "to zoom": "evolution.svg", "numbers": "evolution.json"}


def main() -> int:
    """Return the exit code: that of a command of Outlast, whose errors are told in the same way."""
    asked = parse()
    if importlib.util.find_spec("matplotlib") is None:
        say("the picture needs matplotlib: `make demo` installs it")
        return WRONG_USAGE
    try:
        plan = _plan(asked.repo, asked.commits)
        given = _absolute(asked.url) if asked.url else None
        with _folder(asked.out) as folder:
            app.url = given or _new_store(folder)
            return run_loop(lambda: _play(plan, folder, _console()))
    except KeyboardInterrupt:
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


def _plan(repo: str, wanted: int) -> Plan:
    """Look at the repository. Raises NotSoError where there is nothing to walk."""
    path = os.path.abspath(os.path.expanduser(repo))
    try:
        history = History.find(path)
    except NotARepository as error:
        other = "; --repo names another repository" if shutil.which("git") else ""
        raise NotSoError(f"{text_of(error)}{other}") from error
    if history.total < SAMPLES_LEAST:
        cut = " in this shallow clone (git fetch --unshallow gets the rest)"
        raise NotSoError(
            f"{history.name} has one commit{cut if history.shallow else ''}: the demo needs two,"
            " one to be done with and one to go on with; --repo names another repository"
        )
    goal = min(history.total, wanted)
    return Plan(
        repo=path,
        name=history.name,
        wanted=wanted,
        goal=goal,
        total=history.total,
        pace=SHOW_SECONDS / goal,
        every=max(1, min(EVERY, goal // PARTS)),
        queue=f"outlast-demo-{int(SYSTEM.random() * 16**8):08x}",
    )


@contextlib.contextmanager
def _folder(out: str) -> Iterator[Path]:
    """The folder for what comes out, made where needed, for this demo alone.

    Raises NotSoError where nothing can be written. An empty folder is not left behind.
    """
    folder = Path(os.path.abspath(os.path.expanduser(out)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise NotSoError(f"--out {out}: there is a file of that name") from None
    except OSError as error:
        raise NotSoError(f"--out {out}: {error.strerror}") from error
    try:
        _take(folder, fd, out)
        yield folder
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _take(folder: Path, fd: int, out: str) -> None:
    """Make sure that the folder can be written to, and is not another demo's just now."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NotSoError(f"--out {out}: nothing can be written there")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise NotSoError(f"--out {out}: another demo is running there") from None


def _new_store(folder: Path) -> str:
    """The address of a SQLite file of this demo's own; what an earlier demo left is removed."""
    path = folder / STORE
    try:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise NotSoError(f"{path}: {error.strerror}") from error
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


def _console() -> Console:
    """The terminal, or what stdout is instead; what it cannot show is replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console()


# -- the demo itself -----------------------------------------------------------------------------


async def _play(plan: Plan, folder: Path, console: Console) -> int:
    """Tell the story and leave no process behind; return the exit code."""
    show = show_on(console)
    store = await app.stores.store()
    with DemoWorkers(app.url, plan.queue, folder) as workers, _signals(workers) as caught:
        watch = Watch(store.inspector, plan.goal)
        story = Story(plan, workers, watch, show)
        try:
            _introduce(console, plan)
            ending = await _told(story, workers, show)
            _write(folder, ending)
            verified = await verify(store.inspector)
        except asyncio.CancelledError:
            say("interrupted: the workers are gone, and all below them")
            return 128 + caught[0]
    _conclude(console, plan, folder, ending, verified)
    return NOT_SO if verified.violations else DONE


async def _told(story: Story, workers: DemoWorkers, show: Show) -> Ending:
    """The story, and the end of the workers however it ends."""
    try:
        with show:
            await story.begin()
            drawing = asyncio.to_thread(load_drawing)  # while the job leaves the processors idle
            _, ending = await asyncio.gather(drawing, story.go_on())
            return ending
    except BaseException:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(story.give_up(), FAREWELL_SECONDS)
        raise
    finally:
        await workers.end()


@contextlib.contextmanager
def _signals(workers: DemoWorkers) -> Iterator[list[int]]:
    """A first signal ends the demo in order, a second one at once. Gives those that came."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    caught: list[int] = []

    def obey(number: int) -> None:
        caught.append(number)
        if len(caught) == 1:
            task.cancel()
        else:
            workers.kill()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, obey, number)
    try:
        yield caught
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


# -- what is left behind -------------------------------------------------------------------------


def _introduce(console: Console, plan: Plan) -> None:
    console.print(
        Text.assemble(
            ("Outlast", "bold"),
            f": one job counts the lines of {plan.name}, {plan.goal:,} of {plan.total:,} commits,"
            f" on {describe_place(app.url)}",
        ),
        soft_wrap=True,
    )


def _write(folder: Path, ending: Ending) -> None:
    evolution = Evolution.unpack(ending.result)
    interruption = Interruption(ending.killed_at, ending.resumed_from)
    try:
        pictures = (folder / "evolution.png", folder / "evolution.svg")
        write_pictures(evolution, *pictures, interruption=interruption)
        write_numbers(folder / "evolution.json", evolution, interruption=interruption)
    except OSError as error:
        raise NotSoError(f"{folder}: {error.strerror or error}") from error


def _conclude(
    console: Console, plan: Plan, folder: Path, ending: Ending, verified: Verified
) -> None:
    """The attempts, what they mean, whether the whole store is in order, where everything is."""
    kept = f"{ending.resumed_from} of {plan.goal} commits were not done twice"
    noticed = f"the death was noticed after {span(ending.noticed_after)}"
    console.print(timeline(ending.look, width=console.width))
    last = Text.assemble(("Completed in 2 attempts", "bold green"), f": {kept}; {noticed}.")
    console.print(last, soft_wrap=True)
    for what, where in {**_traces(folder, ending), "verify": verdict(verified)}.items():
        console.print(Text.assemble((f"  {what:<10}", "dim"), where), soft_wrap=True)


def _traces(folder: Path, ending: Ending) -> dict[str, str]:
    """What is left, and where."""
    files = {what: _near(folder / name) for what, name in FILES.items()}
    job = ending.look.job
    file = file_of(app.url)
    url = describe_place(app.url) if file is None else _url_of(app.url, _near(file))
    return {**files, "evidence": f"{own_command()} job {job.id if job else ''} --url {url}"}


def own_command() -> str:
    """Return what ``outlast`` is to be called by here: an environment that is not activated, such
    as that of ``make demo``, does not have it on the PATH."""
    beside = Path(sys.executable).with_name("outlast")
    if shutil.which("outlast") is not None or not beside.exists():
        return "outlast"
    return shlex.quote(_near(beside))


def _near(path: Path) -> str:
    """The path as people here would write it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


if __name__ == "__main__":
    sys.exit(main())
