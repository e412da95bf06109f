"""Faults done to hosts, to the links between them, and to a pair of servers behind one address."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from harness.namespaces import Host, swallowed
from harness.scene import boot
from tests.chaos.bed import Bed
from tests.chaos.deeds import POSTGRES, PROCESSES, how_long, to_the_database
from tests.chaos.nemesis import Deed, Nemesis
from tests.chaos.pair import ADDRESS, Pair
from tests.chaos.supervisor import LEASE, Member

OF_ONE_MACHINE = (
    "worker killed", "tree killed", "runner killed", "worker paused", "tree paused",
    "backend killed", "sessions terminated", "database stopped at once", "database killed",
)  # fmt: skip

# --- one host ---------------------------------------------------------------------------------

LinkFault = Callable[[Host, random.Random], AbstractContextManager[None]]


@contextmanager
def cable_pulled(host: Host, _rng: random.Random) -> Iterator[None]:
    host.link_down()
    try:
        yield
    finally:
        host.link_up()


@contextmanager
def slow(host: Host, rng: random.Random) -> Iterator[None]:
    host.slow_down(kilobits=rng.randint(150, 3000))
    try:
        yield
    finally:
        host.speed_up()


def both_ways(host: Host, _rng: random.Random) -> AbstractContextManager[None]:
    return swallowed((host.address, "all"), ("all", host.address))


def outward(host: Host, _rng: random.Random) -> AbstractContextManager[None]:
    return swallowed((host.address, "all"))


def inward(host: Host, _rng: random.Random) -> AbstractContextManager[None]:
    return swallowed(("all", host.address))


def on_a_link(event: str, fault: LinkFault) -> Deed:
    """Return the deed that does this to a link, for a moment or for about a lease."""

    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        host = _some(nemesis, rng)
        if host is None:
            return False
        seconds = how_long(rng)
        with _bed(nemesis).hold(host):
            if seconds > LEASE:
                _hit(nemesis, event, host)
            with fault(host, rng):
                await asyncio.sleep(seconds)
        return True

    return do


async def flap(nemesis: Nemesis, rng: random.Random) -> bool:
    """Let a link pass packets and swallow them in turn."""
    host = _some(nemesis, rng)
    if host is None:
        return False
    with _bed(nemesis).hold(host):
        for _ in range(rng.randint(5, 25)):
            with both_ways(host, rng):
                await asyncio.sleep(rng.uniform(0.02, 0.6))
            await asyncio.sleep(rng.uniform(0.02, 0.6))
    return True


async def power_off(nemesis: Nemesis, rng: random.Random) -> bool:
    """Cut the power of a worker's host; boot it again later."""
    host = _some(nemesis, rng, only_workers=True)
    if host is None:
        return False
    member = _member(nemesis, host)
    assert member is not None
    with _bed(nemesis).hold(host):
        _hit(nemesis, "host powered off", host)
        member.lose_host()
        await asyncio.to_thread(host.power_off)
        await asyncio.sleep(how_long(rng))
        await asyncio.to_thread(host.power_on)
        member.is_off = False
    return True


# --- the servers ------------------------------------------------------------------------------


def on_the_servers(event: str, ways: Callable[[Pair], list[tuple[str, str]]]) -> Deed:
    """Return the deed that swallows packets to or between the servers for a while."""

    @to_the_database
    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        with swallowed(*ways(_pair(nemesis))):
            nemesis.tell(event, halts=True)
            await asyncio.sleep(how_long(rng))
        return True

    return do


@to_the_database
async def lose_standby(nemesis: Nemesis, rng: random.Random) -> bool:
    """Cut the power of the standby's host; later there is a new standby."""
    pair = _pair(nemesis)
    await asyncio.to_thread(pair.other.power_off)
    nemesis.tell("standby powered off", halts=True)
    await asyncio.sleep(how_long(rng))
    await asyncio.to_thread(pair.renew_standby)
    return True


@to_the_database
async def lose_primary(nemesis: Nemesis, rng: random.Random) -> bool:
    """Cut the power of the primary's host and promote the standby, which may be behind. It may also
    have crashed before: then commits are visible that waited for the standby."""
    pair = _pair(nemesis)
    lag = _between(pair) if rng.random() < 0.6 else []
    with swallowed(*lag):
        if lag:
            await _fall_behind(pair, rng)
        await asyncio.to_thread(pair.host.power_off)
        nemesis.tell("primary powered off, standby promoted", halts=True)
    await _rebuild(nemesis, await _promote(nemesis, rng))
    return True


async def _fall_behind(pair: Pair, rng: random.Random) -> None:
    await asyncio.sleep(rng.uniform(0.2, 6))
    if rng.random() < 0.6:
        await asyncio.to_thread(pair.primary.restart, "immediate")
        await asyncio.sleep(rng.uniform(1, 6))


@to_the_database
async def isolate_primary(nemesis: Nemesis, rng: random.Random) -> bool:
    """Cut the primary off while it runs, and promote the standby; end the other one later."""
    pair = _pair(nemesis)
    with swallowed(*_between(pair), ("all", ADDRESS), (ADDRESS, "all")):
        nemesis.tell("primary cut off, standby promoted", halts=True)
        at = await _promote(nemesis, rng)
    await asyncio.sleep(rng.uniform(0, 3))
    await _rebuild(nemesis, at)
    return True


async def _promote(nemesis: Nemesis, rng: random.Random) -> float:
    """Promote the standby a little later; return since when the primary was out of reach."""
    at = boot()
    await asyncio.sleep(rng.uniform(0, 4))
    pair = _pair(nemesis)
    await asyncio.to_thread(pair.fail_over)
    nemesis.ground.server = pair.primary
    return at


async def _rebuild(nemesis: Nemesis, at: float) -> None:
    _bed(nemesis).failovers.append(await asyncio.to_thread(_pair(nemesis).rebuild, at))


def _between(pair: Pair) -> list[tuple[str, str]]:
    one, other = pair.host.address, pair.other.address
    return [(one, other), (other, one)]


def _bed(nemesis: Nemesis) -> Bed:
    assert nemesis.ground.bed is not None
    return nemesis.ground.bed


def _pair(nemesis: Nemesis) -> Pair:
    pair = _bed(nemesis).pair
    assert pair is not None
    return pair


def _some(nemesis: Nemesis, rng: random.Random, *, only_workers: bool = False) -> Host | None:
    bed = _bed(nemesis)
    there = [host for host in bed.free() if host is not bed.clients or not only_workers]
    return rng.choice(there) if there else None


def _member(nemesis: Nemesis, host: Host) -> Member | None:
    return next((each for each in nemesis.supervisor.members if each.host is host), None)


def _hit(nemesis: Nemesis, event: str, host: Host) -> None:
    member = _member(nemesis, host)
    if member is not None:
        nemesis.hit(event, member, member.below()[0])


HOSTS: dict[str, Deed] = {
    "cable pulled": on_a_link("cable pulled", cable_pulled),
    "packets swallowed": on_a_link("packets swallowed", both_ways),
    "packets from a host swallowed": on_a_link("packets from a host swallowed", outward),
    "packets to a host swallowed": on_a_link("packets to a host swallowed", inward),
    "link slow": on_a_link("link slow", slow),
    "link flapping": flap,
    "host powered off": power_off,
}
SERVERS: dict[str, Deed] = {
    "requests swallowed": on_the_servers("requests swallowed", lambda _: [("all", ADDRESS)]),
    "replies swallowed": on_the_servers("replies swallowed", lambda _: [(ADDRESS, "all")]),
    "standby cut off": on_the_servers("standby cut off", _between),
    "standby's replies swallowed": on_the_servers(
        "standby's replies swallowed", lambda pair: _between(pair)[1:]
    ),
    "standby powered off": lose_standby,
    "primary powered off": lose_primary,
    "primary cut off": isolate_primary,
}


def deeds_between(only: str | None = None) -> dict[str, Deed]:
    """Return what can be done where hosts are apart; ``only`` what has this in its name."""
    same = {name: (PROCESSES | POSTGRES)[name] for name in OF_ONE_MACHINE}
    there = HOSTS | SERVERS | same
    return {name: deed for name, deed in there.items() if (only or "") in name}
