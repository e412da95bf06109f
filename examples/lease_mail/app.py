"""Mail, sent by jobs. The mail server is outside the store, and refuses older tokens."""

import asyncio
import os

import asyncpg

import outlast

app = outlast.App()  # $OUTLAST_URL: a worker that is cut off reaches no store, but the mail server

SERVER = """
CREATE TABLE server (accepts bool NOT NULL);
INSERT INTO server VALUES (false);
CREATE TABLE mailbox (recipient text PRIMARY KEY, organisation text, token bigint NOT NULL);
"""
DELIVER = """
INSERT INTO mailbox VALUES ($1, $2, $3)
ON CONFLICT (recipient) DO UPDATE SET token = excluded.token WHERE mailbox.token < excluded.token
"""


@app.task(backoff_first=0.1)
async def send(to: str) -> str:
    """Wait for the mail server, for as long as it takes, and deliver once."""
    attempt = outlast.current()
    connection = await asyncpg.connect(os.environ["MAIL_URL"])
    try:
        while not await connection.fetchval("SELECT accepts FROM server"):
            attempt.report(message=f"token {attempt.token} waits for the mail server")
            await asyncio.sleep(0.2)
        await connection.execute(DELIVER, to, attempt.tenant, attempt.token)
    finally:
        await connection.close()
    return f"delivered under token {attempt.token}"
