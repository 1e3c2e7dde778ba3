"""Placement of texts: inline in the event, or above 64 KiB in the blob store, with a reference in the event.

Everything from outside passes here on its way into the log, and is loaded again on its way to a model. The log takes
UTF-8 only, so text is made storable here: one half of a surrogate pair from a third-party driver or tool would
otherwise stop its run.

Before: a reply or a result. After: services/runtime/models/model_calls.py and services/runtime/tools/tool_calls.py
build a command from it.
"""

from collections.abc import Awaitable, Callable

from loomlog.connectors.models.untrusted_json import repair_text
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.prompt import fence, fence_tool_result
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption

INLINE_TEXT_BYTES = 64 * 1024
"""Bytes of a text in an event; a longer text goes to the blob store and the event has a reference to it."""


async def inline_or_blob(text: str, blobs: Blobs) -> tuple[str, BlobRef | None]:
    """Return the text for an event: the text itself when short, else a reference to its blob. Raises ConnectorError."""
    text = make_storable(text)
    if len(text) * 4 <= INLINE_TEXT_BYTES:
        return text, None
    data = text.encode()
    if len(data) <= INLINE_TEXT_BYTES:
        return text, None
    return "", await blobs.put(data)


def make_storable(text: str) -> str:
    """Return the text as valid UTF-8, which is what the log takes."""
    return repair_text(text)


async def load_messages(
    messages: tuple[Message, ...], blobs: Blobs, encryption: ContentEncryption = PLAINTEXT, tenant: str = ""
) -> tuple[Message, ...]:
    """Return the messages in plaintext, with the text of every blob in place. Raises ConnectorError."""
    if encryption.is_enabled:
        messages = await encryption.decrypt_messages(messages, tenant)
    if not any(getattr(block, "blob", None) for message in messages for block in message.blocks):
        return messages

    async def text_of(ref: BlobRef) -> str:
        return await encryption.decrypt_text((await blobs.get(ref)).decode(), tenant)

    return tuple(
        [replace(m, blocks=tuple([await _load_block(block, text_of) for block in m.blocks])) for m in messages]
    )


def fence_results(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the plaintext messages as a model is shown them: tool results are fenced as data from a named source."""
    if not any(isinstance(block, ToolResultBlock) for message in messages for block in message.blocks):
        return messages
    return tuple([replace(m, blocks=tuple(map(_fence_block, m.blocks))) if m.role == "user" else m for m in messages])


def _fence_block(block: Block) -> Block:
    return (
        replace(block, text=fence_tool_result(block.text, block.name)) if isinstance(block, ToolResultBlock) else block
    )


async def _load_block(block: Block, load_text: Callable[[BlobRef], Awaitable[str]]) -> Block:
    match block:
        case TextBlock(blob=BlobRef() as ref, fence=label):
            text = await load_text(ref)
            return replace(block, text=fence(text, label) if label else text, blob=None)
        case ToolResultBlock(blob=BlobRef() as ref):
            return replace(block, text=await load_text(ref), blob=None)
        case ImageBlock(blob=BlobRef() as ref):
            return replace(block, data=await load_text(ref), blob=None)
        case _:
            return block
