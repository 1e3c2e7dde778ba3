"""Formatting of numbers, times and texts for a terminal: short, on one line, always the same way.

Pure. Values are rounded; programs get the exact ones through --json.

The plain ones are shared with the API (services/core/plain_text.py).

Before: every command that prints. After: the terminal.
"""

import json
from collections.abc import Mapping
from typing import Any

from loomlog.services.core.plain_text import HOUR_S as HOUR_S
from loomlog.services.core.plain_text import MINUTE_S as MINUTE_S
from loomlog.services.core.plain_text import duration as duration
from loomlog.services.core.plain_text import number as number
from loomlog.services.core.plain_text import one_line as one_line
from loomlog.services.core.plain_text import pluralize as pluralize

KIB = 1024
MICROS = 1_000_000
ARGUMENT_CHARACTERS = 48
"""Characters of one argument of a tool call; enough for a path or the beginning of a pattern."""
VALUE_CHARACTERS = 60
"""Characters of a JSON value in a list."""
PRIMARY_ARGUMENTS = ("path", "file_path", "url", "command", "pattern", "query", "name")
"""Arguments that identify a call, shown first."""
CONTROL_CHARACTERS = {
    **dict.fromkeys(
        [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\N{REPLACEMENT CHARACTER}"
    ),
    0x09: " ",
    0x0A: "\n",
}
"""Translation of control characters; text of models, tools and files must not move the cursor, change colours or hide
output.
"""
DAY_S = 86400


def short_value(value: Any) -> str:
    """Format a value as JSON on one line, cut."""
    return one_line(json.dumps(value, ensure_ascii=False), VALUE_CHARACTERS)


def format_age(seconds: float) -> str:
    """Format an age: `now`, `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`."""
    if seconds < 2:
        return "now"
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def size(count: int) -> str:
    """Format a number of bytes: `812 B`, `3.4 KiB`, `1.2 MiB`."""
    if count < KIB:
        return f"{count} B"
    if count < KIB * KIB:
        return f"{count / KIB:.1f} KiB"
    return f"{count / KIB / KIB:.1f} MiB"


def money(micros: int, currency: str) -> str:
    """Format millionths of a currency unit as an amount; small amounts keep their significant digits."""
    if not currency:
        return "unpriced"
    amount = micros / MICROS
    digits = 2 if amount >= 1 or not micros else 4
    return f"{amount:,.{digits}f} {currency}"


def replace_control_characters(text: str) -> str:
    """Replace terminal control characters: escapes, bells, changes of direction. The length stays the same."""
    return text.translate(CONTROL_CHARACTERS)


def first_line(text: str, characters: int) -> str:
    """Return the first line that is not blank."""
    for line in text[: KIB * KIB].splitlines():
        if line.strip():
            return one_line(line, characters)
    return ""


def format_arguments(value: Any) -> str:
    """Format the arguments of a tool call: `path=services pattern=TODO|FIXME`; multi-line texts by their size.

    The arguments that identify a call come first, because the rest may be cut.
    """
    if not isinstance(value, Mapping):
        return one_line(value if isinstance(value, str) else _json(value), ARGUMENT_CHARACTERS)
    named = [name for name in PRIMARY_ARGUMENTS if name in value] + [
        name for name in value if name not in PRIMARY_ARGUMENTS
    ]
    characters = ARGUMENT_CHARACTERS if len(named) == 1 else ARGUMENT_CHARACTERS // 2
    return " ".join(f"{name}={_format_argument(value[name], characters)}" for name in named)


def _format_argument(value: Any, characters: int) -> str:
    text = value if isinstance(value, str) else _json(value)
    if "\n" in text.strip():
        return f"({pluralize(text.strip().count(chr(10)) + 1, 'line')}, {size(len(text.encode(errors='replace')))})"
    return one_line(text, characters)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


HOOK_ACT_PHRASES = {
    "denied": "denied",
    "rewrote_input": "changed the arguments of",
    "rewrote_result": "changed the result of",
    "unavailable": "could not be asked about",
}


def describe_hook_act(hook_act: Mapping[str, Any]) -> str:
    """Describe the effect of a hook on a tool call, from the object of a `hook_acted` or a `host_widened` frame."""
    hook, call = (
        f"hook {hook_act.get('hook_owner')}/{hook_act.get('hook_name')}",
        str(hook_act.get("tool_name") or "a call"),
    )
    if "hosts_added" in hook_act:
        return f"{hook} opened {', '.join(map(str, hook_act['hosts_added'] or ()))} for {call}"
    act = str(hook_act.get("act"))
    why = f": {hook_act['reason']}" if hook_act.get("reason") else ""
    return f"{hook} {HOOK_ACT_PHRASES.get(act, act)} {call}{why}"
