"""Index entries that a statement has read, by the server's own count."""

from __future__ import annotations

import pytest

from outlast.store.postgres.store import PostgresStore


async def entries_read(store: PostgresStore, index: str) -> int:
    """Return how many entries of an index were read so far, dead ones too."""
    async with store._connections.use() as connection:
        if connection.get_server_version() < (15,):
            pytest.skip("a session cannot be asked for its figures")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(
            await connection.fetchval(
                "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = $1", index
            )
        )
