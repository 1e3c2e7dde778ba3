"""The one function that turns a request into the prompt. Every transport and every replay uses it.

This is the boundary against prompt injection: trusted text passes unchanged, an untrusted block is wrapped in its
provenance label and every `<` in it is escaped, so that it cannot close its own wrapper. Tool results are wrapped when
they are shown. All system segments become system texts after the agent's prompt; all user segments become ONE first
user message.
"""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, agent_texts
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, ContentBlock, MemoryContext, Segment
from loomlog.services.core.run.turns.code_agents import is_code_agent

ROLES = ("system", "user")
BLOCK_TYPES = ("trusted-text", "untrusted-block", "image")
UNTRUSTED_KINDS = frozenset(
    {
        "untrusted",
        "web_content",
        "uploaded_cv",
        "qa_question",
        "user_input",
        "tool_output",
        "search_result",
        "run_metadata",
    }
)
"""Labels an untrusted block may carry (runtime parity 1.1); any other becomes `untrusted`."""
TOOL_OUTPUT = "tool_output"
TOOL_NAME_SHOWN_MAX = 128
"""Characters; no tool of ours or of a provider has a longer name."""
_WRAPPER = re.compile(rf"<(?=\s*/?\s*{TOOL_OUTPUT})", re.IGNORECASE)
_NOT_IN_A_NAME = re.compile(r"[^\w.:-]", re.ASCII)
NOTHING: Mapping[str, str] = MappingProxyType({})


def first_message(
    definition: AgentDefinition,
    segments: Sequence[Segment],
    metadata: Mapping[str, str],
    payload_metadata: Mapping[str, str] = NOTHING,
    memory: MemoryContext | None = None,
) -> tuple[tuple[str | BlobRef, ...], Message]:
    """Return the system texts, in order, and the first user message of a run. A long prompt is given by reference.

    Metadata from the caller is trusted; metadata from the body of a trigger is not, so it becomes a fenced text. A code
    agent gets both as values instead.
    """
    system = [*agent_texts(definition, memory)]
    blocks: list[Block] = []
    for segment in segments:
        for content in segment.content:
            if segment.role == "system":
                system.append(fence_content(content))
            else:
                blocks.append(_block(content))
    if is_code_agent(definition):
        return tuple(system), Message(role="user", blocks=tuple(blocks))
    if metadata:
        system.append(f"Data about this run, given by its caller:\n{_lines(metadata)}")
    if payload_metadata:
        blocks.insert(0, TextBlock(text=fence(_payload_json(payload_metadata), "run_metadata"), is_untrusted=True))
    return tuple(system), Message(role="user", blocks=tuple(blocks))


def cache_marks(
    definition: AgentDefinition, segments: Sequence[Segment], memory: MemoryContext | None = None
) -> tuple[int, ...]:
    """Return which system texts a provider may cache up to: the agent's own, and those that the sender marks."""
    cacheable = [content.cacheable for segment in segments if segment.role == "system" for content in segment.content]
    marks = [True for _ in agent_texts(definition, memory)] + cacheable
    return tuple([at for at, is_marked in enumerate(marks) if is_marked])


def effective_segments(segments: tuple[Segment, ...], prompt: str) -> tuple[Segment, ...]:
    """Return the request in full: `prompt` is short for one trusted user text."""
    if segments or not prompt:
        return segments
    return (Segment(role="user", content=(ContentBlock(type="trusted-text", text=prompt),)),)


def segments_error(segments: Sequence[Segment]) -> str:
    """Return the problem of a request's segments; empty if there is none."""
    for segment in segments:
        if segment.role not in ROLES:
            return f"segment role {segment.role[:60]!r}: expected one of {', '.join(ROLES)}"
        for block in segment.content:
            if block.type not in BLOCK_TYPES:
                return f"content type {block.type[:60]!r}: expected one of {', '.join(BLOCK_TYPES)}"
            if segment.role == "system" and (block.type == "image" or block.blob is not None):
                return "a system segment holds an image or a blob: system texts are given inline"
    return ""


def fence_content(content: ContentBlock) -> str:
    """Return the text of a block as a model may see it."""
    label = label_of(content)
    return fence(content.text, label) if label else content.text


def label_of(content: ContentBlock) -> str:
    """Return the provenance label of a block; empty for trusted text only: an unknown type is not trusted."""
    if content.type == "trusted-text":
        return ""
    return content.kind if content.kind in UNTRUSTED_KINDS else "untrusted"


CUT_MARK = "\n[cut: "
"""Beginning of the note in a result that was cut; no JSON that the runtime composes has a line end before it."""
STRUCTURED_TOOLS = frozenset({"Agent", "Channel", "Context", "Evaluation", "Interruption", "Memory"})
"""Tools whose results the runtime composes as JSON."""


def fence(text: str, label: str) -> str:
    """Wrap the text in its label; the text cannot close the wrapper."""
    body = text.replace("<", "&lt;")
    return f"<{label}>\n{body}\n</{label}>"


def fence_tool_result(text: str, tool: str) -> str:
    """Wrap a tool result in its source; the text cannot close the wrapper.

    Nothing else is escaped: an agent that edits files must see them unchanged (decision 28). A JSON object that the
    runtime itself composed is left as it is: outside text in it is a JSON string, and its fields are what the next call
    needs. One that was cut is JSON no more.
    """
    if tool in STRUCTURED_TOOLS and text.startswith("{") and CUT_MARK not in text:
        return text
    source = _NOT_IN_A_NAME.sub("_", tool)[:TOOL_NAME_SHOWN_MAX]
    return f'<{TOOL_OUTPUT} tool="{source}">\n{_WRAPPER.sub("&lt;", text)}\n</{TOOL_OUTPUT}>'


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in sorted(values.items()))


def _payload_json(values: Mapping[str, str]) -> str:
    """Return what a trigger took from its body as a JSON object. The values are JSON texts already, or sealed ones that
    are opened in their place.
    """
    lines = (f"  {json.dumps(name, ensure_ascii=False)}: {value}" for name, value in sorted(values.items()))
    return "{\n" + ",\n".join(lines) + "\n}"


def _block(content: ContentBlock) -> Block:
    if content.type == "image":
        return ImageBlock(media_type=content.media_type, data=content.data, blob=content.blob)
    label, is_cacheable = label_of(content), content.cacheable
    if content.blob is not None:
        return TextBlock(text="", blob=content.blob, fence=label, cacheable=is_cacheable, is_untrusted=bool(label))
    return TextBlock(text=fence_content(content), cacheable=is_cacheable, is_untrusted=bool(label))
