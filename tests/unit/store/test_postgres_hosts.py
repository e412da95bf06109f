"""The one error that is told of several hosts, each of which was tried and failed."""

from __future__ import annotations

import asyncpg

from outlast.store.postgres.hosts import Unreached
from tests.cases import each_case

AWAY = ConnectionRefusedError("refused")
STARTING = asyncpg.CannotConnectNowError("the database system is starting up")
POOLER = asyncpg.ProtocolViolationError("unsupported startup parameter: options")
FULL = asyncpg.TooManyConnectionsError("sorry, too many clients already")
UNREADABLE = UnicodeEncodeError("idna", "x" * 70, 0, 70, "label too long")


@each_case(
    "first, second",
    [(STARTING, POOLER), (STARTING, FULL), (AWAY, POOLER), (AWAY, STARTING), (UNREADABLE, FULL)],
)
def test_an_answer_that_asks_for_another_try_decides_the_kind(
    first: BaseException, second: BaseException
) -> None:
    for pair in ((first, second), (second, first)):
        failures = [((f"db{at}", 5432), error) for at, error in enumerate(pair)]
        error = Unreached([*failures]).of_hosts()
        assert type(error) is type(second)
        assert all(f"db{at}:5432: " in str(error) for at in range(2))
