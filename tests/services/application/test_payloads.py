import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.values import BlobRef, ContentBlock, Segment
from loomlog.services.application.limits import COMMAND_BYTES_MAX, INLINE_BYTES
from loomlog.services.application.payloads import COMMAND_OVERHEAD_BYTES, offload_payloads
from loomlog.services.core.refusals import Refused


def text(size: int, letter: str = "x") -> ContentBlock:
    return ContentBlock(type="trusted-text", text=letter * size)


def user(*blocks: ContentBlock) -> Segment:
    return Segment(role="user", content=blocks)


async def test_small_texts_stay_where_they_are_and_nothing_is_stored() -> None:
    blobs = MemoryBlobs()
    segments = (user(text(INLINE_BYTES)),)
    assert await offload_payloads(segments, blobs) is segments
    assert not blobs.blobs


async def test_a_text_over_the_bound_becomes_a_reference_to_itself() -> None:
    blobs = MemoryBlobs()
    (segment,) = await offload_payloads((user(text(3), text(INLINE_BYTES + 1)),), blobs)
    small, large = segment.content
    assert small.text == "xxx"
    assert (large.text, large.type) == ("", "trusted-text")
    assert large.blob is not None
    assert await blobs.get(large.blob) == b"x" * (INLINE_BYTES + 1)


async def test_of_an_image_the_base64_text_is_stored_and_its_type_stays() -> None:
    blobs = MemoryBlobs()
    block = ContentBlock(type="image", media_type="image/png", data="AAAA" * INLINE_BYTES)
    (segment,) = await offload_payloads((user(block),), blobs)
    (content_block,) = segment.content
    assert (content_block.media_type, content_block.data) == ("image/png", "")
    assert content_block.blob is not None
    assert await blobs.get(content_block.blob) == block.data.encode()


async def test_bytes_count_and_not_characters() -> None:
    blobs = MemoryBlobs()
    await offload_payloads((user(text(INLINE_BYTES // 2 + 1, "ä")),), blobs)
    assert len(blobs.blobs) == 1


async def test_many_small_texts_that_are_too_much_together_go_largest_first() -> None:
    blobs = MemoryBlobs()
    blocks = [text(INLINE_BYTES - n, "abcdefghijklmnop"[n]) for n in range(12)]
    (segment,) = await offload_payloads((user(*blocks),), blobs)
    moved = [block.blob is not None for block in segment.content]
    assert moved == sorted(moved, reverse=True), "the largest come first here"
    inline = sum(len(block.text) for block in segment.content)
    assert inline <= COMMAND_BYTES_MAX - COMMAND_OVERHEAD_BYTES
    assert not moved[-1]


async def test_system_texts_stay_and_too_many_of_them_are_refused() -> None:
    blobs = MemoryBlobs()
    system = Segment(role="system", content=(text(INLINE_BYTES * 2),))
    assert (await offload_payloads((system, user(text(1))), blobs))[0] == system
    too_much = Segment(role="system", content=(text(COMMAND_BYTES_MAX),))
    with pytest.raises(Refused) as info:
        await offload_payloads((too_much, user(text(1))), blobs)
    assert info.value.code == "payload_too_large"


@pytest.mark.parametrize("error", [Transient("full", kind="unavailable"), Permanent("read-only", kind="forbidden")])
async def test_a_store_that_is_away_is_an_answer_and_not_a_crash(error: Exception) -> None:
    class Broken(MemoryBlobs):
        async def put(self, data: bytes, media_type: str = "text/plain") -> BlobRef:
            raise error

    with pytest.raises(Refused) as info:
        await offload_payloads((user(text(INLINE_BYTES + 1)),), Broken())
    assert info.value.code == "blobs_unavailable"
