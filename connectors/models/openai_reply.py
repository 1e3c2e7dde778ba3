"""Fold of the chunks of one chat completion stream into one Reply.

Many servers implement this wire, each differently, so the fold is tolerant: reasoning as `reasoning_content` or
`reasoning`; content as a text or as a list of parts; tool calls with or without an index, with ids missing, empty or
repeated, with arguments as text or as an object; `stop` as the reason although tools are called; usage in the last
chunk, in a chunk of its own, or in every one. State of a gateway is kept and goes back (openai_state.py).

An intermediary that retries inside one response sends two answers in one stream. The second begins with a role and has
another id; where ids are the same in every chunk, that breaks the turn off.

The turn is complete at `[DONE]` after a finish reason. Some gateways never send `[DONE]`, so a clean end after a finish
reason is complete too; `[DONE]` without one is from a gateway that hid a failure, and counts as interrupted.

Before: sse. After: openai, the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.models import openai_state, untrusted_json
from loomlog.connectors.models.untrusted_json import TextPieces
from loomlog.connectors.models.wire_format import broken_answer, normalise_calls
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
}
"""Stop reasons by OpenAI's name; any other ends a complete message and counts as end_turn, except
the failures below.
"""
BROKEN_OFF_REASONS = frozenset({"error", "insufficient_system_resource", "engine_overloaded", "network_error"})
"""Finish reasons by which gateways and DeepSeek report that they could not continue."""
TEXT_PARTS = {"": "text", "text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of parts with visible text, and the field of the text. Others are thoughts, images and future types."""
THOUGHTS = "thinking"
"""Field of a part with the parts of a thought."""
DONE = b"[DONE]"


@dataclass(slots=True)
class _PartialCall:
    call_id: str = ""
    name: str = ""
    arguments: TextPieces = field(default_factory=TextPieces)
    state: openai_state.State = field(default_factory=dict)


class OpenAiTurn:
    """One answer being received. `to_error` converts an error object inside the stream to an exception."""

    def __init__(self, provider: str, request: ModelRequest, to_error: Callable[[object], ConnectorError]) -> None:
        self.is_finished = False
        self._provider = provider
        self._request = request
        self._to_error = to_error
        self._calls: list[_PartialCall] = []
        self._calls_by_index: dict[int, _PartialCall] = {}
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._state: openai_state.State = {}
        self._id = ""
        self._has_stable_id = False
        self._usage = Usage()
        self._finish_reason = ""
        self._model = ""

    @property
    def is_complete(self) -> bool:
        """Whether a finish reason has arrived: if the stream ends cleanly now, nothing is missing."""
        return bool(self._finish_reason)

    def add_event(self, event: ServerSentEvent) -> Sequence[TextDelta]:
        """The deltas in one event. Raises Transient or Permanent."""
        if event.data.strip() == DONE:
            if not self.is_complete:
                raise Transient(f"{self._provider}: the stream ended without a finish reason", kind="broken_off")
            self.is_finished = True
            return ()
        if not event.data.strip():
            return ()  # an empty data line is a keep-alive of some gateways
        chunk = untrusted_json.frame(self._provider, event)
        if event.name == "error":
            raise self._to_error(chunk.get("error") or chunk)
        return self.add_chunk(chunk)

    def add_chunk(self, chunk: Mapping[str, Any]) -> Sequence[TextDelta]:
        """The deltas in one chunk, or in a whole answer. Raises Transient or Permanent."""
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._to_error(chunk.get("error") or chunk)
        self._model = untrusted_json.text(chunk.get("model")) or self._model
        if isinstance(chunk.get("usage"), dict):
            # Each has the total; one with zeros omits counts that were sent before.
            counted = _parse_usage(chunk["usage"])
            self._usage = counted if counted != Usage() else self._usage
        deltas: list[TextDelta] = []
        for choice in untrusted_json.items(chunk.get("choices")):
            if untrusted_json.count(untrusted_json.fields(choice).get("index")) == 0:
                deltas += self._add_choice(untrusted_json.text(chunk.get("id")), untrusted_json.fields(choice))
        return deltas

    def build_reply(self) -> Reply:
        """Return the whole turn. Raises Permanent(refused) for filtered content, Transient when the
        provider gave up.
        """
        if self._finish_reason == "content_filter":
            raise Permanent(
                f"{self._provider}: the provider's filter stopped the answer of {self._request.model}"
                " (finish_reason content_filter)",
                kind="refused",
            )
        if self._finish_reason in BROKEN_OFF_REASONS:
            raise Transient(
                f"{self._provider}: the provider gave up in the answer (finish_reason {self._finish_reason})",
                kind="unavailable",
            )
        called = [ToolCall(id=c.call_id, name=c.name, input=str(c.arguments)) for c in self._calls]
        calls, stop_reason = normalise_calls(
            self._provider, called, STOP_REASONS.get(self._finish_reason, "end_turn"), self._request
        )
        states = {call.id: partial.state for call, partial in zip(calls, self._calls, strict=False)}
        return Reply(
            text=str(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=self._usage,
            reasoning=str(self._reasoning),
            reasoning_signature=openai_state.pack(self._provider, self._state, states),
            model=self._model,
        )

    def _check_id(self, chunk_id: str, *, begins: bool) -> None:
        if not chunk_id:
            return  # some servers send none with chunks of their own
        if self._has_stable_id and begins and chunk_id != self._id:
            raise broken_answer(self._provider, f"a second answer {chunk_id[:80]} began in that of {self._id[:80]}")
        self._has_stable_id = self._has_stable_id or chunk_id == self._id
        self._id = chunk_id

    def _add_choice(self, chunk_id: str, choice: Any) -> list[TextDelta]:
        delta = untrusted_json.fields(choice.get("delta")) or untrusted_json.fields(choice.get("message"))
        self._check_id(chunk_id, begins=bool(delta.get("role")))
        openai_state.add_message_state(self._state, delta)
        content, thoughts = _content_texts(delta.get("content"))
        deltas: list[TextDelta] = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or openai_state.reasoning_text(delta)
        for thought in (reasoning, thoughts):
            if shown := self._reasoning.add(thought):
                deltas.append(TextDelta(text=shown, thinking=True))
        # A refusal is the model's text instead of content; the caller must see it.
        for text in (content, delta.get("refusal")):
            if shown := self._text.add(text):
                deltas.append(TextDelta(text=shown))
        for piece in untrusted_json.items(delta.get("tool_calls")):
            self._add_call_piece(untrusted_json.fields(piece))
        self._finish_reason = untrusted_json.text(choice.get("finish_reason")) or self._finish_reason
        return deltas

    def _add_call_piece(self, piece: Any) -> None:
        function = untrusted_json.fields(piece.get("function"))
        call = self._find_call(
            piece.get("index"), untrusted_json.text(piece.get("id")), untrusted_json.text(function.get("name"))
        )
        arguments = function.get("arguments")
        call.arguments.add(untrusted_json.encode(arguments) if isinstance(arguments, dict) else arguments)
        openai_state.add_call_state(call.state, piece)

    def _find_call(self, index: object, call_id: str, name: str) -> _PartialCall:
        """Return the call a piece belongs to. A name together with an id other than the slot's begins a new call,
        because some servers use index 0 for every call of an answer.
        """
        known: _PartialCall | None = None
        if isinstance(index, int):
            known = self._calls_by_index.get(index)
        elif self._calls:
            last = self._calls[-1]
            continues = call_id == last.call_id if call_id else not name
            known = last if continues else None
        if known is None or (call_id and name and known.call_id and known.call_id != call_id):
            known = _PartialCall(call_id=call_id, name=name)
            self._calls.append(known)
            if isinstance(index, int):
                self._calls_by_index[index] = known
            return known
        known.call_id = known.call_id or call_id
        known.name = known.name or name
        return known


def _content_texts(content: object) -> tuple[object, str]:
    """Return the text and the thoughts, of a text or of a list of parts."""
    if not isinstance(content, list):
        return content, ""
    thoughts = [untrusted_json.fields(part).get(THOUGHTS) for part in content]
    return _join_parts(content), "".join([_join_parts(untrusted_json.items(parts)) for parts in thoughts])


def _join_parts(parts: Sequence[object]) -> str:
    return "".join([_part_text(part) for part in parts])


def _part_text(part: object) -> str:
    """Return the text of a part, possibly with half an emoji at its ends."""
    if isinstance(part, str):
        return part
    fields = untrusted_json.fields(part)
    text = fields.get(TEXT_PARTS.get(untrusted_json.text(fields.get("type")), ""))
    return text if isinstance(text, str) else ""


def _parse_usage(usage: Any) -> Usage:
    """Return the usage. prompt_tokens includes cached prompt tokens, which are separate here."""
    prompt = untrusted_json.count(usage.get("prompt_tokens"))
    details = untrusted_json.fields(usage.get("prompt_tokens_details"))
    cached = untrusted_json.count(details.get("cached_tokens")) or untrusted_json.count(
        usage.get("prompt_cache_hit_tokens")
    )
    cached = min(cached, prompt)
    return Usage(
        input_tokens=prompt - cached,
        output_tokens=untrusted_json.count(usage.get("completion_tokens")),
        cache_read_input_tokens=cached,
    )
