"""``outlast demo``: its options, and the folder of its store."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from outlast.base.config import absolute
from outlast.cli.errors import DEBUG_VARIABLE, Failed
from outlast.cli.loop import run_loop
from outlast.cli.options import option
from outlast.errors import UsageError


def demo(
    keep: Annotated[
        str | None,
        option("--keep", "DIR", "Leave the store and the workers' logs in this new folder."),
    ] = None,
) -> None:
    """Kill a worker halfway through a job, and watch the job finish.

    The job counts the primes below 100,000,000 in 40 blocks, and saves a checkpoint after each
    block. Two workers are started on a new SQLite file. Halfway, the worker that runs the job is
    killed with kill -9. The other worker sees that its lock file is free, closes the attempt with
    the reason, and starts the next attempt, which continues from the last checkpoint.

    It needs no server, takes some ten seconds, and leaves nothing behind, unless --keep names a
    folder: then you can inspect the job like one of your own, by `outlast job` and `outlast web`.
    The exit code is 1 if anything did not happen as promised, if the result is wrong, or if
    `outlast verify` finds a violation.

    Examples:
        outlast demo
        outlast demo --keep first-look
    """
    if sys.platform == "win32":
        raise UsageError("the demo needs Linux or macOS, as a worker does")
    for name in [name for name in os.environ if name.startswith("OUTLAST_")]:
        if name != DEBUG_VARIABLE:
            del os.environ[name]  # settings of your own workers, such as a message broker
    from outlast.cli.demo_story import play

    with _folder(keep) as folder:
        raise typer.Exit(run_loop(lambda: play(folder, kept=keep is not None)))


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Yield a new folder; a temporary one is deleted at the end. Failed if it cannot be
    made."""
    if keep is None:
        # killed runners may still write for an instant
        try:
            made = tempfile.TemporaryDirectory(prefix="outlast-", ignore_cleanup_errors=True)
        except OSError as error:
            raise Failed(f"{error.strerror}: name a new folder with --keep") from error
        with made as name:
            yield Path(name)
        return
    folder = absolute(os.path.expanduser(keep))
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise Failed(f"--keep {keep}: it already exists; name a new folder") from None
    except OSError as error:
        raise Failed(f"--keep {keep}: {error.strerror}") from error
    yield folder
