import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.tools.decompression import create_decoder
from loomlog.connectors.tools.results import ToolCallRefused


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def fed(encoding: list[str], data: bytes, limit: int, size: int = 7) -> tuple[bytes, bool]:
    unpack = create_decoder(encoding, limit)
    for at in range(0, len(data), size):
        if unpack.feed(data[at : at + size]):
            return bytes(unpack.data), True
    unpack.finish()
    return bytes(unpack.data), False


@given(st.binary(max_size=300), st.integers(1, 300), st.integers(1, 50), st.sampled_from(["gzip", "zlib", "raw", ""]))
def test_what_was_packed_comes_out_up_to_the_limit(data: bytes, limit: int, size: int, how: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zlib": zlib.compress, "raw": raw_deflate}
    pack = packers.get(how, bytes)
    encoding = {"gzip": ["gzip"], "": []}.get(how, ["deflate"])
    assert fed(encoding, pack(data), limit, size) == (data[:limit], len(data) > limit)


def test_a_bomb_costs_no_more_than_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 60_000
    unpack = create_decoder(["gzip"], 1000)
    tracemalloc.start()
    try:
        assert unpack.feed(bomb)
        # The piece itself is held twice at most, as what came and as what is left of it.
        assert tracemalloc.get_traced_memory()[1] < 3 * len(bomb)
    finally:
        tracemalloc.stop()
    assert len(unpack.data) == 1000


def test_several_members_and_padding_are_one_body() -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0\0"
    assert fed(["x-gzip"], data, 100) == (b"one two", False)


def test_damaged_and_shortened_bodies_are_refused() -> None:
    whole = gzip.compress(b"hello" * 100)
    with pytest.raises(ToolCallRefused, match="damaged"):
        fed(["gzip"], whole[:-8] + b"\xff" * 8, 1000)
    with pytest.raises(ToolCallRefused, match="in the middle"):
        fed(["gzip"], whole[:-4], 1000)
    with pytest.raises(ToolCallRefused, match="damaged"):
        fed(["deflate"], b"plain text", 1000, size=100)


def test_an_encoding_nobody_asked_for_is_refused() -> None:
    with pytest.raises(ToolCallRefused, match='"br"'):
        create_decoder(["br"], 10)
    with pytest.raises(ToolCallRefused, match='"gzip, gzip"'):
        create_decoder(["gzip", "gzip"], 10)
