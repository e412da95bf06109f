"""Containers that mount the file of a SQLite store alone (`-v ./jobs.db:/app/jobs.db`, `subPath`).

What SQLite and Outlast keep beside the file would be in each container's own layer: jobs that were
accepted would vanish with it, and two containers would damage the file. A container is a mount
namespace here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.stores import opened
from tests.conformance.kit import job

ENTER = ("unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh")
COMMANDS = (
    *(
        "jobs",
        "stats",
        "why 1",
        "workers",
        "pause all",
        "migrate",
        "verify",
        "doctor",
        "run -- true",
    ),
    "worker --shell --runners 1 --until-empty",
)


def within(of_host: Path, there: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Outlast in a new container, to which this file or folder is mounted."""
    return subprocess.run(
        [*ENTER, str(of_host), str(there), sys.executable, "-m", "outlast", *command],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def container() -> None:
    """Skip where there can be none."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount namespace needs root and unshare")
    trial = [*ENTER, "/tmp", "/tmp", "true"]
    tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount namespace here: {tried.stderr.strip()}")


@pytest.fixture
async def on_host(tmp_path: Path, container: None) -> Path:
    """A store's file on the host, with one job."""
    file = tmp_path / "host" / "jobs.db"
    file.parent.mkdir()
    async with opened(f"sqlite:///{file}") as store:
        await store.enqueue([job()])
    return file


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The place of the file in the container."""
    file = tmp_path / "container" / "jobs.db"
    file.parent.mkdir()
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_mounted_alone_is_refused(on_host: Path, there: Path, command: str) -> None:
    there.touch()
    words = command.split(" -- ")
    url = ("--url", f"sqlite:///{there}")
    rest = ("--", *words[1:]) if words[1:] else ()
    done = within(on_host, there, *words[0].split(), *url, *rest)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "is mounted alone" in done.stderr
    assert "mount its directory" in done.stderr
    assert list(there.parent.iterdir()) == [there], "nothing is left in the container's layer"


def test_doctor_says_so_where_it_is_forced(on_host: Path, there: Path) -> None:
    there.touch()
    url = f"sqlite:///{there}?unsafe_filesystem=1"
    done = within(on_host, there, "doctor", "--json", "--url", url)
    findings = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert findings["file_system"]["level"] == "problem"
    assert "mounted alone" in findings["file_system"]["sentence"]


def test_doctor_names_a_file_that_has_two_names(on_host: Path, tmp_path: Path) -> None:
    """Each name has a log of its own beside it."""
    other = tmp_path / "other.db"
    other.hardlink_to(on_host)
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "doctor", "--json", "--url", f"sqlite:///{other}"],
        capture_output=True,
        check=False,
    )
    findings = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert findings["file_system"]["level"] == "problem"
    assert "2 hard links" in findings["file_system"]["sentence"]


def test_a_directory_that_is_mounted_serves_several_containers(on_host: Path, there: Path) -> None:
    url = ("--url", f"sqlite:///{there}")
    enqueued = within(on_host.parent, there.parent, "run", *url, "--", "true")
    assert enqueued.returncode == 0, enqueued.stderr
    shown = within(on_host.parent, there.parent, "jobs", "--json", *url)
    assert len(json.loads(shown.stdout)["jobs"]) == 2, shown.stdout
    assert list(there.parent.iterdir()) == []
