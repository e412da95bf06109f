"""Writes values and results as JSON text, and reads and checks them by an annotation.

msgspec writes NaN and infinities as ``null``; they are refused here. Values of numpy are written as
Python's. Text with NULs is fine; lone surrogates are refused. Lists and objects may be DEPTH_MAX
levels deep: a worker may have less room for recursion than the caller.
"""

from __future__ import annotations

import functools
import math
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from outlast.base.config import MAX_PAYLOAD
from outlast.errors import BadArguments, text_of
from outlast.payload.payloads import PLAIN, PLAIN_MAX, Payloads

DEPTH_MAX = 100  # levels of lists and objects; readers have limits of their own, some of 128
FIELDS_NAMED = 5  # fields of a model named in an error
_OF_NUMPY = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|str\d*")  # names of dtypes
_NUMBER_AS_KEY = re.compile(rb'"-?\d[^"\\]*":')  # or a text that looks so
_TOO_DEEP = f"lists and objects in it are more than {DEPTH_MAX} levels deep"
_SCALARS = {str, int, float, bool, type(None)}
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKETS_NOR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))


def _to_json(value: Any) -> Any:
    """Encode types that msgspec does not know: paths, subclasses of plain types, values of numpy,
    models of pydantic. It knows None and booleans, except as keys."""
    if value is None or isinstance(value, bool):
        raise TypeError(f"an object with {value} as a key cannot be JSON: use texts as keys")
    if isinstance(value, PurePath):
        return str(value)
    for kind, plain in _PLAIN_OF.items():
        if isinstance(value, kind) and not _is_of_numpy(value):
            return plain(value)
    if _is_of_numpy(value):
        return value.tolist()
    dump = getattr(value, "model_dump_json", None)
    if dump is not None and not isinstance(value, type):
        return msgspec.Raw(dump(by_alias=True, round_trip=True).encode())
    raise TypeError(f"a value of class {_full_name(type(value))} cannot be written as JSON")


# How a value of a subclass is written: as by the plain type. Times are texts: where a test freezes
# time, the name of the plain type leads to a subclass.
_PLAIN_OF: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__pos__,
    float: float.__pos__,
    bytes: lambda value: bytes.join(b"", [value]),
    Decimal: Decimal.__str__,
    UUID: UUID.__str__,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda value: timedelta(0, 0, timedelta.__floordiv__(value, timedelta(0, 0, 1))),
}


def _is_of_numpy(value: Any) -> bool:
    """Whether a value of numpy, or an array of such values, has an equivalent in Python: no complex
    number, no time in nanoseconds, nothing of more than 64 bits."""
    if type(value).__module__.partition(".")[0] != "numpy" or not hasattr(value, "tolist"):
        return False
    if not _OF_NUMPY.fullmatch(getattr(getattr(value, "dtype", None), "name", "")):
        return False
    if value.nbytes > PLAIN_MAX:
        raise TypeError(
            f"an array of {value.nbytes} bytes is too large: store it elsewhere and pass its name"
        )
    return True


def _full_name(kind: type) -> str:
    """Return the name of a class with its module: ``numpy.bool`` is not Python's."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _to_builtins(value: Any) -> Any:
    """As ``_to_json``, with numbers unchanged: a NaN, for which pydantic writes null, stays."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(round_trip=True)
    if isinstance(value, float):
        return float.__pos__(value)
    return value.tolist() if _is_of_numpy(value) else str(value)


def _from_json(wanted: Any, value: Any) -> Any:
    if isinstance(wanted, type) and issubclass(wanted, PurePath) and isinstance(value, str):
        return wanted(value)
    validate = getattr(wanted, "model_validate_json", None)
    if validate is None:
        raise NotImplementedError(f"a {wanted} cannot be read from JSON")
    try:
        return validate(encoder.encode(value))
    except ValueError as error:
        raise Misfit(error, wanted) from error


class Misfit(ValueError):
    """A model of pydantic refuses a value, which the text shows: it is for the caller."""

    def __init__(self, error: Any, wanted: Any) -> None:
        super().__init__(_name_fields(error))
        self._error, self._wanted = error, wanted

    def without_values(self) -> str:
        """Return which fields are wrong, and by which rule, without unknown keys and messages of
        validators: these are values."""
        fields = getattr(self._wanted, "model_fields", {})
        known = {*fields, *(getattr(one, "alias", None) for one in fields.values())}
        wrong = {
            f"{each['loc'][0] if each['loc'] and each['loc'][0] in known else 'it'}:"
            f" {each['type'].replace('_', ' ')}": None
            for each in (self._error.errors() if hasattr(self._error, "errors") else ())
        }
        return "; ".join([*wrong][:FIELDS_NAMED]) or "its model refuses it"


def _name_fields(error: Any) -> str:
    """Return the wrong fields of a model on one line; pydantic's own text shows the values."""
    if not hasattr(error, "errors"):
        return text_of(error)
    found = [
        f"{'.'.join(map(str, each['loc'])) or 'it'}: {' '.join(each['msg'].split())}"
        for each in error.errors()
    ]
    more = f" and {len(found) - FIELDS_NAMED} more" if len(found) > FIELDS_NAMED else ""
    return "; ".join(found[:FIELDS_NAMED]) + more


encoder = msgspec.json.Encoder(enc_hook=_to_json)
_skim = msgspec.json.Decoder(msgspec.Raw)
_PATH = re.compile(r" - at (?:`\w+` in )?`\$(?:\.\w+|\[(?:\d+|\.\.\.)\])*`\Z")
_SAYS_A_VALUE = ("Invalid enum value", "Invalid value", "Object contains unknown field")


def to_json(what: str, value: Any) -> bytes:
    """Return ``value`` as JSON; BadArguments, naming ``what``, if JSON would lose something. A
    value may run its own code (a pydantic validator), so any exception may occur here."""
    try:
        text = encoder.encode(value)
        if text.count(b"[") + text.count(b"{") > DEPTH_MAX:  # otherwise it cannot be too deep
            _refuse_too_deep(text)
        if b"null" in text:
            _refuse_not_finite(value)
        if _NUMBER_AS_KEY.search(text):
            _refuse_doubles(value)
    except UnicodeEncodeError as error:
        raise BadArguments(f"{what} cannot be stored: it holds a lone surrogate") from error
    except RecursionError as error:
        raise BadArguments(f"{what} cannot be stored as JSON: {_TOO_DEEP}") from error
    except Exception as error:
        raise BadArguments(f"{what} cannot be stored as JSON: {text_of(error)}") from error
    return text


def from_json(what: str, text: bytes | str | msgspec.Raw, annotation: Any = Any) -> Any:
    """Return the value of ``text``, of the annotated type; BadArguments naming ``what``. The error
    and its causes hold no values, since it is stored and shown even where they are encrypted."""
    try:
        return make_decoder(annotation).decode(text)
    except Exception as error:
        refused = f"{what} does not fit {format_annotation(annotation)}: {_without_values(error)}"
    raise BadArguments(refused)


def check_fits(what: str, text: bytes, annotation: Any) -> None:
    """Raise BadArguments as ``from_json`` does, but with values, which the caller has given."""
    try:
        make_decoder(annotation).decode(text)
    except Exception as error:
        raise BadArguments(
            f"{what} does not fit {format_annotation(annotation)}: {text_of(error)}"
        ) from error


def _without_values(error: Exception) -> str:
    """Return a decoder's message without values: wrong members of an enum, unknown names of fields,
    texts of the user's own checks."""
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    cause, said = error.__cause__, text_of(error)
    path = _PATH.search(said)
    at = path[0] if path else ""
    if isinstance(cause, Misfit):
        return cause.without_values() + at
    if cause is not None or not isinstance(error, msgspec.DecodeError):
        return f"a check of its type refuses it ({type(cause or error).__name__}){at}"
    head = next((each for each in _SAYS_A_VALUE if said.startswith(each)), None)
    return said if head is None else head + at


def is_ours(text: str) -> bool:
    """Whether a text is complete JSON, not too deep, as ``to_json`` makes it."""
    try:
        _skim.decode(text)
        if text.count("[") + text.count("{") > DEPTH_MAX:
            _refuse_too_deep(text.encode())
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


def _refuse_too_deep(text: bytes) -> None:
    """Raise if JSON is nested too deep: keep only the brackets outside strings, and remove the
    innermost pairs, level by level, by one call over bytes each."""
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    bare = bare.translate(_BRACKETS, _NEITHER_BRACKETS_NOR_QUOTES)
    left = b"".join(bare.split(b'"')[::2])
    for _ in range(DEPTH_MAX):
        left = left.replace(b"[]", b"")
        if not left:
            return
    raise ValueError(_TOO_DEEP)


def sort_sets(value: Any, text: bytes) -> bytes:
    """Return ``text``, the JSON of ``value``, with the members of sets in the order of their JSON,
    which does not depend on the hashes of this process."""
    if b"[" not in text or not _holds_sets(value):
        return text
    return encoder.encode(_in_one_order(value, msgspec.json.decode(text)))


def _holds_sets(value: Any) -> bool:
    if isinstance(value, set | frozenset):
        return True
    if isinstance(value, list | tuple | dict):
        inner: Any = value.values() if isinstance(value, dict) else value
    else:
        inner = [getattr(value, name, None) for _, name in _fields_of(type(value))]
    return not _SCALARS.issuperset(map(type, inner)) and any(map(_holds_sets, inner))


def _in_one_order(value: Any, plain: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(map(_in_one_order, value, plain), key=encoder.encode)
    if isinstance(value, list | tuple):
        return [*map(_in_one_order, value, plain)]
    if not isinstance(plain, dict):
        return plain
    if isinstance(value, dict):
        inner = dict(zip(plain, value.values(), strict=False))
    else:
        inner = {key: getattr(value, name, None) for key, name in _fields_of(type(value))}
    return {key: _in_one_order(inner.get(key), each) for key, each in plain.items()}


def _read_fields(kind: type) -> list[tuple[str, str]]:
    """Return (JSON name, attribute) for a class of msgspec, pydantic, dataclasses or attrs."""
    if issubclass(kind, msgspec.Struct):
        return [(each.encode_name, each.name) for each in msgspec.structs.fields(kind)]
    if models := getattr(kind, "model_fields", None):
        return [(each.serialization_alias or name, name) for name, each in models.items()]
    attrs = [each.name for each in getattr(kind, "__attrs_attrs__", ())]
    return [(name, name) for name in (*getattr(kind, "__dataclass_fields__", ()), *attrs)]


_fields_of: Callable[[Any], list[tuple[str, str]]] = functools.lru_cache(1024)(_read_fields)


def _refuse_not_finite(value: Any) -> None:
    plain = msgspec.to_builtins(value, enc_hook=_to_builtins)
    for path, leaf in _leaves(plain):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            where = f" ({leaf} at ${path})" if path else ""
            raise ValueError(
                f"NaN and infinities cannot be JSON{where}: write None or a text instead"
            )


def _refuse_doubles(value: Any) -> None:
    pending = [msgspec.to_builtins(value, enc_hook=_to_builtins)]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            keys = [key if isinstance(key, str) else str(key) for key in one]
            if len({*keys}) < len(keys):
                double = next(key for key in keys if keys.count(key) > 1)
                raise ValueError(f"an object would have the key {double!r} twice: use texts")
            pending.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            pending.extend(one)


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value with their paths, as ``[...][3]`` in msgspec's messages."""
    pending = [("", value)]
    while pending:
        path, one = pending.pop()
        if isinstance(one, dict):
            pending.extend((f"{path}[...]", each) for each in one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            pending.extend((f"{path}[{n}]", each) for n, each in enumerate(one))
        else:
            yield path, one


class TypedDecoder:
    """A decoder of one type. Cached, since building one is slow."""

    def __init__(self, annotation: Any) -> None:
        json = msgspec.json.Decoder(annotation, strict=True, dec_hook=_from_json)
        self.decode: Callable[[bytes | str | msgspec.Raw], Any] = json.decode


def make_decoder(annotation: Any) -> TypedDecoder:
    """Return the decoder of an annotated type. TypeError if none can exist."""
    try:
        return _cached(annotation)
    except TypeError:  # not hashable, such as Annotated[int, {}]
        return TypedDecoder(annotation)


_cached = functools.lru_cache(maxsize=1024)(TypedDecoder)


def format_annotation(annotation: Any) -> str:
    """Return an annotation as a person would write it."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def encode_result(
    value: Any,
    annotation: Any = Any,
    max_payload: int = MAX_PAYLOAD,
    payloads: Payloads = PLAIN,
) -> str:
    """Return a task's result in its stored form. BadArguments if it cannot be encoded, does not fit
    the return annotation, or is above ``max_payload`` bytes."""
    if value is None and annotation is Any and payloads is PLAIN:
        return "null"
    text = to_json("the result", value)
    stored = text.decode() if payloads is PLAIN and len(text) <= max_payload else ""
    stored = stored or encode_payload(
        "the result has", "result", "return", text, max_payload, payloads
    )
    from_json("the result", text, annotation)
    if annotation is str and not isinstance(value, str):  # bytes would arrive as base64
        raise BadArguments(f"the result does not fit str: it is of class {class_of(value)}")
    return stored


def encode_payload(
    what: str,
    kind: str,
    verb: str,
    text: bytes,
    max_payload: int,
    payloads: Payloads,
    names: Sequence[str | int] = (),
) -> str:
    """Return JSON in its stored form, the value of ``names`` alone; BadArguments, with ``what`` and
    ``verb``, if it is larger than ``max_payload`` bytes."""
    stored = text.decode()
    size = len(text)
    if payloads is not PLAIN:
        encoded = payloads.encode(kind, stored, *names)
        stored, size = encoded, size if encoded is stored else len(encoded)
    if size > max_payload:
        raise too_large(what, size, max_payload, verb)
    return stored


def class_of(value: Any) -> str:
    """Return the name of a value's class, for errors."""
    return type(value).__qualname__


def too_large(what: str, size: int, most: int, verb: str) -> BadArguments:
    """Return the error for a value of too many bytes of JSON, with what to do instead."""
    return BadArguments(
        f"{what} {size} bytes of JSON; {most} are allowed (App(max_payload=…)): store large data"
        f" elsewhere and {verb} its name"
    )


def encode_return(
    value: Any, annotation: Any, max_payload: int, payloads: Payloads = PLAIN
) -> tuple[str, str]:
    """Return a task's result in its stored form, and a message if it does not fit the return
    annotation, else "": the work is done either way. BadArguments as ``encode_result``."""
    try:
        return encode_result(value, annotation, max_payload, payloads), ""
    except BadArguments as error:
        return encode_result(value, Any, max_payload, payloads), text_of(error)


def decode_result(text: str | None, annotation: Any = Any, payloads: Payloads = PLAIN) -> Any:
    """Return a result as the annotated type; BadArguments if that, its codec or key is another."""
    if text is None:
        return None
    return from_json("the result", payloads.decode("result", text), annotation)
