"""The demo's counts: checked against `git show | wc -l`, interrupted or not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.census.analysis import analyze
from examples.census.evolution import Evolution, Sample
from examples.census.git import NotARepository
from examples.census.languages import OTHER

DAY = 86_400
START = 1_600_000_000
SUFFIXES = {b".py": "Python", b".c": "C", b".rs": "Rust", b".txt": "Text"}


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


def running_gits() -> list[int]:
    return [child.pid for child in psutil.Process().children() if child.name() == "git"]


class Stopped(Exception):
    """Stands for each way to end an attempt."""


def counted_by_hand(repo: Repo, commit: str) -> dict[str, int]:
    """Lines by language through ls-tree, show and wc, binary files by grep's judgement."""
    lines: dict[str, int] = {}
    for entry in repo.git("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
        about, name = entry.split(b"\t", 1)
        mode, _, oid = about.split()
        if not mode.startswith(b"100"):
            continue
        show = f"git show {oid.decode()}"
        binary = f"{show} | head -c 8000 | LC_ALL=C grep -qaP '\\x00' && echo binary; true"
        if subprocess.check_output(["sh", "-c", binary], cwd=repo.path):
            continue
        count = int(subprocess.check_output(["sh", "-c", f"{show} | wc -l"], cwd=repo.path))
        language = SUFFIXES.get(os.path.splitext(name)[1], OTHER)
        lines[language] = lines.get(language, 0) + count
    return {language: count for language, count in lines.items() if count}


def odd_repo(path: Path) -> Repo:
    """Everything that a history may hold."""
    repo = Repo(path)
    repo.commit()
    repo.commit(
        {"a.py": b"1\n2\n3\n", "deep/er/b.c": b"x;\n", "empty.py": b"", "LICENSE.txt": b"l\n"}
    )
    repo.commit(
        {b"caf\xe9.py": b"caf\xe9\n" * 4, "日本.rs": b"a\nb\n", 'we"ird\n\tname.c': b"1\n2"}
    )
    repo.commit(
        {"image.py": b"\0\n\n\n", "late.txt": b"a\n" * 5_000 + b"\0\n", "crlf.c": b"a\r\nb\r\n"}
    )
    (repo.path / "link.py").symlink_to("a.py")
    (repo.path / "folder").symlink_to("deep")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.head},module.py")
    repo.git("commit", "--quiet", "--message=a submodule")
    repo.commit({"a.py": None, "deep/er/b.c": b"y;\n" * 7, "copy/er/b.c": b"x;\n"})
    repo.git("checkout", "--quiet", "-b", "side", "HEAD~2")
    repo.commit({"side.rs": b"s\n" * 9})
    repo.git("checkout", "--quiet", "main")
    repo.git("merge", "--quiet", "--no-edit", "side")
    repo.commit({"last.py": b"z\n"})
    return repo


def growing_repo(path: Path, commits: int = 12) -> Repo:
    repo = Repo(path)
    for n in range(1, commits + 1):
        repo.commit({f"f{n % 3}.py": b"x\n" * n, f"g{n % 2}.c": b"y\n" * n, f"d/{n}.zig": b"z\n"})
    return repo


def samples_of(packed: dict) -> list[Sample]:
    return Evolution.unpack(packed).samples


def test_counts_equal_an_independent_count_at_every_commit(tmp_path):
    repo = odd_repo(tmp_path / "r")
    samples = samples_of(analyze(str(repo.path), 100))
    assert len(samples) == 8
    for sample in samples:
        assert sample.lines == counted_by_hand(repo, sample.id)
    assert samples[0].files == 0
    assert samples[3].binary == 1
    assert samples[-1].skipped == 0


def test_nothing_is_written_to_the_repository(tmp_path):
    repo = growing_repo(tmp_path / "r")
    before = {p: p.stat().st_mtime_ns for p in repo.path.rglob("*")}
    analyze(str(repo.path), 5)
    assert {p: p.stat().st_mtime_ns for p in repo.path.rglob("*")} == before


def test_a_missing_object_skips_one_file(tmp_path):
    repo = growing_repo(tmp_path / "r", 1)
    oid = repo.git("rev-parse", "HEAD:g1.c").decode().strip()
    (repo.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    (sample,) = samples_of(analyze(str(repo.path), 2))
    assert (sample.lines, sample.files, sample.skipped) == ({"Python": 1, "Zig": 1}, 3, 1)


def test_a_damaged_object_is_reported_in_one_line(tmp_path):
    repo = growing_repo(tmp_path / "r", 1)
    oid = repo.git("rev-parse", "HEAD:g1.c").decode().strip()
    place = repo.path / ".git/objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:12])
    with pytest.raises(NotARepository, match=r"^[^\n]*git broke off: [^\n]+$"):
        analyze(str(repo.path), 2)


def test_a_resumed_walk_ends_like_one_in_one_go(tmp_path):
    repo = odd_repo(tmp_path / "r")
    path = str(repo.path)
    checkpoints: list[str] = []
    whole = analyze(path, 7, save=lambda c: checkpoints.append(json.dumps(c)), every=1)
    assert len(checkpoints) == 6
    repo.commit({"new.py": b"1\n"})  # the branch moves on between two attempts
    told: list[float] = []
    for text in checkpoints:
        checkpoint = json.loads(text)
        told.clear()
        again = analyze(path, 7, checkpoint=checkpoint, report=lambda done, _: told.append(done))
        assert again == whole
        assert json.loads(text) == checkpoint, "the checkpoint was changed"
        assert told == [n / 7 for n in range(checkpoint["commit"] + 1, 8)]
    assert analyze(path, 7, checkpoint=whole) == whole
    assert json.loads(json.dumps(whole)) == whole


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.clear(),
        lambda c: c.pop("tip"),
        lambda c: c.update(wanted=99),
        lambda c: c.update(samples=5),
        lambda c: c.update(samples=[[]]),
        lambda c: c.update(languages=[]),
        lambda c: c["samples"][0].__setitem__(0, "f" * 40),
        lambda c: c["samples"][0].append("x"),
        lambda c: c["samples"].extend(c["samples"] * 9),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_ignored(tmp_path, damage):
    repo = growing_repo(tmp_path / "r", 4)
    saved: list[dict] = []
    whole = analyze(str(repo.path), 4, save=saved.append, every=2)
    damage(saved[0])
    assert analyze(str(repo.path), 4, checkpoint=saved[0]) == whole


def test_a_checkpoint_of_a_vanished_history_is_ignored(tmp_path):
    saved: list[dict] = []
    analyze(str(growing_repo(tmp_path / "old", 4).path), 4, save=saved.append, every=2)
    other = odd_repo(tmp_path / "new")
    assert analyze(str(other.path), 4, checkpoint=saved[0]) == analyze(str(other.path), 4)


@pytest.mark.parametrize("where", ["report", "save", "pause"])
def test_each_end_of_an_attempt_also_ends_git(tmp_path, where):
    repo = growing_repo(tmp_path / "r", 4)

    def stop(*_: object) -> None:
        assert len(running_gits()) == 1
        raise Stopped

    hooks: dict[str, Any] = {where: stop}
    with pytest.raises(Stopped):
        analyze(str(repo.path), 4, every=1, **hooks)
    assert running_gits() == []
