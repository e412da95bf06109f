"""Three cells: one is killed while the others go on, and a tenant moves while it enqueues."""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.live import Workers, until
from harness.servers import PostgresServer
from outlast import StoreUnavailable

TENANTS = [f"tenant-{number}" for number in range(30)]
WATCHED = "store_unavailable store_recovered"
Done = list[tuple[str, int, str]]  # tenant, number, cell: in the order in which they ran


def main() -> int:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(PostgresServer()) for name in ("a", "b", "c")}
        folder = Path(stack.enter_context(TemporaryDirectory()))
        urls = {name: server.create_database("jobs") for name, server in servers.items()}
        os.environ |= {
            "CELLS": json.dumps(urls),
            "CELLS_MOVED": str(folder / "moved.json"),
            "CELLS_OUT": str(folder / "out"),
        }
        workers = Workers("examples.cells.app:app", WATCHED)
        stack.callback(workers.end)
        for name, url in urls.items():
            workers.start(f"worker-{name}", OUTLAST_URL=url, CELL=name)
        for name in urls:
            workers.wait("worker_ready", by=f"worker-{name}")
        return asyncio.run(play(workers, servers, folder / "out"))


async def play(workers: Workers, servers: dict[str, PostgresServer], out: Path) -> int:
    from examples.cells.app import apps, enqueue_invoice, find_cell, move  # it reads CELLS

    homes = {tenant: find_cell(tenant) for tenant in TENANTS}
    of_b = [tenant for tenant in TENANTS if homes[tenant] == "b"]
    others = [tenant for tenant in TENANTS if homes[tenant] != "b"]

    workers.scene("1. Cell b is killed. Every tenant enqueues.")
    servers["b"].kill()
    began, refused = time.monotonic(), 0
    for tenant in others:
        await enqueue_invoice(tenant, 1)
    until(lambda: len(read(out)) == len(others))
    went_on = time.monotonic() - began
    for answer in await asyncio.gather(
        *[enqueue_invoice(each, 1) for each in of_b], return_exceptions=True
    ):
        assert isinstance(answer, StoreUnavailable), answer
        refused += 1
    servers["b"].start()
    for tenant in of_b:  # a program tries again; the key makes one job of both tries
        await enqueue_invoice(tenant, 1)
    until(lambda: len(read(out)) == len(TENANTS))

    workers.scene("2. A tenant moves from one cell to another while it enqueues.")
    tenant = others[0]
    to = next(name for name in servers if name != homes[tenant])
    moving = asyncio.create_task(move(tenant, to))
    number = 1
    while not moving.done() or number < 40:
        number += 1
        await enqueue_invoice(tenant, number)
        await asyncio.sleep(0.05)
    await moving
    until(lambda: len(read(out)) == len(TENANTS) + number - 1)
    for each in apps.values():
        await each.close()
    return tell(read(out), homes, tenant, to, number, refused, went_on)


def read(out: Path) -> Done:
    lines = out.read_text().splitlines() if out.exists() else []
    return [(tenant, int(number), cell) for tenant, number, cell in map(str.split, lines)]


def tell(
    done: Done, homes: dict[str, str], tenant: str, to: str, last: int, refused: int, went_on: float
) -> int:
    """Print what was seen; 0 if all is as promised."""
    shares = Counter(homes.values())
    once = len({(who, number) for who, number, _ in done}) == len(done)
    its = [cell for who, _, cell in done if who == tenant]
    parts = its.index(to), len(its) - its.index(to)
    apart = set(its[: parts[0]]) == {homes[tenant]} and set(its[parts[0] :]) == {to}
    print(f"""
| what | seen |
|---|---|
| 1: the hash names a cell | {len(homes)} tenants: {dict(sorted(shares.items()))} |
| 2: cell b is killed | {len(homes) - shares["b"]} jobs of the others were done after \
{went_on:.1f} s; {refused} of b were refused, and were done once it was back |
| 3: {tenant} moves to {to} | {parts[0]} jobs in {homes[tenant]}, then {parts[1]} in {to}; \
{last} enqueued, {len(its)} done |
| 4: nothing twice | {len(done)} jobs, {"each once" if once else "some twice"} |""")
    return 0 if once and apart and len(its) == last and refused == shares["b"] else 1


if __name__ == "__main__":
    sys.exit(main())
