"""Checks the caller's own connections, and opens them for the caller's transaction.

The SQL belongs to the stores; ``drivers`` leads into the transaction that is open on a connection.
"""

from __future__ import annotations

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import ConnectionMismatch
from outlast.store.foreign.drivers import open_driver
from outlast.store.protocol import ForeignConnection


async def checked(
    connection: object, store_id: str, *, notify: bool = True, clock: Clock = SYSTEM
) -> ForeignConnection:
    """Return the connection, which is on the schema of that id, or raise ConnectionMismatch."""
    found = foreign(connection, notify=notify, clock=clock)
    seen = await found.store_id()
    if seen != store_id:  # its search_path may have been changed
        seen = await found.store_id(refresh=True)
    if seen is None:
        raise ConnectionMismatch(
            "the connection sees no Outlast schema: it is to another database than the"
            " application's, or its search_path leads elsewhere"
        )
    if seen != store_id:
        raise ConnectionMismatch(
            "the connection is on another Outlast schema than the application's: in its"
            " transaction nothing can be stored here"
        )
    return found


def foreign(connection: object, *, notify: bool = True, clock: Clock = SYSTEM) -> ForeignConnection:
    """Return the connection as the protocol defines it; ConnectionMismatch for an unknown kind.

    ``notify``: whether its commit wakes idle workers, if the store can do that.
    """
    driver, callers = open_driver(connection)
    return callers.connect(driver, notify=notify, clock=clock)
