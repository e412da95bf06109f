"""Define the addresses of the API: parameters, rights, and answers in JSON.

An act may also have a form on a page: the same function does it, and then a page is shown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.responses import Response

import outlast
from outlast.base.text import line
from outlast.errors import text_of
from outlast.insight.resource import SCHEMA, in_json
from outlast.model.kinds import Filter, is_of
from outlast.payload.option_words import hint, near
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.filters import read_taken, taken_by
from outlast.web.problem import API, Problem, WebRefusal, answer_in_json, answer_json
from outlast.web.visit import ID_MAX, NAME_MAX, Visit

_PARAMETER = re.compile(r"{(\w+):(\w+)}")
B = TypeVar("B", bound=msgspec.Struct)
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])
Then = Callable[[Visit, Any], Response]


class ApiRoute(Endpoint, frozen=True):
    """An address of the API, with its description.

    Attributes:
        summary: what it does, in one sentence.
        query: the filters in the URL.
        body: the type of the request's body, if it has one.
        answer: the fields of its answer -> their types; none: it is not described.
        act: the decorated function.
    """

    summary: str = ""
    query: Mapping[str, Filter] = {}
    body: type[msgspec.Struct] | None = None
    answer: Mapping[str, Any] = {}
    act: Callable[..., Awaitable[Any]] | None = None


class ApiRoutes(list[ApiRoute]):
    """The addresses of one file of the API. ``forms``: the forms for the same acts."""

    def __init__(self, routes: Iterable[ApiRoute] = ()) -> None:
        super().__init__(routes)
        self.forms: list[Endpoint] = []

    def at(
        self,
        path: str,
        right: Right = Right.VIEW,
        *,
        body: type[msgspec.Struct] | None = None,
        by_tenant: bool = False,
        answer: Mapping[str, Any] | None = None,
        summary: str = "",
    ) -> Callable[[H], H]:
        """Serve a path below /api/v1, as Starlette writes it, by the decorated function.

        It gets the visit and, if there is a ``body``, that of a POST; its keyword parameters are
        filters in the URL. It returns a document or a response. Its docstring is the summary unless
        one is given.
        """

        def add(handler: H) -> H:
            taken = taken_by(handler)
            query = {name: one for part in taken.values() for name, one in part.items()}

            async def serve(visit: Visit) -> Response:
                if odd := [name for name in visit.request.query_params if name not in query]:
                    named = f"{line(odd[0], NAME_MAX)!a}{hint(near(odd[0], query))}"
                    said = f"There is no parameter {named}: see openapi.json."
                    raise WebRefusal(400, "Not valid", said)
                sent = () if body is None else (await _read_body(visit, body),)
                found = await handler(visit, *sent, **read_taken(visit, taken))
                return found if isinstance(found, Response) else answer_json(found)

            method = "GET" if body is None else "POST"
            said = " ".join((summary or handler.__doc__ or "").split())
            common = (API + path, serve, right, method, by_tenant, show_json, said)
            self.append(ApiRoute(*common, query, body, answer or {}, handler))
            return handler

        return add

    def add_form(
        self, handler: Callable[..., Awaitable[Any]], then: Then, path: str = "", json: str = ""
    ) -> None:
        """Let pages do the act of this handler by a form, sent to ``path`` (default: as below
        /api/v1). ``then`` returns the page to show, by the visit and the act's document. Parameters
        of the act's own path that ``path`` lacks are fields of the form. ``json``: the field whose
        text is JSON."""
        (route,) = (each for each in self if each.act is handler)
        form = path or route.path.removeprefix(API)
        names = [name for name, _ in _PARAMETER.findall(route.path) if f"{{{name}:" not in form]

        async def submit(visit: Visit) -> Response:
            form = await visit.form()
            visit.request.path_params.update({name: form.pop(name, "") for name in names})
            return then(visit, await handler(visit, read_form(form, route.body, json)))

        self.forms.append(Endpoint(form, submit, route.right, "POST", route.by_tenant))


def _decode(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        said = f'{name} must be JSON, such as true or {{"by": "ada"}}: {text_of(error)}'
        raise WebRefusal(400, "Not valid", said) from error


def read_form(form: Mapping[str, str], kind: Any, json: str = "") -> Any:
    """Return the fields of a form as the body of a request; empty ones are left out. ``json``: the
    field whose text is JSON."""
    fields: dict[str, Any] = {name: text for name, text in form.items() if text}
    if json in fields:
        fields[json] = _decode(json, fields[json])
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        name = text_of(error).rpartition("$.")[2].rstrip("`")
        said = f"{name} cannot be {fields[name]!r}." if name in fields else text_of(error)
        raise WebRefusal(400, "Not valid", said) from error


def _is_whole(number: object) -> bool:
    return isinstance(number, float) and number.is_integer()


def show_json(_: Visit, problem: Problem) -> Response:
    """Show a problem as a document."""
    return answer_in_json(problem)


async def _read_body(visit: Visit, kind: type[B]) -> B:
    """Return the request's body; an empty one stands for ``{}``. Refuses a body of another kind."""
    body = await visit.body()
    try:
        sent = msgspec.json.decode(body.strip() or b"{}", type=dict[str, Any])
        whole = {  # JSON has one kind of number: 5.0 is a whole one
            field.name: int(sent[field.name])
            for field in msgspec.structs.fields(kind)
            if is_of(field.type, int) and _is_whole(sent.get(field.name))
        }
        return msgspec.convert(sent | whole, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WebRefusal(
            400,
            "Not valid",
            f"The body must be JSON as openapi.json describes it: {text_of(error)}",
        ) from error


_TYPES = {"int": "integer", "str": "string", "path": "string"}


def describe_api(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """Return the description in OpenAPI 3.1."""
    every = list(routes)
    kinds = [kind for route in every for kind in _kinds_of(route)]
    made, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():  # before Python 3.13 it is indented as in the source
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    schemas = iter(made)
    paths: dict[str, Any] = {}
    for route in every:
        path = _PARAMETER.sub(r"{\1}", route.path)
        told = _operation(route, [next(schemas) for _ in _kinds_of(route)])
        paths.setdefault(path, {})[route.method.lower()] = told
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outlast", "version": outlast.__version__},
        "paths": paths,
        "components": {"schemas": components | {"Error": _ERROR}},
    }


def _kinds_of(route: ApiRoute) -> list[Any]:
    """Return the types of a route's parameters in the URL, of its answer, and of its body."""
    kinds = [*map(_type_of, route.query.values()), *map(in_json, route.answer.values())]
    if route.body is not None:
        rule = getattr(route.body, "RULE", {})
        kinds.append(Annotated[route.body, msgspec.Meta(extra_json_schema=rule)])
    return kinds


def _type_of(one: Filter) -> Any:
    """Return the type of a parameter in the URL."""
    if one.value == "N":
        bounds = msgspec.Meta(description=one.about, ge=1, le=one.most or ID_MAX)
        return Annotated[int, bounds]
    pattern = f"^({'|'.join(one.among)})?$" if one.among else _PATTERNS.get(one.value)
    least = int(one.is_needed)
    bounds = msgspec.Meta(
        description=one.about, min_length=least, max_length=NAME_MAX, pattern=pattern
    )
    return Annotated[str, bounds]


_PATTERNS = {"TEXT": r"^[^\x00]*$", "TIME": r"^([0-9]{1,9}(\.[0-9]{1,9})?[smhd]?)?$"}


def _operation(route: ApiRoute, schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the description of a route. ``schemas``: those of ``_kinds_of``."""
    left = iter(schemas)
    within = [
        {"name": name, "in": "path", "required": True, "schema": {"type": _TYPES[kind]}}
        for name, kind in _PARAMETER.findall(route.path)
    ]
    asked = [
        {"name": name, "in": "query", "required": one.is_needed, "schema": next(left)}
        for name, one in route.query.items()
    ]
    fields = {"schema": {"const": SCHEMA}, **{name: next(left) for name in route.answer}}
    answer = {"type": "object", "properties": fields, "required": list(fields)}
    shown = {"schema": answer} if route.answer else {}
    told: dict[str, Any] = {
        "summary": route.summary,
        "description": f"Needs the right `{route.right.value}`.",
        "parameters": within + asked,
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": shown}},
            "default": {"description": "Why not.", "content": _REFUSED},
        },
    }
    if route.body is not None:
        body = next(left)
        declared = msgspec.structs.fields(route.body)
        needed = bool(getattr(route.body, "RULE", {})) or any(one.required for one in declared)
        told["requestBody"] = {
            "required": needed,
            "content": {"application/json": {"schema": body}},
        }
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
