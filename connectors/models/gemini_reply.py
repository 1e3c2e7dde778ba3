"""Fold of the chunks of one streamGenerateContent stream into one Reply.

Each chunk is a whole answer with only the new content: parts of text, of thoughts (marked `thought`), and whole
function calls. Calls have no ids, so ids are generated. Usage is repeated in every chunk and grows; the last one
counts. The turn is complete when a finish reason and usage have arrived, or when the stream ends cleanly after a finish
reason.

Reasons for which Gemini withholds an answer are Permanent(refused): another attempt has the same result. A call that it
failed to write is Transient: another attempt usually works.

Before: sse. After: gemini, the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.models import failures, gemini_thinking, untrusted_json
from loomlog.connectors.models.untrusted_json import TextPieces
from loomlog.connectors.models.wire_format import normalise_calls
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
"""Stop reasons by Gemini's name; any other, except for those below, ends a complete message and counts as end_turn."""
WITHHELD_REASONS = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
)
BROKEN_OFF_REASONS = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER"}
)
INVALID_CONVERSATION_REASONS = frozenset({"MISSING_THOUGHT_SIGNATURE"})
"""Reasons for which the conversation itself is refused; a repetition is refused too."""


class GeminiTurn:
    """One answer being received. `to_error` converts an error object inside the stream to an exception."""

    def __init__(self, provider: str, request: ModelRequest, to_error: Callable[[object], ConnectorError]) -> None:
        self.is_finished = False
        self._provider = provider
        self._request = request
        self._to_error = to_error
        self._parts: list[gemini_thinking.Part] = []
        """Text and thoughts with their sizes; calls with their position among the calls instead of an id; other parts
        as they came.
        """
        self._calls: list[ToolCall] = []
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._usage = Usage()
        self._finish_reason = ""
        self._finish_message = ""
        self._model = ""

    @property
    def is_complete(self) -> bool:
        """Whether a finish reason has arrived: if the stream ends cleanly now, nothing is missing."""
        return bool(self._finish_reason)

    def add_event(self, event: ServerSentEvent) -> Sequence[TextDelta]:
        """The deltas in one event. Raises Transient or Permanent."""
        if not event.data.strip():
            return ()  # an empty data line is a keep-alive of some gateways
        chunk = untrusted_json.frame(self._provider, event)
        if event.name == "error" or chunk.get("error"):
            raise self._to_error(chunk.get("error") or chunk)
        self._check_prompt(untrusted_json.fields(chunk.get("promptFeedback")))
        self._model = untrusted_json.text(chunk.get("modelVersion")) or self._model
        deltas: list[TextDelta] = []
        for candidate in untrusted_json.items(chunk.get("candidates")):
            if untrusted_json.count(untrusted_json.fields(candidate).get("index")) == 0:
                deltas += self._add_candidate(untrusted_json.fields(candidate))
        if isinstance(chunk.get("usageMetadata"), dict):
            self._usage = _parse_usage(chunk["usageMetadata"])
            self.is_finished = self.is_complete
        return deltas

    def build_reply(self) -> Reply:
        """Return the whole turn. Raises Permanent for a withheld answer, Transient when the model
        wrote an invalid one.
        """
        self._check_finish_reason()
        calls, stop_reason = normalise_calls(
            self._provider, self._calls, STOP_REASONS.get(self._finish_reason, "end_turn"), self._request
        )
        return Reply(
            text=str(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=self._usage,
            reasoning=str(self._reasoning),
            reasoning_signature=gemini_thinking.pack(_layout(self._parts, calls)),
            model=self._model,
        )

    def _check_prompt(self, feedback: Any) -> None:
        reason = untrusted_json.text(feedback.get("blockReason"))
        if reason and reason != "BLOCK_REASON_UNSPECIFIED":
            why = failures.printable_line(untrusted_json.text(feedback.get("blockReasonMessage")))
            raise Permanent(
                f"{self._provider}: the provider's filter refused the prompt (blockReason {reason})"
                + (f": {why}" if why else ""),
                kind="refused",
            )

    def _check_finish_reason(self) -> None:
        reason = self._finish_reason
        explanation = failures.printable_line(self._finish_message)
        detail = f"(finishReason {reason})" + (f": {explanation}" if explanation else "")
        if reason in WITHHELD_REASONS:
            message = f"{self._provider}: the provider's filter withheld the answer of {self._request.model} {detail}"
            raise Permanent(message, kind="refused")
        if reason in INVALID_CONVERSATION_REASONS:
            raise Permanent(f"{self._provider}: the provider refused the conversation {detail}", kind="invalid")
        if reason in BROKEN_OFF_REASONS:
            message = f"{self._provider}: the model {self._request.model} did not finish its answer {detail}"
            raise Transient(message, kind="broken_off")

    def _add_candidate(self, candidate: Any) -> list[TextDelta]:
        deltas: list[TextDelta] = []
        content = untrusted_json.fields(candidate.get("content"))
        for entry in untrusted_json.items(content.get("parts")):
            deltas += self._add_part(untrusted_json.fields(entry))
        self._finish_reason = untrusted_json.text(candidate.get("finishReason")) or self._finish_reason
        self._finish_message = untrusted_json.text(candidate.get("finishMessage")) or self._finish_message
        return deltas

    def _add_part(self, part: Any) -> list[TextDelta]:
        signature = untrusted_json.text(part.get("thoughtSignature"))
        called = untrusted_json.fields(part.get("functionCall"))
        if called:
            arguments = called.get("args")
            self._parts.append(("call", len(self._calls), signature))
            self._calls.append(
                ToolCall(
                    id=untrusted_json.text(called.get("id")),
                    name=untrusted_json.text(called.get("name")),
                    input=untrusted_json.encode(arguments) if isinstance(arguments, dict) else "{}",
                )
            )
            return []
        if any(name in part for name in gemini_thinking.KEPT_PARTS):
            self._parts.append(("other", part, signature))
            return []
        thinking = part.get("thought") is True
        text = (self._reasoning if thinking else self._text).add(part.get("text"))
        if not text and not signature:
            return []
        self._extend_parts("thought" if thinking else "text", len(text), signature)
        if not text:
            return []
        return [TextDelta(text=text, thinking=thinking)]

    def _extend_parts(self, kind: str, size: int, signature: str) -> None:
        """Extend the last part: pieces of one part arrive in several chunks, and its signature with
        the last of them.
        """
        last = self._parts[-1] if self._parts else None
        if last is not None and last[0] == kind and not last[2]:
            assert isinstance(last[1], int), last
            self._parts[-1] = (kind, last[1] + size, signature)
        else:
            self._parts.append((kind, size, signature))


def _layout(parts: Sequence[gemini_thinking.Part], calls: Sequence[ToolCall]) -> list[gemini_thinking.Part]:
    """Return the parts with the assigned ids of their calls; without the calls when they were dropped."""
    layout: list[gemini_thinking.Part] = []
    for kind, size, signature in parts:
        if kind != "call":
            layout.append((kind, size, signature))
        elif calls:
            assert isinstance(size, int), (kind, size)
            layout.append((kind, calls[size].id, signature))
    return layout


def _parse_usage(usage: Any) -> Usage:
    """Return the usage. promptTokenCount includes cached prompt tokens, which are separate here; thoughts cost as
    output.
    """
    prompt = untrusted_json.count(usage.get("promptTokenCount")) + untrusted_json.count(
        usage.get("toolUsePromptTokenCount")
    )
    cached = min(untrusted_json.count(usage.get("cachedContentTokenCount")), prompt)
    return Usage(
        input_tokens=prompt - cached,
        output_tokens=untrusted_json.count(usage.get("candidatesTokenCount"))
        + untrusted_json.count(usage.get("thoughtsTokenCount")),
        cache_read_input_tokens=cached,
    )
