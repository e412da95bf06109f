"""Git, run as a child process.

The only module that starts git. It asks in three ways: for a short answer (``ask``, ``demand``),
for a stream of lines (``stream``) and, through one long-lived ``cat-file --batch``, for objects
by id (``Objects``). Nothing is checked out, fetched, written or run from the repository's
hooks. Memory is bounded by the limits below for any repository, and no child
outlives its reader: each one is killed when it is closed, and ends by itself (end of file
on its input, broken pipe on its output) when this process dies.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from typing import IO, Self, cast

from outlast.errors import OutlastError

CHUNK = 1 << 18
"""Bytes read from a blob at a time."""
PIPE_BUFFER = 1 << 16
"""Bytes read ahead from git."""
TREE_LIMIT = 64 << 20
"""Bytes of one directory's listing (about a million entries); a larger one is passed over."""
DRAIN_LIMIT = 4 << 20
"""An unread rest of at most this many bytes is read to its end; for more, git is restarted."""
MESSAGE_LIMIT = 300
"""Characters of git's own words in an error message."""

_KEPT = (
    "GIT_CONFIG_",
    "GIT_EXEC_PATH",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
)
_SETTINGS = {
    "LC_ALL": "C",  # git's messages are read here
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # what a partial clone left out is missing, not fetched
}
_OPTIONS = (
    "--no-pager",
    *("-c", "core.bigFileThreshold=8m"),  # larger files are streamed, not held in memory
    *("-c", "core.packedGitLimit=64m", "-c", "core.packedGitWindowSize=8m"),
    *("-c", "protocol.allow=never"),  # nothing is fetched, by older versions of git either
)


class NotARepository(OutlastError):
    """There is no history to read; the message is one line for the person who asked."""


def ask(path: str, *arguments: str) -> str | None:
    """Git's answer without its last newline; None when git says no."""
    done = _run(path, arguments)
    return os.fsdecode(done.stdout.removesuffix(b"\n")) if done.returncode == 0 else None


def demand(path: str, *arguments: str) -> str:
    """Git's answer without its last newline. Raises NotARepository with git's own reason."""
    done = _run(path, arguments)
    if done.returncode != 0:
        raise NotARepository(f"{printable(path)}: {_reason(io.BytesIO(done.stderr))}")
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


def stream(path: str, *arguments: str) -> Generator[bytes]:
    """Lines of git's output, one at a time; closing the generator ends git.

    Raises NotARepository when git breaks off.
    """
    with tempfile.TemporaryFile() as words, _start(path, arguments, errors=words) as child:
        try:
            yield from _pipe(child.stdout)
            if child.wait() != 0:
                raise NotARepository(f"{printable(path)}: git broke off: {_reason(words)}")
        finally:
            _end(child)


def printable(text: str) -> str:
    """The text on one line, without control characters and lone surrogates."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


class Objects:
    """The objects of one repository by id, read through a single ``git cat-file --batch``.

    A context manager; leaving it ends git. Not thread-safe. Raises NotARepository when git
    breaks off (a damaged repository).
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._child: subprocess.Popen[bytes] | None = None
        self._left = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End git; the object cannot be used afterwards."""
        self._stop()
        self._words.close()

    def find(self, name: str) -> str | None:
        """The full id of an object, such as ``<commit>^{tree}``; None when it is missing."""
        answer = self._request(name)
        return answer[0] if answer else None

    def tree(self, oid: str) -> bytes | None:
        """A directory as git stores it; None when missing, no tree, or above ``TREE_LIMIT``."""
        answer = self._request(oid)
        if answer is None or answer[1] != "tree" or answer[2] > TREE_LIMIT:
            return None
        return b"".join(self._content())

    def blob(self, oid: str, limit: int) -> Iterator[bytes] | None:
        """A file's content in chunks; None when missing, no blob, or larger than ``limit`` bytes.

        The chunks need not be read to their end.
        """
        answer = self._request(oid)
        if answer is None or answer[1] != "blob" or answer[2] > limit:
            return None
        return self._content()

    def _request(self, name: str) -> tuple[str, str, int] | None:
        """Id, kind and size of what is named; its content is then next in the pipe."""
        self._settle()
        match self._exchange(name).split():
            case [oid, kind, size] if size.isdigit():
                self._left = int(size) + 1
                return oid, kind, int(size)
            case _:
                return None  # "… missing", "… ambiguous"

    def _exchange(self, name: str) -> str:
        """One request, one header line."""
        child = self._child = self._child or _start(
            self._path, ("cat-file", "--batch"), errors=self._words, feed=True
        )
        with contextlib.suppress(BrokenPipeError):
            _pipe(child.stdin).write(name.encode() + b"\n")
            _pipe(child.stdin).flush()
        return self._checked(_pipe(child.stdout).readline()).decode("utf-8", "replace")

    def _content(self) -> Iterator[bytes]:
        """The chunks of the object that is next in the pipe, its closing newline swallowed."""
        source = _pipe(cast("subprocess.Popen[bytes]", self._child).stdout)
        while self._left > 1:
            chunk = self._checked(source.read(min(CHUNK, self._left - 1)))
            self._left -= len(chunk)
            yield chunk
        self._checked(source.read(self._left))
        self._left = 0

    def _settle(self) -> None:
        """Get rid of what the last reader left in the pipe."""
        if self._left > DRAIN_LIMIT:
            self._stop()
        elif self._left:
            for _ in self._content():
                pass

    def _checked(self, data: bytes) -> bytes:
        if data:
            return data
        self._stop()
        raise NotARepository(f"{printable(self._path)}: git broke off: {_reason(self._words)}")

    def _stop(self) -> None:
        child, self._child, self._left = self._child, None, 0
        if child:
            _end(child)


def _run(path: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    """Git run to its end; killed when this call is interrupted."""
    with _without_git():
        return subprocess.run(
            _command(path, arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            check=False,
        )


def _start(
    path: str, arguments: tuple[str, ...], *, errors: IO[bytes], feed: bool = False
) -> subprocess.Popen[bytes]:
    """Git left running, to be ended by ``_end``."""
    with _without_git():
        return subprocess.Popen(
            _command(path, arguments),
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            bufsize=PIPE_BUFFER,
        )


def _command(path: str, arguments: tuple[str, ...]) -> list[str]:
    return ["git", "-C", path, *_OPTIONS, *arguments]


@contextlib.contextmanager
def _without_git() -> Generator[None]:
    """Say in one line that git cannot be started."""
    try:
        yield
    except FileNotFoundError:
        raise NotARepository("git is not installed, or not on the PATH") from None
    except OSError as error:
        raise NotARepository(f"git cannot be started: {error.strerror or error}") from None


def _environment() -> dict[str, str]:
    """Ours without what would point git at another repository (as inside a git hook)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k.startswith(_KEPT)}
    return kept | _SETTINGS


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child if it still runs, and wait for it."""
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "every child is started with this pipe"
    return pipe


def _reason(words: IO[bytes]) -> str:
    """Why git gave up: its last line that says so, since advice may follow; or its last line."""
    words.seek(max(0, words.seek(0, os.SEEK_END) - 4 * MESSAGE_LIMIT))
    lines = os.fsdecode(words.read()).strip().splitlines() or ["no reason given"]
    told = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return printable((told or lines)[-1])[:MESSAGE_LIMIT]
