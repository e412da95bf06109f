"""A pod restart, a crash without one, and a dead-lock: three jobs, and how each of them goes on."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nats

import outlast as library
from examples.analysis_service.app import analyze, app
from examples.live import Workers, at, outlast, until
from harness.nats_server import NatsServer
from harness.servers import PostgresServer

COMMITS, DUPLICATES = 40, 100
WATCHED = """worker_registered wakeup_ready attempt_started attempt_stopping attempt_ended
    runner_output runner_died worker_reaped job_reenqueued reconciliation_complete
    orphaned_jobs_detected stale_jobs_detected job_skipped_active_elsewhere"""


def main() -> int:
    with PostgresServer() as server, NatsServer() as broker, TemporaryDirectory() as folder:
        app.url = os.environ["OUTLAST_URL"] = server.create_database("analysis")
        os.environ["OUTLAST_WAKEUP"] = broker.url
        workers = Workers("examples.analysis_service.app:app", WATCHED)
        try:
            return scenarios(workers, Path(folder), broker.url)
        finally:
            workers.end()
            app.close_sync()


def start_pod(workers: Workers, name: str, folder: Path) -> None:
    """A pod of a StatefulSet: its name is its own, and it shares no files with others."""
    workers.start(name, "--instance", name, OUTLAST_RUN_DIR=str(folder / name))


def scenarios(workers: Workers, folder: Path, broker: str) -> int:
    repo = history(folder / "repo")
    workers.scene("1. A pod dies and is started again; no other worker is there.")
    start_pod(workers, "pod-0", folder)
    restart = analyze.enqueue_sync(repo, COMMITS, trouble="hours")
    half_done(restart)
    killed_at = time.time()
    workers.kill("pod-0")
    start_pod(workers, "pod-0", folder)
    again_at = workers.wait("attempt_started", job_id=restart.id, number=2)
    seconds = [again_at - killed_at, again_at - at(workers.told("worker_registered")[1])]
    restart.result_sync(timeout=300)

    workers.scene("2. Duplicate messages; then a pod dies and stays away; another one is there.")
    start_pod(workers, "pod-1", folder)
    workers.wait("wakeup_ready", by="pod-1", kind="nats")
    workers.wait("worker_ready", by="pod-1")
    crash = analyze.enqueue_sync(repo, COMMITS, trouble="hours")
    victim = half_done(crash)
    asyncio.run(publish_duplicates(broker, crash.id))
    workers.wait("job_skipped_active_elsewhere", job_id=crash.id, worker=victim)
    for lock in (folder / victim).iterdir():
        lock.unlink()  # as for another host: it cannot look at this one's lock files
    killed_at = time.time()
    workers.kill(victim)
    seconds.append(workers.wait("attempt_started", job_id=crash.id, number=2) - killed_at)
    crash.result_sync(timeout=300)

    workers.scene("3. A dead-lock in a process that lives.")
    stuck = analyze.enqueue_sync(repo, COMMITS, trouble="dead-lock")
    began = workers.wait("runner_output", text="dead-lock")
    seconds.append(workers.wait("attempt_started", job_id=stuck.id, number=2) - began)
    stuck.result_sync(timeout=300)
    jobs = [outlast("job", job.id, "--json") for job in (restart, crash, stuck)]
    outlast("verify")  # or it raises
    until(lambda: asyncio.run(ask_broker(broker))[1] == 0)
    return tell(workers, jobs, seconds, asyncio.run(ask_broker(broker)))


def history(folder: Path) -> str:
    """Make a repository whose one file is a line longer with each commit."""
    stream = ""
    for number in range(1, COMMITS + 1):
        text = "print()\n" * number
        stream += f"commit refs/heads/main\ncommitter Ann <ann@example.org> {number} +0000\n"
        stream += f"data 0\nM 100644 inline code.py\ndata {len(text)}\n{text}"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", folder], check=True)
    subprocess.run(
        ["git", "-C", folder, "fast-import", "--quiet"], input=stream, text=True, check=True
    )
    return str(folder)


def half_done(job: library.Job[Any]) -> str:
    """Wait until half of it is saved; return who runs it."""
    until(lambda: (job.refresh_sync().checkpoint or {}).get("commit") == COMMITS // 2)
    return job.refresh_sync().worker or ""


async def publish_duplicates(broker: str, job_id: int) -> None:
    client = await nats.connect(broker)
    stream = (await client.jetstream().streams_info())[0].config
    subject = (stream.subjects or [""])[0].replace(">", "default")
    for _ in range(DUPLICATES):
        await client.jetstream().publish(subject, json.dumps({"job_id": job_id}).encode())
    await client.close()


async def ask_broker(broker: str) -> tuple[int, int]:
    """Return how many messages the stream has, and how many wait or are unacknowledged."""
    client = await nats.connect(broker)
    stream = (await client.jetstream().streams_info())[0]
    consumer = await client.jetstream().consumer_info(stream.config.name or "", "all")
    await client.close()
    return stream.state.messages, (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)


def tell(workers: Workers, jobs: list[Any], seconds: list[float], broker: tuple[int, int]) -> int:
    """Print what was measured beside the figures asked for; 0 if all is as promised."""
    ends = [[each["outcome"] for each in job["attempts"]] for job in jobs]
    lost = [job["attempts"][0] for job in jobs]
    skipped = len(workers.told("job_skipped_active_elsewhere"))
    resumed = len(
        workers.told("runner_output", text=f"begins at commit {COMMITS // 2} of {COMMITS}")
    )
    limit = analyze.policy.stall_timeout
    print(f"""
| what (tests/mission.md) | the system that asked for it | ours | measured now |
|---|---|---|---|
| A4 A9: pod restart | 3 s, by host name: robs siblings | its `--instance`, or its lock file | \
runs again {seconds[0]:.1f} s after the kill, {seconds[1]:.1f} s after its registration |
| A5 A9: crash without restart | 5 min and up to 30 s | its lock in the database: 5 s; else 60 s | \
another host runs it after {seconds[2]:.1f} s |
| A3 A9: dead-lock | 5 min | `stall_timeout`, here {limit:g} s | \
{lost[2]["outcome"]}; runs again {seconds[3]:.1f} s after the dead-lock |
| A6: queued again | with the reason | the attempt keeps it, and a crash report | \
"{lost[1]["message"]}" |
| A7 A12: {DUPLICATES} duplicates | skipped, acknowledged, told | the same | \
run by one; told {skipped} time(s) |
| A8: broker | acknowledged at the job's end | once the store has answered the claim | \
{broker[0]} messages, {broker[1]} unacknowledged |
| A11: work resumes | from scratch | from the checkpoint | \
{resumed} of {len(jobs)} from commit {COMMITS // 2} of {COMMITS} |""")
    expected = [[how, "completed"] for how in ("lost_worker", "lost_worker", "stalled")]
    whole = all(job["result"]["commit"] == COMMITS for job in jobs)
    return 0 if ends == expected and resumed == 3 and whole and broker[1] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
