"""What numpy computes: numbers and lists for JSON, or refused by its class."""

from __future__ import annotations

import importlib

import pytest

from outlast.errors import BadArguments
from outlast.payload.codec import encode_result
from tests.unit.payload.test_codec import takes, there_and_back


def test_what_numpy_computes_is_written_as_numbers_and_lists():
    np = importlib.import_module("numpy")
    values = [np.float64(1.5), np.float32(0.5), np.int64(3), np.uint8(4), np.bool_(1), np.str_("x")]
    assert encode_result(values) == '[1.5,0.5,3,4,true,"x"]'
    assert there_and_back(takes(float), np.float64(1.5)) == ((1.5,), {})
    assert there_and_back(takes(list[int]), np.arange(3)) == (([0, 1, 2],), {})
    assert (
        encode_result({"w": np.ones((2, 1)), "none": np.array([])})
        == '{"w":[[1.0],[1.0]],"none":[]}'
    )
    for value in (np.float64("nan"), np.array([1.0, np.inf]), np.float32("nan")):
        with pytest.raises(BadArguments, match="NaN"):
            encode_result([value])
    for value in (
        np.complex128(1j),
        np.datetime64("2026-01-01", "ns"),
        np.longdouble(1),
        np.void(b"x"),
    ):
        with pytest.raises(BadArguments, match=r"class numpy\.|class complex"):
            encode_result([value])
    with pytest.raises(BadArguments, match="an array of 24000000 bytes is too large"):
        encode_result(np.zeros(3_000_000))
