"""Which history is walked: the repository behind a path, its tip, and evenly spaced commits.

The walk follows first parents, the line that the main branch itself has lived through: a
merge counts as one step, and the number of steps between two samples means something. The
history is read twice as a stream (once to count, once to pick), so that memory depends on
the number of samples and not on the length of the history.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from examples.census.git import NotARepository, ask, demand, printable, stream

SAMPLES_LEAST, SAMPLES_LIMIT = 2, 1_000
"""The fewest and the most commits of one walk; a picture cannot show more."""
LAST_SECOND = 32_503_679_999
"""The end of the year 2999, in Unix seconds; a commit may claim to be younger."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its id, and its committer's date in Unix seconds (1970 to 2999)."""

    id: str
    seconds: int


@dataclass(frozen=True, slots=True)
class History:
    """The first-parent history that ends in ``tip``, ``total`` commits long.

    ``shallow``: the clone was cut off, so the first commit is not the project's first.
    """

    path: str
    name: str
    tip: str
    total: int
    shallow: bool

    @classmethod
    def find(cls, path: str, tip: str | None = None) -> History:
        """The history of the repository that the path is, or is in.

        ``tip``: the commit to end in, if it still exists; else HEAD; else (HEAD names a branch
        without commits, as after some bare clones) the youngest branch.
        Raises NotARepository with the reason in one line.
        """
        directory = _directory_of(path)
        tip = _tip(path, tip)
        total = demand(path, "rev-list", "--first-parent", "--count", tip, "--")
        shallow = ask(path, "rev-parse", "--is-shallow-repository") == "true"
        return cls(path, _name_of(directory), tip, int(total), shallow)

    def sample(self, wanted: int) -> list[Commit]:
        """At most ``wanted`` commits at even distances, oldest first: the first and last always.

        Raises ValueError unless SAMPLES_LEAST <= wanted <= SAMPLES_LIMIT.
        """
        if not SAMPLES_LEAST <= wanted <= SAMPLES_LIMIT:
            raise ValueError(f"between {SAMPLES_LEAST} and {SAMPLES_LIMIT:,} commits, please")
        ages = {self.total - 1 - place for place in evenly(self.total, wanted)}
        with closing(self._youngest_first()) as commits:
            return [commit for age, commit in enumerate(commits) if age in ages][::-1]

    def _youngest_first(self) -> Generator[Commit]:
        """All commits, one at a time; closing the generator ends git."""
        arguments = ("rev-list", "--first-parent", "--timestamp", self.tip, "--")
        with closing(stream(self.path, *arguments)) as lines:
            for line in lines:
                seconds, oid = line.split()
                yield Commit(oid.decode(), min(int(seconds), LAST_SECOND))


def evenly(total: int, wanted: int) -> list[int]:
    """Up to ``wanted`` places of 0 … total - 1 at even distances, both ends among them."""
    if total <= wanted:
        return list(range(total))
    return [place * (total - 1) // (wanted - 1) for place in range(wanted)]


def _directory_of(path: str) -> Path:
    """The git directory (of a worktree: that of its repository), absolute."""
    if not os.path.exists(path):  # Path.exists raises for a name too long
        raise NotARepository(f"{printable(path)}: no such directory")
    if not Path(path).is_dir():
        raise NotARepository(f"{printable(path)}: not a directory")
    return Path(path, demand(path, "rev-parse", "--git-common-dir")).resolve()


def _tip(path: str, wanted: str | None) -> str:
    """The full id of the commit where the history ends."""
    for name in (wanted if wanted and re.fullmatch("[0-9a-f]{40,64}", wanted) else None, "HEAD"):
        found = name and ask(path, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        if found:
            return found
    newest = ("--count=1", "--sort=-committerdate", "--format=%(objectname)", "refs/heads/")
    found = ask(path, "for-each-ref", *newest)
    if found:
        return found
    raise NotARepository(f"{printable(path)}: the repository has no commits yet")


def _name_of(directory: Path) -> str:
    """What people call the repository of this git directory."""
    inside = directory.name == ".git"
    name = directory.parent.name if inside else directory.name.removesuffix(".git")
    return printable(name) or "repository"
