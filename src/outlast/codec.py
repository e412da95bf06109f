"""Values and results as JSON text, checked against an annotation.

msgspec writes NaN and infinities as ``null``; they are refused here, since they would come back
as None. Text with NULs is fine; lone surrogates are no text and are refused. Lists and objects may
be DEPTH_MAX levels deep: a worker may have less room for recursion than the caller had, and what no
worker can read would never run.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import msgspec

from outlast.config import MAX_PAYLOAD
from outlast.errors import BadArguments, text_of

DEPTH_MAX = 100  # levels of lists and objects; readers have limits of their own, some of 128
_TOO_DEEP = f"lists and objects in it are more than {DEPTH_MAX} levels deep"
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKETS_NOR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))


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


encoder = msgspec.json.Encoder(enc_hook=_to_json)
_skim = msgspec.json.Decoder(msgspec.Raw)


def to_json(what: str, value: Any) -> bytes:
    """Return ``value`` as JSON; BadArguments, naming ``what``, if that would lose something.

    Values may bring code of their own (a pydantic validator), so anything may be raised here.
    """
    try:
        text = encoder.encode(value)
        if text.count(b"[") + text.count(b"{") > DEPTH_MAX:  # otherwise it cannot be that deep
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
        return make_decoder(annotation).decode(text)
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
        raise BadArguments(f"the result does not fit str: it is of class {class_of(value)}")
    return text.decode()


def class_of(value: Any) -> str:
    """Return the name of a value's class, for errors."""
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
