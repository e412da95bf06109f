"""How the code of a git repository grew: long work that tells how far it is, and goes on there."""

import threading
import time
from typing import Any

import outlast
from examples.census import analysis  # lines by language, commit by commit; knows no jobs

app = outlast.App()  # $OUTLAST_URL; woken by $OUTLAST_WAKEUP, which is a NATS server


@app.task(stall_timeout=10, backoff_first=0.1)  # ten seconds without a report: it hangs
def analyze(repo: str, commits: int, trouble: str = "") -> dict[str, Any]:
    attempt = outlast.current()
    done = attempt.checkpoint["commit"] if attempt.checkpoint else 0
    print(f"begins at commit {done} of {commits}", flush=True)

    def save(checkpoint: dict[str, Any]) -> None:
        attempt.save_sync(checkpoint)
        if attempt.number == 1 and checkpoint["commit"] == commits // 2:
            get_into(trouble)

    return analysis.analyze(
        repo, commits, checkpoint=attempt.checkpoint, report=attempt.report, save=save, every=5
    )


def get_into(trouble: str) -> None:
    if trouble == "dead-lock":
        print(trouble, flush=True)
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # forever: the process lives, and nothing moves
    while trouble == "hours":  # a commit that takes hours, and tells so
        outlast.current().report(0.5, "a very large commit")
        time.sleep(0.1)
