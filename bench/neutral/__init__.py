"""The neutral harness's long run, natively: steady load, then pressure and chaos, phase by phase.

It plays the phases of github.com/hardbyte/postgresql-job-queue-benchmarking for any adapter of that
harness, ours by default, without its containers; the harness itself takes `adapter.py` and
`adapter.json` as they are. Losses are printed as they are.

    python -m bench neutral [--held MINUTES] [--only held,kill] [--adapter COMMAND] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import mean, median

import psycopg

from bench.environment import SETTINGS
from bench.kit import keep, tell
from harness.servers import PostgresServer

ADAPTER = shlex.join([sys.executable, str(Path(__file__).with_name("adapter.py"))])
SAMPLE_SECONDS, SECONDS, QUICK_SECONDS = 5, 60.0, 6.0
TAIL = 6  # samples at the end of a phase that tell where it has led
START_SECONDS = 60.0
KEPT = 0.8  # of the clean rate, at the end of a held transaction


class Replicas:
    """The processes of an adapter, and what they have said: (instance, metric) -> values."""

    def __init__(self, command: str, url: str, every: float, count: int) -> None:
        self._command, self._url, self._every = command, url, every
        self.said: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._processes: dict[int, subprocess.Popen[str]] = {}
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        """Start one, and read what it says."""
        settings = {"SCENARIO": "long_horizon", "SAMPLE_EVERY_S": str(int(self._every))}
        settings |= {"DATABASE_URL": self._url, "BENCH_INSTANCE_ID": str(number)}
        process = subprocess.Popen(
            shlex.split(self._command),
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes[number] = process
        threading.Thread(target=self._read, args=(number, process), daemon=True).start()

    def kill(self, number: int) -> None:
        """``kill -9``."""
        self._processes[number].kill()
        self._processes[number].wait()

    def stop(self) -> None:
        """Let all end."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def _read(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            if line["kind"] == "adapter":
                self.said[number, line["metric"]].append(line["value"])

    def values(self, metric: str, since: dict[tuple[int, str], int]) -> list[list[float]]:
        """Return what each has said of a metric since then."""
        return [
            values[since.get(key, 0) :] for key, values in self.said.items() if key[1] == metric
        ]


@contextmanager
def held(url: str, _: Replicas, __: PostgresServer) -> Iterator[None]:
    """A transaction with a snapshot and an id stays open."""
    with closing(psycopg.connect(url)) as session:  # its end tells no more, so may not fail
        session.execute("SELECT txid_current()")
        yield


@contextmanager
def killed(_: str, replicas: Replicas, __: PostgresServer) -> Iterator[None]:
    """The first of the two is killed, and is started again after the phase."""
    replicas.kill(0)
    yield
    replicas.start(0)


@contextmanager
def repeatedly(act: Callable[[], object], seconds: float) -> Iterator[None]:
    """Do something again and again."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def backends(url: str, _: Replicas, server: PostgresServer) -> Iterator[None]:
    """Each second a session of the adapter is ended by the server."""
    name = url.rpartition("/")[2]
    one = f"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE datname = '{name}' ORDER BY random() LIMIT 1"""
    with repeatedly(lambda: server.sql(one), 1.0):
        yield


@contextmanager
def restarted(_: str, __: Replicas, server: PostgresServer) -> Iterator[None]:
    """The server is restarted."""
    server.restart("fast")
    yield


@contextmanager
def calm(_: str, __: Replicas, ___: PostgresServer) -> Iterator[None]:
    """Nothing happens."""
    yield


PHASES = {
    "warmup": calm,
    "clean": calm,
    "held": held,
    "recovery": calm,
    "kill": killed,
    "after the kill": calm,
    "backends": backends,
    "restart": restarted,
    "end": calm,
}


CALM = ("warmup", "clean")  # what all else is compared with


def main(chosen: argparse.Namespace) -> int:
    """Play the phases, and print what each has done to the rates. Returns 1 if the rate at the end
    of the held transaction is below KEPT of the clean one."""
    seconds, every = (QUICK_SECONDS, 1) if chosen.quick else (SECONDS, SAMPLE_SECONDS)
    found: dict[str, dict[str, float]] = {}
    names = [each for each in PHASES if not chosen.only or each in {*CALM, *chosen.only}]
    whole = seconds * len(names)
    if "held" in names and not chosen.quick:
        whole += 60 * chosen.held - seconds
    with (
        tell("neutral", len(names), whole / len(names)) as step,
        PostgresServer(settings=SETTINGS) as server,
    ):
        url = server.create_database("outlast_bench")
        replicas = Replicas(chosen.adapter or ADAPTER, url, every, count=2)
        try:
            for name in names:
                takes = 60 * chosen.held if name == "held" and not chosen.quick else seconds
                since = {key: len(values) for key, values in replicas.said.items()}
                with PHASES[name](url, replicas, server):
                    time.sleep(takes)
                found[name] = figures(replicas, since)
                step(name)
        finally:
            replicas.stop()
    rows = [
        (
            name,
            *(
                f"{one[key]:,.1f}"
                for key in ("enqueued", "completed", "at the end", "p99", "waiting")
            ),
        )
        for name, one in found.items()
    ]
    table = [("phase", "enqueued/s", "completed/s", "at its end", "claim p99 ms", "waiting")]
    for row in (*table, *rows):
        print("| " + " | ".join(row) + " |")
    keep("neutral", [{"phase": name, **one} for name, one in found.items()], whole=not chosen.quick)
    if "held" not in found:
        return 0
    left = found["held"]["at the end"] / max(1.0, found["clean"]["completed"])
    print(f"at the end of the held transaction: {left:.2f} of the clean rate")
    return int(left < KEPT)


def figures(replicas: Replicas, since: dict[tuple[int, str], int]) -> dict[str, float]:
    """Return what all replicas together did in a phase."""

    def of(metric: str, pick: Callable[[list[float]], float]) -> list[float]:
        return [pick(values) for values in replicas.values(metric, since) if values]

    return {
        "enqueued": sum(of("enqueue_rate", mean)),
        "completed": sum(of("completion_rate", mean)),
        "at the end": sum(of("completion_rate", lambda values: mean(values[-TAIL:]))),
        "p99": max(of("claim_p99_ms", median), default=0.0),
        "waiting": max(of("queue_depth", lambda values: values[-1]), default=0.0),
    }
