"""The program as a whole: help that teaches, versions, and no traceback at the prompt."""

from __future__ import annotations

import contextlib
import errno
import importlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from typer.main import get_command

import outlast as package
from outlast.cli import logs, main, tree
from outlast.cli.errors import FAULT, STORE_UNUSABLE, WRONG_USAGE, code_of, tell
from outlast.errors import OutlastError
from tests.cases import each_case
from tests.cli.conftest import Outlast


def paths(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from paths(child, (*path, name))


GROUPS = {("dead",), ("flow",)}  # which do nothing by themselves
COMMANDS = list(paths(get_command(tree.build())))


def test_all_commands_are_there() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert names == {
        "", "worker", "enqueue", "jobs", "job", "workers", "dead", "dead list", "dead requeue",
        "dead discard", "dead groups", "cancel", "requeue", "migrate", "demo",
        "why", "verify", "doctor", "stats", "workers drain", "run", "checkpoint", "report",
        "pause", "resume", "pauses", "actions", "actions stop",
        "schedules", "schedules list", "schedules show", "schedules pause", "schedules resume",
        "schedules trigger", "schedules backfill", "schedules delete", "web",
        "limits", "limits show", "limits set", "limits hold", "limits reset",
        "event",
        "run-task", "crash-test", "completion", "logs", "dev", "actions resume",
        "exporter", "stack", "rehearse",
        "flows", "flow", "flow show", "flow cancel", "flow retry", "flow skip",
    }  # fmt: skip


@pytest.mark.slow
def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for path in COMMANDS:
        assert main([*path, "--help"]) == 0
        text = capsys.readouterr().out
        assert f"Usage: {' '.join(('outlast', *path))}" in text
        assert "Example" in text, path
        assert max(map(len, text.splitlines())) <= 100, path
        assert "\\[" not in text, path
        if path and path not in GROUPS:
            without = path[0] in {"demo", "checkpoint", "report", "completion", "crash-test"}
            assert "--url" in text or without, path
            assert f"    outlast {' '.join(path)}" in text


def test_version_and_the_installed_command(new_interpreter: Outlast) -> None:
    assert new_interpreter("--version").out == f"outlast {package.__version__}\n"


@each_case(
    "words",
    [
        ("jobs",),
        ("migrate",),
        ("enqueue", "shop:app", "mail"),
        ("worker", "shop:app"),
        ("worker", "shop/jobs.py:app"),
        ("demo", "--keep", "here"),
        ("run", "--url", "postgresql:///none", "--output", "said.txt", "--", "true"),
    ],
)
def test_a_folder_that_was_deleted_is_named(
    words: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "start_log", mock.Mock())  # which takes the log of this process
    # First: started as xdist does, Python 3.13.0 fails there where it looks for a missing name.
    importlib.import_module("outlast.cli.demo_story")
    gone = tmp_path / "gone"
    gone.mkdir()
    with contextlib.chdir(gone), mock.patch.dict("os.environ"):  # the demo deletes of it
        gone.rmdir()
        assert main(words) == WRONG_USAGE
    assert "the current directory was deleted" in capfd.readouterr().err


def test_another_error_in_a_deleted_folder_is_told_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with contextlib.chdir(gone):
        gone.rmdir()
        assert main(["jobs", "--url", f"sqlite:///{tmp_path}/none.db"]) == STORE_UNUSABLE
    assert "there is no database file" in capfd.readouterr().err


def test_help_is_a_command_too(outlast: Outlast) -> None:
    assert outlast("help", "limits", "set").out == outlast("limits", "set", "--help").out
    assert outlast("help").out == outlast("--help").out


def test_no_command_shows_the_help(outlast: Outlast) -> None:
    said = outlast()
    assert said.code == 2
    assert "Usage: outlast" in said.out
    assert said.err == ""


@each_case(
    ("arguments", "words"),
    [
        (["nothing"], ["No such command 'nothing'", "`outlast --help`"]),
        (["jobs", "--colour"], ["--colour", "`outlast jobs --help`"]),
        (["jobs", "--state", "late"], ["'late'", "queued", "dead", "retrying", "silent"]),
        (["jobs", "--before", "0"], ["0 is not"]),
        (["jobs", "--args", ""], ["--args takes a text"]),
        (["jobs", "--error", "x" * 1_001], ["--error takes a text"]),
        (["jobs", "--since", "soon"], ["soon"]),
        (["jobs", "--state", "Failed"], ["'Failed' (here: retrying, or dead) is not a state"]),
        (["jobs", "--limit", "0"], ["--limit"]),
        (["limits", "set", "openai"], ["say what to set: --running 40"]),
        (["job"], ["ID"]),
        (["job", "x"], ["ID"]),
        (["job", "99999999999999999999"], ["is not a job's number"]),
        (["cancel"], ["ID", "--queue"]),
        (["job", "seven"], ["'seven' is not a whole number"]),
        (["jobs", "--limit", "many"], ["'many' is not a whole number"]),
        (["run", "--timeout", "5x", "ls"], ["--timeout", "'5x' is not a span of time", "15m"]),
        (["report", "half"], ["'half' is not a number."]),
        (["jobs", "--url", ""], ["'' is not the URL of a store", "sqlite:///"]),
        (["doctor", "--url", ""], ["'' is not the URL of a store"]),
        (["doctor", "--url", "mysql://db"], ["is not the URL of a store"]),
        (["jobs", "--url", "nonsense"], ["is not the URL of a store"]),
        (["jobs", "--url", "sqlite:///:memory:"], [":memory:"]),
        (["migrate", "--url", "mysql://db/x"], ["is not the URL of a store"]),
        (["migrate", "--check", "--url", "sqlite://x.db"], ["is not a SQLite URL"]),
        (["migrate", "--check", "--after-restore"], ["--check", "--after-restore"]),
        (["migrate", "--only", "enqueue"], ["--grant"]),
        (["migrate", "--verbose"], ["--grant"]),
        (["migrate", "--check", "--grant", "a"], ["--grant"]),
        (["workers", "drain", "web", "--url", ""], ["'' is not the URL of a store"]),
        (["workers", "drain"], ["name the workers to drain, or give --all"]),
        (["workers", "drain", "web", "--all"], ["name the workers to drain, or give --all"]),
        (["workers", "--all", "drain", "web"], ["belong to the list: leave them out"]),
        (["worker"], ["or run commands alone, with --shell"]),
        (["worker", "--shell", "--reload"], ["--reload needs an application"]),
        (["worker", "shop:app", "--max-jobs", "3"], ["--max-jobs", "--until-empty"]),
        (["worker", "a:b", "--until-empty", "--max-jobs", "0"], ["--max-jobs", "--until-empty"]),
        (["pause", "everything"], ["write queue, task, tenant or all, then its name"]),
        (["pause", "queue"], ["which queue? Give its name"]),
        (["pause", "all", "mail"], ["all takes no name: it stands for every queue"]),
        (["pause", "queue", ""], ["write a text of at least one character"]),
        (["pause", "all", "--wait", "soon"], ["soon"]),
        (["dead", "requeue", "17", "--dry-run"], ["--dry-run needs a filter"]),
        (["dead", "requeue", "17", "--error", "late"], ["name the dead jobs"]),
        (["dead", "requeue"], ["or with --all"]),
        (["dead", "discard"], ["or with --all"]),
        (["dead", "discard", "1", "--all"], ["name the dead jobs"]),
        (["dead", "discard", "--all", "--since", "1h"], ["name the dead jobs"]),
    ],
)
def test_wrong_usage_is_two_lines(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("outlast: ")
    assert len(told.err.splitlines()) <= 2
    for word in words:
        assert word in told.err


@each_case(
    ("arguments", "told"),
    [
        (["jbos"], "'jbos' (here: jobs)\n"),
        (["start"], "'start' (here: worker)\n"),
        (["dead", "retry"], "'retry' (here: requeue)\n"),
        (["dead", "start"], "'start'; choose from: list, groups, requeue, discard\n"),
        (["entrylist"], "'entrylist'; choose from: worker, enqueue, job, cancel,"),
        (["job"], "Missing argument 'ID': the job's number\n"),
        (["enqueue"], "Missing argument 'MODULE:APP': your application, as in shop.jobs:app; Mis"),
        (["completion"], "Missing argument 'bash|zsh|fish': your shell\n"),
        (["worker"], "name your application, as in `outlast worker shop.jobs:app`"),
    ],
)
def test_what_is_not_known_or_not_given_is_told_with_what_to_write(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


LEAVES = [path for path in COMMANDS if all(path != each[:-1] for each in COMMANDS)]


@each_case("path", LEAVES)
def test_all_wrong_options_of_a_command_are_told_at_once(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--nonsense", "--hepl=x"]) == 2
    told = capsys.readouterr().err
    assert "--nonsense;" in told
    assert "--hepl (here: --help)" in told
    assert len(told.splitlines()) == 2


def test_wrong_values_are_told_with_wrong_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--stat", "dead", "--limit", "many", "--since", "soon"]) == 2
    told = capsys.readouterr().err
    for each in ("--stat (here: --state)", "'many' is not a whole number", "'soon' is not a span"):
        assert each in told


def test_a_negative_argument_is_refused_with_a_hint_at_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["enqueue", "shop:app", "adjust", "-5"]) == 2
    assert "before an argument that begins with a dash" in capsys.readouterr().err
    assert main(["enqueue", "shop:app", "adjust", "--dleay", "5"]) == 2
    assert "behind --" not in capsys.readouterr().err


def test_a_terminal_without_a_size_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["--help"]) == 0
    assert "MODULE:APP" not in (told := capsys.readouterr().out)
    assert "Run jobs until told to stop." in told


def test_an_internal_error_shows_a_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(url: object, work: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("outlast.cli.listing.read_store", fail)
    assert main(["jobs"]) == FAULT
    told = capsys.readouterr().err
    assert "ZeroDivisionError: by zero" in told
    assert "Traceback" not in told
    monkeypatch.setenv("OUTLAST_DEBUG", "1")
    main(["jobs"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        RuntimeError("can't start new thread"),
        MemoryError(),
    ],
)
def test_a_limit_of_the_system_is_no_fault_of_the_program(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    assert tell(error) == FAULT
    said = capsys.readouterr().err
    assert "the system is at a limit: `ulimit -a`" in said
    assert "fault of Outlast" not in said


def test_every_error_has_an_exit_code() -> None:
    def below(kind: type[OutlastError]) -> Iterator[type[OutlastError]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    codes = {kind.__name__: code_of(kind.__new__(kind)) for kind in below(OutlastError)}
    assert set(codes.values()) == {1, 2, 3}
    assert codes["StoreUnavailable"] == codes["StoreCorrupt"] == 3
    assert codes["SchemaMismatch"] == codes["NotPermitted"] == 3
    assert codes["JobNotFound"] == 1
    assert codes["UnknownTask"] == codes["ConfigError"] == codes["ApplicationError"] == 2
