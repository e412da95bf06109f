"""Hosts that are really apart, on one machine: network namespaces with a router between them.

The process that calls ``enter_own_network`` becomes the router: it leaves the machine's network for
one of its own, which has no way out, and only hosts made afterwards are in reach. Each ``Host`` has
an address, a host name, a boot id and a boot clock of its own; files and the numbers of processes
it shares with the machine. All of it is in namespaces, and these end with their last
process: on each host an anchor, which kills all others there when the router has ended, also if
that was killed.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
ROUTER = "10.77.0.254"
HOSTS = "10.77.0.0/24"
_SPACES = ("--net", "--mount", "--uts", "--time")
TOOLS = ("ip", "tc", "unshare", "nsenter", "mount")
_OFF_SECONDS = 120.0  # for its processes to be gone, on a machine that has much to do

_TRIAL = """
ip link add one type veth peer name two && ip rule add from 10.77.0.1 to all blackhole &&
tc qdisc add dev one root tbf rate 1mbit burst 16kb latency 400ms &&
mount --bind /proc/sys/kernel/ostype /proc/sys/kernel/random/boot_id &&
echo 1 > /proc/sys/net/ipv4/ip_forward
"""

# Makes the host what it is, waits until its input ends, and kills what runs there. It is the only
# process of the host that the test bed does not start by nsenter.
_ANCHOR = """
import os, signal, socket, subprocess, sys
name, boot_id = sys.argv[1:]
socket.sethostname(name)
subprocess.run(["mount", "--bind", boot_id, "/proc/sys/kernel/random/boot_id"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
print(os.getpid(), flush=True)
sys.stdin.read()
here = os.stat("/proc/self/ns/net").st_ino
def others():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino == here and int(pid) != os.getpid():
                yield int(pid)
        except OSError:
            pass
while left := list(others()):
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in left:
            try:
                os.kill(pid, number)
            except OSError:
                pass
"""


def why_not() -> str | None:
    """Return why there can be no such hosts here, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a feature of Linux"
    if os.geteuid() != 0:
        return "hosts of their own need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"hosts of their own need {', '.join(missing)}"
    command = ["unshare", *_SPACES, "--boottime=1", "--fork", "sh", "-c", _TRIAL]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no hosts of their own here: {tried.stderr.strip()}" if tried.returncode else None


def enter_own_network() -> None:
    """Make this process, which must have one thread, the router. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "no network of its own")
    run("ip", "link", "set", "lo", "up")
    run("ip", "route", "add", "blackhole", HOSTS)  # what is sent to a host that is off
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def run(*command: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Host:
    """One host: a place for processes, at the end of a link to the router. It is off at first.

    ``boot_ahead``: seconds by which its CLOCK_BOOTTIME and CLOCK_MONOTONIC are ahead of those of
    the machine.
    """

    def __init__(self, name: str, number: int, folder: Path, *, boot_ahead: int = 0) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self.boot_ahead = boot_ahead
        self._link = f"to-{name}"
        self._boot_id = folder / f"boot-id-{name}"
        self._anchor: subprocess.Popen[str] | None = None
        self._pid = 0

    @property
    def is_on(self) -> bool:
        return self._anchor is not None

    def power_on(self) -> None:
        """Boot it: nothing runs there, nothing is remembered, and its boot id is a new one."""
        assert not self.is_on
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        ahead = (f"--boottime={self.boot_ahead}", f"--monotonic={self.boot_ahead}", "--fork")
        anchor = (sys.executable, "-S", "-c", _ANCHOR, self.name, str(self._boot_id))
        self._anchor = subprocess.Popen(
            ["unshare", *_SPACES, *ahead, *anchor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # out of reach of Ctrl-C
        )
        assert self._anchor.stdout is not None
        self._pid = int(self._anchor.stdout.readline())
        peer = ("type", "veth", "peer", "name", "eth0", "netns", str(self._pid))
        run("ip", "link", "add", self._link, *peer)
        run("ip", "address", "add", ROUTER, "peer", self.address, "dev", self._link)
        run("ip", "link", "set", self._link, "up")
        self.run("ip", "address", "add", self.address, "peer", ROUTER, "dev", "eth0")
        self.link_up()

    def power_off(self) -> None:
        """Cut its power: all its processes end, and none of them sends a last word."""
        anchor, self._anchor = self._anchor, None
        if anchor is None or anchor.stdin is None or anchor.stdout is None:
            return
        run("ip", "link", "delete", self._link)
        anchor.stdin.close()
        anchor.wait(_OFF_SECONDS)
        anchor.stdout.close()

    def enter(self, *, unprivileged: bool = False) -> tuple[str, ...]:
        """Return the command that runs another one there, under the process id of its caller, in
        the present working directory."""
        assert self.is_on, f"{self.name} is off"
        user = pwd.getpwnam("nobody")
        who = (f"--setuid={user.pw_uid}", f"--setgid={user.pw_gid}") if unprivileged else ()
        there = (f"--target={self._pid}", *_SPACES, *who, f"--wdns={Path.cwd()}")
        return ("nsenter", *there, "--")

    def run(self, *command: str) -> None:
        """Run a command there that has to succeed."""
        run(*self.enter(), *command)

    def answer_to(self, address: str) -> None:
        """Take an address for its own, besides its first one."""
        self.run("ip", "address", "add", address, "dev", "lo")

    def receive(self, address: str) -> None:
        """From now on the router sends here what is for this address."""
        run("ip", "route", "replace", address, "dev", self._link)

    # --- faults of its link -----------------------------------------------------------------

    def link_down(self) -> None:
        """Pull its cable: its own sends fail, and what is sent to it is lost."""
        self.run("ip", "link", "set", "eth0", "down")

    def link_up(self) -> None:
        """Plug it in."""
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "replace", "default", "via", ROUTER, "dev", "eth0")

    def slow_down(self, kilobits: int) -> None:
        """Let its link carry so much a second each way, and lose what waits longer than 0.4 s."""
        shape = ("root", "tbf", "rate", f"{kilobits}kbit", "burst", "16kb", "latency", "400ms")
        run("tc", "qdisc", "replace", "dev", self._link, *shape)
        self.run("tc", "qdisc", "replace", "dev", "eth0", *shape)

    def speed_up(self) -> None:
        """Let its link be as fast as before."""
        run("tc", "qdisc", "delete", "dev", self._link, "root")
        self.run("tc", "qdisc", "delete", "dev", "eth0", "root")


@contextmanager
def swallowed(*ways: tuple[str, str]) -> Iterator[None]:
    """Let the router drop, without a word to anyone, what goes from one address to another.

    ``all`` stands for every address.
    """
    rules = [("from", from_, "to", to, "blackhole") for from_, to in ways]
    for rule in rules:
        run("ip", "rule", "add", *rule)
    try:
        yield
    finally:
        for rule in rules:
            run("ip", "rule", "delete", *rule)
