"""A run as terminal output: final parts as lines, work in progress as state for a line that is redrawn.

    turn 2
      214 source files found. I search them.
      ok    Grep pattern=TODO path=services   12 lines, 3.4 KiB   services/api/main.py:12: ...
      fail  Read path=nothing.txt             There is no file nothing.txt.
      1,234 tokens in, 56 out   mock/mock-reviewer

Pure: frames in, lines out; live_view.py prints and redraws. Streaming text is held until its turn has completed it, so
that a lost connection, a retry or a result in between never leaves half a sentence. Of many calls of one tool in a
turn, the first few are shown and the rest counted.

Before: connectors/client/run_stream.py. After: live_view.py prints.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from loomlog.connectors.client.run_stream import RECONNECTED, WAITING, Frame
from loomlog.services.cli.terminal.formatting import (
    describe_hook_act,
    duration,
    first_line,
    format_arguments,
    money,
    number,
    one_line,
    pluralize,
    size,
)
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING

CALLS_SHOWN = 6
"""Results of one tool in one turn that get a line; a reviewer may search for thirty things at once."""
NO_MATCH = "no matches"
"""Prefix of the answers of Glob and Grep without a match."""
INDENT = "  "
ARGUMENT_COLUMNS, MIN_ARGUMENT_COLUMNS = 56, 16
NAME_CHARACTERS = 64
"""Characters of a tool's name, which is chosen by the model."""


@dataclass(slots=True)
class ToolCallView:
    """A tool call in progress."""

    name: str
    argument_text: str
    started_s: float


@dataclass(slots=True)
class RunView:
    """State of the display of one run. `columns` is the maximum line length; `clock` returns monotonic seconds.

    `hints` are the commands that resolve the waits for a person. During a live run each is printed as a line; for a
    stored run only those still open at the end are shown.
    """

    clock: Callable[[], float]
    columns: int = 120
    run_id: str = "RUN"
    """Id of the run, as soon as it is known."""
    is_finished: bool = False
    retried_calls: frozenset[str] = frozenset()
    """For a stored run: indexes of calls that are in progress now, so their outcome need not be reported."""
    wraps_text: bool = False
    """Whether long lines of text are wrapped at `columns`; in a file they stay whole."""
    turn: int = 0
    text: str = ""
    thinking: str = ""
    calls: dict[str, ToolCallView] = field(default_factory=dict)
    tool_calls: int = 0
    tool_errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: str = ""
    status: str = "starting"
    hints: dict[str, Text] = field(default_factory=dict)
    started_s: float = field(init=False)
    _in_turn: bool = False
    _usage_line: Text | None = None
    _shown_counts: Counter[str] = field(default_factory=Counter)
    _hidden_counts: Counter[str] = field(default_factory=Counter)
    _hidden_error_counts: Counter[str] = field(default_factory=Counter)
    _hidden_empty_counts: Counter[str] = field(default_factory=Counter)
    _call_counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def handle_frame(self, frame: Frame) -> list[Text]:
        """Handle a frame and return the lines that are final now."""
        data = frame.data
        match frame.name:
            case "agent":
                self.run_id = str(data.get("run_id") or self.run_id)
                return []
            case "started":
                self.status = "running"
                return []
            case "text":
                lines = self._begin_turn()
                self.text += str(data.get("text", ""))
                return lines
            case "thinking":
                lines = self._begin_turn()
                self.thinking += str(data.get("text", ""))
                return lines
            case "tool_call":
                return [
                    *self._begin_turn(),
                    *self._flush_text(),
                    *self._on_tool_call(_as_mapping(data.get("tool_use"))),
                ]
            case "tool_result":
                return self._on_tool_result(data)
            case "usage":
                return [*self._begin_turn(), *self._flush_text(), *self._on_usage(_as_mapping(data.get("usage")))]
            case "retry":
                return self._on_retry(_as_mapping(data.get("retry")))
            case "provider_fallback":
                return self._on_fallback(_as_mapping(data.get("fallback")))
            case "fallback_suppressed" | "cache_invalidated" | "reasoning_invalidated" | "model_downgraded":
                return [Text(INDENT + one_line(str(data.get("text", "")), self.columns - len(INDENT)), style=WARNING)]
            case "steer":
                text = str(_as_mapping(data.get("user_input")).get("text", ""))
                return [*self._end_turn(), Text.assemble(("> ", NAME), one_line(text, self.columns - 4))]
            case "awaiting_input":
                self.status = "waiting for input"
                return [*self._end_turn(), Text("waits for input", style=WARNING)]
            case "interruption_pending":
                asked = _as_mapping(data.get("interruption"))
                self.status = "waiting for an answer"
                options = " | ".join(str(one) for one in asked.get("options") or ())
                question = one_line(str(asked.get("question", "")), self.columns)
                asked_id = str(asked.get("interrupt_id"))
                hint = f"loomlog inbox answer {self.run_id} {asked_id} TEXT" + (f"  ({options})" if options else "")
                return [*self._end_turn(), Text(question, style=WARNING), *self._add_hint(asked_id, hint)]
            case "interruption_resolved":
                self.status = "running"
                self.hints.pop(str(_as_mapping(data.get("interruption")).get("interrupt_id")), None)
                return []  # the result of its call has the details
            case "notice":
                text = str(_as_mapping(data.get("notice")).get("message", ""))
                return [*self._end_turn(), Text(one_line(text, self.columns), style=WARNING)]
            case "turn_cancelled":
                why = str(_as_mapping(data.get("turn_cancelled")).get("reason", ""))
                line = f"turn cancelled{f': {why}' if why else ''}"
                return [*self._flush_text(), *self._end_turn(), Text(one_line(line, self.columns), style=WARNING)]
            case "context_compaction":
                compaction = _as_mapping(data.get("context_compaction"))
                before, after = (number(compaction.get(f"{when}_tokens") or 0) for when in ("before", "after"))
                spans = f"{before} tokens became {after}"
                line = f"conversation compacted ({compaction.get('trigger') or 'manual'}): {spans}"
                banked = _as_mapping(compaction.get("memory_banked"))
                if banked.get("error"):
                    line += f"; memory keeps nothing of it: {banked['error']}"
                elif banked.get("messages"):
                    line += f"; memory keeps {pluralize(banked['messages'], 'message')}"
                return [*self._end_turn(), Text(one_line(line, self.columns), style=WARNING)]
            case "output_rejected":
                rejected = _as_mapping(data.get("output_rejected"))
                line = f"the answer is no record: {rejected.get('path')} (answer {rejected.get('number')})"
                return [*self._end_turn(), Text(one_line(line, self.columns), style=WARNING)]
            case "compaction_failed":
                return [*self._end_turn(), Text(one_line(str(data.get("error", "")), self.columns), style=WARNING)]
            case "limit":
                met = _as_mapping(data.get("limit"))
                message = Text(str(met.get("message", "")), style=ERROR if met.get("severity") == "hard" else WARNING)
                return [*self._flush_text(), *self._end_turn(), message]
            case "outcome_unknown":
                asked = _as_mapping(data.get("outcome_unknown"))
                self.status = "waiting for an operator"
                line = f"the outcome of call {asked.get('call')} ({asked.get('name') or '?'}) is unknown"
                lines = [*self._end_turn(), Text(line, style=WARNING)]
                if str(asked.get("call")).rpartition(".")[2] in self.retried_calls:
                    return lines
                hint = f"loomlog runs resolve {self.run_id} --call {asked.get('call')} --as done|not-done"
                return [*lines, *self._add_hint(str(asked.get("id")), hint)]
            case "hook_acted" | "host_widened":
                act = _as_mapping(data.get("hook_acted") or data.get("host_widening"))
                return [Text(INDENT + one_line(describe_hook_act(act), self.columns - len(INDENT)), style=WARNING)]
            case "done":
                self.status = "cancelled" if data.get("stop_reason") == "cancelled" else "completed"
                return [*self._flush_text(), *self._end_turn()]
            case "error":
                self.status = "failed"
                return [*self._flush_text(), *self._end_turn(), Text(str(data.get("error", "")), style=ERROR)]
            case "quarantined":
                self.status = "quarantined"
                return [
                    *self._flush_text(),
                    *self._end_turn(),
                    Text(f"quarantined: {data.get('error', '')}", style=ERROR),
                ]
            case name if name == RECONNECTED:
                self.text = self.thinking = ""
                return [Text("connected again", style=DIM)]
            case name if name == WAITING:
                self.status = "waiting"
                return [Text(str(data.get("error", "")), style=WARNING)]
            case _:
                return []  # ids, and frames of later versions

    @property
    def seconds(self) -> float:
        return self.clock() - self.started_s

    def progress_line(self) -> Text:
        """Format the current progress on one line."""
        parts = [self.status if self.turn == 0 else f"turn {self.turn}"]
        if self.calls:
            longest = min(self.calls.values(), key=lambda call: call.started_s)
            waited = duration(self.clock() - longest.started_s)
            more = f" and {len(self.calls) - 1} more" if len(self.calls) > 1 else ""
            parts.append(f"{longest.name}{more} {waited}")
        parts.append(pluralize(self.tool_calls, "tool call"))
        parts.append(f"{number(self.tokens_in)} tokens in, {number(self.tokens_out)} out")
        if self.cost:
            parts.append(self.cost)
        parts.append(duration(self.seconds))
        return Text(" · ".join(parts), style=DIM)

    def streaming_text(self, lines: int) -> Text:
        """Return the last lines of the streaming text."""
        shown = (self.text or self.thinking).strip().splitlines()[-lines:]
        style = "" if self.text else DIM
        return Text("\n".join(INDENT + one_line(line, self.columns - 4) for line in shown), style=style)

    def _begin_turn(self) -> list[Text]:
        if self._in_turn:
            return []
        ended = self._end_turn()
        self._in_turn = True
        self.status = "running"
        self.turn += 1
        return [*ended, Text(f"turn {self.turn}", style="bold")]

    def _end_turn(self) -> list[Text]:
        """Return the counts of results that were not shown, and the cost of the turn."""
        lines = []
        for name, count in self._hidden_counts.items():
            errors, empty = self._hidden_error_counts[name], self._hidden_empty_counts[name]
            failed = f", {errors} failed" if errors else ""
            without = " without a match" if empty == count else f", {empty} without a match" if empty else ""
            lines.append(Text(f"{INDENT}and {number(count)} more {name}{failed}{without}", style=DIM))
        if self._usage_line is not None:
            lines.append(self._usage_line)
        self._usage_line = None
        for counts in (
            self._shown_counts,
            self._hidden_counts,
            self._hidden_error_counts,
            self._hidden_empty_counts,
            self._call_counts,
        ):
            counts.clear()
        return lines

    def _flush_text(self) -> list[Text]:
        lines = []
        if self.thinking.strip():
            lines.append(Text(f"{INDENT}({pluralize(len(self.thinking.split()), 'word')} of thinking)", style=DIM))
        for line in self.text.strip().splitlines():
            lines += [Text(INDENT + part) for part in self._wrap_line(line)]
        self.text = self.thinking = ""
        return lines

    def _wrap_line(self, line: str) -> list[str]:
        if not self.wraps_text or len(line) + len(INDENT) < self.columns:
            return [line]
        # Ids and paths are never broken in two, so that they can be copied.
        width = max(20, self.columns - len(INDENT) - 1)
        return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)

    def _on_tool_call(self, use: Mapping[str, Any]) -> list[Text]:
        name, call_id = one_line(str(use.get("name", "?")), NAME_CHARACTERS), str(use.get("id", ""))
        self.tool_calls += 1
        self._call_counts[name] += 1
        self.calls[call_id] = ToolCallView(
            name=name, argument_text=format_arguments(use.get("input")), started_s=self.clock()
        )
        return []

    def _add_hint(self, hint_id: str, hint: str) -> list[Text]:
        self.hints[hint_id] = Text(one_line(hint, self.columns), style=DIM)
        return [] if self.is_finished else [self.hints[hint_id]]

    def _on_tool_result(self, data: Mapping[str, Any]) -> list[Text]:
        use = _as_mapping(data.get("tool_use"))
        self.hints.pop(str(use.get("id", "")), None)
        call = self.calls.pop(str(use.get("id", "")), None)
        name = call.name if call is not None else one_line(str(use.get("name", "?")), NAME_CHARACTERS)
        argument_text = call.argument_text if call is not None else format_arguments(use.get("input"))
        is_error = bool(data.get("is_error"))
        self.tool_errors += is_error
        # Among many results, those with matches take precedence for the lines available.
        is_empty = not is_error and str(data.get("text", "")).startswith(NO_MATCH)
        if self._shown_counts[name] >= CALLS_SHOWN or (is_empty and self._call_counts[name] > CALLS_SHOWN):
            self._hidden_counts[name] += 1
            self._hidden_error_counts[name] += is_error
            self._hidden_empty_counts[name] += is_empty
            return []
        self._shown_counts[name] += 1
        text, blob = str(data.get("text", "")), _as_mapping(data.get("text_blob"))
        amount = "" if is_error else size(int(blob["size_bytes"])) if blob else _text_amount(text)
        return [self._result_line(name, argument_text, amount, text, is_error=is_error)]

    def _result_line(self, name: str, argument_text: str, amount: str, text: str, *, is_error: bool) -> Text:
        mark = ("fail  ", ERROR) if is_error else ("ok    ", SUCCESS)
        columns = max(MIN_ARGUMENT_COLUMNS, min(ARGUMENT_COLUMNS, self.columns // 2 - len(name)))
        line = Text.assemble(INDENT, mark, (name, NAME), " ", one_line(argument_text, columns))
        line.append(f"  {amount}" if amount else "", style=DIM)
        room = self.columns - line.cell_len - 2
        said_first = first_line(text, room) if room >= 12 else ""
        line.append(f"  {said_first}" if said_first else "", style=ERROR if is_error else DIM)
        return line

    def _on_usage(self, usage: Mapping[str, Any]) -> list[Text]:
        read = sum(
            int(usage.get(name) or 0)
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        written = int(usage.get("output_tokens") or 0)
        self.tokens_in += read
        self.tokens_out += written
        self._in_turn = False
        model = "/".join(str(usage[name]) for name in ("provider", "model") if usage.get(name))
        cached = int(usage.get("cache_read_input_tokens") or 0)
        kept = f" ({number(cached)} from the cache)" if cached else ""
        # The results of the turn's calls arrive later and are printed above it.
        cost = f", {money(int(usage['cost_micros']), str(usage.get('currency')))}" if usage.get("cost_micros") else ""
        spent = f"{number(read)} tokens in{kept}, {number(written)} out{cost}"
        self._usage_line = Text(f"{INDENT}{spent}   {model}", style=DIM)
        return []

    def _on_retry(self, retry: Mapping[str, Any]) -> list[Text]:
        self.text = self.thinking = ""
        wait = int(retry.get("wait_ms") or 0)
        after = f" in {duration(wait / 1000)}" if wait else ""
        why = f": {retry['reason']}" if retry.get("reason") else ""
        line = f"attempt {int(retry.get('attempt') or 0) + 1} at {retry.get('provider', 'the model')}{after}{why}"
        return [*self._begin_turn(), Text(INDENT + line, style=WARNING)]

    def _on_fallback(self, fallback: Mapping[str, Any]) -> list[Text]:
        self.text = self.thinking = ""
        there = f"{fallback.get('new_provider')}/{fallback.get('new_model')}"
        left = f"{fallback.get('failed_provider')}/{fallback.get('failed_model')}"
        why = f": {fallback['cause_error']}" if fallback.get("cause_error") else ""
        line = one_line(f"continues with {there} in place of {left}{why}", self.columns - len(INDENT))
        return [*self._begin_turn(), Text(INDENT + line, style=WARNING)]


def _text_amount(text: str) -> str:
    """Format the size of a text; empty when its first line, which is shown, is all of it."""
    if text.strip() and "\n" not in text.strip():
        return ""
    lines = text.count("\n") + bool(text and not text.endswith("\n"))
    return f"{pluralize(lines, 'line')}, {size(len(text.encode(errors='replace')))}"


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
