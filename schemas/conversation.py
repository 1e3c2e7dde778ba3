"""The conversation that a model receives, as values. Never stored; the fold of a run builds it from events."""

from typing import Literal

from msgspec import field

from loomlog.schemas.generated.values import AgentDefinition, BlobRef, MemoryContext
from loomlog.schemas.records import Value


class TextBlock(Value, frozen=True, kw_only=True):
    """Text. When `blob` is set the text is in the blob store and `text` is empty until it is loaded.

    `fence` is the provenance label in which text from a blob still has to be wrapped; inline text already is.
    `is_summary`: made by a compaction, in place of messages left out. `is_untrusted`: from outside, and not the
    words of the user.
    """

    text: str
    blob: BlobRef | None = None
    fence: str = ""
    cacheable: bool = False
    is_summary: bool = False
    is_untrusted: bool = False


class ImageBlock(Value, frozen=True, kw_only=True):
    """An image, base64; when `blob` is set the base64 text is in the blob store."""

    media_type: str
    data: str
    blob: BlobRef | None = None


class ToolUseBlock(Value, frozen=True, kw_only=True):
    """A call requested by the model; `input` is JSON text."""

    id: str
    name: str
    input: str


class ToolResultBlock(Value, frozen=True, kw_only=True):
    """The result of a call, paired by id; `name` is repeated for providers that pair by name.

    `whole`: all of it, when the text is a part.
    """

    tool_use_id: str
    name: str
    text: str
    is_error: bool = False
    blob: BlobRef | None = None
    whole: BlobRef | None = None


Block = TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock


class Message(Value, frozen=True, kw_only=True):
    """One message. Reasoning and its signature belong to assistant messages and are sent back unchanged."""

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...] = field(default=())
    reasoning: str = ""
    reasoning_signature: str = ""


def agent_texts(definition: AgentDefinition, memory: MemoryContext | None) -> tuple[str | BlobRef, ...]:
    """Return the system texts of an agent: its prompt, with memory in it or after it. A long text is a reference."""
    prompt = definition.system_prompt_blob or definition.system_prompt
    texts = [prompt] if memory is None or not memory.replaces_prompt else []
    if memory is not None:
        texts.append(memory.text_blob or memory.text)
    return tuple([text for text in texts if text])
