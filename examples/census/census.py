"""Lines by language of whole trees, counting nothing twice.

Git names content by its hash, so equal content is counted once, however many commits hold
it: a directory's counts depend on its tree only (a language depends on a name, and names
are in the tree), a file's lines on its blob only. The first commit costs a full read, each
further one only what changed. Both memories are bounded; what falls out is counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from examples.census.git import NotARepository, Objects
from examples.census.languages import count_lines, language_of

FILE_LIMIT = 64 << 20
"""Bytes of one file; a larger one is passed over, and counted as skipped."""
COUNT_LIMIT = 1 << 53
"""No number grows beyond it, even if a malicious repository claims more."""
FILES_REMEMBERED = 200_000
TREES_REMEMBERED = 20_000
TICK = 1_000
"""Chunks of content (a small file is one) between two signs of life."""

_TREE, _FILE = b"40000", b"100"
_BINARY, _SKIPPED = -1, -2

Value = TypeVar("Value")
Entries = Iterator[tuple[bytes, bytes, bytes]]
"""Mode, name and id of what a directory holds."""


@dataclass(slots=True)
class Counts:
    """Lines by language, and files: all, the binary ones, and those skipped.

    Skipped is what is too large or not there (in a partial clone). Symbolic links and
    submodules are not files. Languages without a line are left out.
    """

    lines: dict[str, int] = field(default_factory=dict)
    files: int = 0
    binary: int = 0
    skipped: int = 0

    def add_file(self, language: str, lines: int) -> None:
        """Count one file; ``lines`` may be _BINARY or _SKIPPED."""
        self.files += 1
        self.binary += lines == _BINARY
        self.skipped += lines == _SKIPPED
        if lines > 0:
            self.lines[language] = self.lines.get(language, 0) + lines

    def add(self, other: Counts) -> None:
        """Count a whole directory."""
        self.files = min(self.files + other.files, COUNT_LIMIT)
        self.binary = min(self.binary + other.binary, COUNT_LIMIT)
        self.skipped = min(self.skipped + other.skipped, COUNT_LIMIT)
        for language, lines in other.lines.items():
            self.lines[language] = min(self.lines.get(language, 0) + lines, COUNT_LIMIT)


class Memory(Generic[Value]):
    """Values by id: at least the last ``size`` used ones, at most twice as many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}

    def get(self, oid: bytes) -> Value | None:
        """The value, if it is still remembered; it is then remembered for longer."""
        value = self._young.get(oid)
        if value is None and (value := self._old.get(oid)) is not None:
            self.put(oid, value)
        return value

    def put(self, oid: bytes, value: Value) -> None:
        """Remember a value; when ``size`` are young, what is old is forgotten."""
        if len(self._young) >= self._size:
            self._old, self._young = self._young, {}
        self._young[oid] = value


@dataclass(slots=True)
class _Open:
    """A directory that is being counted: what is still to be looked at, and the sum so far."""

    oid: bytes
    entries: Entries
    counts: Counts


class Census:
    """Counts the lines of commits of one repository.

    ``limit``: bytes of the largest file that is read. ``tick`` is called with the number of
    files read so far, about once a second while much is read; it may raise to end the work.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        limit: int = FILE_LIMIT,
        tick: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._objects = objects
        self._limit = limit
        self._tick = tick
        self._trees: Memory[Counts] = Memory(TREES_REMEMBERED)
        self._files: Memory[int] = Memory(FILES_REMEMBERED)
        self._read = self._chunks = 0

    def of_commit(self, commit: str) -> Counts:
        """What the commit's files count; not to be changed by the caller.

        Raises NotARepository when the commit, its tree, or git itself is gone.
        """
        tree = self._objects.find(commit + "^{tree}")
        if tree is None:
            raise NotARepository(f"commit {commit}: its files are not in this repository")
        return self._of_tree(bytes.fromhex(tree))

    def _of_tree(self, oid: bytes) -> Counts:
        """Depth first with a stack of our own: directories may nest deeper than Python does."""
        path = [self._open(oid)]
        while True:
            unknown = self._advance(path[-1])
            if unknown is not None:
                path.append(self._open(unknown))
                continue
            done = path.pop()
            self._trees.put(done.oid, done.counts)
            if not path:
                return done.counts
            path[-1].counts.add(done.counts)

    def _open(self, oid: bytes) -> _Open:
        data = self._objects.tree(oid.hex())
        if data is None:
            return _Open(oid, iter(()), Counts(skipped=1))
        return _Open(oid, _entries(data, len(oid)), Counts())

    def _advance(self, directory: _Open) -> bytes | None:
        """Count on until a directory comes up that is not known yet; its id, or None at the end."""
        counts = directory.counts
        for mode, name, oid in directory.entries:
            if mode.startswith(_FILE):
                counts.add_file(language_of(name), self._lines(oid))
            elif mode == _TREE:
                known = self._trees.get(oid)
                if known is None:
                    return oid
                counts.add(known)
        return None

    def _lines(self, oid: bytes) -> int:
        """Lines of a file, or _BINARY, or _SKIPPED."""
        known = self._files.get(oid)
        if known is None:
            known = self._count(oid)
            self._files.put(oid, known)
        return known

    def _count(self, oid: bytes) -> int:
        chunks = self._objects.blob(oid.hex(), self._limit)
        self._read += 1
        if chunks is None:
            return _SKIPPED
        lines = count_lines(self._watched(chunks))
        return _BINARY if lines is None else lines

    def _watched(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same chunks, with a sign of life now and then."""
        for chunk in chunks:
            self._chunks += 1
            if self._chunks % TICK == 0:
                self._tick(self._read)
            yield chunk


def _entries(data: bytes, width: int) -> Entries:
    """The entries of a tree object whose ids are ``width`` bytes long.

    Raises NotARepository when it is damaged.
    """
    at = 0
    while at < len(data):
        space = data.find(b" ", at)
        end = data.find(b"\0", space)
        if space < 0 or end < 0 or end + width >= len(data):
            raise NotARepository("the repository is damaged: a directory cannot be read")
        at, start = end + 1 + width, at
        yield data[start:space].lstrip(b"0"), data[space + 1 : end], data[end + 1 : at]
