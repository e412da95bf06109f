"""One mail, two workers, and a split brain of each kind: cut off from the store, and frozen."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

import outlast
from examples.lease_mail.app import SERVER, app, send
from harness.proxy import proxied
from harness.servers import PostgresServer

OUTLAST = [sys.executable, "-m", "outlast"]
LEASE = 6.0


async def main() -> int:
    with PostgresServer() as server, TemporaryDirectory() as folder:
        app.url = os.environ["OUTLAST_URL"] = server.create_database("jobs")
        os.environ["MAIL_URL"] = server.create_database("mail")
        async with proxied(app.url) as (proxy, through):
            mail = await asyncpg.connect(os.environ["MAIL_URL"])
            await mail.execute(SERVER)
            job = await send.using(tenant="acme").enqueue("ann")
            workers = [start("east", through, folder)]
            await took(lambda: held_by(job, "east"))
            workers.append(start("west", app.url, folder))  # on another host: its own run folder
            try:
                return await split(job, proxy, mail, workers)
            finally:
                for worker in workers:
                    worker.send_signal(signal.SIGCONT)
                    worker.kill()
                    worker.wait()
                await mail.close()
                await app.close()


def start(name: str, url: str, folder: str) -> subprocess.Popen[bytes]:
    command = [*OUTLAST, "worker", "examples.lease_mail.app:app", "--name", name, "--url", url]
    command += ["--heartbeat", "2", "--lease", str(LEASE), "--runners", "1"]
    env = {**os.environ, "OUTLAST_RUN_DIR": str(Path(folder) / name)}
    return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)


async def split(job: Any, proxy: Any, mail: Any, workers: list[subprocess.Popen[bytes]]) -> int:
    await took(both_live)
    proxy.hold()  # no packet passes: east lives, and may still reach the mail server
    cut = await took(lambda: held_by(job, "west"))
    proxy.release()
    await took(both_live)  # east is back, under a new lease
    workers[1].send_signal(signal.SIGSTOP)  # the worker process alone; its runner goes on
    frozen = await took(lambda: held_by(job, "east"))
    workers[1].send_signal(signal.SIGCONT)
    await took(both_live)
    await mail.execute("UPDATE server SET accepts = true")
    await job.result(timeout=300)
    letters = await mail.fetch("SELECT recipient, organisation, token FROM mailbox")

    await mail.execute("UPDATE server SET accepts = false")
    bulk = await send.enqueue("everybody")
    await took(lambda: reported(bulk))
    await bulk.cancel()
    cancelled = await took(lambda: ended(bulk))
    audit, right = ask("job", str(job.id)), ask("verify") is not None
    return tell(audit, letters, (cut, frozen, cancelled), right)


def tell(audit: Any, letters: list[Any], seconds: tuple[float, float, float], right: bool) -> int:
    """Print what was measured beside the figures asked for; 0 if all is as promised."""
    print("The audit trail, as `outlast job` has it:")
    for each in audit["attempts"]:
        print(
            f"  token {each['token']}, {each['worker']}: {each['outcome']} {each['message'] or ''}"
        )
    one = [tuple(row) for row in letters] == [("ann", "acme", audit["token"])]
    moved = [each["outcome"] for each in audit["attempts"]]
    print(f"""
| what (tests/mission.md) | the system that asked for it | ours | measured now |
|---|---|---|---|
| C1 C4: cancelled while it runs | with a heartbeat, 30 s | at once | {seconds[2]:.1f} s |
| C2: back from a partition | its id is refused | and its runner is killed before | \
letters: {len(letters)}, of the last token, for acme: {one}; refused writes: \
{len(audit["refusals"])} |
| C3: cut off from the store | after 60 to 120 s | after a lease (here {LEASE:g} s of 60) | \
elsewhere after {seconds[0]:.1f} s |
| C3: frozen by SIGSTOP | the same | the same | elsewhere after {seconds[1]:.1f} s |
| C7: every job ends, one worker at a time | by its tests | `outlast verify` | \
{"no violation" if right else "VIOLATED"} in {len(moved)} attempts |""")
    return 0 if one and right and moved[-1] == "completed" and len(moved) >= 3 else 1


def ask(*words: str) -> Any:
    done = subprocess.run([*OUTLAST, *words, "--json"], capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


async def held_by(job: outlast.Job[Any], name: str) -> bool:
    row = await job.refresh()
    return row.state.value == "running" and row.worker == name


async def reported(job: outlast.Job[Any]) -> bool:
    return (await job.refresh()).progress is not None


async def ended(job: outlast.Job[Any]) -> bool:
    return await job.status() == "cancelled"


async def both_live() -> bool:
    told = await asyncio.to_thread(ask, "workers") or {"workers": []}
    return [each["status"] for each in told["workers"]].count("active") == 2


async def took(there: Callable[[], Awaitable[bool]]) -> float:
    """Wait until it is so; return the seconds that it took."""
    began = time.monotonic()
    async with asyncio.timeout(300):
        while not await there():
            await asyncio.sleep(0.05)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
