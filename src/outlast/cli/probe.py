"""Run the child process of ``application.check_application``: import MODULE:APP, report its
tasks."""

from __future__ import annotations

import faulthandler
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import msgspec

import outlast
from outlast.cli.application import IMPORT_SLOW_SECONDS, Found, load
from outlast.cli.errors import AppImportError, traceback_tail
from outlast.errors import text_of
from outlast.runner.tether import die_with_parent


def main(spec: str, answer: int) -> None:
    """Write one ``Found`` as a line of JSON to the descriptor ``answer``."""
    die_with_parent()
    os.set_inheritable(answer, False)
    faulthandler.dump_traceback_later(IMPORT_SLOW_SECONDS, repeat=True)
    found = probe_application(spec)
    faulthandler.cancel_dump_traceback_later()
    with os.fdopen(answer, "wb") as pipe:
        pipe.write(msgspec.json.encode(found) + b"\n")
        pipe.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads that the module has started


def probe_application(spec: str) -> Found:
    """Return the contents of the application, or why it does not import."""
    try:
        app = load(spec)
        requires = {name: sorted(task.requires) for name, task in app.tasks.items()}
        aliases = sorted(alias for task in app.tasks.values() for alias in task.aliases)
        return Found(
            url=app.url,
            wakeup=app.wakeup,
            tasks=sorted(app.tasks),
            aliases=aliases,
            requires=requires,
            uses={name: task.uses for name, task in app.tasks.items() if task.uses},
            queues=sorted({task._placement.queue for task in app.tasks.values()}),  # noqa: SLF001
            folders=find_folders(sys.modules.values(), libraries()),
            encryption=app.stores.payloads.encryption,
        )
    except AppImportError as error:
        return Found(error=text_of(error), tail=error.tail)
    except Exception as error:
        return Found(error=f"cannot import {spec}: {text_of(error)}", tail=traceback_tail(error))


def libraries() -> tuple[str, ...]:
    """Return the folders of installed code: Python's own, other libraries, and Outlast."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    own = str(Path(outlast.__file__).parent)
    return (own, *(path for name in names if (path := sysconfig.get_path(name))))


def find_folders(modules: Iterable[object], installed: tuple[str, ...]) -> list[str]:
    """Return the folders with code of these modules that is not ``installed``. None of them lies
    inside another. A package gives its own folder, a single module the folder that holds it.
    """
    files = [getattr(module, "__file__", None) for module in list(modules)]
    folders = {Path(file).resolve().parent for file in files if isinstance(file, str)}
    own = [each for each in folders if each.is_dir() and not _lies_in(each, installed)]
    return sorted(str(each) for each in own if not any(up in own for up in each.parents))


def _lies_in(folder: Path, others: tuple[str, ...]) -> bool:
    if {"site-packages", "dist-packages"} & {*folder.parts}:
        return True
    return any(folder.is_relative_to(Path(other).resolve()) for other in others)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
