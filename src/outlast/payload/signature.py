"""Bind calls to a task's parameters, encode the arguments as JSON text, and read them back.

Arguments are stored by name (``{"repo": "…", "depth": 50}``), without defaults, which belong to the
release that runs the job. They are read back before they are stored, so that the caller gets the
error for arguments that a worker could not read. One without an annotation takes any JSON.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from outlast.base.config import MAX_PAYLOAD
from outlast.errors import BadArguments, ConfigError, text_of
from outlast.payload.codec import (
    TypedDecoder,
    check_fits,
    class_of,
    encode_payload,
    encoder,
    format_annotation,
    from_json,
    make_decoder,
    sort_sets,
    to_json,
)
from outlast.payload.option_words import describe_call_options
from outlast.payload.payloads import PLAIN, Payloads

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLAIN = (str, int, bool)  # values of these types are read back the same

_split = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Field(msgspec.Struct, frozen=True):
    """One parameter of a task, with the ``annotation`` of its whole value: for ``*args`` a list,
    for ``**kwargs`` an object."""

    name: str
    kind: Any
    required: bool
    annotation: Any


class Signature:
    """The parameters of a task's function, to encode its arguments as JSON, and decode them."""

    def __init__(
        self,
        fn: Callable[..., Any],
        task: str,
        max_payload: int = MAX_PAYLOAD,
        payloads: Payloads = PLAIN,
    ) -> None:
        """Read the parameters. ConfigError if JSON can never be read as an annotation."""
        self.task = task
        self.max_payload = max_payload
        self._payloads = payloads
        self._inspected = read_parameters(fn, task)
        hints = read_annotations(fn)
        self.returns: Any = _usable(hints.get("return", Any))
        self.fields = {
            name: _field(parameter, hints.get(name, Any), task)
            for name, parameter in self._inspected.parameters.items()
        }
        self._decoders = {name: make_decoder(each.annotation) for name, each in self.fields.items()}
        self._required = {name for name, field in self.fields.items() if field.required}
        self._named = all(field.kind in _NAMED for field in self.fields.values())
        self._whole = _whole_decoder(self.fields) if self._named else None
        self._plain = {
            name: field.annotation
            for name, field in self.fields.items()
            if field.annotation in _PLAIN
        }
        self._by_name = [name for name, each in self.fields.items() if each.kind not in _POSITIONAL]
        self._by_position = [
            name
            for name, field in self.fields.items()
            if field.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the given arguments by name, without defaults; BadArguments if they do not fit."""
        if self._named and not kwargs and len(args) == len(self._by_position) == len(self.fields):
            return dict(zip(self._by_position, args, strict=True))
        if self._named and len(args) <= len(self._by_position):
            bound = dict(zip(self._by_position, args, strict=False)) | kwargs
            once = len(bound) == len(args) + len(kwargs)
            if once and self._required <= bound.keys() <= self.fields.keys():
                return {name: bound[name] for name in self.fields if name in bound}
        try:
            return dict(self._inspected.bind(*args, **kwargs).arguments)
        except TypeError as error:
            why = self._describe_unexpected(kwargs) or error
            raise BadArguments(f"task {self.task}{self._inspected}: {why}") from error

    def _describe_unexpected(self, kwargs: dict[str, Any]) -> str | None:
        """Name the unexpected arguments: a misspelt one is also missing, but this shows why."""
        unknown = [name for name in kwargs if name not in self.fields]
        if not unknown or not self._named:
            return None
        return f"it does not take {describe_call_options(unknown)}"

    def encode(self, bound: dict[str, Any]) -> str:
        """Return bound arguments in their stored form. BadArguments names the one that cannot be
        encoded or has the wrong type, or the sizes if they are too large."""
        if not bound and self._payloads is PLAIN:
            return "{}"
        text = self._encode_plain(bound) or encoder.encode(
            {name: self._encode(name, bound[name]) for name in bound}
        )
        if self._payloads is PLAIN and len(text) <= self.max_payload:
            return text.decode()
        what = f"the arguments of task {self.task} have"
        return encode_payload(what, "args", "pass", text, self.max_payload, self._payloads)

    def decode(
        self, text: str, more: Mapping[str, str] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) of the annotated types, to call the function with. ``more``: JSON
        texts of arguments that come from elsewhere.

        BadArguments if they do not fit this release, or if their codec or key is unknown here;
        NotEncrypted if encryption is required and missing.
        """
        text = self._payloads.decode("args", text)
        if more:
            return self._decode_each(text, more)
        if text == "{}" and not self._required:
            return (), {}
        if self._whole is None:
            return self._decode_each(text)
        try:
            values = msgspec.structs.astuple(self._whole.decode(text))
        except Exception:  # its text may hold a value: no other error may have it as context
            values = None
        if values is None:  # not all are given, or one does not fit: find which, one by one
            return self._decode_each(text)
        if not self._by_name:
            return values, {}
        split = len(values) - len(self._by_name)
        return values[:split], dict(zip(self._by_name, values[split:], strict=True))

    def _decode_each(
        self, text: str, more: Mapping[str, str] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            raw = _split.decode(text)
        except Exception as error:
            raise BadArguments(
                f"the arguments of task {self.task} are not a JSON object"
            ) from error
        for name, each in (more or {}).items():
            raw[name] = msgspec.Raw(each)
        self._check_names(raw)
        args, kwargs = self._call({name: self._decode(name, raw[name]) for name in raw})
        if not self._named:  # otherwise the names suffice
            self.bind(args, kwargs)
        return args, kwargs

    def _encode_plain(self, bound: dict[str, Any]) -> bytes | None:
        """Return the JSON of arguments if all are plain and exactly of the annotated type; None
        otherwise: the caller then finds which is not."""
        plain = self._plain
        for name, value in bound.items():
            if plain.get(name) is not type(value):
                return None
        try:
            return encoder.encode(bound)
        except (UnicodeEncodeError, OverflowError):
            return None

    def _encode(self, name: str, value: Any) -> msgspec.Raw:
        annotation = self.fields[name].annotation
        what = f"argument {name!r} of task {self.task}"
        if annotation is str and not isinstance(value, str):  # bytes would arrive as base64
            raise BadArguments(f"{what} does not fit str: it is of class {class_of(value)}")
        text = sort_sets(value, to_json(what, value))
        if annotation is not Any:
            check_fits(what, text, annotation)
        return msgspec.Raw(text)

    def _decode(self, name: str, text: msgspec.Raw) -> Any:
        with contextlib.suppress(Exception):  # the code below reports it
            return self._decoders[name].decode(text)
        what = f"argument {name!r} of task {self.task}"
        return from_json(what, text, self.fields[name].annotation)

    def _check_names(self, raw: dict[str, msgspec.Raw]) -> None:
        if self._required <= raw.keys() <= self.fields.keys():
            return
        unknown = sorted(set(raw) - set(self.fields))
        missing = [name for name in self.fields if name in self._required and name not in raw]
        for names, word in ((unknown, "does not take"), (missing, "needs")):
            if names:
                quoted = ", ".join(map(ascii, names))
                raise BadArguments(
                    f"task {self.task} {word} {quoted} (another release's arguments?)"
                )

    def _call(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Lay out values for a call: by position up to the first argument that was not given."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        gap = False
        for name, field in self.fields.items():
            if name not in values:
                gap = True
            elif field.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(values[name])
            elif field.kind is inspect.Parameter.VAR_KEYWORD:
                self._check_free(values[name])
                kwargs.update(values[name])
            elif field.kind in _POSITIONAL and not gap:
                args.append(values[name])
            elif field.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise BadArguments(f"task {self.task} takes {name!r} by position only")
            else:
                kwargs[name] = values[name]
        return tuple(args), kwargs

    def _check_free(self, further: dict[str, Any]) -> None:
        """Refuse ``**kwargs`` of another release that have become parameters of their own."""
        for name, field in self.fields.items():
            if name in further and field.kind in _NAMED:
                raise BadArguments(f"task {self.task} takes {name!r} as a parameter of its own")


def _whole_decoder(fields: dict[str, Field]) -> TypedDecoder | None:
    """Return a decoder for all arguments at once, if all are given; None if there can be none."""
    try:
        pairs = [(name, field.annotation) for name, field in fields.items()]
        return TypedDecoder(msgspec.defstruct("Arguments", pairs, forbid_unknown_fields=True))
    except Exception:  # such as a name that no struct can have
        return None


def _field(parameter: inspect.Parameter, annotation: Any, task: str) -> Field:
    whole = annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        whole = types.GenericAlias(list, (annotation,))
    elif parameter.kind is parameter.VAR_KEYWORD:
        whole = types.GenericAlias(dict, (str, annotation))
    try:
        TypedDecoder(whole)
    except TypeError as error:
        raise ConfigError(
            f"task {task}: argument {parameter.name!r} can never be read back from JSON as"
            f" {format_annotation(annotation)}: {text_of(error)}. Choose another type, or none"
        ) from error
    required = parameter.default is parameter.empty and whole is annotation
    return Field(parameter.name, parameter.kind, required, whole)


def read_returns(fn: Callable[..., Any]) -> Any:
    """Return the annotated return type; Any if there is none, or none that JSON can be read as."""
    return _usable(read_annotations(fn).get("return", Any))


def _usable(annotation: Any) -> Any:
    try:
        TypedDecoder(annotation)
    except TypeError:
        return Any
    return annotation


def read_parameters(fn: Callable[..., Any], task: str) -> inspect.Signature:
    """Return the parameters of a task's function; ConfigError if they cannot be known."""
    try:
        return _inspect(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"task {task}: its parameters are unreadable: {text_of(error)}"
        ) from error


def _inspect(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # annotations are evaluated late, and may fail
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(fn, "__annotations__", {}))


def read_annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's annotations, without those that cannot be resolved here, such as names
    imported for type checkers only."""
    fn = inspect.unwrap(fn)
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception:
        raw = _annotations(fn)
        found = {name: _hint(fn, annotation) for name, annotation in raw.items()}
        return {name: hint for name, hint in found.items() if hint is not None}


def _hint(fn: Callable[..., Any], annotation: Any) -> Any:
    """Resolve one annotation, as get_type_hints does; None if that cannot be done."""
    one: Any = type("one", (), {"__annotations__": {"it": annotation}, "__module__": fn.__module__})
    names = getattr(fn, "__globals__", {})
    try:
        return typing.get_type_hints(one, globalns=names, include_extras=True)["it"]
    except Exception:
        return None
