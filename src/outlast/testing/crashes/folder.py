"""The folder of a run, with what is there at its beginning, and the observers of the task's code.

They only observe: what Python itself reports (audit events), and calls of names that are replaced
before the application is imported. The kernel confines the process (``confine.py``).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from outlast.client.app import App
from outlast.testing.crashes import files, requests, servers
from outlast.testing.crashes.databases import Databases
from outlast.testing.crashes.process import TEMPLATE
from outlast.testing.crashes.recorder import Recorder, here, is_ours, name_jobs, record

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # event -> the places of its paths, and of the descriptors that they are relative to
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
}
_DEVICES = {"/dev/null", "/dev/tty"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"}


class RunFolder:
    """The folder of a run: ``path``, made from ``template``, with the ``store``'s file."""

    def __init__(self, base: Path, commands: Sequence[str]) -> None:
        self.base = base
        self.template, self.path = base / TEMPLATE, base
        self.store = ""
        self._temporary = str(base / "tmp")
        self._commands = set(commands)

    def observe(self) -> None:
        """Observe this process from now on: before the application is imported."""
        self._databases = Databases(self.name_of, lambda: self.path / self.store)
        self._databases.observe()
        files.observe(self.lasting_name)
        requests.observe()
        self._servers = servers.observe()
        sys.addaudithook(self._see)

    def observe_jobs(self, app: App) -> None:
        """Observe what the application enqueues."""
        for verb in ("enqueue", "enqueue_many"):
            setattr(app.stores, verb, _reaching(getattr(app.stores, verb)))

    def name_of(self, path: str) -> str:
        """Return the name of a path in the report."""
        real = Path(os.path.realpath(path))
        return str(real.relative_to(self.path)) if real.is_relative_to(self.path) else str(real)

    def lasting_name(self, path: str) -> str:
        """Return the name of a file of the folder in the report; "" for one elsewhere."""
        name = self.name_of(path)
        return "" if os.path.isabs(name) else name

    @contextmanager
    def enter(self, recorder: Recorder) -> Iterator[None]:
        """Within the block, the working directory is a folder of this process, empty but for
        copies, and the code of attempts is recorded."""
        self.path = self.base / f"run{os.getpid()}"
        _copy_tree(self.template, self.path)
        recorder.busy, recorder.release = self._databases.locks_store, self._release
        with chdir(self.path), record(recorder):
            try:
                yield
            finally:
                self._databases.close()
                shutil.rmtree(self.path, ignore_errors=True)

    def _release(self) -> None:
        self._databases.release()
        self._servers.release()

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" and event not in _CHANGES and event not in _STARTS:
            return
        if here().attempt is None or is_ours():
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                self._change("open", [os.fsdecode(path)])
        elif event in _STARTS:
            self._start(os.fsdecode(args[0] or args[1][0]) if args else "a copy of this process")
        else:
            places = [_path_of(args, *each) for each in _CHANGES[event]]
            self._change(event.removeprefix("os."), [each for each in places if each])

    def _start(self, command: str) -> None:
        program = command.split(maxsplit=1)[0]
        if not self._commands & {program, Path(program).name}:
            here().refuse(
                f"the task starts {command}, and its effects are not points:"
                f" --allow-command {Path(program).name} runs it in each run"
            )
        here().reach("command", f"start {Path(program).name}")

    def _change(self, verb: str, paths: Sequence[str]) -> None:
        for path in paths:
            self._note_outside(verb, os.path.realpath(path))
        names = [self.lasting_name(path) for path in paths]
        if any(names):
            here().reach("file", " ".join([verb, *names]), names)

    def _note_outside(self, verb: str, path: str) -> None:
        if not path.startswith(f"{self.base}{os.sep}") and path not in _DEVICES:
            here().note_outside(f"{verb} {path}")


def _path_of(args: tuple[Any, ...], place: int, folder: int | None) -> str:
    if isinstance(args[place], int):
        return ""
    path, at = os.fsdecode(args[place]), -1 if folder is None else args[folder]
    return path if at < 0 else os.path.join(os.readlink(f"/proc/self/fd/{at}"), path)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a folder without its times, which the kernel does not let us set."""
    target.mkdir()
    for each in source.iterdir():
        copy = target / each.name
        if each.is_symlink():
            copy.symlink_to(each.readlink())
        elif each.is_dir():
            _copy_tree(each, copy)
        else:
            opener = partial(os.open, mode=each.stat().st_mode & 0o777)
            with (
                files.REAL_OPEN(each, "rb") as old,
                files.REAL_OPEN(copy, "wb", opener=opener) as new,
            ):
                shutil.copyfileobj(old, new)


def _reaching(enqueue: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the store's provider that enqueues jobs, which is a point."""

    async def reach_and_enqueue(jobs: Sequence[Any], *args: Any) -> Any:
        tasks = sorted({job.task for job in jobs})
        here().reach("enqueue", f"enqueue {', '.join(tasks)}", map(name_jobs, tasks))
        return await enqueue(jobs, *args)

    return reach_and_enqueue
