"""What a task may do to real things, in every way that is known to pass by a replaced name.

`REAL` names a folder that is not the sandbox's. Each act ends in the same way the second time, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import multiprocessing
import multiprocessing.pool
import os
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sqlite3 import connect as bound_connect
from typing import Any

from psycopg import connect as bound_pg_connect

import outlast

app = outlast.App("sqlite:///own.db")
REAL = Path(os.environ.get("REAL", os.devnull))
PG, PG_FOLDER = os.environ.get("PG", ""), os.environ.get("PG_FOLDER", "")
TCP, UDP = int(os.environ.get("TCP", "0")), int(os.environ.get("UDP", "0"))
LIBC = ctypes.CDLL(None, use_errno=True)
OWN_THREAD = ThreadPoolExecutor(1)
OWN_THREAD.submit(int).result()
try:  # only where the acts are tried: a test that reads their names would leave it behind
    POOL: Any = REAL.is_dir() and multiprocessing.pool.ThreadPool(1)
except OSError:  # its locks are in /dev/shm
    POOL = None
AT_IMPORT = REAL.is_dir() and subprocess.Popen(
    ["sh", "-c", f"rm -f '{REAL}/keep'; echo x > '{REAL}/at-import'"], stderr=subprocess.DEVNULL
)


def call(*numbers: Any) -> int:
    """Make a system call by its number."""
    given = (ctypes.c_long(each) if isinstance(each, int) else each for each in numbers)
    if (answer := LIBC.syscall(*given)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def c_call(name: str, *args: Any) -> None:
    if getattr(LIBC, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def by_folder() -> None:
    folder = os.open(REAL, os.O_RDONLY)
    try:
        os.close(os.open("by_dir_fd", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    finally:
        os.close(folder)


def run_sql(connect: Callable[..., Any], place: str, *statements: str) -> None:
    with contextlib.closing(connect(place)) as db:
        for statement in statements:
            db.execute(statement)
            db.commit()


def in_child(kind: str) -> None:
    context: Any = multiprocessing.get_context(kind)
    process = context.Process(target=append, args=("by_a_child",))
    process.start()
    process.join()
    if process.exitcode:
        raise ChildProcessError(process.exitcode)


def append(name: str) -> None:
    with open(REAL / name, "a") as file:
        file.write("x")


def run(*command: str) -> None:
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def spawn() -> None:
    pid = os.posix_spawn("/bin/rm", ["rm", str(REAL / "keep")], os.environ)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ChildProcessError(status)


def truncate_by_reading() -> None:
    os.close(os.open(REAL / "keep", os.O_RDONLY | os.O_TRUNC))


def truncate_by_number(flags: int) -> None:
    os.close(call(2, os.fsencode(REAL / "keep"), flags | os.O_TRUNC))  # open, not openat


def enter_a_namespace() -> None:
    if (pid := call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def change_flags() -> None:
    """Do as `chattr +d`: it needs no descriptor for writing."""
    with open(REAL / "keep") as file:
        fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x40))


def link_in_and_write() -> None:
    os.link(REAL / "keep", "linked")
    append("linked")


def write_through_a_symlink() -> None:
    os.symlink(REAL / "keep", "way")
    Path("way").write_text("x")


def share_memory() -> None:
    path = Path(f"/dev/shm/outlast-{os.getpid()}")
    path.touch()
    path.unlink()


def make_and_remove() -> None:
    os.makedirs("own/a")
    Path("own/a/file").write_text("x")
    os.rename("own/a/file", "own/file")
    os.link("own/file", "own/a/file")
    shutil.rmtree("own")


def send(kind: int, to: Any) -> None:
    with socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET, kind) as own:
        own.connect(to)
        own.send(b"x")


def send_by_pair() -> None:
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, other:
        ours.sendto(b"x", str(REAL / "datagrams"))


def send_fast() -> None:
    with socket.socket() as own:
        own.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", TCP))


def send_message_fast() -> None:
    with socket.socket() as own:
        own.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", TCP))


def send_messages_fast() -> None:
    """Send one message of a sockaddr_in by sendmmsg."""
    with socket.socket() as own:
        address = ctypes.create_string_buffer(
            struct.pack("=H", 2) + struct.pack("!HI8x", TCP, 2130706433)
        )
        text = ctypes.create_string_buffer(b"x")
        part = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(text), 1))
        pointers = (ctypes.addressof(address), 16, ctypes.addressof(part), 1, 0, 0, 0, 0)
        message = ctypes.create_string_buffer(struct.pack("QIxxxxQQQQIxxxxQ", *pointers))
        call(307, own.fileno(), message, 1, socket.MSG_FASTOPEN)


def listen_unbound() -> None:
    with socket.socket() as own:
        own.listen()


def connect_fast() -> None:
    with socket.socket() as own:
        own.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
        own.connect(("127.0.0.1", TCP))
        own.send(b"x")


def own_signals_of() -> None:
    """Let the kernel send SIGIO to a process of the user's."""
    read, write = os.pipe()
    with open(read, "rb"), open(write, "wb"):
        fcntl.fcntl(read, fcntl.F_SETOWN, int(os.environ["OTHER_PROCESS"]))


def call_as_i386() -> None:
    """Call getpid by `int 0x80`."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=7)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if (pid := os.fork()) == 0:
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ChildProcessError(signal.Signals(-status).name)


ACTS: dict[str, Callable[[], object]] = {
    "rmtree": lambda: shutil.rmtree(REAL / "cache"),
    "by a folder's descriptor": by_folder,
    "symlink": lambda: os.symlink("/etc/passwd", REAL / "link"),
    "mkfifo": lambda: os.mkfifo(REAL / "fifo"),
    "mknod": lambda: os.mknod(REAL / "socket", 0o140600),
    "rmdir": lambda: os.rmdir(REAL / "empty"),
    "mkdir": lambda: os.mkdir(REAL / "new"),
    "rename": lambda: os.rename(REAL / "keep", REAL / "other"),
    "rename into the sandbox": lambda: os.rename(REAL / "keep", "taken"),
    "link into the sandbox": link_in_and_write,
    "through a symlink of the sandbox": write_through_a_symlink,
    "append": lambda: append("keep"),
    "truncate": lambda: os.truncate(REAL / "keep", 0),
    "truncate by reading": truncate_by_reading,
    "truncate by open": lambda: truncate_by_number(os.O_RDONLY),
    "truncate without access": lambda: truncate_by_number(os.O_ACCMODE),
    "utime": lambda: os.utime(REAL / "keep", (1, 1)),
    "chmod": lambda: os.chmod(REAL / "keep", 0o600),
    "fchmodat2": lambda: call(452, -100, os.fsencode(REAL / "keep"), 0o600, 0),
    "chown": lambda: os.chown(REAL / "keep", os.getuid(), os.getgid()),
    "setxattr": lambda: os.setxattr(REAL / "keep", "user.a", b"1"),
    "setxattrat": lambda: call(463, -100, os.fsencode(REAL / "keep"), 0, b"user.a", None, 0),
    "chattr": change_flags,
    "io_uring": lambda: call(425, 1, ctypes.create_string_buffer(120)),
    "a number of x32": lambda: call(0x40000000 + 90, os.fsencode(REAL / "keep"), 0o600),
    "a call of i386": call_as_i386,
    "a namespace": lambda: c_call("unshare", 0x10000000),
    "a child in a namespace": enter_a_namespace,
    "unlink in C": lambda: c_call("unlink", os.fsencode(REAL / "keep")),
    "posix_spawn": spawn,
    "a command": lambda: run("rm", str(REAL / "keep")),
    "a shell in its own session": lambda: run("setsid", "sh", "-c", f"echo x >> '{REAL}/keep'"),
    "multiprocessing, spawn": lambda: in_child("spawn"),
    "multiprocessing, fork": lambda: in_child("fork"),
    "multiprocessing, forkserver": lambda: in_child("forkserver"),
    "a pool made at import": lambda: POOL.apply(append, ("keep",)),
    "a thread made at import": lambda: OWN_THREAD.submit(append, "keep").result(1),
    "SQLite": lambda: run_sql(sqlite3.connect, f"{REAL}/real.db", "DELETE FROM t"),
    "SQLite by a bound name": lambda: run_sql(bound_connect, f"{REAL}/real.db", "DELETE FROM t"),
    "ATTACH": lambda: run_sql(
        sqlite3.connect, "mine.db", f"ATTACH '{REAL}/real.db' AS r", "DELETE FROM r.t"
    ),
    "VACUUM INTO": lambda: run_sql(sqlite3.connect, "mine.db", f"VACUUM INTO '{REAL}/dump.db'"),
    "shared memory": share_memory,
    "PostgreSQL by TCP": lambda: run_sql(bound_pg_connect, PG, "DELETE FROM t"),
    "PostgreSQL by a path": lambda: run_sql(
        bound_pg_connect, f"{PG}?host={PG_FOLDER}", "DELETE FROM t"
    ),
    "TCP": lambda: send(socket.SOCK_STREAM, ("127.0.0.1", TCP)),
    "TCP by MSG_FASTOPEN": send_fast,
    "TCP by a message with MSG_FASTOPEN": send_message_fast,
    "TCP by messages with MSG_FASTOPEN": send_messages_fast,
    "TCP by TCP_FASTOPEN_CONNECT": connect_fast,
    "MPTCP": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262),
    "UDP": lambda: send(socket.SOCK_DGRAM, ("127.0.0.1", UDP)),
    "a socket by path": lambda: send(socket.SOCK_STREAM, str(REAL / "stream")),
    "a datagram by path": lambda: send(socket.SOCK_DGRAM, str(REAL / "datagrams")),
    "a datagram by a pair": send_by_pair,
    "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "a netlink socket": lambda: socket.socket(16, socket.SOCK_RAW),
    "a listening socket without a name": listen_unbound,
    "a listening socket": lambda: socket.create_server(("127.0.0.1", 0)),
    "the processors of another process": lambda: os.sched_setaffinity(
        int(os.environ["OTHER_PROCESS"]), os.sched_getaffinity(0)
    ),
    "the memory of another process": lambda: open(
        f"/proc/{os.environ['OTHER_PROCESS']}/mem", "r+b"
    ).close(),
    "a signal": lambda: os.kill(int(os.environ["OTHER_PROCESS"]), signal.SIGUSR1),
    "SIGIO": own_signals_of,
    "limits of another process": lambda: call(
        302, int(os.environ["OTHER_PROCESS"]), 7, struct.pack("QQ", 64, 64), None
    ),
}
UNKNOWN = {"setxattrat", "io_uring", "a number of x32", "a namespace"}
"""Calls that a kernel may not know, or whose arguments here are wrong."""
OF_ROOT = {
    "a raw socket",
    "the processors of another process",
    "limits of another process",
    "the memory of another process",
    "a signal",
}
ALLOWED: dict[str, Callable[[], object]] = {
    "write in the sandbox": lambda: Path("own.txt").write_text("x"),
    "rename in the sandbox": lambda: os.rename("own.txt", "renamed.txt"),
    "a temporary file": lambda: tempfile.NamedTemporaryFile().close(),
    "folders in the sandbox": make_and_remove,
    "SQLite in the sandbox": lambda: run_sql(
        sqlite3.connect, "mine.db", "PRAGMA journal_mode = WAL", "CREATE TABLE IF NOT EXISTS a (b)"
    ),
    "read": lambda: Path("/etc/passwd").read_text(),
    "the null device": lambda: Path("/dev/null").write_text("x"),
    "a thread": lambda: ThreadPoolExecutor(1).submit(int).result(),
    "a child": lambda: run("true"),
    "a signal to a child": lambda: subprocess.Popen(
        ["sleep", "9"], stdout=subprocess.DEVNULL
    ).kill(),
}


def restore() -> None:
    """Make what acts need, so that each finds it."""
    for name in ("keep", "cache/a", "cache/sub/b"):
        (REAL / name).parent.mkdir(parents=True, exist_ok=True)
        (REAL / name).write_text("precious")


def try_all(acts: dict[str, Callable[[], object]], before: Callable[[], object]) -> dict[str, str]:
    """Do each act; return how it ended: "done", or its error."""
    found = {}
    for name, act in acts.items():
        before()
        try:
            act()
            found[name] = "done"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def main(given: dict[str, Any]) -> None:
    """Try all in this process, which `confine.py` holds or not; print how each ended."""
    os.chdir(given["folder"])
    tempfile.tempdir = given["folder"]
    if AT_IMPORT:
        AT_IMPORT.wait()  # it deletes what the acts need
    before = (lambda: None) if given["sandbox"] else restore
    print(json.dumps({**try_all(ACTS, before), **try_all(ALLOWED, before)}))


@app.task(retries=0)
def acts() -> None:
    """Do each act, and tell it."""
    found = try_all(ACTS, lambda: None)
    print(*(f"{name}: {how}" for name, how in found.items()), sep="\n", file=sys.stderr)
    assert AT_IMPORT
    AT_IMPORT.wait(60)


@app.task
def nothing() -> None:
    """Do nothing."""


@app.task
def descriptors() -> None:
    """Tell what this process has open, and its capabilities."""
    named = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            named.append(os.readlink(f"/proc/self/fd/{name}"))
    print("descriptors:", json.dumps(named), file=sys.stderr)
    status = Path("/proc/self/status").read_text().splitlines()
    print(*(line for line in status if line.startswith("Cap")), sep="\n", file=sys.stderr)


@app.task
def swallows() -> None:
    shutil.rmtree(REAL / "cache", ignore_errors=True)
