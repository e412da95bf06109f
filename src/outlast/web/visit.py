"""Wrap one request: its user, the user's rights, and the tools of an endpoint to answer it.

All links are relative (``../jobs``), so the page works below any prefix, even if a proxy strips
that prefix without saying so in a header.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from outlast.errors import JobNotFound
from outlast.insight.hiding import Covering
from outlast.store.protocol import Store
from outlast.web.access import Access, Right
from outlast.web.problem import API, WebRefusal
from outlast.web.reader import KEEP_SECONDS
from outlast.web.render import render
from outlast.web.site import Site

T = TypeVar("T")

BODY_MAX = 64 * 1024  # bytes
BODY_SECONDS = 20.0  # within which the whole body has to arrive
FIELDS_MAX = 100
ROWS, ROWS_MAX = 50, 200  # of one page of a list
ID_MAX = 2**63 - 1
DIGITS = 19
NAME_MAX = 1_000  # characters


class Visit:
    """One request. ``now`` is in seconds since 1970, ``path`` is the address within the page."""

    def __init__(self, site: Site, request: Request, access: Access) -> None:
        self.site = site
        self.request = request
        self.access = access
        self.now = site.clock.wall()
        self.path = path_of(request)

    @property
    def root(self) -> str:
        """The relative address of ``/``."""
        return "../" * (self.path.count("/") - 1) or "./"

    @property
    def query(self) -> dict[str, str]:
        """The parameters in the URL; empty ones are left out."""
        return {name: value for name, value in self.request.query_params.items() if value}

    def read_number(self, name: str, most: int = ID_MAX) -> int | None:
        """Return a whole number from 1 to ``most`` in the URL; None if it is missing, or an empty
        field of a form."""
        text = self.request.query_params.get(name)
        if text is None or (not text and not self.path.startswith(API)):
            return None
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else 0
        if not 1 <= number <= most:
            raise WebRefusal(400, "Not valid", f"{name}= must be a whole number from 1 to {most}.")
        return number

    def read_name(self, name: str) -> str | None:
        """Return a name in the URL; None if it is missing."""
        text = self.query.get(name)
        if text is not None and len(text) > NAME_MAX:
            raise WebRefusal(400, "Not valid", f"{name}= may have at most {NAME_MAX} characters.")
        return text

    def require_name(self, name: str) -> str:
        """Return a name that the URL must contain."""
        found = self.read_name(name)
        if found is None:
            raise WebRefusal(400, "Not valid", f"The address must contain {name}=.")
        return found

    def may(self, right: str) -> bool:
        """Whether the user has a right."""
        return self.access.may(right)

    def require(self, right: str) -> None:
        """Refuse a user who lacks this right."""
        if not self.may(right):
            raise WebRefusal(403, "Not allowed", f"{self.access.user} lacks the right {right}.")

    def link(self, path: str, **query: Any) -> str:
        """Return the relative address of a path such as ``/jobs/17``; parameters that are None are
        left out."""
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return self.root + path.removeprefix("/") + (f"?{asked}" if asked else "")

    async def ask(
        self, key: Hashable, work: Callable[[Store], Awaitable[T]], keep: float = KEEP_SECONDS
    ) -> T:
        """Return the result of ``work(store)``, read by the page's reader at most ``keep`` seconds
        ago. Values that this visitor may not see are covered in the rows that it reads."""
        return await self.site.reader.ask(key, work, keep, payload=self.may(Right.PAYLOAD))

    @property
    def job_id(self) -> int:
        """The id of the job in the URL."""
        job_id: int = self.request.path_params["job_id"]
        return job_id

    @property
    def name(self) -> str:
        """The name of the limit, the schedule or the like in the URL."""
        name: str = self.request.path_params["name"]
        return name

    async def ask_job(self, what: str, work: Callable[[Store, int], Awaitable[T | None]]) -> T:
        """Return what ``work(store, job_id)`` reads about the job in the URL: its row, or an object
        with the row as ``row``. JobNotFound, also for another tenant's job."""
        job_id = self.job_id
        return self.own(await self.ask((what, job_id), lambda store: work(store, job_id)))

    def own(self, found: T | None) -> T:
        """Return what was read about the job in the URL; raise what ``ask_job`` raises."""
        found = self.have(found)
        row: Any = getattr(found, "row", found)
        return self.have(found if self.access.may_see(row.tenant) else None)

    def have(self, found: T | None) -> T:
        """Return what was found about the job in the URL; JobNotFound if that is None."""
        if found is None:
            raise JobNotFound(
                f"There is no job {self.job_id}: the id is wrong, or the ended job was deleted."
            )
        return found

    def cover(self, row: T) -> T:
        """Return a row that was read without ``ask``, covered for this visitor."""
        return Covering(self.site.hiding, payload=self.may(Right.PAYLOAD)).cover(row)

    async def act(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Change something; earlier reads are forgotten. ``work`` acts on uncovered rows; its
        result is covered for the visitor."""
        try:
            return self.cover(await work(await self.site.writer()))
        finally:
            self.site.reader.forget_all()

    async def body(self) -> bytes:
        """Return the request's body. Refuses more than BODY_MAX bytes, and a body that takes too
        long."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in self.request.stream():
                    body += part
                    if len(body) > BODY_MAX:
                        said = f"A request's body may have at most {BODY_MAX} bytes."
                        raise WebRefusal(413, "Too large", said)
        except TimeoutError:
            said = f"The request's body must arrive within {BODY_SECONDS:.0f} s."
            raise WebRefusal(408, "Too slow", said) from None
        except ClientDisconnect:
            said = "The client disconnected before it had sent the whole body."
            raise WebRefusal(400, "Incomplete", said) from None
        return bytes(body)

    async def form(self) -> dict[str, str]:
        """Return the fields of the form in the body. Refuses what ``body`` refuses."""
        text = (await self.body()).decode("utf-8", "replace")
        try:
            return dict(parse_qsl(text, max_num_fields=FIELDS_MAX))
        except ValueError:
            raise WebRefusal(400, "Not valid", "The form has too many fields.") from None

    def show(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page, or a 304 if the browser's copy (by its ETag) is current. Each template
        gets ``visit``, ``site``, ``link`` and ``now`` besides the values."""
        known = {"visit": self, "site": self.site, "link": self.link, "now": self.now}
        body = render(template, known | values).encode()
        tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        copies = self.request.headers.get("if-none-match", "").split(",")
        if status == 200 and tag in {one.strip().removeprefix("W/") for one in copies}:  # noqa: PLR2004
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, status, {"etag": tag, "content-type": "text/html; charset=utf-8"})

    def go(self, path: str, **query: Any) -> RedirectResponse:
        """Send the browser to another page, after a form."""
        return RedirectResponse(self.link(path, **query), 303)


def path_of(request: Request) -> str:
    """Return the address within the page, without the prefix under which it is mounted."""
    path, prefix = request.scope["path"], request.scope.get("root_path", "").rstrip("/")
    within = path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
    return within or "/"
