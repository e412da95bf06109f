"""The commands that are timed on large stores are all that read, and the slowest of them counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from bench import commands
from bench.commands import COLD, FREQUENT, LARGE, LONG, MORE, SLOWEST
from bench.series import Series
from outlast.cli import tree

# They change jobs, run something, serve or wait; `verify` and `rehearse` read every job.
OTHERS = {
    *("worker", "enqueue", "cancel", "requeue", "run-task", "crash-test", "run", "checkpoint"),
    *("report", "stack", "pause", "resume", "exporter", "verify", "rehearse"),
    *("web", "event", "completion", "dev", "demo"),
}


class Place:
    """A store that no one asks."""

    def __init__(self, name: str) -> None:
        self.name, self.url = name, f"postgresql://nowhere/{name}"
        self.words = {"last": 9, "finished": 4, "dead": 7}


def test_each_command_that_reads_is_timed() -> None:
    root: Any = get_command(tree.build())
    timed = {name.split()[0] for name in (*FREQUENT, *MORE)}
    assert timed.isdisjoint(OTHERS)
    assert timed | OTHERS == set(root.commands)
    words = Place(LARGE).words
    for name in (*FREQUENT, *MORE):
        asked = name.format(**words).split()
        group = root.commands[asked[0]]
        chosen = getattr(group, "commands", {}).get(asked[1]) if asked[1:] else None
        known = {one for each in (group, chosen) if each for p in each.params for one in p.opts}
        assert {word for word in asked if word.startswith("--")} <= known, name


def test_the_slowest_is_told_of_each_store_without_the_list_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = {("jobs", LARGE): 0.4, ("jobs", "small"): 0.2, ("pauses", LARGE): 0.3}

    def command(url: str, words: list[str]) -> tuple[float, float]:
        return (taken.get((words[0], Path(url).name), 0.1) if "--json" not in words else 5.0), 40.0

    monkeypatch.setattr(commands, "command", command)
    series, stores, names = Series("commands", ""), (Place(LARGE), Place("small")), ("jobs", LONG)
    commands.time_commands(series, stores, 3, (*names, "pauses", "job {dead}", "job {last}"))
    commands.note_slowest(series, stores, (*names, "pauses"), "")
    assert series.figure(LARGE, SLOWEST, "s").values == [0.4]
    assert series.figure("small", SLOWEST, "s").values == [0.2]
    assert series.figure(LARGE, "outlast jobs", "s").values == [0.4] * 3
    assert series.figure(LARGE, "outlast jobs: peak memory", "MB").values == [40.0] * 3
    dead, other = "outlast job ID (dead)", "outlast job ID"
    assert [len(series.figure("small", each, "s").values) for each in (dead, other)] == [3, 3]


def test_files_are_dropped_between_cold_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    class Server:
        data = tmp_path

        def stop(self) -> None:
            done.append("stop")

        def start(self) -> None:
            done.append("start")

    def command(_url: str, words: list[str]) -> tuple[float, float]:
        done.append(words[0])
        return 0.5, 40.0

    (tmp_path / "table").write_bytes(b"rows")
    monkeypatch.setattr(commands, "command", command)
    monkeypatch.setattr(commands, "forget", lambda folder: done.append(folder.name))
    series, server = Series("commands", ""), Server()
    commands.time_cold(series, [Place(LARGE)], server, ["jobs"])  # type: ignore[arg-type]
    assert done == ["stop", tmp_path.name, "start", "jobs"]
    assert series.figure(LARGE, f"{COLD}outlast jobs", "s").values == [0.5]
