"""Wakes workers by messengers, in place of the store's own wake-ups.

Messages are only hints (``messenger.py``). A store's own wake-up is in the folder of the store.

messenger.py    the parts common to all messengers, and the `Broker` protocol that each implements
kinds.py        messengers before a connection: their kinds, and the checks of a URL
notice.py       the content of a message: check this queue, this job
inbox.py        between messenger and exchange: fetches only as many messages as can be claimed
nats.py         NATS JetStream: one stream for a store, one consumer for a queue
amqp.py         RabbitMQ: one exchange for a store, one quorum queue for a queue
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import ConfigError
from outlast.store.backend import file_of
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.kinds import AMQP, KINDS, NATS, Address, Kind, parse

if TYPE_CHECKING:
    from outlast.wakeup.messenger import Broker, Messenger

    MakeBroker = Callable[[Address, str, list[str] | None], Broker]


def check_messenger(wakeup: str, url: str) -> Address:
    """Return the messenger's address. ConfigError where it cannot serve the store at ``url``."""
    address = parse(wakeup)
    if file_of(url) is not None:
        raise ConfigError(
            "a messenger is for jobs on a server: a file is on one machine, where every worker"
            " sees a commit within 20 ms. Leave out wakeup= (OUTLAST_WAKEUP)"
        )
    address.context()
    address.check_login()
    return address


def open_messenger(
    wakeup: str,
    url: str,
    store_id: str,
    *,
    queues: list[str] | None = None,
    clock: Clock = SYSTEM,
) -> Messenger:
    """Return a messenger for the store of that id, not started. ConfigError for a URL that cannot
    work, or if the driver is not installed.

    ``queues``: the queues whose notices it receives, [] for all; None for a client that only
    publishes.
    """
    from outlast.wakeup.messenger import Messenger

    address = check_messenger(wakeup, url)
    make = functools.partial(_broker(KINDS[address.kind]), address, store_id, queues)
    inbox = None if queues is None else Inbox()
    return Messenger(make, address.kind, inbox=inbox, queues=len(queues or ()), clock=clock)


def _broker(kind: Kind) -> MakeBroker:
    """Return the factory of the broker. ConfigError if its driver is not installed."""
    try:
        return _import_broker(kind)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(kind.package):
            raise
        raise ConfigError(f"{kind.needs}: pip install 'outlast[{kind.name}]'") from error


def _import_broker(kind: Kind) -> MakeBroker:
    if kind is AMQP:
        from outlast.wakeup.amqp import AmqpBroker

        return AmqpBroker
    if kind is NATS:
        from outlast.wakeup.nats import NatsBroker

        return NatsBroker
    raise NotImplementedError(f"no broker of kind {kind.name} is imported here")
