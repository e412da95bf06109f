"""The samples of a walk, and their compact form.

One form serves as checkpoint and as result. It is small, so that it may be saved every few
commits: 1,000 samples of 60 languages come to about 250 kB of JSON. A row holds a commit's
id and date in full, and its numbers as differences from the row before: most of them are
short, many are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from examples.census.languages import OTHER

LANGUAGES_LIMIT = 100
"""Languages told apart; those that come up later count as ``OTHER``."""

Packed = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one commit holds: lines by language, and files (all, binary, skipped).

    ``seconds``: the committer's date, Unix time.
    """

    id: str
    seconds: int
    files: int
    binary: int
    skipped: int
    lines: dict[str, int]

    @property
    def total(self) -> int:
        """Lines of all languages."""
        return sum(self.lines.values())


@dataclass(slots=True)
class Evolution:
    """How a repository grew, oldest sample first.

    ``wanted``: samples asked for; ``total``: commits of the whole history that ends in ``tip``.
    """

    repository: str
    tip: str
    total: int
    shallow: bool
    wanted: int
    samples: list[Sample] = field(default_factory=list)

    def pack(self) -> Packed:
        """The compact form, of JSON's types only; ``commit`` is the number of samples."""
        languages = list(languages_of(self.samples))
        return {
            "commit": len(self.samples),
            "repository": self.repository,
            "tip": self.tip,
            "total": self.total,
            "shallow": self.shallow,
            "wanted": self.wanted,
            "languages": languages,
            "samples": list(_rows(self.samples, languages)),
        }

    @classmethod
    def unpack(cls, packed: Packed) -> Evolution:
        """The inverse of ``pack``. Raises ValueError when it is not of that form."""
        names = ("repository", "tip", "total", "shallow", "wanted")
        try:
            samples = list(_samples(packed["samples"], packed["languages"]))
            return cls(**{name: packed[name] for name in names}, samples=samples)
        except (LookupError, TypeError) as error:
            raise ValueError(f"not a packed evolution: {error!r}") from None


def languages_of(samples: Iterable[Sample]) -> dict[str, None]:
    """Languages in the order of their first appearance, within a sample by name."""
    return dict.fromkeys(name for sample in samples for name in sorted(sample.lines))


def limited(lines: dict[str, int], known: dict[str, None]) -> dict[str, int]:
    """The lines, with languages beyond the limit as ``OTHER``; ``known`` grows by the new ones."""
    kept: dict[str, int] = {}
    for name in sorted(lines):
        shown = name if name in known or len(known) < LANGUAGES_LIMIT - 1 else OTHER
        known.setdefault(shown)
        kept[shown] = kept.get(shown, 0) + lines[name]
    return kept


def _rows(samples: list[Sample], languages: list[str]) -> Iterator[list[Any]]:
    before = [0] * (3 + len(languages))
    for sample in samples:
        lines = [sample.lines.get(name, 0) for name in languages]
        numbers = [sample.files, sample.binary, sample.skipped, *lines]
        steps = [now - then for now, then in zip(numbers, before, strict=True)]
        while steps and steps[-1] == 0:
            steps.pop()
        before = numbers
        yield [sample.id, sample.seconds, *steps]


def _samples(rows: list[list[Any]], languages: list[str]) -> Iterator[Sample]:
    numbers = [0] * (3 + len(languages))
    for oid, seconds, *steps in rows:
        if len(steps) > len(numbers):
            raise LookupError("more numbers than languages")
        numbers = [then + step for then, step in zip_longest(numbers, steps, fillvalue=0)]
        lines = {name: n for name, n in zip(languages, numbers[3:], strict=True) if n}
        yield Sample(oid, seconds, numbers[0], numbers[1], numbers[2], lines)
