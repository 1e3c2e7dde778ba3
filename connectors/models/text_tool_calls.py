"""Tool calls that a model wrote into its text instead of making them.

Small local models do so occasionally: a JSON object with a name and arguments, alone or in one wrapper tag or a code
fence, flat or in OpenAI's nested shape, one or several in a row, perhaps after a sentence. A text counts as calls only
when everything from the first wrapper (or from the start, without one) to the end is such objects, and each names a
tool that was offered; otherwise it is plain text.

Text that may become a call must not be shown first, so it is held back as long as it may: from a wrapper tag on, or
from the start when the answer begins like JSON. That is the cost, and only where tools are offered: ordinary text is
not delayed.

Before: ollama_reply. After: nothing; it is pure.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from loomlog.connectors.models import untrusted_json
from loomlog.schemas.records import Value

TAGS = ("tool_call", "tool_calls", "function_call", "tool_use", "tool", "function")
MAX_HELD_CHARACTERS = 256 << 10
"""Characters held back at most; a longer text is no call, as the largest sensible arguments write a
file of this size.
"""
_OPENING = re.compile(rf"<({'|'.join(TAGS)})>")
_STARTS = tuple(f"<{tag}>" for tag in TAGS)
_FENCE = re.compile(r"```(?:json|tool_call|tool_code)?\s*(.*?)\s*```\Z", re.DOTALL)
_FENCE_STARTS = ("```json", "```tool_call", "```tool_code", "```\n{")
_DECODER = json.JSONDecoder()


class TextToolCall(Value, frozen=True, kw_only=True):
    """A recovered call; `arguments` is JSON text."""

    name: str
    arguments: str


class HeldText:
    """The text of an answer, split into the part to show at once and the part that may become a call."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._pieces: list[str] = []
        """Text not shown yet. Once it has the beginning of a call it is only collected, not parsed each time."""
        self._size = 0
        self._has_begun = False
        self._has_shown = False

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        if not self._tools:
            return text
        self._pieces.append(text)
        self._size += len(text)
        if self._size > MAX_HELD_CHARACTERS:
            self._has_begun = False
            return self._release(self._size)
        if self._has_begun:
            return ""
        start, self._has_begun = _find_call_start(self._join_pieces(), is_at_start=not self._has_shown)
        return self._release(start)

    def finish(self, *, has_calls: bool) -> tuple[str, list[TextToolCall]]:
        """Return the remaining text, or the calls in it. With `has_calls` the model made real calls, so the rest is
        text.
        """
        held = self._join_pieces()
        self._pieces.clear()
        calls = [] if has_calls else parse_calls(held, self._tools)
        return ("", calls) if calls else (held, [])

    def _join_pieces(self) -> str:
        held = "".join(self._pieces)
        self._pieces[:] = [held]
        return held

    def _release(self, size: int) -> str:
        held = self._join_pieces()
        shown, rest = held[:size], held[size:]
        self._pieces[:] = [rest]
        self._size = len(rest)
        self._has_shown = self._has_shown or bool(shown.strip())
        return shown


def parse_calls(text: str, tools: Collection[str]) -> list[TextToolCall]:
    """Return the calls that a text consists of; none when any of it is something else."""
    text = text.strip()
    if fenced := _FENCE.match(text):
        text = fenced[1]
    calls: list[TextToolCall] = []
    while text:
        opening = _OPENING.match(text)
        if opening:
            text = text[opening.end() :].lstrip()
        try:
            value, size = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return []
        text = text[size:].lstrip()
        if opening:
            text = text.removeprefix(f"</{opening[1]}>").lstrip()
        for entry in value if isinstance(value, list) else [value]:
            call = _parse_call(untrusted_json.fields(entry), tools)
            if call is None:
                return []
            calls.append(call)
    return calls


def _parse_call(value: Any, tools: Collection[str]) -> TextToolCall | None:
    nested = untrusted_json.fields(value.get("function"))
    holder = nested or value
    name = (
        untrusted_json.text(holder.get("name"))
        or untrusted_json.text(value.get("function"))
        or untrusted_json.text(value.get("tool"))
    )
    if name not in tools:
        return None
    for field in ("arguments", "parameters", "input"):
        arguments = holder.get(field)
        if isinstance(arguments, str):
            try:
                arguments = untrusted_json.decode(arguments.encode(errors="replace"))
            except ValueError:
                return None
        if isinstance(arguments, dict):
            return TextToolCall(name=name, arguments=untrusted_json.encode(arguments))
    return TextToolCall(name=name, arguments="{}") if nested or set(value) <= {"name", "type"} else None


def _find_call_start(text: str, *, is_at_start: bool) -> tuple[int, bool]:
    """Return where the possible call begins (the length of the text when there is none), and whether enough of its
    beginning is present that more text cannot change it.
    """
    stripped = text.lstrip()
    if is_at_start:
        if not stripped:
            return 0, False
        if stripped.startswith(("{", *_FENCE_STARTS)):
            return 0, True
        if _is_prefix_of_any(stripped, _FENCE_STARTS):
            return 0, False
    if opening := _OPENING.search(text):
        return opening.start(), True
    last = text.rfind("<")
    if last >= 0 and _is_prefix_of_any(text[last:], _STARTS):
        return last, False
    return len(text), False


def _is_prefix_of_any(text: str, starts: Collection[str]) -> bool:
    """Return whether the text is the beginning of one of these."""
    return any(start.startswith(text) for start in starts)
