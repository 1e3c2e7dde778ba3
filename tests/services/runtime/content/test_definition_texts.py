"""Long texts of definitions: stored once, given by reference, and kept for the calls of their runs."""

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.values import AgentDefinition, BlobRef
from loomlog.services.core.run.limits import DEFINITION_TEXT_INLINE_BYTES
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from tests.services.runtime.content.counting_blobs import CountingBlobs

PROMPT = "Be kind. " * 4_000


def definition(prompt: str = PROMPT, script: str = "") -> AgentDefinition:
    return AgentDefinition(name="a", provider="p", model="m", system_prompt=prompt, code_body=script)


async def stored(texts: DefinitionTexts, whole: AgentDefinition) -> AgentDefinition:
    await texts.store(texts.unstored(whole))
    return texts.with_references(whole)


async def test_a_long_prompt_and_a_long_script_are_given_by_reference() -> None:
    blobs = MemoryBlobs()
    actual = await stored(DefinitionTexts(blobs), definition(script="run();" * 4_000))
    assert (actual.system_prompt, actual.code_body) == ("", "")
    assert actual.system_prompt_blob is not None
    assert actual.code_blob is not None
    assert (await blobs.get(actual.system_prompt_blob)).decode() == PROMPT
    assert (await blobs.get(actual.code_blob)).decode() == "run();" * 4_000


@pytest.mark.parametrize("text", ["x" * DEFINITION_TEXT_INLINE_BYTES, "\u00e4" * (DEFINITION_TEXT_INLINE_BYTES // 2)])
async def test_a_text_of_just_the_bound_stays_and_one_byte_more_does_not(text: str) -> None:
    texts = DefinitionTexts(MemoryBlobs())
    assert texts.unstored(definition(text)) == []
    assert texts.unstored(definition(text + "x")) == [text + "x"]


async def test_a_definition_whose_text_is_not_stored_keeps_it() -> None:
    assert DefinitionTexts(MemoryBlobs()).with_references(definition()) == definition()


async def test_a_text_is_stored_once_and_read_from_memory() -> None:
    blobs = CountingBlobs()
    texts = DefinitionTexts(blobs)
    for _ in range(3):
        actual = await stored(texts, definition())
        assert actual.system_prompt_blob is not None
        assert await texts.load(actual.system_prompt_blob) == PROMPT
    assert (blobs.writes, blobs.reads) == (1, 0)


async def test_a_text_that_another_process_stored_is_read_once() -> None:
    blobs = CountingBlobs()
    ref = await blobs.put(PROMPT.encode())
    texts = DefinitionTexts(blobs)
    assert [await texts.load(ref) for _ in range(3)] == [PROMPT] * 3
    assert blobs.reads == 1
    assert texts.unstored(definition()) == []


async def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    blobs = CountingBlobs()
    texts = DefinitionTexts(blobs, cache_bytes=2 * len(PROMPT) + 2)
    for number in (1, 2):
        await stored(texts, definition(f"{number}{PROMPT}"))
    texts.with_references(definition(f"1{PROMPT}"))
    await stored(texts, definition(f"3{PROMPT}"))
    assert [bool(texts.unstored(definition(f"{number}{PROMPT}"))) for number in (1, 2, 3)] == [False, True, False]
    dropped = await blobs.put(f"2{PROMPT}".encode())
    assert await texts.load(dropped) == f"2{PROMPT}"
    assert blobs.reads == 1


async def test_half_a_surrogate_pair_is_stored_as_any_text_is() -> None:
    blobs = MemoryBlobs()
    actual = await stored(DefinitionTexts(blobs), definition("\ud83d" + PROMPT))
    assert actual.system_prompt_blob is not None
    assert (await blobs.get(actual.system_prompt_blob)).decode() == "\ufffd" + PROMPT


async def test_a_text_that_is_gone_is_an_error() -> None:
    with pytest.raises(Permanent, match="not in memory"):
        await DefinitionTexts(MemoryBlobs()).load(BlobRef(sha256="0" * 64, size_bytes=1))
