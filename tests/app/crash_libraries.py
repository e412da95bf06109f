"""What crash tests run that imports large libraries, which other tasks need not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import requests

import outlast
from examples.analysis_service import app as analysis_service
from examples.automation_registry import app as automation_registry
from examples.census import app as census
from examples.order_import import app as order_import

app = outlast.App("sqlite:///shop.db")


@app.task
async def posts_by_libraries(url: str) -> None:
    (await asyncio.to_thread(requests.post, url, b"1", timeout=10)).raise_for_status()
    async with httpx.AsyncClient() as client:
        (await client.post(url, content=b"2")).raise_for_status()
    (await asyncio.to_thread(httpx.post, url, content=b"3")).raise_for_status()


def post(url: str) -> outlast.Call[None]:
    return posts_by_libraries.call(url)


def make_may() -> outlast.Call[int]:
    engine = order_import.connect()
    order_import.Base.metadata.create_all(engine)
    engine.dispose()
    return order_import.import_file.call("may.csv", [(1, 100), (2, 200)])


def of_an_example(name: str, **arguments: Any) -> outlast.Call[Any]:
    """Return the call of an example that is named."""
    calls: dict[str, Callable[..., outlast.Call[Any]]] = {
        "reserve": lambda: order_import.reserve.call(3),
        "describe": lambda: automation_registry.describe.call("a.png"),
        "year_report": lambda: order_import.year_report.call(2),
        "analyze": lambda folder: analysis_service.analyze.call(folder, 2),
        "census": lambda folder: census.analyze.call(folder, 2, every=1),
    }
    return calls[name](**arguments)
