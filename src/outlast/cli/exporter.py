"""``outlast exporter``."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.base.http_server import url_of
from outlast.cli.connect import check_file, open_made
from outlast.cli.errors import say
from outlast.cli.loop import run_loop
from outlast.cli.options import Url
from outlast.errors import ConfigError, StoreError, StoreUnavailable, text_of
from outlast.store.backend import open_store, resolve_url
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from outlast.metrics.collector import Look

PORT = 8012
STATEMENT_SECONDS = 5.0  # that the server may spend on one statement
_MISSING = "metrics need prometheus-client: pip install 'outlast[metrics]'"


def exporter(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Listen on this port; 0: any.")
    ] = PORT,
    url: Url = None,
) -> None:
    """Serve metrics of the store to Prometheus, at http://ADDRESS:PORT/metrics.

    One exporter is enough for all workers of a store: it reads the store at most once every
    15 seconds, however many clients ask, and never writes. If the store is unreachable, the page
    says outlast_store_up 0. It asks for no password: let other machines reach it only if they may
    see the names of queues and tasks. `outlast web` serves the same page.

    Examples:
        outlast exporter
        outlast exporter --host 0.0.0.0 --port 9412 --url postgresql://app@db/shop
    """
    try:
        import prometheus_client  # noqa: F401 - only to check that it is installed
    except ImportError:
        raise ConfigError(_MISSING) from None
    address = resolve_url(url)
    check_file(address)
    run_loop(lambda: _serve(address, host, port))


async def _serve(url: str, host: str, port: int) -> None:
    from outlast.metrics.exporter import Exporter, serving

    source = StoreSource(url)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with serving(Exporter(source.look).page, host, port) as bound:
            say(f"metrics at {url_of(host, bound)}/metrics")
            await stop.wait()
    finally:
        await source.close()


class StoreSource:
    """A store that is read repeatedly, and opened as soon as that is possible."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Store | None = None

    async def look(self) -> Look:
        """Read the store. StoreError if it cannot be read; the next call opens it again."""
        from outlast.metrics.collector import read_look

        try:
            return await read_look(await self._open())
        except BaseException as error:
            await self.close()
            if isinstance(error, (StoreError, asyncio.CancelledError)):
                raise
            raise StoreUnavailable(text_of(error)) from error

    async def close(self) -> None:
        """Release the connections."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def _open(self) -> Store:
        if self._store is None:
            store = open_store(
                self._url,
                read_only=True,
                statement_timeout=STATEMENT_SECONDS,
                application="outlast-exporter",
            )
            self._store = store
            await open_made(store)
        return self._store
