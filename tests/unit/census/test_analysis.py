"""The demo's counts: checked against `git show | wc -l`, interrupted or not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from examples.census import evolution as evolution_module
from examples.census.analysis import analyze
from examples.census.census import COUNT_LIMIT, Census, Memory
from examples.census.evolution import LANGUAGES_LIMIT, Evolution, Sample, limited
from examples.census.git import NotARepository, Objects
from examples.census.languages import OTHER
from tests.unit.census.test_history import Repo, running_gits

SUFFIXES = {b".py": "Python", b".c": "C", b".rs": "Rust", b".txt": "Text"}


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


def test_every_kind_of_repository_gives_the_same_result(tmp_path):
    repo = odd_repo(tmp_path / "r")
    bare = repo.clone(tmp_path / "r.git", "--bare")
    repo.git("worktree", "add", "--quiet", str(tmp_path / "tree"), "HEAD")
    expected = analyze(str(repo.path), 5)
    assert analyze(str(bare), 5) == expected
    assert analyze(str(tmp_path / "tree"), 5) == expected
    repo.git("gc", "--quiet")
    assert analyze(str(repo.path / "deep"), 5) == expected


def test_a_sha256_repository_is_counted(tmp_path):
    repo = Repo(tmp_path / "r", "--object-format=sha256")
    repo.commit({"d/a.py": b"1\n2\n", "b.c": b"1\n"})
    (sample,) = samples_of(analyze(str(repo.path), 2))
    assert sample.lines == {"Python": 2, "C": 1}


def test_nothing_is_written_to_the_repository(tmp_path):
    repo = growing_repo(tmp_path / "r")
    before = {p: p.stat().st_mtime_ns for p in repo.path.rglob("*")}
    analyze(str(repo.path), 5)
    assert {p: p.stat().st_mtime_ns for p in repo.path.rglob("*")} == before


def test_equal_content_is_read_once(tmp_path):
    repo = Repo(tmp_path / "r")
    same = {f"d{n}/same{n}.py": b"same\n" for n in range(20)}
    repo.commit(same)
    for n in range(5):
        repo.commit({"other.py": b"x\n" * n})
    read: list[str] = []

    class Watched(Objects):
        def blob(self, oid, limit):
            read.append(oid)
            return super().blob(oid, limit)

    with Watched(str(repo.path)) as objects:
        census = Census(objects)
        commits = repo.git("rev-list", "HEAD").decode().split()
        assert [census.of_commit(c).lines["Python"] for c in commits] == [24, 23, 22, 21, 20, 20]
    assert len(read) == len(set(read)) == 6


def test_a_huge_file_is_counted_in_little_memory(tmp_path):
    repo = Repo(tmp_path / "r")
    size = 48 << 20
    repo.commit({"huge.txt": b"0123456\n" * (size // 8), "a.py": b"1\n"})
    with Objects(str(repo.path)) as objects:
        tracemalloc.start()
        try:
            counts = Census(objects).of_commit(repo.head)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert counts.lines == {"Text": size // 8, "Python": 1}
        assert peak < 8 << 20


def test_a_file_above_the_limit_is_skipped_and_said_so(tmp_path):
    repo = Repo(tmp_path / "r")
    repo.commit({"a.txt": b"x\n" * 50, "b.txt": b"x\n" * 51, "c.py": b"x\n"})
    with Objects(str(repo.path)) as objects:
        counts = Census(objects, limit=100).of_commit(repo.head)
    assert (counts.lines, counts.files, counts.skipped) == ({"Text": 50, "Python": 1}, 3, 1)


def test_objects_missing_from_a_partial_clone_are_not_fetched(tmp_path):
    """Skipped and said so; versions of git before 2.45 give up, which is one clear line."""
    repo = growing_repo(tmp_path / "r", 2)
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = repo.clone(tmp_path / "partial.git", "--bare", "--filter=blob:none")
    with contextlib.suppress(NotARepository):
        sample = samples_of(analyze(str(clone), 2))[-1]
        assert (sample.lines, sample.skipped) == ({}, sample.files)
    there = subprocess.check_output(
        ["git", "-C", clone, *["cat-file", "--batch-check", "--batch-all-objects"]]
    )
    assert b" blob " not in there


def test_a_missing_object_skips_one_file(tmp_path):
    repo = growing_repo(tmp_path / "r", 1)
    oid = repo.git("rev-parse", "HEAD:g1.c").decode().strip()
    (repo.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    (sample,) = samples_of(analyze(str(repo.path), 2))
    assert (sample.lines, sample.files, sample.skipped) == ({"Python": 1, "Zig": 1}, 3, 1)


def test_a_missing_tree_is_reported_in_one_line(tmp_path):
    repo = growing_repo(tmp_path / "r", 1)
    oid = repo.git("rev-parse", "HEAD^{tree}").decode().strip()
    (repo.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    with pytest.raises(NotARepository, match="not in this repository"):
        analyze(str(repo.path), 2)


def test_a_damaged_object_is_reported_in_one_line(tmp_path):
    repo = growing_repo(tmp_path / "r", 1)
    oid = repo.git("rev-parse", "HEAD:g1.c").decode().strip()
    place = repo.path / ".git/objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:12])
    with pytest.raises(NotARepository, match=r"^[^\n]*git broke off: [^\n]+$"):
        analyze(str(repo.path), 2)


def test_directories_nest_deeper_than_pythons_stack(tmp_path):
    repo = Repo(tmp_path / "r")
    path = "d/" * 1_900 + "a.py"
    head = f"commit refs/heads/main\ncommitter t <t> 1 +0000\ndata 0\nM 100644 inline {path}\n"
    repo.git("fast-import", "--quiet", data=f"{head}data 2\n1\n\n".encode())
    (sample,) = samples_of(analyze(str(repo.path), 2))
    assert (sample.lines, sample.files) == ({"Python": 1}, 1)


def test_a_repository_with_exponentially_many_files_is_bounded(tmp_path):
    """Ten directories, each with the same ten directories, twenty times over."""
    repo = Repo(tmp_path / "r")
    blob = repo.git("hash-object", "-w", "--stdin", data=b"1\n").decode().strip()
    entry = f"100644 blob {blob}\ta.py\n"
    for _ in range(20):
        tree = repo.git("mktree", data=entry.encode()).decode().strip()
        entry = "".join(f"040000 tree {tree}\td{n}\n" for n in range(10))
    repo.git("update-ref", "HEAD", repo.git("commit-tree", "-m", "x", tree).decode().strip())
    (sample,) = samples_of(analyze(str(repo.path), 2))
    assert sample.files == sample.lines["Python"] == COUNT_LIMIT


def test_the_cache_drops_the_least_recently_used():
    memory: Memory[int] = Memory(3)
    for n in range(9):
        memory.put(b"%d" % n, n)
        assert memory.get(b"0") == 0
    held = {int(key) for key in (*memory._young, *memory._old)}
    assert {0, 7, 8} <= held <= {0, 4, 5, 6, 7, 8}
    assert memory.get(b"1") is None


def test_progress_is_reported_per_commit_and_saved_every_few(tmp_path):
    repo = growing_repo(tmp_path / "r", 7)
    events: list[tuple[str, object]] = []
    result = analyze(
        str(repo.path),
        7,
        report=lambda fraction, message: events.append((message.split(":")[0], fraction)),
        save=lambda checkpoint: events.append(("save", checkpoint["commit"])),
        pause=lambda: events.append(("pause", None)),
        every=3,
    )
    names = [name for name, _ in events]
    step = [[f"commit {n} of 7", "pause"] for n in range(1, 8)]
    step[2].insert(1, "save")
    step[5].insert(1, "save")
    assert names == list(chain.from_iterable(step))
    assert [value for name, value in events if name == "save"] == [3, 6]
    assert [value for name, value in events if "of 7" in name] == [n / 7 for n in range(1, 8)]
    assert result["commit"] == 7


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


def test_progress_is_reported_within_a_long_commit(tmp_path):
    repo = Repo(tmp_path / "r")
    repo.commit({f"d{n % 7}/{n}.py": b"%d\n" % n for n in range(2_500)})
    told: list[tuple[float, str]] = []
    analyze(str(repo.path), 2, report=lambda *news: told.append(news))
    assert told == [
        (0.0, "commit 0 of 1: done, 1,000 new files read for the next"),
        (0.0, "commit 0 of 1: done, 2,000 new files read for the next"),
        (1.0, "commit 1 of 1: 2,500 lines in 2,500 files"),
    ]


def test_a_checkpoint_interval_of_zero_is_refused(tmp_path):
    with pytest.raises(ValueError, match="1 commit or more"):
        analyze(str(tmp_path), 5, every=0)


def test_a_thousand_samples_of_many_languages_pack_well_below_a_mebibyte():
    names = [f"language {n}" for n in range(LANGUAGES_LIMIT)]
    samples = [
        Sample(f"{n:064x}", 1_700_000_000 + n, n * 9, n, 0, dict.fromkeys(names, 10**6 + n * 997))
        for n in range(1_000)
    ]
    whole = Evolution("r", "f" * 64, 10**6, False, 1_000, samples)
    packed = whole.pack()
    assert len(json.dumps(packed, separators=(",", ":"))) < 600_000
    assert Evolution.unpack(json.loads(json.dumps(packed))) == whole


def test_languages_that_vanish_and_return_survive_packing():
    lines: list[dict[str, int]] = [{"C": 5}, {}, {"Ada": 1, "C": 2}, {"Ada": 1}, {"C": 2**53}]
    samples = [Sample("a" * 40, n, n, 0, n % 2, line) for n, line in enumerate(lines)]
    whole = Evolution("r", "a" * 40, 5, True, 5, samples)
    assert Evolution.unpack(whole.pack()) == whole


def test_languages_beyond_the_limit_are_other(monkeypatch):
    monkeypatch.setattr(evolution_module, "LANGUAGES_LIMIT", 3)
    known: dict[str, None] = {}
    assert limited({"A": 1, "B": 2}, known) == {"A": 1, "B": 2}
    assert limited({"C": 4, "B": 2, "D": 8, OTHER: 16}, known) == {"B": 2, OTHER: 28}
    assert list(known) == ["A", "B", OTHER]
