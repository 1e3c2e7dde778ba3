"""Fold of the lines of one /api/chat stream into one Reply.

Each line is a message with only the new content: text, thinking, whole tool calls without ids. The last line has
`done`, the reason, and the number of tokens. A line with `error` ends the turn; it comes with status 200 when the model
fails after it began. Calls that the model wrote into its text are recovered (text_tool_calls.py) when it made no real
ones.

Before: json_lines. After: ollama, the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.models import untrusted_json
from loomlog.connectors.models.text_tool_calls import HeldText
from loomlog.connectors.models.untrusted_json import TextPieces
from loomlog.connectors.models.wire_format import normalise_calls
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}
"""Stop reasons by Ollama's name; any other is the end of a complete message and counts as end_turn."""


class OllamaTurn:
    """One answer being received. `to_error` converts an error inside the stream to an exception."""

    def __init__(self, provider: str, request: ModelRequest, to_error: Callable[[object], ConnectorError]) -> None:
        self.is_finished = False
        self._provider = provider
        self._request = request
        self._to_error = to_error
        self._held_text = HeldText([tool.name for tool in request.tools])
        self._calls: list[ToolCall] = []
        self._content = TextPieces()
        """What arrived; `text` is what is left of it without calls in the text."""
        self._text: list[str] = []
        self._reasoning = TextPieces()
        self._usage = Usage()
        self._done_reason = ""
        self._model = ""

    def add_event(self, event: ServerSentEvent) -> Sequence[TextDelta]:
        """The deltas in one line. Raises Transient or Permanent."""
        line = untrusted_json.frame(self._provider, event)
        if line.get("error"):
            raise self._to_error(line["error"])
        self._model = untrusted_json.text(line.get("model")) or self._model
        deltas = self._add_message(untrusted_json.fields(line.get("message")))
        if line.get("done") is True:
            deltas += self._finish()
            self._done_reason = untrusted_json.text(line.get("done_reason"))
            self._usage = Usage(
                input_tokens=untrusted_json.count(line.get("prompt_eval_count")),
                output_tokens=untrusted_json.count(line.get("eval_count")),
            )
            self.is_finished = True
        return deltas

    def build_reply(self, max_context_tokens: int) -> Reply:
        """Return the whole turn, with the window it ran in."""
        calls, stop_reason = normalise_calls(
            self._provider, self._calls, STOP_REASONS.get(self._done_reason, "end_turn"), self._request
        )
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=self._usage,
            reasoning=str(self._reasoning),
            model=self._model,
            max_context_tokens=max_context_tokens,
        )

    def _add_message(self, message: Any) -> list[TextDelta]:
        deltas: list[TextDelta] = []
        if thinking := self._reasoning.add(message.get("thinking")):
            deltas.append(TextDelta(text=thinking, thinking=True))
        deltas += self._add_text(self._held_text.feed(self._content.add(message.get("content"))))
        for entry in untrusted_json.items(message.get("tool_calls")):
            self._add_call(untrusted_json.fields(entry))
        return deltas

    def _add_call(self, entry: Any) -> None:
        function = untrusted_json.fields(entry.get("function"))
        arguments = function.get("arguments")
        self._calls.append(
            ToolCall(
                id=untrusted_json.text(entry.get("id")),
                name=untrusted_json.text(function.get("name")),
                input=untrusted_json.encode(arguments)
                if isinstance(arguments, dict)
                else untrusted_json.text(arguments),
            )
        )

    def _finish(self) -> list[TextDelta]:
        """Release the text held back: as text, or as the calls in it."""
        rest, written = self._held_text.finish(has_calls=bool(self._calls))
        self._calls += [ToolCall(id="", name=call.name, input=call.arguments) for call in written]
        return self._add_text(rest)

    def _add_text(self, text: str) -> list[TextDelta]:
        if not text:
            return []
        self._text.append(text)
        return [TextDelta(text=text)]
