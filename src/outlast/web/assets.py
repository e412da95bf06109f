"""Keep the stylesheet and the scripts, small files of the package, in memory.

Their addresses carry a digest of their content, so a browser keeps them until they change.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {
    "outlast.css": "text/css; charset=utf-8",
    "outlast.js": "text/javascript; charset=utf-8",
    "idiomorph.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"


@cache
def read_asset(name: str) -> bytes:
    """Return the content of a file."""
    return files("outlast.web").joinpath("static", name).read_bytes()


@cache
def asset_path(name: str) -> str:
    """Return the address of a file, such as ``/static/1f2e3d4c/outlast.css``."""
    return f"/static/{hashlib.blake2b(read_asset(name), digest_size=6).hexdigest()}/{name}"


async def _show(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in TYPES:
        return Response("no such file", 404)
    is_current = asset_path(name).endswith(f"/{request.path_params['digest']}/{name}")
    headers = {"content-type": TYPES[name]} | ({"cache-control": FOREVER} if is_current else {})
    return Response(read_asset(name), headers=headers)


ROUTE = Route("/static/{digest}/{name}", _show)
