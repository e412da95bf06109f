"""A queue of commands on one file: a worker dies, a job is poison, and both come to a good end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from outlast import App

HERE = Path(__file__).parent
STEPS, KILLED_AFTER = 6, 2
PATIENCE = 300.0  # seconds: a machine may be busy


def outlast(*arguments: object, code: int = 0) -> str:
    """Run the command line; return what it says."""
    command = [sys.executable, "-m", "outlast", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    print("$ outlast", *arguments, *[f"\n  {line}" for line in done.stderr.splitlines()])
    return done.stdout


def run(*command: object) -> int:
    return int(json.loads(outlast("run", "--json", *command))["id"])


def until(job: int, done: Callable[[Any], bool]) -> Any:
    """Wait for it; return all that `outlast job ID --json` tells."""
    app, end = App(), time.monotonic() + PATIENCE
    while not done(row := app.get_sync(job).row):
        assert time.monotonic() < end, row
        time.sleep(0.1)
    app.close_sync()
    return json.loads(outlast("job", job, "--json"))


def worker(name: str, log: Path) -> subprocess.Popen[bytes]:
    print(f"$ outlast worker --shell --name {name} &")
    command = [sys.executable, "-m", "outlast", "worker", "--shell", "--name", name]
    with log.open("wb") as file:
        return subprocess.Popen([*command, "--runners", "1"], stderr=file)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["OUTLAST_URL"] = f"sqlite:///{place}/queue.db"
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        os.environ["OUTLAST_RUN_DIR"] = folder
        one = worker("one", place / "one.log")
        workers = [one]
        try:
            steps = run("--output", place / "log", "--", HERE / "steps.sh", STEPS)
            until(steps, lambda row: int(row.checkpoint or 0) > KILLED_AFTER)
            workers.append(worker("two", place / "two.log"))
            while "is ready" not in (place / "two.log").read_text():
                time.sleep(0.05)
            print("$ kill -9 (worker one)")
            one.send_signal(signal.SIGKILL)
            one.wait()
            killed_at = time.time()
            ended = until(steps, lambda row: row.state == "completed")
            written = (place / "log").read_text().split("\n")[:-1]
            return tell(ended, killed_at, written, poison(place), load(workers[-1].pid))
        finally:
            for each in workers:
                each.terminate()
                each.wait()


def poison(place: Path) -> dict[str, Any]:
    """A job that cannot be done: to the dead letters, mended, and back; and one to remove."""
    file = place / "orders.csv"
    jobs = [run("--retries", "1", "--", "wc", "-l", each) for each in (file, place / "never.csv")]
    dead = [until(job, lambda row: row.state == "dead") for job in jobs]
    print(outlast("dead", "list"))
    file.write_text("one order\n")
    outlast("dead", "requeue", jobs[0])
    outlast("dead", "discard", jobs[1])
    until(jobs[0], lambda row: row.state == "completed")
    outlast("job", jobs[1], code=1)
    return {"tries": dead[0]["attempt_count"], "why": words_of(dead[0])}


def words_of(dead: Any) -> str:
    last: str = dead["attempts"][-1]["crash"]["output"][-1]
    return last.rpartition("/")[2]


def load(pid: int) -> float:
    """Return the share of a processor that a worker has taken since it began, in percent."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    started, used = int(ticks[19]), int(ticks[11]) + int(ticks[12])
    return (
        100 * used / (time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") - started)
    )


def tell(job: Any, killed_at: float, written: list[str], dead: Any, busy: float) -> int:
    """Print what was measured beside the figures asked for; 0 if all is as promised."""
    lost, done = job["attempts"]
    again = datetime.fromisoformat(done["started_at"]).timestamp() - killed_at
    repeated = len(written) - len(set(written))
    crash = lost["crash"]
    print(f"""
| what (tests/mission.md) | the system that asked for it | ours | measured now |
|---|---|---|---|
| D1: sign of life | a beat per task, every 30 s | a beat per worker, every 2 s | \
{busy:.1f} % of a processor for worker two, its start included (D6) |
| D2: a worker dies | found within 2 min | its lock is free: about 1 s | \
its job ran again {again:.1f} s after the kill |
| D3: orphans | queued again, at once visible to all | the same, and from the last checkpoint | \
went on in worker {done["worker"]}; {repeated} of {STEPS} steps done twice |
| D4: crash context | worker, time, pointers to logs | a report on the attempt's own row | \
{lost["outcome"]}: worker {crash["worker"]}, at "{crash["progress"]["message"]}" |
| D5: poison | 3 retries, then dead letters | the same; here --retries 1 | \
dead after {dead["tries"]} tries ({dead["why"]}); requeued, it is done |
| D7: any command | | bash, wc: no Python of yours | \
all {len(written)} lines of its output are in a file |""")
    ends = (lost["outcome"], done["outcome"], done["worker"], dead["tries"])
    right = ends == ("lost_worker", "completed", "two", 2)
    whole = sorted(set(written)) == sorted(f"step {number + 1}" for number in range(STEPS))
    return 0 if right and whole and repeated <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
