"""Payloads as they are stored: what is encoded is read again, or refused with the reason."""

from __future__ import annotations

import base64
import builtins
import json
import zlib
from typing import Any

import pytest

import outlast
from outlast import BadArguments, Compression, ConfigError, Encryption
from outlast.insight.row import read_payload
from outlast.payload.codec import decode_result, encode_result
from outlast.payload.payloads import (
    MARK,
    PLAIN,
    PLAIN_MAX,
    Payloads,
    describe_encoded,
    make_payloads,
)
from tests.cases import each_case

KEY, OTHER = Encryption.make_key(), Encryption.make_key()
LONG = json.dumps({"text": "outlast " * 500})


def chain(*codecs: Any) -> Payloads:
    return Payloads(codecs)


@each_case(
    ("payloads", "names"),
    [
        (chain(Compression()), ["zlib"]),
        (chain(Encryption({"k": KEY})), ["aes-256-gcm:k"]),
        (chain(Compression(), Encryption({"k": KEY})), ["zlib", "aes-256-gcm:k"]),
    ],
)
@each_case("kind", ["args", "result", "checkpoint"])
def test_what_is_encoded_is_read_again(payloads: Payloads, names: list[str], kind: str) -> None:
    stored = payloads.encode(kind, LONG)
    assert payloads.decode(kind, stored) == LONG
    assert "outlast outlast" not in stored
    described = describe_encoded(stored)
    assert described is not None
    assert described["encoded"] == names
    assert json.loads(stored)[0] == "outlast:payload"  # it is JSON, as all that is stored


def test_what_is_not_worth_it_is_not_compressed() -> None:
    assert chain(Compression()).encode("args", '{"a":1}') == '{"a":1}'
    assert chain(Compression(least=0)).encode("args", '{"a":1}') == '{"a":1}'


def test_each_encryption_differs_and_shows_nothing_but_its_size() -> None:
    payloads = chain(Encryption({"k": KEY}))
    first, second = (payloads.encode("args", '{"card":"1234"}') for _ in range(2))
    assert first != second
    assert "card" not in str(base64.b64decode(json.loads(first)[2]))


def test_keys_are_rotated_and_old_payloads_stay_readable() -> None:
    old = chain(Encryption({"2025": KEY}))
    stored = old.encode("result", LONG)
    new = chain(Compression(), Encryption({"2026": OTHER, "2025": KEY}))
    assert new.decode("result", stored) == LONG
    assert describe_encoded(new.encode("result", "1")) == {
        "encoded": ["aes-256-gcm:2026"],
        "bytes": 29,
    }
    ended = chain(Encryption({"2025": KEY}, write=False))
    assert ended.encode("result", "1") == "1"
    assert ended.decode("result", stored) == LONG
    assert PLAIN.decode("result", chain(Compression()).encode("result", LONG)) == LONG


@each_case(
    ("reader", "why"),
    [
        (PLAIN, r"aes-256-gcm:k, which is not in App\(payloads"),
        (chain(Encryption({"other": KEY})), "aes-256-gcm:k, which is not in"),
        (chain(Encryption({"k": OTHER})), "the key of that id does not decrypt it"),
    ],
)
def test_a_wrong_or_missing_key_is_told(reader: Payloads, why: str) -> None:
    stored = chain(Encryption({"k": KEY})).encode("args", '{"card":"1234"}')
    with pytest.raises(BadArguments, match=f"the arguments cannot be read.*{why}") as failed:
        reader.decode("args", stored)
    assert KEY not in str(failed.value)


def test_a_payload_that_was_changed_or_moved_is_refused() -> None:
    payloads = chain(Encryption({"k": KEY, "l": KEY}))
    stored = payloads.encode("args", "{}")
    with pytest.raises(BadArguments, match="the payload was changed"):
        payloads.decode("result", stored)
    with pytest.raises(BadArguments, match="the payload was changed"):
        payloads.decode("args", stored.replace("gcm:k", "gcm:l"))
    mark, names, data = json.loads(stored)
    raw = bytearray(base64.b64decode(data))
    for place in range(len(raw)):
        raw[place] ^= 1
        changed = f' ["{mark}",{json.dumps(names)},"{base64.b64encode(raw).decode()}"]'
        with pytest.raises(BadArguments, match="the payload was changed"):
            payloads.decode("args", changed)
        raw[place] ^= 1


@each_case("codecs", [(), (Compression(least=0),)])
def test_a_payload_is_read_under_its_own_name_alone(codecs: tuple[Any, ...]) -> None:
    """Else an answer to one question could be repeated as the answer to another."""
    payloads = chain(*codecs, Encryption({"k": KEY}, required=True))
    cases: list[tuple[str, tuple[Any, ...], list[tuple[Any, ...]]]] = [
        ("event", ("approve:16",), [("approve:17",), ("approve:1", "6"), ('approve:16"',)]),
        ("step", (7, "charge"), [(8, "charge"), (7, "refund"), ("7", "charge"), (7,)]),
    ]
    for kind, own, others in cases:
        stored = payloads.encode(kind, LONG, *own)
        assert payloads.decode(kind, stored, *own) == LONG
        for other in [*others, ()]:
            with pytest.raises(BadArguments, match="the payload was changed"):
                payloads.decode(kind, stored, *other)
        unnamed = payloads.encode(kind, LONG)
        with pytest.raises(BadArguments, match="the payload was changed"):
            payloads.decode(kind, unnamed, *own)


def packed(data: bytes, *names: str) -> str:
    return f'{MARK}{json.dumps(names)},"{base64.b64encode(data).decode()}"]'


def test_a_bomb_is_refused_while_it_is_unpacked() -> None:
    bomb = zlib.compress(b" " * (PLAIN_MAX * 4), 9)
    assert len(bomb) < 100_000
    unpacked = 0
    real = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self._real = real()

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal unpacked
            done = self._real.decompress(data, most)
            unpacked = max(unpacked, len(done))
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zlib, "decompressobj", Watched)
        for names in (["zlib"], ["zlib"] * 8):
            data = bomb
            for _ in names[1:]:
                data = zlib.compress(data)
            with pytest.raises(BadArguments, match="unpacks to more than"):
                PLAIN.decode("args", packed(data, *names))
    assert 0 < unpacked <= PLAIN_MAX


@each_case(
    "stored",
    [
        packed(b"junk", "zlib"),
        packed(zlib.compress(b"{}")[:-3], "zlib"),
        packed(zlib.compress(b"{}") + b"more", "zlib"),
        packed(zlib.compress(b"\xff"), "zlib"),
        packed(b"{}", "rot13"),
        packed(b"x", "aes-256-gcm:k"),
    ],
)
def test_a_damaged_payload_is_refused(stored: str) -> None:
    with pytest.raises(BadArguments, match="the result cannot be read"):
        chain(Encryption({"k": KEY})).decode("result", stored)


@each_case("text", [MARK, MARK + "[", packed(b"", *["zlib"] * 9), MARK + '["a"],"%"]'])
def test_what_only_begins_like_one_is_no_payload(text: str) -> None:
    assert PLAIN.decode("args", text) == text
    assert describe_encoded(text) is None


def test_nothing_that_a_task_stores_looks_like_one() -> None:
    value = ["outlast:payload", ["zlib"], "AAAA"]
    stored = encode_result(value, Any)
    assert decode_result(stored, Any) == value


# ------------------------------------------------------------------------ an application


def an_app(*codecs: Any, **options: Any) -> outlast.App:
    return outlast.App("sqlite:////nowhere.db", payloads=codecs, **options)


def test_limits_hold_for_what_is_stored() -> None:
    app = an_app(Compression(), max_payload=2_000)
    task = app.task(name="task")(lambda text: None)
    assert len(task.call("a" * 100_000).job.args) < 2_000
    noise = base64.b64encode(bytes(i * 7919 % 256 ^ i // 3 % 256 for i in range(9_000))).decode()
    with pytest.raises(BadArguments, match="2000 are allowed"):
        an_app(Encryption({"k": KEY}), max_payload=2_000).task(name="task")(lambda text: None).call(
            noise
        )
    with pytest.raises(BadArguments, match="before they are encoded"):
        task.call("a" * (PLAIN_MAX + 1))
    with pytest.raises(BadArguments, match="the result has"):
        encode_result(noise, str, 2_000, chain(Encryption({"k": KEY})))


def test_arguments_are_read_by_their_annotations() -> None:
    task = an_app(Encryption({"k": KEY})).task(name="task")(_typed)
    for call in (task.call("a"), task.call("a", 3), task.call(name="ä\0")):
        assert call.job.args.startswith(MARK)
        task.signature.decode(call.job.args)
    assert task.signature.decode(task.call("a", 3).job.args) == (("a", 3), {})
    with pytest.raises(BadArguments, match="argument 'count'"):
        task.call("a", "b")  # type: ignore[arg-type]


def _typed(name: str, count: int = 1) -> None: ...


def test_an_app_without_codecs_stores_the_same_text_as_ever() -> None:
    task = an_app().task(name="task")(_typed)
    assert task.call("a").job.args == '{"name":"a"}'
    assert make_payloads([]) is PLAIN


@each_case(
    ("codecs", "why"),
    [
        ([Compression], "takes codecs"),
        (["zlib"], "takes codecs"),
        ([Encryption({"k": KEY}), Compression()], "put Compression before"),
        ([Compression()] * 9, "at most 8"),
    ],
)
def test_a_chain_that_cannot_work_is_refused(codecs: list[Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        an_app(*codecs)


@each_case(
    "keys",
    [{}, {"k": "c2hvcnQ="}, {"k": "%%"}, {"k": b"x" * 31}, {"": KEY}, {"k": None}, {"k" * 61: KEY}],
)
def test_a_key_that_cannot_work_is_refused(keys: Any) -> None:
    with pytest.raises(ConfigError) as failed:
        Encryption(keys)
    assert "c2hvcnQ" not in str(failed.value)


def test_without_its_package_encryption_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'outlast\[crypto\]'"):
        Encryption({"k": KEY})


def test_no_key_is_shown() -> None:
    assert KEY not in repr(Encryption({"k": KEY}))


REQUIRED = chain(Compression(), Encryption({"k": KEY}, required=True))
PLANTED = '{"card":"planted-4111"}'


@each_case(
    "stored",
    [
        PLANTED,
        "{}",
        "null",
        packed(PLANTED.encode()),
        packed(zlib.compress(PLANTED.encode()), "zlib"),
        packed(PLANTED.encode(), "aes-256-gcm:k"),
        f"{MARK}[],planted-4111",
        f'{MARK}["aes-256-gcm:k"],"planted-4111"',
    ],
)
@each_case("kind", ["args", "result", "checkpoint"])
def test_what_the_required_encryption_has_not_opened_is_refused(stored: str, kind: str) -> None:
    with pytest.raises(BadArguments, match="cannot be read") as failed:
        REQUIRED.decode(kind, stored)
    assert "planted" not in str(failed.value)
    assert "planted" not in str(read_payload(kind, stored, REQUIRED))


def test_a_required_encryption_reads_what_it_writes() -> None:
    for text in ("{}", "null", LONG):
        assert REQUIRED.decode("args", REQUIRED.encode("args", text)) == text
        assert REQUIRED.decode("args", REQUIRED.encode_same("args", text)) == text


def test_each_required_encryption_must_have_opened_a_payload() -> None:
    both = chain(
        Encryption({"inner": KEY}, required=True), Encryption({"outer": OTHER}, required=True)
    )
    assert both.decode("args", both.encode("args", "{}")) == "{}"
    with pytest.raises(outlast.NotEncrypted):
        both.decode("args", chain(Encryption({"outer": OTHER})).encode("args", "{}"))


def test_required_without_writing_is_refused() -> None:
    with pytest.raises(ConfigError, match="write=False"):
        Encryption({"k": KEY}, write=False, required=True)
