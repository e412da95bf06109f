"""Each command of the program as it is attacked: read off the program itself, so that a new one is
attacked as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from outlast.cli import tree
from outlast.cli.errors import STORE_UNUSABLE
from tests.cli.conftest import Said

DOCUMENTED = (0, 1, 2, 3)
LINES_MAX = 3  # of an error

# What is given for an argument, by its name in the help. A new name wants a value here.
GIVEN = {
    "MODULE:APP": ["shop:app"],
    "TASK": ["nap"],
    "ID": ["1"],
    "CMD ARG": ["true"],
    "NAME": ["nightly"],
    "SECONDS": ["5"],
    "queue|task|tenant|all": ["all"],
    "bash|zsh|fish": ["bash"],
}
# What a command needs besides.
MORE = {
    "enqueue": ["1"],
    "cancel": ["1"],
    "dead requeue": ["--all"],
    "dead discard": ["--all"],
    "workers drain": ["--all"],
    "limits set": ["--running=3"],
    "pause": ["--wait=0"],  # workers here are rows alone, and acknowledge nothing
    "worker": ["shop:app"],
    "schedules backfill": ["--from", "2026-01-01", "--to", "2026-01-02"],
}
FLAGS = ("--json", "--wait", "--watch", "--check", "--after-restore", "--from-scratch")
"""Each is tried by itself wherever a command has it."""

MAKERS = frozenset({"enqueue", "run", "migrate", "worker"})
"""Commands that make a store where there is none."""
WRITERS = MAKERS | {
    *("cancel", "requeue", "dead requeue", "dead discard", "workers drain", "pause", "resume"),
    *(f"schedules {verb}" for verb in ("pause", "resume", "delete")),
    *(f"limits {verb}" for verb in ("set", "hold", "reset")),
    *("event", "flow skip", "actions stop"),
}
"""Commands that may write. All others only read; a new one as well, unless it is named here."""
OF_A_SCHEDULE = frozenset(
    f"schedules {verb}" for verb in ("show", "pause", "resume", "trigger", "backfill", "delete")
)
"""They name one that is not there; two of them look for it before they write."""
OF_AN_ACTION = frozenset({"actions stop", "actions resume"})
"""They name one that is not there, or not under way."""
OF_A_LIMIT = frozenset(f"limits {verb}" for verb in ("show", "set", "hold", "reset"))
"""They name one that is not there."""
NOT_ABOUT_JOBS = (
    OF_A_SCHEDULE
    | OF_AN_ACTION
    | (OF_A_LIMIT - {"limits show"})
    | {"schedules", "schedules list", "resume", "actions", "event"}
)
NO_STORE = frozenset({"demo", "checkpoint", "report", "run-task", "crash-test"})
SERVERS = frozenset({"dev", "exporter", "web"})
"""They go on while the store is broken, and say so to those who ask them: tests of their own."""


@dataclass(frozen=True)
class Attack:
    """A command with what it is given, except the URL."""

    name: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def writes(self) -> bool:
        """Whether it may write."""
        return self.name in WRITERS and "--check" not in self.words

    @property
    def endless(self) -> bool:
        """Whether it may go on forever where the store works."""
        return bool({"--watch", "--wait"} & {*self.words})

    @property
    def makes(self) -> bool:
        """Whether it makes a store where there is none."""
        return self.name in MAKERS and "--check" not in self.words


def uses_jobs(attack: Attack) -> bool:
    """Whether a command reads or writes the table of jobs."""
    return attack.name not in NOT_ABOUT_JOBS and attack.name != "migrate"


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return all that can be run, by name; a group that does something by itself is one of them."""
    command = command or get_command(tree.build())
    children = getattr(command, "commands", {})
    if path and (not children or command.invoke_without_command):
        yield " ".join(path), command
    for name, child in children.items():
        yield from commands(child, (*path, name))


def takes_store(command: Any) -> bool:
    """Whether it has an option for the store's URL."""
    return any("--url" in each.opts for each in command.params)


def attacks() -> list[Attack]:
    """Return each command that takes a store, as plain as can be and with each of ``FLAGS``."""
    found = []
    for name, command in commands():
        if takes_store(command) and name not in NO_STORE | SERVERS:
            words = (*name.split(), *_needed(command), *MORE.get(name, []))
            takes = {flag for each in command.params for flag in each.opts if _is_flag(each)}
            flags = [flag for flag in FLAGS if flag in takes]
            found.append(Attack(name, words))
            found += [Attack(name, _with(flag, words, name)) for flag in flags]
    return found


def _is_flag(option: Any) -> bool:
    return bool(getattr(option, "is_flag", False))


def _needed(command: Any) -> Iterator[str]:
    for each in command.params:
        if each.param_type_name == "argument" and each.required:
            yield from GIVEN[each.metavar.rstrip("…")]


def _with(flag: str, words: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Options come before the arguments: what is behind a command of ``run`` is the command's."""
    length = len(name.split())
    return (*words[:length], flag, *words[length:])


@dataclass(frozen=True)
class Broken:
    """What is said of a store that is broken in one way.

    ``words``: what each refusal says; ``codes``: the exit codes that are right; ``refused``: which
    commands are; ``makers``: those that make a store repair it instead.
    """

    words: tuple[str, ...] = ()
    codes: tuple[int, ...] = (3,)
    refused: Callable[[Attack], bool] = lambda _: True
    makers: bool = False

    def fits(self, attack: Attack) -> bool:
        """Whether the command attacks this store: it neither repairs it nor runs forever, as it
        should while the store works."""
        works = 0 in self.codes or not self.refused(attack)
        return not (attack.makes and self.makers) and not (attack.endless and works)

    def wrong(self, attack: Attack, said: Said) -> str | None:
        """Return what is wrong with the answer to an attack; None: it is as it should be."""
        told = f"{said.out}\n{said.err}"
        if "Traceback" in said.err or said.code not in DOCUMENTED:
            return f"ended with {said.code}: {told}"
        if not self.refused(attack):
            return None if said.code in {0, 1} else f"refused with {said.code}: {told}"
        if said.code not in self._codes(attack):
            return f"ended with {said.code}: {told}"
        if said.code == STORE_UNUSABLE and not all(
            word in " ".join(told.split()) for word in self.words
        ):
            return f"lacks words: {told}"
        return None if said.code in {0, 1} or _plain(said.err) else f"not plain: {said.err}"

    def _codes(self, attack: Attack) -> set[int]:
        codes = {*self.codes}
        if attack.name == "doctor":  # for it a broken store is what it was asked for
            return {1 if code == STORE_UNUSABLE else code for code in codes}
        return codes | ({1} if {"--check", "--after-restore"} & {*attack.words} else set())


def _plain(text: str) -> bool:
    """Whether it is what the program says of an error: a sentence or two, no more."""
    lines = [line for line in text.strip().splitlines() if line != "shop is imported"]
    return bool(lines) and lines[0].startswith("outlast: ") and len(lines) <= LINES_MAX
