"""The demo reads any git repository: which commits it picks, and that git always ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.census.git import (
    DRAIN_LIMIT,
    NotARepository,
    Objects,
    _reason,
    ask,
    demand,
    printable,
    stream,
)
from examples.census.history import LAST_SECOND, History, evenly
from tests.cases import each_case

DAY = 86_400
START = 1_600_000_000
COMMITS = 8_000  # of a long history


class Repo:
    """A real repository, built with git itself; its commits are a day apart."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self._when = START
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main", *options)

    def git(self, *arguments: str | bytes, data: bytes | None = None) -> bytes:
        """Run git in the repository, on a clock and with a name of its own."""
        who = {
            f"GIT_{role}_{what}": "t"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        when = f"{self._when} +0000"
        command = [
            "git",
            "-c",
            "protocol.file.allow=always",
            "-c",
            "core.autocrlf=false",
            *arguments,
        ]
        return subprocess.run(
            command,
            cwd=self.path,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            env=os.environ | who | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when},
        ).stdout

    def commit(self, files: Mapping[Any, bytes | None] | None = None, *, seconds: int = DAY) -> str:
        """Write (None: remove) files, commit them all; the commit's id."""
        self._when += seconds
        for name, content in (files or {}).items():
            place = Path(os.fsdecode(os.path.join(os.fsencode(self.path), os.fsencode(name))))
            if content is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "--message=")
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD").decode().strip()

    def clone(self, to: Path, *options: str) -> Path:
        self.git("clone", "--quiet", *options, self.path.as_uri(), str(to))
        return to


def linear(path: Path, commits: int) -> tuple[Repo, list[str]]:
    """A repository that grows by one line per commit."""
    repo = Repo(path)
    return repo, [repo.commit({"a.py": b"line\n" * n}) for n in range(1, commits + 1)]


def ids(path: Path, wanted: int) -> list[str]:
    return [commit.id for commit in History.find(str(path)).sample(wanted)]


def running_gits() -> list[int]:
    return [child.pid for child in psutil.Process().children() if child.name() == "git"]


@each_case(
    ("total", "wanted", "places"),
    [
        (1, 5, [0]),
        (2, 2, [0, 1]),
        (5, 5, [0, 1, 2, 3, 4]),
        (5, 9, [0, 1, 2, 3, 4]),
        (11, 3, [0, 5, 10]),
        (10, 4, [0, 3, 6, 9]),
    ],
)
def test_places_are_spread_evenly_with_both_ends(total, wanted, places):
    assert evenly(total, wanted) == places


def test_long_histories_are_spread_evenly_too():
    places = evenly(100_003, 1_000)
    gaps = {b - a for a, b in pairwise(places)}
    assert (places[0], places[-1], len(places)) == (0, 100_002, 1_000)
    assert gaps == {100, 101}


def test_commits_come_oldest_first_with_the_first_and_the_last(tmp_path):
    repo, commits = linear(tmp_path / "r", 9)
    assert ids(repo.path, 100) == commits
    assert ids(repo.path, 3) == [commits[0], commits[4], commits[8]]
    assert [c.seconds for c in History.find(str(repo.path)).sample(2)] == [
        START + DAY,
        START + 9 * DAY,
    ]


@pytest.mark.parametrize("wanted", [1, 0, -3, 1_001])
def test_an_invalid_number_of_commits_is_refused(tmp_path, wanted):
    repo, _ = linear(tmp_path / "r", 1)
    with pytest.raises(ValueError, match="between 2 and 1,000"):
        History.find(str(repo.path)).sample(wanted)


def test_a_merge_is_one_step_of_the_main_branch(tmp_path):
    repo, (first, second) = linear(tmp_path / "r", 2)
    repo.git("checkout", "--quiet", "-b", "side", first)
    aside = [repo.commit({f"side{n}.c": b"x\n"}) for n in range(3)]
    repo.git("checkout", "--quiet", "main")
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    found = ids(repo.path, 10)
    assert found == [first, second, repo.head]
    assert not set(found) & set(aside)
    assert History.find(str(repo.path)).total == 3


def test_every_way_into_a_repository_leads_to_the_same_history(tmp_path):
    repo, commits = linear(tmp_path / "project", 4)
    (repo.path / "sub").mkdir()
    repo.git("worktree", "add", "--quiet", str(tmp_path / "tree"))
    bare = repo.clone(tmp_path / "bare.git", "--bare")
    for path, name in (
        (repo.path, "project"),
        (repo.path / "sub", "project"),
        (repo.path / ".git", "project"),
        (tmp_path / "tree", "project"),
        (bare, "bare"),
    ):
        history = History.find(str(path))
        assert (history.name, history.total, history.shallow) == (name, 4, False)
        assert ids(path, 10) == commits


def test_ids_of_sha256_repositories_are_read(tmp_path):
    repo = Repo(tmp_path / "r", "--object-format=sha256")
    commits = [repo.commit({"a.py": b"x\n" * n}) for n in range(3)]
    assert ids(repo.path, 5) == commits
    assert {len(commit) for commit in commits} == {64}


def test_a_shallow_clone_begins_where_it_was_cut_and_says_so(tmp_path):
    repo, commits = linear(tmp_path / "r", 6)
    cut = repo.clone(tmp_path / "cut", "--depth=3")
    assert History.find(str(cut)).shallow
    assert ids(cut, 10) == commits[3:]


def test_a_bare_repository_whose_head_names_no_branch_shows_its_youngest(tmp_path):
    repo, commits = linear(tmp_path / "r", 2)
    repo.git("branch", "older", commits[0])
    bare = repo.clone(tmp_path / "bare.git", "--bare")
    subprocess.run(["git", "-C", bare, "symbolic-ref", "HEAD", "refs/heads/gone"], check=True)
    assert ids(bare, 10) == commits


def test_the_tip_can_be_given_and_falls_back_to_head_when_it_is_gone(tmp_path):
    repo, commits = linear(tmp_path / "r", 3)
    path = str(repo.path)
    assert History.find(path, commits[1]).tip == commits[1]
    assert History.find(path, "0" * 40).tip == commits[2]
    assert History.find(path, "--output=x").tip == commits[2]


def test_dates_outside_the_calendar_are_bounded(tmp_path):
    repo = Repo(tmp_path / "r")
    tree = repo.git("mktree", data=b"").decode().strip()
    raw = f"tree {tree}\nauthor t <t> 1 +0000\ncommitter t <t> 99999999999999 +0000\n\nx\n"
    oid = repo.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", data=raw.encode())
    repo.git("update-ref", "HEAD", oid.decode().strip())
    assert History.find(str(repo.path)).sample(2)[0].seconds <= LAST_SECOND


@each_case(
    ("said", "reason"),
    [
        (b"fatal: not a git repository\nStopping at filesystem boundary\n", "not a git repository"),
        (b"warning: x\nfatal: bad object\n", "bad object"),
        (b"killed\n", "killed"),
        (b"", "no reason given"),
    ],
)
def test_of_gits_output_the_reason_is_shown_without_its_advice(said, reason):
    assert _reason(io.BytesIO(said)) == reason


def test_a_path_without_a_repository_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "plain").mkdir()
    Repo(tmp_path / "empty")
    Repo(tmp_path / "empty.git", "--bare")
    for path, words in (
        ("gone", "no such directory"),
        ("file", "not a directory"),
        ("plain", "not a git repository"),
        ("empty", "no commits yet"),
        ("empty.git", "no commits yet"),
        ("nul\0", "no such directory"),
        ("\ud800", "no such directory"),
        ("x" * 5_000, "no such directory"),
    ):
        with pytest.raises(NotARepository, match=words) as caught:
            History.find(f"{tmp_path}/{path}")
        assert str(caught.value).isprintable()
    with pytest.raises(NotARepository, match="no such directory"):
        History.find("")


def test_without_git_one_line_says_so(tmp_path, monkeypatch):
    repo, _ = linear(tmp_path / "r", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotARepository, match="git is not installed"):
        History.find(str(repo.path))


def test_the_environment_of_a_git_hook_does_not_redirect_the_demo(tmp_path, monkeypatch):
    repo, commits = linear(tmp_path / "r", 2)
    other, _ = linear(tmp_path / "other", 1)
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_TRACE", "1")
    assert ids(repo.path, 10) == commits


def test_an_optional_answer_is_text_or_none_and_a_required_one_raises(tmp_path):
    repo, commits = linear(tmp_path / "r", 1)
    path = str(repo.path)
    assert ask(path, "rev-parse", "HEAD") == commits[0]
    assert ask(path, "rev-parse", "--verify", "nothing") is None
    with pytest.raises(NotARepository, match=r"r: Needed a single revision"):
        demand(path, "rev-parse", "--verify", "nothing")


def test_a_stream_that_breaks_off_says_why(tmp_path):
    repo, _ = linear(tmp_path / "r", 1)
    with pytest.raises(NotARepository, match="git broke off: bad object"):
        list(stream(str(repo.path), "rev-list", "1" * 40))


def test_messages_hold_no_control_characters_and_no_surrogates():
    assert printable("a\nb\x1b[31m\udce9\ud800é") == "a�b�[31m��é"


def test_an_object_may_be_left_half_read(tmp_path):
    repo = Repo(tmp_path / "r")
    large = b"0123456\n" * (DRAIN_LIMIT // 4)
    repo.commit({"large": large, "middle": large[: DRAIN_LIMIT // 2], "small": b"small\n"})
    large_id, middle_id, small_id = (
        repo.git("rev-parse", f"HEAD:{name}").decode().strip()
        for name in ("large", "middle", "small")
    )
    with Objects(str(repo.path)) as objects:
        for oid in (large_id, middle_id, large_id):
            chunks = objects.blob(oid, 1 << 30)
            assert chunks is not None
            assert next(chunks).startswith(b"0123456\n")
            small = objects.blob(small_id, 1 << 30)
            assert small is not None
            assert b"".join(small) == b"small\n"
        whole = objects.blob(large_id, 1 << 30)
        assert whole is not None
        assert b"".join(whole) == large


def test_missing_too_large_and_other_objects_are_none(tmp_path):
    repo, commits = linear(tmp_path / "r", 2)
    blob = repo.git("rev-parse", "HEAD:a.py").decode().strip()
    with Objects(str(repo.path)) as objects:
        tree = objects.find(commits[0] + "^{tree}")
        assert tree is not None
        assert objects.tree(tree) is not None
        assert objects.tree(blob) is None
        assert objects.tree("1" * 40) is None
        assert objects.blob(tree, 100) is None
        assert objects.blob(blob, 9) is None
        assert objects.blob("no such thing", 100) is None
        assert objects.find("2" * 40) is None
        assert b"".join(objects.blob(blob, 10) or ()) == b"line\n" * 2


def test_leaving_early_leaves_no_git_behind(tmp_path):
    repo, commits = linear(tmp_path / "r", 3)
    with closing(stream(str(repo.path), "cat-file", "--batch")) as lines:
        del lines
    with closing(stream(str(repo.path), "rev-list", "--all")) as lines:
        assert next(lines).strip().decode() == commits[2]
        assert len(running_gits()) == 1
    assert running_gits() == []
    with Objects(str(repo.path)) as objects:
        objects.find("HEAD")
        assert len(running_gits()) == 1
    assert running_gits() == []


def test_git_ends_with_a_process_that_is_killed(tmp_path):
    repo = Repo(tmp_path / "r")
    repo.commit({"large": os.urandom(1 << 22)})
    program = (
        "import sys, time\n"
        "from examples.census.git import Objects, stream\n"
        "objects = Objects(sys.argv[1])\n"
        "chunks = objects.blob(objects.find('HEAD:large'), 1 << 30)\n"
        "next(chunks)\n"
        "lines = stream(sys.argv[1], 'cat-file', '--batch-all-objects', '--batch')\n"
        "next(lines)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(repo.path)], stdout=subprocess.PIPE
    )
    with reader:
        assert reader.stdout
        assert reader.stdout.readline() == b"ready\n"
        gits = psutil.Process(reader.pid).children(recursive=True)
        assert len(gits) == 2
        reader.send_signal(signal.SIGKILL)
        assert psutil.wait_procs(gits, timeout=60)[1] == []


def test_a_history_is_read_as_a_stream(tmp_path):
    """Of many times what a pipe holds; written by fast-import, since one process each would take
    minutes."""
    repo = Repo(tmp_path / "r")
    commits = (
        f"commit refs/heads/main\ncommitter t <t> {START + n * 60} +0000\ndata 0\n\n"
        for n in range(COMMITS)
    )
    repo.git("fast-import", "--quiet", data="".join(commits).encode())
    history = History.find(str(repo.path))
    sample = history.sample(1_000)
    assert (history.total, len(sample)) == (COMMITS, 1_000)
    assert sample[0].seconds == START
    assert sample[-1].seconds == START + (COMMITS - 1) * 60
    assert json.dumps([commit.seconds for commit in sample]) == json.dumps(
        sorted(commit.seconds for commit in sample)
    )
