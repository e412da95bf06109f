"""The hosts of a chaos run: for workers, for programs that enqueue, and for two servers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.namespaces import Host
from tests.chaos.judge import Failover
from tests.chaos.pair import Pair

AHEAD_MAX = 400 * 24 * 3600  # seconds since a host was booted, as it tells


class Bed:
    """All hosts, and which of them is under a fault that has to be undone."""

    def __init__(self, folder: Path, workers: int, seed: int, *, synchronous: bool) -> None:
        rng = random.Random(seed)

        def host(name: str, number: int) -> Host:
            return Host(name, number, folder, boot_ahead=rng.randrange(AHEAD_MAX))

        self.workers = [host(f"work-{number}", 20 + number) for number in range(workers)]
        self.clients = host("clients", 10)
        self._servers = host("db-1", 1), host("db-2", 2)
        self._held: set[Host] = set()
        self._synchronous = synchronous
        self.pair: Pair | None = None
        self.failovers: list[Failover] = []

    def start(self) -> None:
        """Boot all hosts and start the servers."""
        for host in (*self.workers, self.clients):
            host.power_on()
        for host in self._servers:
            Pair.power_on(host)
        self.pair = Pair(*self._servers, synchronous=self._synchronous)
        self.pair.start()

    def close(self) -> None:
        """End all that runs on them."""
        if self.pair is not None:
            self.pair.close()
        for host in (*self.workers, self.clients, *self._servers):
            host.power_off()

    def losses(self) -> list[Failover]:
        """Return what the judge has to excuse: nothing where commits wait for the standby."""
        return [] if self._synchronous else self.failovers

    def environment(self, host: Host) -> dict[str, str]:
        """Return what tells a process on this host how far its boot clock is ahead."""
        return {"OUTLAST_TEST_BOOT_AHEAD": str(host.boot_ahead)}

    def free(self) -> list[Host]:
        """Return the hosts of workers and clients that are under no such fault."""
        return [host for host in (*self.workers, self.clients) if host not in self._held]

    @contextmanager
    def hold(self, host: Host) -> Iterator[None]:
        """Let no other such fault come over this host."""
        self._held.add(host)
        try:
            yield
        finally:
            self._held.discard(host)
