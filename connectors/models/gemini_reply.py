"""The chunks of one streamGenerateContent stream, folded into one Reply.

Each chunk is a whole answer that holds only what is new: parts of text, of thoughts (marked `thought`), and whole
function calls. Calls have no ids, so ids are made up. Usage is repeated in every chunk and grows; the last one counts.
The turn is complete when a finish reason and usage have come, or when the stream ends cleanly after a finish reason.

Reasons by which Gemini withholds an answer are Permanent(refused): asking again gives the same. A call it could not
write down is Transient: asking again usually works.

Before: sse. After: gemini, the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

from loomlog.connectors.errors import OutsideError, Permanent, Transient
from loomlog.connectors.models import failures, gemini_thoughts, untrusted_json
from loomlog.connectors.models.sse import ServerEvent
from loomlog.connectors.models.wire_format import settled
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
"""Any other, but for those below, is the end of a complete message, so it counts as end_turn."""
WITHHELD = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
)
BROKEN_OFF = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER"}
)
NOT_OURS = frozenset({"MISSING_THOUGHT_SIGNATURE"})
"""The conversation itself is refused; the same one will be again."""


class GeminiTurn:
    """One answer being received. `failed` makes the failure of an error object inside the stream."""

    def __init__(self, provider: str, request: ModelRequest, failed: Callable[[object], OutsideError]) -> None:
        self.finished = False
        self._provider = provider
        self._request = request
        self._failed = failed
        self._parts: list[gemini_thoughts.Part] = []
        """Text and thoughts with their sizes; calls with their position among the calls instead of an id."""
        self._calls: list[ToolCall] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._usage = Usage()
        self._finish_reason = ""
        self._finish_message = ""
        self._model = ""

    @property
    def complete(self) -> bool:
        """A finish reason came: if the stream ends cleanly now, nothing is missing."""
        return bool(self._finish_reason)

    def take(self, event: ServerEvent) -> Sequence[TextDelta]:
        """The deltas in one event. Raises Transient or Permanent."""
        if not event.data.strip():
            return ()  # an empty data line is some gateway's keep-alive
        chunk = untrusted_json.frame(self._provider, event)
        if event.name == "error" or chunk.get("error"):
            raise self._failed(chunk.get("error") or chunk)
        self._check_prompt(untrusted_json.fields(chunk.get("promptFeedback")))
        self._model = untrusted_json.text(chunk.get("modelVersion")) or self._model
        deltas: list[TextDelta] = []
        for candidate in untrusted_json.items(chunk.get("candidates")):
            if untrusted_json.count(untrusted_json.fields(candidate).get("index")) == 0:
                deltas += self._candidate(untrusted_json.fields(candidate))
        if isinstance(chunk.get("usageMetadata"), dict):
            self._usage = _usage(chunk["usageMetadata"])
            self.finished = self.complete
        return deltas

    def reply(self) -> Reply:
        """The whole turn. Raises Permanent for a withheld answer, Transient when the model wrote nonsense."""
        self._check_end()
        calls, stop_reason = settled(self._calls, STOP_REASONS.get(self._finish_reason, "end_turn"), self._request)
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=self._usage,
            reasoning="".join(self._reasoning),
            reasoning_signature=gemini_thoughts.pack(_layout(self._parts, calls)),
            model=self._model,
        )

    def _check_prompt(self, feedback: Any) -> None:
        reason = untrusted_json.text(feedback.get("blockReason"))
        if reason and reason != "BLOCK_REASON_UNSPECIFIED":
            why = failures.readable(untrusted_json.text(feedback.get("blockReasonMessage")))
            raise Permanent(
                f"{self._provider}: the provider's filter refused the prompt (blockReason {reason})"
                + (f": {why}" if why else ""),
                kind="refused",
            )

    def _check_end(self) -> None:
        reason = self._finish_reason
        said = failures.readable(self._finish_message)
        detail = f"(finishReason {reason})" + (f": {said}" if said else "")
        if reason in WITHHELD:
            message = f"{self._provider}: the provider's filter withheld the answer of {self._request.model} {detail}"
            raise Permanent(message, kind="refused")
        if reason in NOT_OURS:
            raise Permanent(f"{self._provider}: the provider refused the conversation {detail}", kind="invalid")
        if reason in BROKEN_OFF:
            message = f"{self._provider}: the model {self._request.model} did not finish its answer {detail}"
            raise Transient(message, kind="broken_off")

    def _candidate(self, candidate: Any) -> list[TextDelta]:
        deltas: list[TextDelta] = []
        content = untrusted_json.fields(candidate.get("content"))
        for entry in untrusted_json.items(content.get("parts")):
            deltas += self._part(untrusted_json.fields(entry))
        self._finish_reason = untrusted_json.text(candidate.get("finishReason")) or self._finish_reason
        self._finish_message = untrusted_json.text(candidate.get("finishMessage")) or self._finish_message
        return deltas

    def _part(self, part: Any) -> list[TextDelta]:
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
        text = untrusted_json.text(part.get("text"))
        thinking = part.get("thought") is True
        if not text and not signature:
            return []
        self._grow("thought" if thinking else "text", len(text), signature)
        if not text:
            return []
        (self._reasoning if thinking else self._text).append(text)
        return [TextDelta(text=text, thinking=thinking)]

    def _grow(self, kind: str, size: int, signature: str) -> None:
        """Pieces of one part come in several chunks; its signature comes with the last of them."""
        last = self._parts[-1] if self._parts else None
        if last is not None and last[0] == kind and not last[2]:
            assert isinstance(last[1], int), last
            self._parts[-1] = (kind, last[1] + size, signature)
        else:
            self._parts.append((kind, size, signature))


def _layout(parts: Sequence[gemini_thoughts.Part], calls: Sequence[ToolCall]) -> list[gemini_thoughts.Part]:
    """The parts with the ids their calls got; without the calls when they were dropped."""
    layout: list[gemini_thoughts.Part] = []
    for kind, size, signature in parts:
        if kind != "call":
            layout.append((kind, size, signature))
        elif calls:
            assert isinstance(size, int), (kind, size)
            layout.append((kind, calls[size].id, signature))
    return layout


def _usage(usage: Any) -> Usage:
    """Cached prompt tokens are inside promptTokenCount here and beside them in ours; thoughts are paid as output."""
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
