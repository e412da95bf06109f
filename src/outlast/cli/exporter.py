"""``outlast exporter``."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import Annotated

import typer

from outlast.base.http_server import url_of
from outlast.cli.connect import check_file
from outlast.cli.errors import say
from outlast.cli.loop import run_loop
from outlast.cli.options import Url
from outlast.client.stores import StoreProvider
from outlast.errors import ConfigError
from outlast.store.backend import resolve_url

PORT = 8012
STATEMENT_SECONDS = 5.0  # the most that the server may spend on one statement
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
    from outlast.metrics.collector import read_look
    from outlast.metrics.exporter import Exporter, serving

    stores = open_source(url)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with serving(Exporter(partial(stores.ask, read_look)).page, host, port) as bound:
            say(f"metrics at {url_of(host, bound)}/metrics")
            await stop.wait()
    finally:
        await stores.close()


def open_source(url: str) -> StoreProvider:
    """Return a provider of the store, which opens it once it can be reached."""
    return StoreProvider(
        url,
        enqueues=False,
        statement_timeout=STATEMENT_SECONDS,
        read_only=True,
        application="outlast-exporter",
    )
