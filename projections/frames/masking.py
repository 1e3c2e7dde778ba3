"""Masking of stored frames: values in a tool call, and in its result, that look like secrets.

A call needs its arguments as the model wrote them, so the log has them unmasked (encrypted, where there is a key), and
live streams show them. Rows of the transcript have them masked, whatever the settings say, so that the rows follow from
the log alone.

Results are already masked before they are appended (services/runtime/content/redaction.py). They are masked here again
for older logs, and for log writers in other languages.

Before: frames.py. After: projections/transcript.py; services/application/content.py for encrypted content of rows.
"""

from typing import Any

from loomlog.connectors.crypto.secret_patterns import clean_value, redact_secrets

CALLS = ("tool_use", "hook_acted")
"""Objects in a frame that have the arguments of a call as `input`."""


def mask_input(value: Any) -> Any:
    """The arguments of a call with likely secrets masked; keys are unchanged."""
    return clean_value(value, redact_secrets)


def mask_frame(event: dict[str, Any]) -> dict[str, Any]:
    """A frame as it is stored; the same object when nothing in it has to be masked."""
    changes: dict[str, Any] = {}
    for name in CALLS:
        call = event.get(name)
        if isinstance(call, dict) and "input" in call:
            masked_input = mask_input(call["input"])
            if masked_input != call["input"]:
                changes[name] = {**call, "input": masked_input}
    if event.get("type") == "tool_result":
        text = event.get("text", "")
        if (masked_text := redact_secrets(text)) != text:
            changes["text"] = masked_text
    return {**event, **changes} if changes else event
