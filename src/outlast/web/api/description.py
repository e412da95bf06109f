"""``/api/v1/openapi.json``: describe the API, from its own addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

import outlast
from outlast.web.api.route import ApiRoute

_PARAMETER = re.compile(r"{(\w+):(\w+)}")
_TYPES = {"int": "integer", "str": "string", "path": "string"}


def describe_api(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """Return the description in OpenAPI 3.1."""
    every = list(routes)
    bodies = [route.body for route in every if route.body is not None]
    schemas, components = msgspec.json.schema_components(
        bodies, ref_template="#/components/schemas/{name}"
    )
    bodies_of = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in every:
        path = _PARAMETER.sub(r"{\1}", route.path)
        told = _operation(route, None if route.body is None else bodies_of[route.body])
        paths.setdefault(path, {})[route.method.lower()] = told
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outlast", "version": outlast.__version__},
        "paths": paths,
        "components": {"schemas": components | {"Error": _ERROR}},
    }


def _operation(route: ApiRoute, body: dict[str, Any] | None) -> dict[str, Any]:
    within = [
        {"name": name, "in": "path", "required": True, "schema": {"type": _TYPES[kind]}}
        for name, kind in _PARAMETER.findall(route.path)
    ]
    asked = [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in route.query.items()
    ]
    told: dict[str, Any] = {
        "summary": route.summary,
        "description": f"Needs the right `{route.right.value}`.",
        "parameters": within + asked,
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {}}},
            "default": {"description": "Why not.", "content": _REFUSED},
        },
    }
    if body is not None:
        told["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return told


_REFUSED = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "schema": {"type": "integer"},
        "error": {
            "type": "object",
            "properties": {
                "status": {"type": "integer"},
                "title": {"type": "string"},
                "message": {"type": "string", "description": "Why, and what to do."},
            },
        },
    },
}
