"""Refuses other roles' objects in our schema of PostgreSQL, since they could run as this role."""

from __future__ import annotations

from typing import Any

from outlast.errors import SchemaMismatch
from outlast.store.statements import statements

_SQL = statements("postgres", "session")


async def refuse_strangers(connection: Any) -> None:
    """Raise SchemaMismatch if an untrusted role has put something into our schema that could run as
    this role; ``strangers`` of session.sql defines both."""
    for found in await connection.fetch(_SQL["strangers"]):
        more = f" (and so do {found['number'] - 1} more objects)" if found["number"] > 1 else ""
        raise SchemaMismatch(
            f"{found['what']} belongs to the role {found['owner']}{more}, which has no right of its"
            f" own to create in the schema {found['schema']}: what it puts there could run as your"
            f" role. If {found['owner']} is to be trusted: {found['trusts']}. If not:"
            f" {found['removes']}, and REVOKE CREATE ON SCHEMA {found['schema']} FROM PUBLIC,"
            " or use a schema of your own"
        )
