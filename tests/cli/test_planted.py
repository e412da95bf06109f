"""A secret is planted wherever a store has room for one, and looked for in all that commands print.

The commands come from the program itself, each with every flag that it has, so that a new one is
run, too. The command line has no rights of its own: it shows what the role of the database, or the
user of the machine, may read. So it runs as one that may read nothing, or less, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import App, Encryption
from outlast.store import open_store
from outlast.store.values import Purpose
from tests.cli.attacks import (
    DOCUMENTED,
    GIVEN,
    MORE,
    NO_STORE,
    SERVERS,
    WRITERS,
    commands,
    takes_store,
)
from tests.cli.conftest import SECONDS, environment
from tests.cli.forked import ForkServer
from tests.conformance import planted_kit
from tests.conformance.planted_kit import ROLE, World, planted

pytestmark = pytest.mark.timeout(300)
role = planted_kit.role
STRANGER = 65_534  # a user id that owns nothing
ENDLESS = {"--watch", "--wait", "--follow", "--help"}
BRIEFLY = {"stack": ["--wait", "0.1"]}
NOT_FOR_ENQUEUERS = {
    *("log", "reason of an action", "why", "args of a filter", "error of a filter"),
}
Told = dict[str, str]


def lines(world: World) -> Iterator[list[str]]:
    """Yield each command as it is called, once with each flag; those that write come last."""
    for name, command in sorted(commands(), key=lambda one: one[0] in WRITERS):
        if takes_store(command) and name not in NO_STORE | SERVERS | {"worker"}:
            words = [*name.split(), *BRIEFLY.get(name, []), *MORE.get(name, [])]
            for given in arguments(command, world):
                for flag in [[], *flags(command)]:
                    yield [*words[: len(name.split())], *flag, *words[len(name.split()) :], *given]


def flags(command: Any) -> Iterator[list[str]]:
    for each in command.params:
        if getattr(each, "is_flag", False) and not ENDLESS & {*each.opts}:
            yield [each.opts[0]]


def arguments(command: Any, world: World) -> list[list[str]]:
    """Return what stands for its arguments: one job of each kind where it shows one."""
    wanted = [each for each in command.params if each.param_type_name == "argument"]
    if [each.name for each in wanted] == ["job_id"]:
        completed, running, dead, *_, queued = world.names["job_id"]
        return [[one] for one in (completed, running, dead, queued)]
    return [[word for each in wanted if each.required for word in GIVEN[each.metavar.rstrip("…")]]]


@pytest.fixture
def read_everything(fork_server: ForkServer, folder: Path) -> Callable[..., Told]:
    """Return what runs all commands on a store, and returns what each has said."""

    def run(url: str, world: World, cwd: Path = folder, **odd: Any) -> Told:
        told = {}
        for words in lines(world):
            env = environment(OUTLAST_URL=url)
            done = fork_server.run(words, cwd=cwd, env=env, timeout=SECONDS, **odd)
            assert "Traceback" not in done.stderr, (words, done.stderr)
            assert done.returncode in DOCUMENTED, (words, done.stderr)
            told[" ".join(words)] = done.stdout + done.stderr
        assert len(told) > len([*commands()])
        return told

    return run


def leaks(told: Told, world: World) -> list[tuple[str, str]]:
    """Return which secrets stand where."""
    return [(place, line) for line, text in told.items() for place in world.secrets.found(text)]


async def filled(url: str, *codecs: Encryption) -> World:
    """Plant secrets in a store; with payloads as an application with these codecs stores them."""
    app = App(url, payloads=codecs)
    store = open_store(url)
    await store.open()
    try:
        return await planted(store, encode=app.stores.payloads.encode)
    finally:
        await store.close()
        await app.close()


@pytest.mark.slow
async def test_the_commands_show_all_that_is_planted(
    sqlite_url: str, read_everything: Callable[..., Told]
) -> None:
    """So it would be found where it must not be."""
    world = await filled(sqlite_url)
    told = "\n".join(read_everything(sqlite_url, world).values())
    shown = world.secrets.found(told, whole=True) | (world.secrets.found(told) & {"log in pieces"})
    assert set(world.secrets.by_place) - shown == set()


@pytest.mark.slow
async def test_no_command_shows_a_payload_that_is_encrypted(
    pg_url: str, read_everything: Callable[..., Told]
) -> None:
    world = await filled(pg_url, Encryption({"k": Encryption.make_key()}))
    found = leaks(read_everything(pg_url, world), world)
    assert [one for one in found if one[0] in world.encoded] == []


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_no_command_shows_anything_to_another_user_of_the_machine(
    read_everything: Callable[..., Told],
) -> None:
    with tempfile.TemporaryDirectory() as srv:
        Path(srv).chmod(0o755)  # the way to the file is open to all
        url = f"sqlite:///{srv}/outlast.db"
        world = await filled(url)
        assert leaks(read_everything(url, world, cwd=Path(srv), user=STRANGER), world) == []


@pytest.mark.slow
@pytest.mark.parametrize("purpose", [Purpose.PRODUCE, Purpose.ENQUEUE])
async def test_a_command_shows_no_more_than_its_role_may_read(
    pg_url: str, role: str, purpose: Purpose, read_everything: Callable[..., Told]
) -> None:
    world = await filled(pg_url)
    store = open_store(pg_url)
    await store.grant(ROLE, purpose)
    await store.close()
    found = {place for place, _ in leaks(read_everything(role, world), world)}
    hidden = set(world.secrets.by_place) if purpose is Purpose.PRODUCE else NOT_FOR_ENQUEUERS
    assert found & hidden == set()
