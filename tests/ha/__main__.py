"""``python -m tests.ha``: drill failovers of PostgreSQL under Patroni, one line of JSON for each.

Exit code 1 if a law was broken; then the folder with the logs of that drill is kept, and named.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from harness import namespaces
from harness.front import Front
from harness.patroni import NODES, Cluster, why_not
from tests.chaos.disk import own_mounts
from tests.ha.check import judged, line_of
from tests.ha.drills import DRILLS, play
from tests.ha.stage import WAYS, through


def main() -> int:
    """Play the chosen drill, all of them, or random ones for a time; return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.ha", description=__doc__)
    parser.add_argument("--drill", choices=DRILLS, action="append", help="may be repeated")
    parser.add_argument(
        "--seconds", type=float, help="play random drills for this long, synchronous ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--through", choices=WAYS, help="what leads to the primary")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order: nothing is left behind
    if reason := why_not():
        sys.exit(f"there can be no cluster: {reason}")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        hosts = []
        if no_hosts := namespaces.why_not():
            print(f"no drill that isolates a node: {no_hosts}", file=sys.stderr)
        else:
            namespaces.enter_own_network()
            hosts = [namespaces.Host(f"db-{node}", node, Path(folder)) for node in NODES]
            for host in hosts:
                stack.callback(host.power_off)
                host.power_on()
        may_mount = bool(hosts) or own_mounts()
        if not may_mount:
            print("no drill that fills a disk: only root may mount a small one", file=sys.stderr)
        cluster = stack.enter_context(Cluster(hosts=hosts))
        names = chosen.drill or [
            name
            for name, drill in DRILLS.items()
            if (hosts or not drill.needs_hosts)
            and (may_mount or drill.disk is None)
            and (drill.synchronous or chosen.seconds is None)
        ]
        front = stack.enter_context(through(cluster, chosen.through))
        more = {"through": chosen.through} if front else {}
        failed = sum(one(cluster, name, seed, front, more) for name, seed in planned(names, chosen))
    return 1 if failed else 0


def planned(names: list[str], chosen: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Return each drill once, or random ones, each with its seed, until the time is over."""
    if chosen.seconds is None:
        yield from ((name, chosen.seed) for name in names)
        return
    rng, end = random.Random(chosen.seed), time.monotonic() + chosen.seconds
    for seed in count(chosen.seed):
        if time.monotonic() >= end:
            return
        yield rng.choice(names), seed


def one(cluster: Cluster, name: str, seed: int, front: Front | None, more: dict[str, str]) -> bool:
    """Play one drill and print its line; return whether it broke a law."""
    folder = Path(tempfile.mkdtemp(prefix=f"outlast-drill-{name}-"))
    found = judged(play(cluster, DRILLS[name], folder, seed, front), is_timed=True)
    print(line_of(name, found, seed=seed, **more), flush=True)
    if found.findings:
        print(f"kept: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return bool(found.findings)


if __name__ == "__main__":
    sys.exit(main())
