"""The kernel confines the process of a crash test, and all that it starts: no call of the task, its
libraries or its children changes or reaches anything real."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness.servers import PostgresServer, unprivileged_user
from outlast.testing.crashes import confine
from tests.app import sandbox_acts

ROOT = Path(__file__).resolve().parents[2]
FLAGS = 0x80086601  # FS_IOC_GETFLAGS
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


class Real:
    """A folder, a database and servers which no crash test may change or reach."""

    def __init__(self, folder: Path, pg: str, pg_folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.pg = folder, pg
        (folder / "cache" / "sub").mkdir(parents=True)
        (folder / "empty").mkdir()
        for name in ("keep", "cache/a", "cache/sub/b"):
            (folder / name).write_text("precious")
        with contextlib.closing(sqlite3.connect(folder / "real.db")) as db:
            db.executescript("CREATE TABLE t (n); INSERT INTO t VALUES (1), (2), (3)")
        with psycopg.connect(pg) as rows:
            rows.execute("CREATE TABLE t AS SELECT generate_series(1, 10) AS n")
        self.sockets = [stack.enter_context(socket.socket(*kind)) for kind in self.KINDS]
        addresses: list[Any] = [("127.0.0.1", 0)] * 2
        addresses += [str(folder / "stream"), str(folder / "datagrams")]
        for one, address in zip(self.sockets, addresses, strict=True):
            one.bind(address)
            if one.type is socket.SOCK_STREAM:
                one.listen()
            one.setblocking(False)
        self.other = subprocess.Popen(["sleep", "600"])
        stack.callback(self.other.wait)
        stack.callback(self.other.kill)
        self.env = {
            "REAL": str(folder),
            "PG": pg,
            "PG_FOLDER": str(pg_folder),
            "TCP": str(self.sockets[0].getsockname()[1]),
            "UDP": str(self.sockets[1].getsockname()[1]),
            "OTHER_PROCESS": str(self.other.pid),
        }

    KINDS = (
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_UNIX, socket.SOCK_DGRAM),
    )

    def look(self) -> dict[str, object]:
        """Return everything that can be observed of it."""
        seen: dict[str, object] = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            kept = (status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_mtime_ns)
            seen[str(path)] = (*kept, status.st_nlink)
            if path.is_file():
                with path.open("rb") as file:
                    flags = fcntl.ioctl(file, FLAGS, bytes(8))
                    seen[f"in {path}"] = (file.read(), os.listxattr(path), flags)
        with psycopg.connect(self.pg) as db:
            seen["rows"] = db.execute("SELECT count(*) FROM t").fetchone()
        for kind, one in zip(self.KINDS, self.sockets, strict=True):
            with contextlib.suppress(BlockingIOError):
                reached = one.accept() if kind[1] is socket.SOCK_STREAM else one.recv(9)
                seen[f"reached: {kind}"] = str(reached)
        limits = Path(f"/proc/{self.other.pid}/limits").read_text()
        limits += str(os.sched_getaffinity(self.other.pid))
        return {**seen, "process": self.other.poll(), "limits": limits}


@pytest.fixture
def real(
    tmp_path: Path, bare_pg_url: str, pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Real]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # an ordinary user enters it
        real = Real(folder, bare_pg_url, pg_server.folder, stack)
        for name, value in real.env.items():
            monkeypatch.setenv(name, value)
        yield real


def crash_test(
    *arguments: str, prefix: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outlast.cli", "crash-test", "tests.app.sandbox_acts:app"]
    return subprocess.run(
        [*prefix, *command, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )


def told(output: str) -> dict[str, str]:
    """Return how each act ended, as the task prints it."""
    return dict(line.split(": ", 1) for line in output.splitlines() if line.split(": ")[0] in NAMES)


def act(given: dict[str, Any] | None = None, **options: Any) -> dict[str, str]:
    """Return how each act ended in a process that the kernel holds; or the error that says why it
    cannot, as "error"."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o777)
        program = options.pop("program", [confine.__file__])
        told = {"folder": name, "allow_connect": [], "sandbox": True, "path": sys.path}
        done = subprocess.run(
            [*options.pop("prefix", ()), sys.executable, "-P", "-S", *program],
            input=json.dumps({**told, "module": sandbox_acts.__name__, **(given or {})}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=100,
            check=True,
            **options,
        )
        answer = folder / confine.ANSWER
        found: dict[str, str] = json.loads(answer.read_text() if answer.exists() else done.stdout)
    return found


OLDER = """
import os, sys
from outlast.testing.crashes import confine

step, (most, error) = confine._step, map(int, sys.argv[1:3])
confine._prctl(38, 1)
size_of_landlock_create_ruleset = [step(0x20, 0), step(0x15, 444, 0, 3), step(0x20, 24)]
answers = [step(0x25, most, 0, 1), step(0x06, 0x50000 | error), step(0x06, 0x7FFF0000)]
confine._filter(b"".join([*size_of_landlock_create_ruleset, *answers]))
os.execv(sys.argv[3], sys.argv[3:])
"""


LINUX_6_1 = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("confine", {confine.__file__!r})
confine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(confine)
confine._RIGHTS = {{2: confine._RIGHTS[2]}}
confine.main()
"""


def as_on_a_kernel(most: int, error: int) -> list[str]:
    """Return what runs a command on this kernel as if it knew less of Landlock: the kernel answers
    with an error to rules of more bytes than ``most``."""
    return [sys.executable, "-c", OLDER, str(most), str(error)]


NAMES = {*sandbox_acts.ACTS, *sandbox_acts.ALLOWED}


@pytest.mark.slow_but("this kernel")
@pytest.mark.parametrize("known", [24, 8], ids=["this kernel", "one without rules for TCP"])
def test_a_task_changes_and_reaches_nothing_that_is_real(real: Real, known: int) -> None:
    before = real.look()
    said = crash_test("acts", prefix=as_on_a_kernel(known, errno.E2BIG))
    assert real.look() == before
    acts = told(said.stderr)
    assert acts.keys() == sandbox_acts.ACTS.keys()
    assert {name: how for name, how in acts.items() if how == "done"} == {}
    assert not Path("own.db").exists()


@pytest.mark.slow_but("own")
@pytest.mark.parametrize("user", ["own", "ordinary"])
def test_each_act_is_refused_on_the_spot_and_would_be_done_otherwise(real: Real, user: str) -> None:
    """As root, too, where that runs the tests."""
    options: dict[str, Any] = {}
    if user == "ordinary" and (options := unprivileged_user()):
        try:
            subprocess.run([sys.executable, "-c", ""], check=True, **options)
        except PermissionError:
            pytest.skip("an ordinary user may not run this interpreter")
        for path in (real.folder, *real.folder.rglob("*")):
            os.chown(path, options["user"], options["group"])
    before = real.look()
    acts = act(**options)
    assert real.look() == before
    assert {name for name, how in acts.items() if how == "done"} == {*sandbox_acts.ALLOWED}
    assert {name for name in sandbox_acts.UNKNOWN if "not permitted" not in acts[name]} == {*()}
    free = act({"sandbox": False}, **options)
    undone = {name for name, how in free.items() if how != "done"} - sandbox_acts.UNKNOWN
    assert undone <= (sandbox_acts.OF_ROOT if options or os.getuid() else {*()})


def test_a_port_is_reached_that_is_allowed_and_no_other(real: Real) -> None:
    acts = act({"allow_connect": [int(real.env["TCP"])]})
    done = {name for name, how in acts.items() if how == "done"}
    assert done == {"TCP", *sandbox_acts.ALLOWED}


@pytest.mark.slow
def test_an_older_kernel_refuses_whole_classes_of_acts(real: Real) -> None:
    before = real.look()
    without_signals = act(prefix=as_on_a_kernel(16, errno.E2BIG))
    without_tcp = act(prefix=as_on_a_kernel(8, errno.E2BIG))
    without_truncate = act(program=["-c", LINUX_6_1])
    assert real.look() == before
    for acts in (without_signals, without_tcp, without_truncate):
        done = {name for name, how in acts.items() if how == "done"}
        assert done == {*sandbox_acts.ALLOWED} - {"a signal to a child"}
    assert "Permission denied" in without_signals["TCP"]  # by its port
    assert "not permitted" in without_tcp["TCP"]  # any socket
    ports = {"allow_connect": [int(real.env["TCP"])]}
    assert act(ports, prefix=as_on_a_kernel(8, errno.E2BIG)) == {
        "error": "this kernel has no rules for ports of TCP (Linux 6.7): --no-sandbox runs it"
        " without one"
    }


def test_a_kernel_that_cannot_hold_the_process_is_named_and_no_sandbox_is_loud(
    real: Real,
) -> None:
    before = real.look()
    said = crash_test("acts", prefix=as_on_a_kernel(0, errno.ENOSYS))
    assert said.returncode == 2
    assert "this kernel has no Landlock" in said.stderr
    assert "--no-sandbox" in said.stderr
    assert real.look() == before
    loud = crash_test("nothing", "--no-sandbox", prefix=as_on_a_kernel(0, errno.ENOSYS))
    assert loud.returncode == 0, loud.stderr
    assert "WARNING: NO SANDBOX" in loud.stderr
    assert "note: there was NO SANDBOX" in loud.stdout


def test_the_process_has_no_descriptor_of_anything_real_and_no_capability(real: Real) -> None:
    with (real.folder / "keep").open("a") as kept:
        os.set_inheritable(kept.fileno(), True)
        said = crash_test("descriptors", close_fds=False)
    assert said.returncode == 0, said.stderr
    line = next(each for each in said.stderr.splitlines() if each.startswith("descriptors: "))
    named = json.loads(line.removeprefix("descriptors: "))
    mine = ("pipe:", "anon_inode:", "socket:", "/dev/null", "/dev/urandom")
    outside = [one for one in named if not one.startswith(mine) and "outlast-crash-" not in one]
    assert outside == []
    capabilities = [each.split() for each in said.stderr.splitlines() if each.startswith("Cap")]
    capabilities = [each for each in capabilities if each[0] != "CapBnd:" or os.getuid() == 0]
    assert {int(value, 16) for _, value in capabilities} == {0}


SITE = """
import sys
with open("/proc/self/status") as status:
    print("is held:", "Seccomp:\\t2" in status.read(), file=sys.stderr)
"""


def test_what_the_environment_runs_at_python_s_start_is_held_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    said = crash_test("nothing")
    told = [each for each in said.stderr.splitlines() if each.startswith("is held: ")]
    assert told == ["is held: False", "is held: True"], (
        said.stderr
    )  # of the command, and of its child


def test_what_is_refused_and_swallowed_is_in_the_report(real: Real) -> None:
    said = crash_test("swallows")
    assert said.returncode == 0, said.stderr
    notes = [each for each in said.stdout.splitlines() if each.startswith("note: refused")]
    told = f"note: refused, since outside: remove {real.folder}/cache/a (sandbox_acts.py:"
    assert [each for each in notes if each.startswith(told)] != []
