"""Open a store for one command, and find the user who runs it.

Commands that do not enqueue create nothing: no file, no schema. Otherwise a mistyped path
would show an empty queue instead of an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from outlast.cli.errors import say
from outlast.cli.loop import run_loop
from outlast.errors import StoreUnavailable
from outlast.store.backend import describe_place, file_of, open_readable, open_store, resolve_url
from outlast.store.environment import is_there
from outlast.store.migrations import check_made

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.insight.acting import By
    from outlast.store.inspector import ReadableStore
    from outlast.store.protocol import Store

R = TypeVar("R")
S = TypeVar("S", bound="ReadableStore")


def read_store(url: str | None, work: Callable[[ReadableStore], Awaitable[R]]) -> R:
    """Run ``work(store)`` on the store that the URL names, which must exist; return its result. The
    work only reads, so it needs no permission to write to the file."""
    return _run_on(url, open_readable, work, reads=True)


def on_store(url: str | None, work: Callable[[Store], Awaitable[R]], *, dry_run: bool = False) -> R:
    """As ``read_store``, for work that acts, unless it is a dry run."""
    return _run_on(url, partial(open_store, read_only=dry_run), work, reads=dry_run)


def _run_on(
    url: str | None, open_: Callable[[str], S], work: Callable[[S], Awaitable[R]], *, reads: bool
) -> R:
    async def there() -> R:
        async with using(open_(resolve_url(url))) as store:
            check_file(store.url)
            await store.open(make=False)
            if reads and (found := await store.inspector.no_writes()):
                say(found.why)
            return await work(store)

    return run_loop(there)


@asynccontextmanager
async def closing(app: App) -> AsyncIterator[None]:
    """Close the application at the end. If the command is interrupted, the loop closes it, and does
    not wait for a store that is still opening."""
    try:
        yield
    except Exception:
        await app.close()
        raise
    await app.close()


@asynccontextmanager
async def using(store: S) -> AsyncIterator[S]:
    """Close a store, which is not open yet, at the end."""
    try:
        yield store
    finally:
        await store.close()


def exists(url: str) -> bool:
    """Whether the file of a store exists; a store on a server always counts as existing.
    StoreUnavailable if that cannot be determined."""
    file = file_of(url)
    return file is None or is_there(file)


def describe_missing(job_id: int, url: str | None) -> str:
    """Return a sentence that names the store and says that it has no such job, or no longer has it:
    rows of ended jobs are deleted (docs/workers.md, "What is kept")."""
    place = describe_place(resolve_url(url))
    return f"there is no job {job_id} in {place}: the id is wrong, or the job was deleted"


def check_file(url: str) -> None:
    """Raise StoreUnavailable if the file of the store does not exist."""
    if not exists(url):
        raise StoreUnavailable(
            f"there is no database file {describe_place(url)}\n"
            f"give --url or set OUTLAST_URL; `outlast migrate` creates one{_hint_of_django()}"
        )


async def check_exists(store: ReadableStore) -> None:
    """Raise StoreUnavailable if there is no file, SchemaMismatch if there is no schema; take one
    that this program cannot use."""
    check_file(store.url)
    steps = await store.migrations()
    check_made(store.url, [step for step in steps if step.applied_at is not None])


def _hint_of_django() -> str:
    is_project = Path("manage.py").exists()
    return "; in a Django project: `python manage.py outlast jobs`" if is_project else ""


def whoami() -> str | None:
    """Return ``USER@HOST``; None for a user without a name, as in a container."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError, ImportError):
        return None


def me(reason: str | None = None) -> By:
    """Return who acts, and why."""
    from outlast.insight.acting import By

    return By(whoami() or "a user without a name", reason)
