"""The lines of one /api/chat stream, folded into one Reply.

Each line is a message that holds only what is new: text, thinking, whole tool calls without ids. The last line says
`done`, why, and how many tokens. A line with `error` ends the turn; it comes with status 200 when the model fails after
it began. Calls that the model wrote into its text are recovered (written_calls.py) when it made no real ones.

Before: json_lines. After: ollama, the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

from loomlog.connectors.errors import OutsideError
from loomlog.connectors.models import untrusted_json
from loomlog.connectors.models.sse import ServerEvent
from loomlog.connectors.models.text_tool_calls import Held
from loomlog.connectors.models.wire_format import settled
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}
"""Any other is the end of a complete message, so it counts as end_turn."""


class OllamaTurn:
    """One answer being received. `failed` makes the failure of an error inside the stream."""

    def __init__(self, provider: str, request: ModelRequest, failed: Callable[[object], OutsideError]) -> None:
        self.finished = False
        self._provider = provider
        self._request = request
        self._failed = failed
        self._held = Held([tool.name for tool in request.tools])
        self._calls: list[ToolCall] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._usage = Usage()
        self._done_reason = ""
        self._model = ""

    def take(self, event: ServerEvent) -> Sequence[TextDelta]:
        """The deltas in one line. Raises Transient or Permanent."""
        line = untrusted_json.frame(self._provider, event)
        if line.get("error"):
            raise self._failed(line["error"])
        self._model = untrusted_json.text(line.get("model")) or self._model
        deltas = self._message(untrusted_json.fields(line.get("message")))
        if line.get("done") is True:
            deltas += self._end()
            self._done_reason = untrusted_json.text(line.get("done_reason"))
            self._usage = Usage(
                input_tokens=untrusted_json.count(line.get("prompt_eval_count")),
                output_tokens=untrusted_json.count(line.get("eval_count")),
            )
            self.finished = True
        return deltas

    def reply(self, max_context_tokens: int) -> Reply:
        """The whole turn, in the window it was given."""
        calls, stop_reason = settled(self._calls, STOP_REASONS.get(self._done_reason, "end_turn"), self._request)
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=self._usage,
            reasoning="".join(self._reasoning),
            model=self._model,
            max_context_tokens=max_context_tokens,
        )

    def _message(self, message: Any) -> list[TextDelta]:
        deltas: list[TextDelta] = []
        thinking = untrusted_json.text(message.get("thinking"))
        if thinking:
            self._reasoning.append(thinking)
            deltas.append(TextDelta(text=thinking, thinking=True))
        deltas += self._say(self._held.feed(untrusted_json.text(message.get("content"))))
        for entry in untrusted_json.items(message.get("tool_calls")):
            self._call(untrusted_json.fields(entry))
        return deltas

    def _call(self, entry: Any) -> None:
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

    def _end(self) -> list[TextDelta]:
        """What was held back: text, or the calls it was."""
        rest, written = self._held.end(called=bool(self._calls))
        self._calls += [ToolCall(id="", name=call.name, input=call.arguments) for call in written]
        return self._say(rest)

    def _say(self, text: str) -> list[TextDelta]:
        if not text:
            return []
        self._text.append(text)
        return [TextDelta(text=text)]
