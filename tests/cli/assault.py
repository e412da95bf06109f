"""Runs commands against a broken store, and records which of them misbehaved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.attacks import Attack, Broken, attacks
from tests.cli.conftest import Said, environment
from tests.cli.forked import ForkServer

SECONDS = 30.0  # after which a command counts as endless
ENDLESS = "it does not end"
PATIENCE = 0.2  # seconds that a command waits here for a lock or a server
ATTACKS = [each for each in attacks() if each.name != "worker"]
WORKER = next(each for each in attacks() if each.name == "worker")


def writes(attack: Attack) -> bool:
    """Whether an attack may write."""
    return attack.writes


def in_turn(turn: int, share: int = 1) -> list[Attack]:
    """Return one attack for each command, or for one command in ``share``; the turns together cover
    all attacks."""
    by_name: dict[str, list[Attack]] = {}
    for each in ATTACKS:
        by_name.setdefault(each.name, []).append(each)
    chosen = [variants[turn // share % len(variants)] for variants in by_name.values()]
    return chosen[turn % share :: share]


def shown(folder: Path) -> dict[str, object]:
    """Return what is in a directory, except the files that SQLite keeps beside a database."""
    return {
        each.name: each.read_bytes() if each.is_file() else each.lstat().st_mode
        for each in folder.iterdir()
        if not each.name.endswith(("-wal", "-shm", ".pyc", "__pycache__"))
    }


class Assault:
    """Runs commands against one store, and records which of them misbehaved."""

    def __init__(
        self, server: ForkServer, folder: Path, url: str, broken: Broken, *, looks: bool = True
    ) -> None:
        """``folder``: the working directory; ``looks``: whether its content is compared."""
        self._server = server
        self._folder = folder
        self._looks = looks
        self._url = url
        self._broken = broken
        self.failures: dict[str, str] = {}

    def run(self, attack: Attack, **odd: Any) -> None:
        """Run one command and judge it."""
        at = len(attack.name.split())
        words = [*attack.words[:at], "--url", self._url, *attack.words[at:]]
        env, before = environment(), self._shown()
        odd = {"patience": PATIENCE, **odd}
        try:
            done = self._server.run(words, cwd=self._folder, env=env, timeout=SECONDS, **odd)
        except TimeoutError:
            self.failures[str(attack)] = ENDLESS
            return
        said = Said(done)
        if wrong := self._broken.wrong(attack, said):
            self.failures[str(attack)] = wrong
        elif not attack.writes and self._shown() != before:
            self.failures[str(attack)] = "it has written"

    def run_each(self, turn: int, share: int = 1, **odd: Any) -> None:
        """Run each command except the worker, which needs an interpreter of its own: plain, or with
        the flag whose turn it is.

        ``share``: of the commands, one in this many, for tests of many stores. All read a store in
        the same way; each store meets some of them, and each of them some stores.
        """
        for attack in in_turn(turn, share):
            if self._broken.fits(attack):
                self.run(attack, **odd)
            if ENDLESS in self.failures.values():  # the others would take as long
                return

    def _shown(self) -> dict[str, object]:
        return shown(self._folder) if self._looks else {}

    def told(self) -> str:
        """Return the failures, one below the other."""
        return "\n".join(f"{attack}: {wrong}" for attack, wrong in self.failures.items())
