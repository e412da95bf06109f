"""The recipes of docs/backups.md and docs/upgrade.md: a dump is restored, a release taken back."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from harness.scene import ROOT
from harness.servers import PostgresServer
from outlast.store.migrations import PROGRAM_VERSION
from outlast.store.rows import JobFilter

BACKUPS = (ROOT / "docs" / "backups.md").read_text()
UPGRADE = (ROOT / "docs" / "upgrade.md").read_text()
WITHIN = 60.0  # seconds


def block(page: str, heading: str) -> str:
    """Return the first block of commands below a heading of a page."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return str(re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0])


class Shop:
    """A database whose owner is no superuser, with a role for workers."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        for role in ("shop_owner", "shop_worker"):
            server.sql(f"CREATE ROLE {role} LOGIN")
        server.sql("CREATE DATABASE shop OWNER shop_owner")
        self.owner = self.url("shop_owner")
        (folder / "outlast").write_text(f'#!/bin/sh\nexec {sys.executable} -m outlast "$@"\n')
        (folder / "outlast").chmod(0o755)
        self.run('outlast migrate --url "$OWNER_URL" --grant shop_worker')

    def url(self, role: str) -> str:
        return f"postgresql://{role}@{self.server.url('shop').partition('@')[2]}"

    def run(self, commands: str, code: int = 0) -> str:
        """Run commands of the page in a shell; return what they print."""
        path = f"{self.folder}:{self.server.bin}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-eu", "-c", commands],
            env={**os.environ, "PATH": path, "OWNER_URL": self.owner},
            check=False, cwd=self.folder, capture_output=True, text=True, timeout=WITHIN,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with PostgresServer() as server:
        yield Shop(server, tmp_path)


@pytest.mark.slow
async def test_a_dump_is_restored_as_the_page_says(shop: Shop) -> None:
    app = outlast.App(shop.url("shop_worker"))

    @app.task
    async def double(value: int) -> int:
        return 2 * value

    dump, restore = block(BACKUPS, "Back up PostgreSQL, and restore it").split("\n\n")
    async with app.worker():
        first = await double.enqueue(1)
        assert await first.result(timeout=WITHIN) == 2
        second = await double.using(delay=3600).enqueue(2)
        await asyncio.to_thread(shop.run, dump)  # workers go on
        await app.cancel(second.id)
        third = await double.enqueue(3)
        assert await third.result(timeout=WITHIN) == 6
    await app.close()
    assert "shop.dump" in dump
    shop.run(restore)

    async with app.worker():
        rows = await app.stores.ask(lambda store: store.inspector.jobs(JobFilter()))
        assert [row.id for row in rows] == [second.id, first.id]
        assert await (await app.get(second.id)).status() == "scheduled"
        again = await double.enqueue(4)
        assert await again.result(timeout=WITHIN) == 8
    await app.close()


@pytest.mark.slow
def test_an_older_program_works_unless_a_step_says_otherwise(shop: Shop) -> None:
    """Rows as a newer release leaves them."""
    shown = shop.run(block(UPGRADE, "Go back a release"))
    assert set(re.findall(r"\| (\d+\.\d+)$", shown, re.MULTILINE)) == {PROGRAM_VERSION}
    newer = "INSERT INTO outlast_schema (number, name, checksum, compatible_from, applied_at)"
    shop.server.sql(f"{newer} VALUES (8, 'later', 'x', '{PROGRAM_VERSION}', 0)", "shop")
    assert "ok" in shop.run('outlast verify --url "$OWNER_URL" && echo ok')
    shop.server.sql(f"{newer} VALUES (9, 'contracts', 'x', '0.2', 0)", "shop")
    said = shop.run('outlast verify --url "$OWNER_URL"', code=3)
    (quoted,) = re.findall(r"`(the schema of this store serves .*?)`", UPGRADE)
    assert quoted in said
