import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.services.runtime.content.payloads import INLINE_TEXT_BYTES, inline_or_blob, load_messages, make_storable

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
"""Texts with lone surrogates, as JSON escapes can make them."""


@given(ANYTHING)
def test_whatever_comes_in_can_be_stored(text: str) -> None:
    make_storable(text).encode()


@given(st.text(max_size=30))
def test_what_can_be_stored_stays_as_it_is(text: str) -> None:
    assert make_storable(text) == text


@given(st.text(max_size=10))
def test_a_pair_that_was_cut_in_two_is_joined(text: str) -> None:
    halves = text.encode("utf-16-le", "surrogatepass")
    cut = "".join(chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2))
    assert make_storable(cut) == text


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("x" * INLINE_TEXT_BYTES, False),
        ("x" * (INLINE_TEXT_BYTES + 1), True),
        ("€" * (INLINE_TEXT_BYTES // 3), False),
        ("€" * (INLINE_TEXT_BYTES // 3 + 1), True),
        ("", False),
    ],
)
async def test_a_text_over_the_bound_in_bytes_goes_to_the_blob_store(text: str, goes: bool) -> None:
    blobs = MemoryBlobs()
    inline, ref = await inline_or_blob(text, blobs)
    assert (ref is not None) == goes
    assert inline == ("" if goes else text)
    if ref is not None:
        assert (await blobs.get(ref)).decode() == text


async def test_every_block_that_can_lie_in_the_store_is_loaded() -> None:
    blobs = MemoryBlobs()
    ref = await blobs.put(b"lang <x>")
    message = Message(
        role="user",
        blocks=(
            TextBlock(text="", blob=ref),
            TextBlock(text="", blob=ref, fence="web_content"),
            ToolResultBlock(tool_use_id="c", name="T", text="", blob=ref),
            ImageBlock(media_type="image/png", data="", blob=ref),
            TextBlock(text="short"),
        ),
        reasoning="kept",
    )
    other = Message(role="assistant", blocks=(ToolUseBlock(id="c", name="T", input="{}"),))
    first, second = await load_messages((message, other), blobs)
    assert first.blocks == (
        TextBlock(text="lang <x>"),
        TextBlock(text="<web_content>\nlang &lt;x>\n</web_content>", fence="web_content"),
        ToolResultBlock(tool_use_id="c", name="T", text="lang <x>"),
        ImageBlock(media_type="image/png", data="lang <x>"),
        TextBlock(text="short"),
    )
    assert (first.reasoning, second) == ("kept", other)
