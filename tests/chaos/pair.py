"""A PostgreSQL primary and its streaming standby, each on a host of its own, behind one address.

The address leads to the primary, and moves when the standby is promoted. With ``synchronous`` a
commit waits for a standby always: also the promoted server waits for its successor.
"""

from __future__ import annotations

import json

from harness.namespaces import HOSTS, Host
from harness.servers import PostgresServer
from tests.chaos.judge import Failover, Name

ADDRESS = "10.77.0.100"
DATABASE = "chaos"
URL = f"postgresql://postgres@{ADDRESS}:5432/{DATABASE}"
_SETTINGS = {"listen_addresses": "*", "max_wal_size": "256MB", "wal_keep_size": "128MB"}
_SYNCHRONOUS = {"synchronous_standby_names": "*"}
_ALLOWED = f"host all all {HOSTS} trust\nhost replication all {HOSTS} trust\n"
_ROWS = "SELECT coalesce(json_agg(json_build_array(id, key, checkpoint)), '[]') FROM outlast_jobs"


class Pair:
    """The two servers. Its methods take seconds; they are for a thread."""

    def __init__(self, first: Host, second: Host, *, synchronous: bool) -> None:
        self._places = [first, second]
        self._synchronous = synchronous
        self.primary = self._server(first)
        self.standby: PostgresServer | None = None
        self._old = self.primary
        self._kept: dict[Name, int] = {}

    @property
    def host(self) -> Host:
        """The host of the primary."""
        return self._places[0]

    @property
    def other(self) -> Host:
        """The host of the standby."""
        return self._places[1]

    def start(self) -> None:
        """Start both, with an empty database."""
        self.primary.start()
        self._follow()
        self.primary.create_database(DATABASE)
        self.host.receive(ADDRESS)

    def close(self) -> None:
        """Leave nothing of either."""
        for server in (self._old, self.primary, self.standby):
            if server is not None:
                server.dispose()

    def fail_over(self) -> None:
        """Promote the standby, whose primary is out of reach, and move the address to it."""
        assert self.standby is not None
        self.standby.promote()
        self._kept = self._rows(
            self.standby
        )  # the address leads to the other: no client has been here
        self._old, self.primary, self.standby = self.primary, self.standby, None
        self._places.reverse()
        self.host.receive(ADDRESS)

    def rebuild(self, at: float) -> Failover:
        """Switch off what was the primary until that time, and make a standby there; return what
        the failover has lost."""
        self.other.power_off()
        self.power_on(self.other)
        had = self._rows_of_the_dead(self._old)
        self._old.dispose()
        self._follow()
        steps = {job: step for (job, _), step in self._kept.items()}
        return Failover(at=at, lost=had.keys() - self._kept.keys(), steps=steps)

    def renew_standby(self) -> None:
        """Boot the standby's host, which is off, with a new standby on it."""
        if self.standby is not None:
            self.standby.dispose()
        self.power_on(self.other)
        self._follow()

    @staticmethod
    def power_on(host: Host) -> None:
        """Boot one of the two hosts."""
        host.power_on()
        host.answer_to(ADDRESS)

    # --- how -----------------------------------------------------------------------------------

    def _server(self, host: Host, of: PostgresServer | None = None) -> PostgresServer:
        more = _SYNCHRONOUS if self._synchronous else {}
        server = PostgresServer(
            settings=_SETTINGS | more,
            port=5432,
            standby_of=of,
            host=host.address,
            prefix=host.enter(unprivileged=True),
        )
        if of is None:
            with (server.data / "pg_hba.conf").open("a") as allowed:
                allowed.write(_ALLOWED)
        return server

    def _follow(self) -> None:
        self.standby = self._server(self.other, self.primary)
        self.standby.start()

    def _rows(self, server: PostgresServer) -> dict[Name, int]:
        """Return the jobs there, and at which step each is. Synchronous servers have the same."""
        if self._synchronous:
            return {}
        rows = json.loads(server.sql(_ROWS, DATABASE))
        return {(job, key): json.loads(saved or "{}").get("step", 0) for job, key, saved in rows}

    def _rows_of_the_dead(self, old: PostgresServer) -> dict[Name, int]:
        """Start it once more: no client has its own address."""
        if self._synchronous:
            return {}
        old.kill()
        old.prefix = self.other.enter(unprivileged=True)
        old.start()
        rows = self._rows(old)
        old.kill()
        return rows
