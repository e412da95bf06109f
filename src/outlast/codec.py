"""Arguments and results as JSON text, checked against the annotations of the task's function.

Arguments are stored by name (``{"repo": "…", "depth": 50}``), only those that were given: a
default belongs to the release that runs the job. They are read back once before they are stored,
so that what a worker could not read is refused at the caller. An argument without an annotation
takes any JSON and arrives as plain JSON.

msgspec writes NaN and infinities as ``null``; they are refused here, since they would come back
as None. Text with NULs is fine; lone surrogates are no text and are refused. Lists and objects may
be DEPTH_MAX levels deep: a worker may have less room for recursion than the caller had, and what no
worker can read would never run.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import msgspec

from outlast.config import MAX_PAYLOAD
from outlast.errors import BadArguments, ConfigError, text_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
DEPTH_MAX = 100  # levels of lists and objects; readers have limits of their own, some of 128
_TOO_DEEP = f"lists and objects in it are more than {DEPTH_MAX} levels deep"
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKETS_NOR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))
_PLAIN = (str, int, bool)  # what is written as one of these is read back as the same


def _to_json(value: Any) -> Any:
    """Encode what msgspec does not know: paths, and pydantic models by their own means."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(f"a value of class {type(value).__qualname__} cannot be written as JSON")


def _from_json(wanted: Any, value: Any) -> Any:
    if isinstance(wanted, type) and issubclass(wanted, PurePath) and isinstance(value, str):
        return wanted(value)
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise NotImplementedError(f"a {wanted} cannot be read from JSON")


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_skim = msgspec.json.Decoder(msgspec.Raw)
_split = msgspec.json.Decoder(dict[str, msgspec.Raw])


def to_json(what: str, value: Any) -> bytes:
    """Return ``value`` as JSON; BadArguments, naming ``what``, if that would lose something.

    Values may bring code of their own (a pydantic validator), so anything may be raised here.
    """
    try:
        text = _encoder.encode(value)
        if text.count(b"[") + text.count(b"{") > DEPTH_MAX:  # else it cannot be that deep
            _refuse_too_deep(text)
        if b"null" in text:
            _refuse_not_finite(value)
    except UnicodeEncodeError as error:
        raise BadArguments(f"{what} cannot be stored: it holds a lone surrogate") from error
    except RecursionError as error:
        raise BadArguments(f"{what} cannot be stored as JSON: {_TOO_DEEP}") from error
    except Exception as error:
        raise BadArguments(f"{what} cannot be stored as JSON: {text_of(error)}") from error
    return text


def from_json(what: str, text: bytes | str | msgspec.Raw, annotation: Any = Any) -> Any:
    """Return the value that ``text`` holds, of the annotated type; BadArguments naming ``what``."""
    try:
        return _decoder(annotation).decode(text)
    except Exception as error:
        raise BadArguments(
            f"{what} does not fit {format_annotation(annotation)}: {text_of(error)}"
        ) from error


def is_ours(text: str) -> bool:
    """Whether a text is JSON as ``to_json`` makes it: whole, and not too deep."""
    try:
        _skim.decode(text)
        if text.count("[") + text.count("{") > DEPTH_MAX:
            _refuse_too_deep(text.encode())
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _refuse_too_deep(text: bytes) -> None:
    """Leave nothing of the text but its brackets, those in strings apart, and peel off the
    innermost pairs, level by level. Each step is one call that runs over bytes."""
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    bare = bare.translate(_BRACKETS, _NEITHER_BRACKETS_NOR_QUOTES)
    left = b"".join(bare.split(b'"')[::2])
    for _ in range(DEPTH_MAX):
        left = left.replace(b"[]", b"")
        if not left:
            return
    raise ValueError(_TOO_DEEP)


def _refuse_not_finite(value: Any) -> None:
    plain = msgspec.to_builtins(value, enc_hook=_to_json)
    if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in _leaves(plain)):
        raise ValueError("NaN and infinities have no place in JSON")


def _leaves(value: Any) -> Iterator[Any]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            pending.extend(one)
        else:
            yield one


class _Decoder:
    """A decoder of one type. Cached, since building one is slow."""

    def __init__(self, annotation: Any) -> None:
        json = msgspec.json.Decoder(annotation, strict=True, dec_hook=_from_json)
        self.decode: Callable[[bytes | str | msgspec.Raw], Any] = json.decode


def _decoder(annotation: Any) -> _Decoder:
    try:
        return _cached(annotation)
    except TypeError:  # not hashable, such as Annotated[int, {}]
        return _Decoder(annotation)


_cached = functools.lru_cache(maxsize=1024)(_Decoder)


def format_annotation(annotation: Any) -> str:
    """Return an annotation as a person would write it."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def encode_result(value: Any, annotation: Any = Any, max_payload: int = MAX_PAYLOAD) -> str:
    """Return a task's result as JSON text.

    Raises BadArguments if it cannot be encoded, does not fit the task's return annotation, or is
    above ``max_payload`` bytes.
    """
    if value is None and annotation is Any:
        return "null"
    text = to_json("the result", value)
    if len(text) > max_payload:
        raise too_large("the result has", len(text), max_payload, "return")
    from_json("the result", text, annotation)
    if annotation is str and not isinstance(value, str):  # bytes would arrive as base64
        raise BadArguments(f"the result does not fit str: it is of class {_class_of(value)}")
    return text.decode()


def _class_of(value: Any) -> str:
    return type(value).__qualname__


def too_large(what: str, size: int, most: int, verb: str) -> BadArguments:
    """Return the error for a value of too many bytes of JSON, with what to do instead."""
    return BadArguments(
        f"{what} {size} bytes of JSON; {most} are allowed (App(max_payload=…)): store large data"
        f" elsewhere and {verb} its name"
    )


def encode_return(value: Any, annotation: Any, max_payload: int) -> tuple[str, str]:
    """Return what a task has returned as JSON text, and in which words it does not fit the return
    annotation ("" where it does): its work is done all the same. BadArguments as ``encode_result``.
    """
    try:
        return encode_result(value, annotation, max_payload), ""
    except BadArguments as error:
        return encode_result(value, Any, max_payload), text_of(error)


def decode_result(text: str | None, annotation: Any = Any) -> Any:
    """Return a result as the annotated type; BadArguments if it is of another release's kind."""
    return None if text is None else from_json("the result", text, annotation)


class Field(msgspec.Struct, frozen=True):
    """One parameter of a task. ``annotation`` is that of the whole value: for ``*args`` a list,
    for ``**kwargs`` an object."""

    name: str
    kind: Any
    required: bool
    annotation: Any


class Signature:
    """The parameters of a task's function, and how its arguments are encoded as JSON and
    decoded."""

    def __init__(self, fn: Callable[..., Any], task: str, max_payload: int = MAX_PAYLOAD) -> None:
        """Read the function. ConfigError if an annotation can never be read back from JSON."""
        self.task = task
        self.max_payload = max_payload
        self._inspected = _parameters(fn, task)
        hints = _hints(fn)
        self.returns: Any = _usable(hints.get("return", Any))
        self.fields = {
            name: _field(parameter, hints.get(name, Any), task)
            for name, parameter in self._inspected.parameters.items()
        }
        self._decoders = {name: _decoder(each.annotation) for name, each in self.fields.items()}
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
        """Name the unexpected arguments: a misspelt one is missing, too, and of the two
        complaints this is the one that shows the mistake."""
        unknown = [name for name in kwargs if name not in self.fields]
        if not unknown or not self._named:
            return None
        return f"it does not take {', '.join(map(ascii, unknown))}"

    def encode(self, bound: dict[str, Any]) -> str:
        """Return bound arguments as JSON text that a worker can read. BadArguments names the
        argument that cannot be encoded or has the wrong type, or the sizes if it is too large."""
        if not bound:
            return "{}"
        text = self._encode_plain(bound) or _encoder.encode(
            {name: self._encode(name, bound[name]) for name in bound}
        )
        if len(text) > self.max_payload:
            what = f"the arguments of task {self.task} have"
            raise too_large(what, len(text), self.max_payload, "pass")
        return text.decode()

    def decode(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) to call the function with, as the annotated types.

        Raises BadArguments if they are not of this release: unknown, missing or of another type.
        """
        if text == "{}" and not self._required:
            return (), {}
        if self._whole is None:
            return self._decode_each(text)
        try:
            values = msgspec.structs.astuple(self._whole.decode(text))
        except Exception:  # not all are given, or one does not fit: which, is found one by one
            return self._decode_each(text)
        if not self._by_name:
            return values, {}
        split = len(values) - len(self._by_name)
        return values[:split], dict(zip(self._by_name, values[split:], strict=True))

    def _decode_each(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            raw = _split.decode(text)
        except Exception as error:
            raise BadArguments(f"the arguments of task {self.task} are no object") from error
        self._check_names(raw)
        args, kwargs = self._call({name: self._decode(name, raw[name]) for name in raw})
        if not self._named:  # else the names say all
            self.bind(args, kwargs)
        return args, kwargs

    def _encode_plain(self, bound: dict[str, Any]) -> bytes | None:
        """Return arguments that are plain and exactly of the annotated type; None if one is
        not, or cannot be encoded: which, and why, is found one by one."""
        plain = self._plain
        for name, value in bound.items():
            if plain.get(name) is not type(value):
                return None
        try:
            return _encoder.encode(bound)
        except (UnicodeEncodeError, OverflowError):
            return None

    def _encode(self, name: str, value: Any) -> msgspec.Raw:
        annotation = self.fields[name].annotation
        what = f"argument {name!r} of task {self.task}"
        if annotation is str and not isinstance(value, str):  # bytes would arrive as base64
            raise BadArguments(f"{what} does not fit str: it is of class {_class_of(value)}")
        text = to_json(what, value)
        if annotation is not Any:
            from_json(what, text, annotation)
        return msgspec.Raw(text)

    def _decode(self, name: str, text: msgspec.Raw) -> Any:
        try:
            return self._decoders[name].decode(text)
        except Exception:  # the caller reports it in full
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
        """Lay out values for a call: by position up to the first that was not given."""
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
                raise BadArguments(f"task {self.task} takes {name!r} by its position only")
            else:
                kwargs[name] = values[name]
        return tuple(args), kwargs

    def _check_free(self, further: dict[str, Any]) -> None:
        """Refuse ``**kwargs`` of another release that have become parameters of their own."""
        for name, field in self.fields.items():
            if name in further and field.kind in _NAMED:
                raise BadArguments(f"task {self.task} takes {name!r} as a parameter of its own")


def _whole_decoder(fields: dict[str, Field]) -> _Decoder | None:
    """Return what reads all arguments in one go, where all are given; None if nothing can."""
    try:
        pairs = [(name, field.annotation) for name, field in fields.items()]
        return _Decoder(msgspec.defstruct("Arguments", pairs, forbid_unknown_fields=True))
    except Exception:  # such as a name that no struct can have
        return None


def _field(parameter: inspect.Parameter, annotation: Any, task: str) -> Field:
    whole = annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        whole = types.GenericAlias(list, (annotation,))
    elif parameter.kind is parameter.VAR_KEYWORD:
        whole = types.GenericAlias(dict, (str, annotation))
    try:
        _Decoder(whole)
    except TypeError as error:
        raise ConfigError(
            f"task {task}: argument {parameter.name!r} can never be read back from JSON as"
            f" {format_annotation(annotation)}: {text_of(error)}. Choose another one, or none"
        ) from error
    required = parameter.default is parameter.empty and whole is annotation
    return Field(parameter.name, parameter.kind, required, whole)


def _usable(annotation: Any) -> Any:
    try:
        _Decoder(annotation)
    except TypeError:
        return Any
    return annotation


def _parameters(fn: Callable[..., Any], task: str) -> inspect.Signature:
    try:
        return _inspect(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"task {task}: its parameters are not known: {text_of(error)}") from error


def _inspect(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # where annotations are evaluated late, and may not be at all
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(fn, "__annotations__", {}))


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's annotations; those that cannot be resolved here (names imported for
    type checkers only) are left out."""
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
