"""Import orders while everything goes wrong that this application was built for."""

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

import outlast
from examples.order_import.app import Base, Order, app, connect, import_file, reserve, year_report
from harness.servers import PostgresServer

LEASE, PARTS = 5, 32  # the report takes PARTS / 2 seconds, so several leases
LINES = [(number, number * 100) for number in range(1, 101)]
OUTLAST = [sys.executable, "-m", "outlast"]


def main() -> int:
    with PostgresServer() as server, tempfile.TemporaryFile() as log:
        app.url = os.environ["OUTLAST_URL"] = server.create_database("shop")
        options = ["--runners", "3", "--heartbeat", "1", "--lease", str(LEASE)]
        command = [*OUTLAST, "worker", "examples.order_import.app:app", *options]
        worker = subprocess.Popen(command, stderr=log)
        code = 1
        try:
            code = scenario()
        finally:
            worker.terminate()
            worker.wait()
            app.close_sync()
            if code:  # what the worker has said tells why
                log.seek(0)
                print(log.read().decode(errors="replace"), file=sys.stderr)
        return code


def scenario() -> int:
    engine = connect()
    Base.metadata.create_all(engine)
    report = year_report.enqueue_sync(PARTS)
    with Session(engine) as session:  # the application's own transactions
        session.add(Order(number=1000, file="by hand", cents=1))
        by_hand = reserve.using(connection=session).enqueue_sync(1000)
        session.commit()
        never = reserve.using(connection=session).enqueue_sync(1001)
        session.rollback()
    hung = reserve.enqueue_sync(7, hangs=True)
    killed = import_file.enqueue_sync("may.csv", LINES, dies=True)
    for job in (by_hand, hung, killed, report):
        job.result_sync(timeout=300)
    with Session(engine) as session:
        stored = session.scalar(select(func.count()).where(Order.file == "may.csv"))
    engine.dispose()
    return tell(shown(report), shown(hung), shown(killed), stored == len(LINES), not shown(never))


def shown(job: outlast.Job[Any]) -> Any:
    """What `outlast job ID --json` tells; None if there is no such job."""
    command = [*OUTLAST, "job", str(job.id), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def list_begun(job: Any) -> list[Any]:
    """Return the attempts of a job, except those that were given back before they began."""
    return [each for each in job["attempts"] if each["outcome"] != "released"]


def tell(report: Any, hung: Any, killed: Any, whole: bool, unseen: bool) -> int:
    """Print what was measured beside the figures asked for; 0 if all is as promised."""
    ran, (limit, again) = seconds(report), list_begun(hung)
    died, done = list_begun(killed)
    alone = len(report["attempts"]) == 1
    print(f"""
| what (tests/mission.md) | the system that asked for it | ours | measured now |
|---|---|---|---|
| E1: claim and end | two transactions | two, or the end is in yours, as is the enqueue | \
a job of a rolled back order: {"none" if unseen else "FOUND"} |
| E2: a short job hangs | a fixed limit | the same, enforceable by any worker | \
with a limit of 1 s: {limit["outcome"]} after {seconds(limit):.1f} s, then {again["outcome"]} |
| E3: a job takes hours | beats every 20 s, lease 60 s | one lease per worker, 2 s and 60 s | \
with a lease of {LEASE} s: ran {ran / LEASE:.1f} leases, in one attempt: {alone} |
| E4: dies between work and saving | is done again | work and end are one commit | \
{died["outcome"]}, then {done["outcome"]}; each of the {len(LINES)} rows once: {whole} |""")
    ends = (limit["outcome"], again["outcome"], died["outcome"], done["outcome"])
    right = ends == ("timeout", "completed", "signalled", "completed")
    return 0 if right and unseen and alone and whole and ran > 2 * LEASE else 1


def seconds(it: Any) -> float:
    took = datetime.fromisoformat(it["ended_at"]) - datetime.fromisoformat(it["started_at"])
    return took.total_seconds()


if __name__ == "__main__":
    sys.exit(main())
