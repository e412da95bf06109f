"""Five fast failovers of a PostgreSQL cluster under Patroni, and a checker that notices faults.
All drills, random ones and with real times: ``make ha``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.front import FrontMissing
from harness.patroni import Cluster, processes_below, why_not
from tests.cases import each_case
from tests.ha.check import judged
from tests.ha.drills import DRILLS, Drill, play, throw_away
from tests.ha.stage import DEADLINE, Stage, through

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("whole machine"),
    pytest.mark.timeout(900),
]
FENCED = "AND j.token = h.token AND j.state = 'running'"
BEHIND = [("haproxy", "leader-killed-key-deleted"), ("pgbouncer", "leader-frozen-key-deleted")]
FAST = ("leader-killed-key-deleted", "leader-frozen-key-deleted", "switchover")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with Cluster() as made:
        yield made
    assert not processes_below(made.folder)
    assert not made.folder.exists()


@each_case("name", FAST)
def test_a_failover_loses_no_job_and_does_none_again(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    found = judged(play(cluster, DRILLS[name], tmp_path / name), is_timed=False)
    assert found.findings == []
    assert found.jobs > 0


@pytest.mark.parametrize(("way", "name"), BEHIND)
def test_a_failover_behind_what_leads_to_the_primary_loses_no_job(
    cluster: Cluster, tmp_path: Path, way: str, name: str
) -> None:
    with contextlib.ExitStack() as stack:
        try:
            front = stack.enter_context(through(cluster, way))
        except FrontMissing as missing:
            pytest.skip(str(missing))
        found = judged(
            play(cluster, DRILLS[name], tmp_path / f"behind-{way}", front=front), is_timed=False
        )
    assert found.findings == []
    assert found.jobs > 0


def take_fencing_out(stage: Stage) -> None:
    """Let the database accept the end of any attempt of a running job."""
    leader = stage.cluster.roles()[0]
    find = "SELECT pg_get_functiondef('outlast_hand_in_v1'::regproc)"
    text = stage.cluster.sql(leader, find, stage.database)
    assert FENCED in text
    stage.cluster.sql(leader, text.replace(FENCED, "AND j.state = 'running'"), stage.database)


def test_the_checker_notices_when_fencing_is_taken_out(cluster: Cluster, tmp_path: Path) -> None:
    unfenced = Drill(lambda stage: stage.pause(3.0), prepare=take_fencing_out)
    found = judged(play(cluster, unfenced, tmp_path / "unfenced"), is_timed=False)
    assert any(each.startswith("STALE END") for each in found.findings), found


def test_the_checker_notices_when_an_acknowledged_commit_is_thrown_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The same drill as DRILLS has, on a cluster whose commits wait for no standby."""
    thrown_away = Drill(throw_away, synchronous=False)
    facts = play(cluster, thrown_away, tmp_path / "thrown-away")
    found = judged(msgspec.structs.replace(facts, synchronous=True), is_timed=False)
    assert any("was accepted under the key" in each for each in found.findings), found
    excused = judged(facts, is_timed=False)
    assert excused.lost > 0
    assert not excused.findings, "no id of a lost job was given to another one"


def test_nothing_is_left_of_a_cluster_whose_test_process_is_killed(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    program = (
        "import time\nfrom harness.patroni import Cluster\ncluster = Cluster()\n"
        "print(cluster.folder, flush=True)\ncluster.start()\nprint(1, flush=True)\ntime.sleep(900)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    owner.stdout.readline()
    assert processes_below(folder)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + DEADLINE
    while processes_below(folder) or folder.exists():
        assert time.monotonic() < deadline, processes_below(folder)
        time.sleep(0.05)
