"""An application with two tasks, on each store."""

from __future__ import annotations

import pytest

import outlast


def application(url: str | None) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def analyze(repo: str, depth: int = 100) -> dict[str, int]:
        return {"depth": depth}

    @app.task(queue="mail", retries=1, aliases=["send"])
    def mail(to: str) -> int:
        return len(to)

    return app


@pytest.fixture
async def app(store_url):
    app = application(store_url)
    yield app
    await app.close()
