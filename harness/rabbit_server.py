"""A RabbitMQ server for the tests: a node of one's own, in a temporary folder, on free ports.

The package is Debian's (`make test-all` installs it); its system service is not used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from harness.certificates import Authority
from harness.servers import Disposable, free_port, start_janitor

HOME = Path("/usr/lib/rabbitmq/bin")
EPMD = Path("/usr/bin/epmd")
START_SECONDS = 480.0  # fifteen seconds of a processor's time, which take long on a busy machine


def missing() -> str | None:
    """Return why there is no server, or None."""
    if (HOME / "rabbitmq-server").exists():
        return None
    return "there is no RabbitMQ here: apt-get install rabbitmq-server, or make test-all"


class RabbitServer(Disposable):
    """One node. It keeps its ports and, unless it is wiped, its data."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-rmq-"))
        self.port, self.dist, self.epmd = free_port(), free_port(), free_port()
        self.tls_port: int | None = None
        self.log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self._janitor = start_janitor(self.folder, self.folder / "server.pid")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "server.pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "server.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
            " -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_CRASH_DUMP": str(self.folder / "crash.dump"),
        }

    def speak_tls(self, authority: Authority) -> None:
        """From the next start on also accept TLS, from clients certified by this authority."""
        self.tls_port = free_port()
        cert, key = authority.sign("rabbit")
        lines = {
            "listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": authority.cert,
            "ssl_options.certfile": cert,
            "ssl_options.keyfile": key,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
        }
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.folder / "server.conf").write_text(text)

    def start(self) -> None:
        """Start; return when it takes connections."""
        (self.folder / "plugins").write_text("[].\n")
        if self._mapper is None:  # otherwise the node starts one that outlives it
            self._mapper = subprocess.Popen(
                [EPMD, "-address", "127.0.0.1", "-port", str(self.epmd)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [HOME / "rabbitmq-server"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"RabbitMQ did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe,
        ):
            probe.sendall(b"AMQP\0\0\x09\1")
            return bool(probe.recv(1))
        return False

    def ctl(self, *command: str) -> str:
        """Run rabbitmqctl on the node; return its output."""
        done = subprocess.run(
            [HOME / "rabbitmqctl", "--quiet", *command],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
            env=self.env,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {command[0]}: {done.stderr or done.stdout}")
        return done.stdout

    def kill(self, *, wipe: bool = False) -> None:
        """kill -9; with ``wipe`` its data are gone, too."""
        if self._process is not None:
            for process in self._tree():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            self._process = None
        if wipe:
            shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _tree(self) -> list[psutil.Process]:
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def dispose(self) -> None:
        """Leave nothing behind."""
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
        self.remove_folder()
