"""Compress and encrypt arguments, results and checkpoints for the store, and read them back.

An encoded payload is also JSON text: a blank, then how to read it, then the data::

     ["outlast:payload",["zlib","aes-256-gcm:2026"],"BASE64"]

No text that ``to_json`` makes begins with a blank. An encoded payload is read by the codecs that it
names, not by those with which the application writes now: old payloads stay readable when the chain
changes, as long as their keys are kept.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from outlast.base.clock import secret_bytes
from outlast.base.config import check_whole
from outlast.errors import BadArguments, ConfigError, NotEncrypted, text_of

MARK = ' ["outlast:payload",'
PLAIN_MAX = 16 * 1024**2  # bytes of JSON of one payload, before it is encoded and after it is read
CODECS_MAX = 8
KEY_BYTES, NONCE_BYTES = 32, 12
HEAD_MAX = 2_000  # the first characters, which name the codecs
_SEALED = "aes-256-gcm:"
_KINDS = {
    "args": "the arguments",
    "result": "the result",
    "checkpoint": "the checkpoint",
    "step": "the step",
    "event": "the event",
}

_Step = Callable[[bytes, str], tuple[str, bytes] | None]
_read = msgspec.json.Decoder(tuple[str, list[str], str])


class PayloadCodec(Protocol):
    """One step of ``App(payloads=[…])``. Called in any thread, even in several at once.

    If ``encode`` gives different bytes each time (a random nonce) and the application has
    schedules, the codec needs a method ``encode_same`` with the same parameters that gives the same
    bytes.
    """

    def encode(self, data: bytes, kind: str) -> tuple[str, bytes] | None:
        """Return the name to store and the encoded bytes, or None to leave the data unchanged.

        ``kind`` is ``args``, ``result``, ``checkpoint`` or ``step``.
        """
        ...

    def decode(self, name: str, data: bytes, kind: str, most: int) -> bytes | None:
        """Return the data that was encoded under that name, at most ``most`` bytes; None if the
        name is not this codec's. Raises ValueError, with the reason, if it cannot be read."""
        ...


class Compression:
    """Compresses payloads with zlib: a step of ``App(payloads=[…])``, before ``Encryption``.

    Payloads that it does not make smaller are stored unchanged. Every application can read
    compressed payloads, with or without this step. Data that unpacks to more than 16 MiB is refused
    while it is unpacked.
    """

    def __init__(self, *, level: int = 6, least: int = 1024) -> None:
        """Args:
            level: 1 is fastest, 9 makes them smallest.
            least: bytes of JSON below which nothing is compressed.

        Raises ConfigError for an invalid value.
        """
        self._level = check_whole("level", level, 1, 9)
        self._least = check_whole("least", least, 0, PLAIN_MAX)

    def encode(self, data: bytes, kind: str) -> tuple[str, bytes] | None:
        """Return ``zlib`` and fewer bytes, or None."""
        if len(data) < self._least:
            return None
        smaller = zlib.compress(data, self._level)
        return ("zlib", smaller) if len(smaller) < len(data) else None

    def encode_same(self, data: bytes, kind: str) -> None:
        """Return None: builds of zlib, and so hosts, differ in the bytes that they make."""

    def decode(self, name: str, data: bytes, kind: str, most: int) -> bytes | None:
        """Return the bytes. ValueError for too many, or for damaged data."""
        if name != "zlib":
            return None
        unpacking = zlib.decompressobj()
        try:
            plain = unpacking.decompress(data, most)
        except zlib.error as error:
            raise ValueError(f"damaged: {text_of(error)}") from None
        if unpacking.unconsumed_tail:
            raise ValueError(f"too large: it unpacks to more than {most} bytes")
        if not unpacking.eof or unpacking.unused_data:
            raise ValueError("damaged: it was cut, or something was added")
        return plain


class Encryption:
    """Encrypts payloads with AES-256-GCM: a step of ``App(payloads=[…])``, the last one.

    Needs ``pip install 'outlast[crypto]'``. Only runners and your own programs have the keys;
    workers, the command line and pages see which key was used, and how many bytes. An encrypted
    payload that was changed in the store, or moved from arguments to a result, is refused; so is
    the value of an event under another name, or of a step under another job or name. Plain JSON
    put in its place is read, unless ``required``.
    """

    def __init__(
        self, keys: Mapping[str, str | bytes], *, write: bool = True, required: bool = False
    ) -> None:
        """Args:
            keys: keys by id; the first one encrypts, all of them decrypt. Each is 32 random bytes,
                or their base64: ``Encryption.make_key()``.
            write: whether new payloads are encrypted; False: old ones stay readable.
            required: whether payloads that no key has decrypted are refused with ``NotEncrypted``;
                a job with such arguments or such a checkpoint is dead. Set it once all programs
                encrypt and ``outlast doctor MODULE:APP`` counts no plain ones.

        Raises ConfigError for a key of another size, where ``cryptography`` is missing, or for
        ``required`` with ``write=False``.
        """
        if not keys:
            raise ConfigError("Encryption needs a key: {'2026': Encryption.make_key()}")
        if required and not write:
            raise ConfigError(
                "Encryption(required=True, write=False) refuses what it writes itself: leave out"
                " one of the two"
            )
        raw = {_check_id(name): _check_key(name, key) for name, key in keys.items()}
        self._ciphers = {name: _make_cipher(key) for name, key in raw.items()}
        self._nonce_keys = {
            name: hmac.digest(key, b"outlast nonces", "sha256") for name, key in raw.items()
        }
        self._write = next(iter(self._ciphers)) if write else None
        self.required = required

    @staticmethod
    def make_key() -> str:
        """Return a new random key as base64. Store it as a secret: no other copy exists."""
        return base64.b64encode(secret_bytes(KEY_BYTES)).decode()

    def __repr__(self) -> str:
        return f"<Encryption with the keys {', '.join(self._ciphers)}>"

    def encode(self, data: bytes, kind: str) -> tuple[str, bytes] | None:
        """Return the name of the key and the encrypted bytes."""
        if self._write is None:
            return None
        return self._seal(self._write, secret_bytes(NONCE_BYTES), data, kind)

    def encode_same(self, data: bytes, kind: str) -> tuple[str, bytes] | None:
        """As ``encode``, with the same bytes for the same data: for calls of schedules, which each
        worker declares. The nonce is derived from the data by the key."""
        if self._write is None:
            return None
        text = _bound_to(self._write, kind) + b"\0" + data
        nonce = hmac.digest(self._nonce_keys[self._write], text, "sha256")[:NONCE_BYTES]
        return self._seal(self._write, nonce, data, kind)

    def _seal(self, key: str, nonce: bytes, data: bytes, kind: str) -> tuple[str, bytes]:
        name = f"{_SEALED}{key}"
        return name, nonce + self._ciphers[key].encrypt(nonce, data, _bound_to(name, kind))

    def decode(self, name: str, data: bytes, kind: str, most: int) -> bytes | None:
        """Return the bytes; None for a key that is not here. ValueError if it does not fit."""
        cipher = self._ciphers.get(name.removeprefix(_SEALED))
        if cipher is None or not name.startswith(_SEALED):
            return None
        try:
            nonce, sealed = data[:NONCE_BYTES], data[NONCE_BYTES:]
            plain: bytes = cipher.decrypt(nonce, sealed, _bound_to(name, kind))
        except Exception:
            raise ValueError(
                "the key of that id does not decrypt it: it is another key, or the payload was"
                " changed"
            ) from None
        return plain


class Payloads:
    """The chain of codecs with which one application writes and reads payloads."""

    def __init__(self, codecs: Sequence[PayloadCodec]) -> None:
        """ConfigError for an object that is not a codec, too many codecs, or a wrong order."""
        self._codecs = list(codecs)
        for each in self._codecs:
            if isinstance(each, type) or not (hasattr(each, "encode") and hasattr(each, "decode")):
                raise ConfigError(f"payloads takes codecs, such as Compression(), not {each!r:.80}")
        if len(self._codecs) > CODECS_MAX:
            raise ConfigError(f"payloads takes at most {CODECS_MAX} codecs")
        kinds = [type(each) for each in self._codecs]
        if Encryption in kinds and Compression in kinds[kinds.index(Encryption) :]:
            raise ConfigError("put Compression before Encryption: encrypted data does not compress")
        self._readers = [*self._codecs, Compression()]
        self._required = {
            id(each) for each in self._codecs if isinstance(each, Encryption) and each.required
        }

    @property
    def encryption(self) -> str:
        """How plain payloads are read: ``required`` refuses them, ``optional`` reads both kinds,
        ``none`` has no encryption."""
        if self._required:
            return "required"
        has_any = any(isinstance(each, Encryption) for each in self._codecs)
        return "optional" if has_any else "none"

    def encode(self, kind: str, text: str, *names: str | int) -> str:
        """Return JSON text in its stored form; BadArguments if it is too large. It is sealed
        together with ``names``, whose value it is."""
        return self._join(kind, text, [each.encode for each in self._codecs], names)

    def encode_same(self, kind: str, text: str) -> str:
        """As ``encode``, with the same text each time. ConfigError if a codec cannot do that."""
        steps = [getattr(each, "encode_same", each.encode) for each in self._codecs]
        encoded = self._join(kind, text, steps)
        if encoded != self._join(kind, text, steps):
            raise ConfigError(
                "each worker declares the call of a schedule, so its encoded form must be the same"
                " each time: give your codec a method encode_same(data, kind) that does this"
            )
        return encoded

    def _join(
        self, kind: str, text: str, steps: Sequence[_Step], about: Sequence[str | int] = ()
    ) -> str:
        data, names = text.encode(), []
        if len(data) > PLAIN_MAX:
            raise BadArguments(
                f"{_KINDS[kind]} have {len(data)} bytes of JSON before they are encoded;"
                f" {PLAIN_MAX} are allowed"
            )
        for codec, encode in zip(self._codecs, steps, strict=True):
            if (step := encode(data, _kind_for(codec, kind, about))) is not None:
                name, data = step
                names.append(name)
        if not names:
            return text
        return f'{MARK}{json.dumps(names)},"{base64.b64encode(data).decode()}"]'

    def decode(self, kind: str, text: str, *names: str | int) -> str:
        """Return the JSON text of a stored payload. BadArguments, with the missing key or the
        fault, if this application cannot read it; NotEncrypted if none of its keys has decrypted
        it, despite ``required``."""
        if not self._required and not text.startswith(MARK):
            return text
        parts = _parts_of(text)
        if parts is None:
            self._check_opened(kind, set())
            return text
        codecs, data = parts
        opened: set[int] = set()
        for name in reversed(codecs):
            codec, data = self._step(kind, name, data, names)
            opened.add(id(codec))
        self._check_opened(kind, opened)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadArguments(f"{_KINDS[kind]} cannot be read: damaged") from None

    def _check_opened(self, kind: str, opened: set[int]) -> None:
        if not self._required <= opened:
            raise NotEncrypted(
                f"{_KINDS[kind]} cannot be read: not encrypted, although"
                " Encryption(required=True) demands it; `outlast doctor MODULE:APP` counts the"
                " others"
            )

    def _step(
        self, kind: str, name: str, data: bytes, about: Sequence[str | int]
    ) -> tuple[PayloadCodec, bytes]:
        for codec in self._readers:
            try:
                plain = codec.decode(name, data, _kind_for(codec, kind, about), PLAIN_MAX)
            except ValueError as error:
                raise BadArguments(
                    f"{_KINDS[kind]} cannot be read, encoded as {name[:80]}: {text_of(error)}"
                ) from None
            if plain is not None:
                return codec, plain
        raise BadArguments(
            f"{_KINDS[kind]} cannot be read: encoded as {name[:80]}, which is not in"
            " App(payloads=[…]); add its key or codec here"
        )


PLAIN = Payloads(())
"""The payloads of an application without codecs: plain JSON, and, to read, compressed JSON."""


def make_payloads(codecs: Sequence[PayloadCodec]) -> Payloads:
    """Return the chain of these codecs; ConfigError for an invalid one."""
    return Payloads(codecs) if codecs else PLAIN


def is_encoded(text: str) -> bool:
    """Whether a stored payload is encoded."""
    return text.startswith(MARK)


def is_encrypted(text: str) -> bool:
    """Whether a stored payload, which may be truncated, names a key, which need not fit."""
    return is_encoded(text) and f'"{_SEALED}' in text[:HEAD_MAX]  # base64 has no quotation marks


def describe_encoded(text: str) -> dict[str, Any] | None:
    """Return the codecs and the stored bytes of an encoded payload; None for others."""
    parts = _parts_of(text)
    return parts and {"encoded": parts[0], "bytes": len(parts[1])}


def show_stored(text: str) -> str:
    """Return a stored payload for people: its JSON, or the description of an encoded one."""
    described = describe_encoded(text)
    return text if described is None else json.dumps(described)


def _parts_of(text: str) -> tuple[list[str], bytes] | None:
    if not text.startswith(MARK):
        return None
    try:
        _, names, data = _read.decode(text)
        return (names, base64.b64decode(data, validate=True)) if len(names) <= CODECS_MAX else None
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return None  # a damaged row: shown, and refused, as it is


def _check_id(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 60 or not name.isascii():  # noqa: PLR2004
        raise ConfigError(f"the id of a key is a short text, such as '2026', not {name!r:.80}")
    return name


def _check_key(name: str, key: object) -> bytes:
    try:
        raw = base64.b64decode(key, validate=True) if isinstance(key, str) else key
    except (binascii.Error, ValueError):
        raw = None
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise ConfigError(f"the key {name!r} is not {KEY_BYTES} bytes, or their base64")
    return raw


def _make_cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigError(
            "Encryption needs the package cryptography: pip install 'outlast[crypto]'"
        ) from error
    return AESGCM(key)


def _kind_for(codec: PayloadCodec, kind: str, about: Sequence[str | int]) -> str:
    """Return the kind as a codec gets it: what it is the value of is for what seals."""
    return f"{kind} {json.dumps(about)}" if about and isinstance(codec, Encryption) else kind


def _bound_to(name: str, kind: str) -> bytes:
    return f"outlast {kind} {name}".encode()
