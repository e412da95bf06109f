"""The page of a store, served to a browser from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from outlast.web.access import EVERYTHING, Access, Judge
from outlast.web.application import application_of
from outlast.web.site import Site


def let_in(request: Request) -> Access | None:
    """Let everyone in, with all rights."""
    return Access("ada", can=EVERYTHING)


@contextlib.contextmanager
def serving(url: str, judge: Judge = let_in, *, prefix: str = "", **settings: Any) -> Iterator[str]:
    """Serve the page of a store below a path as ``/a/b``; give its address."""
    site = Site(url, judge, **settings)
    page = application_of(site)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await site.close()

    mounted = Starlette(routes=[Mount(prefix, page)], lifespan=life) if prefix else page
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(mounted, log_config=None, lifespan="on"))
        thread = threading.Thread(target=asyncio.run, args=[server.serve([listening])])
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}{prefix}/"
        finally:
            server.should_exit = True
            thread.join()
