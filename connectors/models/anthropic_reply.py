"""Fold of the events of one Messages stream into one Reply.

`add_event` folds one event and returns the deltas to show; `build_reply` returns the whole turn once `is_finished`. It
has no connection, so a recorded stream is enough for a test. Unknown event types are ignored, since the API adds new
ones at any time. Blocks of unknown types, such as calls of server-side tools, are not for the runtime: they are kept
and go back as they came.

What no server sends on purpose breaks the turn off, because the fold would otherwise join pieces of different answers:
a second message_start (an intermediary repeated the request inside one response), a block that begins twice at one
index, a piece of a block that has not begun or is of another type. An index that is used again after its block has
ended is another block.

Usage arrives twice: message_start has the prompt's, message_delta the final counts, which take precedence where
present.

Before: sse. After: anthropic, the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.models import anthropic_thinking, failures, untrusted_json
from loomlog.connectors.models.untrusted_json import TextPieces
from loomlog.connectors.models.wire_format import broken_answer, normalise_calls
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "model_context_window_exceeded": "max_tokens",  # also cut off by a limit
    "pause_turn": "max_tokens",  # only server-side tools pause; the answer is incomplete and must not look complete
}
"""Stop reasons by Anthropic's name; any other is the end of a complete message and counts as end_turn."""


@dataclass(slots=True)
class _Block:
    index: int
    kind: str
    start: Mapping[str, Any]
    size: int = 0
    """Characters of its text or its thoughts."""
    arguments: TextPieces = field(default_factory=TextPieces)
    signature: str = ""


class AnthropicTurn:
    """One answer being received. `to_error` converts an error object inside the stream to an exception."""

    def __init__(self, provider: str, request: ModelRequest, to_error: Callable[[object], ConnectorError]) -> None:
        self.is_finished = False
        self._provider = provider
        self._request = request
        self._to_error = to_error
        self._blocks: list[_Block] = []
        self._open_blocks: dict[int, _Block] = {}
        self._has_begun = False
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._usage: dict[str, int] = {}
        self._stop_reason = ""
        self._stop_details: Any = None
        self._model = ""

    def add_event(self, event: ServerSentEvent) -> Sequence[TextDelta]:
        """The deltas in one event. Raises Transient or Permanent."""
        if not event.data.strip():
            return ()  # an empty data line is a keep-alive of some gateways
        frame = untrusted_json.frame(self._provider, event)
        match "error" if event.name == "error" else frame.get("type"):
            case "content_block_delta":
                return self._add_delta(
                    untrusted_json.count(frame.get("index")), untrusted_json.fields(frame.get("delta"))
                )
            case "content_block_start":
                return self._start_block(
                    untrusted_json.count(frame.get("index")), untrusted_json.fields(frame.get("content_block"))
                )
            case "content_block_stop":
                self._open_blocks.pop(untrusted_json.count(frame.get("index")), None)
            case "message_start":
                if self._has_begun:
                    raise broken_answer(self._provider, "a second answer began in it")
                self._has_begun = True
                message = untrusted_json.fields(frame.get("message"))
                self._model = untrusted_json.text(message.get("model"))
                self._update_usage(message.get("usage"))
            case "message_delta":
                delta = untrusted_json.fields(frame.get("delta"))
                self._stop_reason = untrusted_json.text(delta.get("stop_reason")) or self._stop_reason
                self._stop_details = delta.get("stop_details")
                self._update_usage(frame.get("usage"))
            case "message_stop":
                self.is_finished = True
            case "error":
                raise self._to_error(frame.get("error") or frame)
        return ()

    def build_reply(self) -> Reply:
        """Return the whole turn. Raises Permanent(refused) when the model declined to answer."""
        if self._stop_reason == "refusal":
            details = untrusted_json.fields(self._stop_details)
            why = untrusted_json.text(details.get("explanation")) or untrusted_json.text(details.get("category"))
            raise Permanent(
                f"{self._provider}: the model {self._request.model} declined to answer (stop_reason refusal)"
                + (f": {failures.printable_line(why)}" if why else ""),
                kind="refused",
            )
        ordered = sorted(self._blocks, key=lambda block: block.index)
        called = [_to_call(block) for block in ordered if block.kind == "tool_use"]
        stop_reason = STOP_REASONS.get(self._stop_reason, "end_turn")
        calls, stop_reason = normalise_calls(self._provider, called, stop_reason, self._request)
        return Reply(
            text=str(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=Usage(
                input_tokens=self._usage.get("input_tokens", 0),
                output_tokens=self._usage.get("output_tokens", 0),
                cache_creation_input_tokens=self._usage.get("cache_creation_input_tokens", 0),
                cache_read_input_tokens=self._usage.get("cache_read_input_tokens", 0),
            ),
            reasoning=str(self._reasoning),
            reasoning_signature=anthropic_thinking.pack(_layout(ordered, calls)),
            model=self._model,
        )

    def _start_block(self, index: int, content: Any) -> Sequence[TextDelta]:
        if index in self._open_blocks:
            raise broken_answer(self._provider, f"its block {index} began twice")
        block = _Block(index=index, kind=untrusted_json.text(content.get("type")), start=content)
        self._open_blocks[index] = block
        self._blocks.append(block)
        block.signature = untrusted_json.text(content.get("signature")) or untrusted_json.text(content.get("data"))
        if block.kind == "text":
            return self._add_text(block, content.get("text"))
        if block.kind == "thinking":
            return self._add_thinking(block, content.get("thinking"))
        return ()

    def _add_delta(self, index: int, delta: Any) -> Sequence[TextDelta]:
        block = self._open_blocks.get(index)
        if block is None:
            raise broken_answer(self._provider, f"a piece of block {index} came, which was not begun or has ended")
        match (block.kind, delta.get("type")):
            case ("text", "text_delta"):
                return self._add_text(block, delta.get("text"))
            case ("thinking", "thinking_delta"):
                return self._add_thinking(block, delta.get("thinking"))
            case ("thinking", "signature_delta"):
                block.signature += untrusted_json.text(delta.get("signature"))
            case ("text" | "thinking" | "tool_use" as kind, "text_delta" | "thinking_delta" as other):
                raise broken_answer(self._provider, f"a {other} came in block {index}, which is of type {kind}")
            case (_, "input_json_delta"):
                block.arguments.add(delta.get("partial_json"))
        return ()

    def _add_text(self, block: _Block, piece: object) -> Sequence[TextDelta]:
        text = self._text.add(piece)
        block.size += len(text)
        return (TextDelta(text=text),) if text else ()

    def _add_thinking(self, block: _Block, piece: object) -> Sequence[TextDelta]:
        text = self._reasoning.add(piece)
        block.size += len(text)
        return (TextDelta(text=text, thinking=True),) if text else ()

    def _update_usage(self, usage: object) -> None:
        """Update the token counts. Counts only grow, so a 0 is from a gateway that omits a count it
        has already sent.
        """
        for name, value in untrusted_json.fields(usage).items():
            if counted := untrusted_json.count(value):
                self._usage[name] = counted


def _to_call(block: _Block) -> ToolCall:
    """Return the call, with its pieces of JSON joined; a gateway may send the whole object in the block's start."""
    arguments = str(block.arguments)
    whole = untrusted_json.fields(block.start.get("input"))
    return ToolCall(
        id=untrusted_json.text(block.start.get("id")),
        name=untrusted_json.text(block.start.get("name")),
        input=untrusted_json.encode(whole) if whole and not arguments else arguments,
    )


def _to_opaque(block: _Block) -> Mapping[str, Any] | None:
    """Return a block of an unknown type as it came; None when it was cut."""
    arguments = str(block.arguments)
    if not arguments:
        return block.start
    try:
        return {**block.start, "input": untrusted_json.decode(arguments.encode())}
    except ValueError:
        return None


def _layout(blocks: Sequence[_Block], calls: Sequence[ToolCall]) -> list[tuple[Any, ...]]:
    """Return the blocks in the form anthropic_thinking packs: calls with their assigned ids, or without the dropped
    calls.
    """
    ids = iter(call.id for call in calls)
    layout: list[tuple[Any, ...]] = []
    for block in blocks:
        if block.kind == "thinking":
            layout.append(("thinking", block.size, block.signature))
        elif block.kind == "redacted_thinking":
            layout.append(("redacted", block.signature))
        elif block.kind == "text":
            layout += [("text", block.size)] if block.size else []
        elif block.kind == "tool_use":
            layout += [("tool", next(ids))] if calls else []
        elif block.kind and (opaque := _to_opaque(block)) is not None:
            layout.append(("opaque", opaque))
    return layout
