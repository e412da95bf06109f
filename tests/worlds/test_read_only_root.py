"""A host without a place for temporary files, such as a hardened pod (`readOnlyRootFilesystem`) or
a host whose disk is full. Means that only speed up recovery are missing there; all else works.

The host is a mount namespace in which only the test's folder is writable.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.scene import BY_LEASE, ROOT, Scene, WorkerProcess, boot
from outlast.model.lease import DeathCause
from tests.crash import kit

NOWHERE = {"OUTLAST_RUN_DIR": "", "XDG_RUNTIME_DIR": "", "TMPDIR": "", "TEMP": "", "TMP": ""}
# Mounts $1 once more, for writing, and everything else of files and folders for reading only.
READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
while read -r _ point _; do
    case "$point" in /proc|/proc/*|/sys|/sys/*|/dev|/dev/pts|"$1") continue ;; esac
    mount -o remount,bind,ro "$point"
done < /proc/self/mounts
echo ready
read -r _
"""
# Commands that look, and what else they need; all of them end by themselves.
APP = kit.APP
LOOKS = ("jobs", "job 1", "why 1", "stats", "workers", "verify", "doctor", f"rehearse {APP}")


class Enclosed:
    """The namespace: a command that begins with ``enter`` runs there."""

    def __init__(self, folder: Path) -> None:
        self._anchor = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._anchor.stdout is not None
        assert self._anchor.stderr is not None
        if self._anchor.stdout.readline() != "ready\n":
            said = self._anchor.stderr.read()
            self.end()
            pytest.skip(f"no mount namespace here: {said.strip()}")
        self.enter = (
            *("nsenter", f"--target={self._anchor.pid}", "--mount", f"--wdns={ROOT}"),
            "--",
        )

    def run(
        self, *command: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        return subprocess.run(
            [*self.enter, *command],
            env={**os.environ, **NOWHERE, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def end(self) -> None:
        """Leave it; it ends with its last process."""
        self._anchor.communicate()


@pytest.fixture
def enclosed(tmp_path: Path) -> Iterator[Enclosed]:
    """A namespace that may write into the test's folder only."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or os.geteuid() != 0:
        pytest.skip("a mount namespace needs root, unshare and nsenter")
    made = Enclosed(tmp_path)
    try:
        for folder in ("/tmp", "/var/tmp", str(ROOT), "/dev/shm"):
            assert made.run("touch", f"{folder}/written").returncode != 0, folder
        yield made
    finally:
        made.end()


@pytest.fixture
async def stage(pg_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene on PostgreSQL."""
    async with kit.scene(pg_url, tmp_path) as opened:
        yield opened


async def start(stage: Scene, world: Enclosed, **env: str) -> WorkerProcess:
    return await stage.worker(env={**NOWHERE, **env}, prefix=world.enter)


async def is_rescued(stage: Scene, dead: WorkerProcess, job: int) -> str | None:
    """Kill a worker under its job; wait until the other one runs it; return the cause."""
    died = boot()
    dead.kill_tree()
    entry = await stage.started(2)
    assert entry["at"] - died < BY_LEASE, stage.logs()
    stage.enough()
    await stage.ended(job)
    return next(row.cause for row in await stage.worker_rows() if row.cause is not None)


async def test_a_dead_workers_job_is_rescued_without_a_temporary_directory(stage, enclosed):
    one = await start(stage, enclosed)
    job = await stage.enqueue("counts")
    await stage.started(1)
    two = await start(stage, enclosed)
    assert [len(each.told("lock_file_missing")) for each in (one, two)] == [1, 1]
    assert await is_rescued(stage, one, job) == DeathCause.PRESENCE
    assert two.told("duty_failed") == []
    await two.left(signal.SIGTERM)


async def test_a_lock_file_is_read_where_the_disk_is_full(stage, enclosed, tmp_path):
    """The first worker made its lock file while there was room."""
    full = tmp_path / "full"
    full.mkdir()
    mounted = enclosed.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full))
    assert mounted.returncode == 0, mounted.stderr
    one = await start(stage, enclosed, TMPDIR=str(full))
    job = await stage.enqueue("counts")
    await stage.started(1)
    assert enclosed.run("dd", "if=/dev/zero", f"of={full}/all").returncode == 1, "no room is left"
    two = await start(stage, enclosed, TMPDIR=str(full))
    assert len(two.told("lock_file_missing")) == 1
    assert await is_rescued(stage, one, job) == DeathCause.LOCK_FILE


@pytest.mark.parametrize("look", LOOKS)
async def test_a_command_that_looks_needs_no_temporary_directory(look, stage, enclosed):
    await stage.enqueue("noop")
    words = look.split()
    seen = enclosed.run(sys.executable, "-m", "outlast", *words, env={"OUTLAST_URL": stage.url})
    assert seen.returncode in {0, 1}, seen.stderr
    assert "Traceback" not in seen.stderr


@pytest.mark.parametrize(
    ("command", "what"), [("demo", "--keep"), (f"crash-test {APP} noop", "TMPDIR")]
)
def test_a_command_that_writes_says_where_it_could(command, what, enclosed):
    seen = enclosed.run(sys.executable, "-m", "outlast", *command.split())
    assert seen.returncode in {1, 2}, seen.stderr
    assert what in seen.stderr


async def test_doctor_says_that_there_is_no_place_for_lock_files(stage, enclosed):
    seen = enclosed.run(
        sys.executable, "-m", "outlast", "doctor", "--json", env={"OUTLAST_URL": stage.url}
    )
    found = {each["name"]: each for each in json.loads(seen.stdout)["findings"]}
    assert found["lock_directory"]["level"] == "warning"
    assert "cannot create lock files" in found["lock_directory"]["sentence"]
