"""What of a frame is not stored: values in a tool call, and in its result, that look like secrets.

A call needs its arguments as the model wrote them, so the log has them so (encrypted, where there is a key), and
whoever follows the run as it goes on sees them. Whatever is stored to be read later has them masked: rows of the
transcript, whatever the settings say, so that the rows follow from the log alone.

Results are masked before they are appended already (services/runtime/content/redaction.py); here they are once more for
logs that were written before that, and for other tongues that write to the log.

Before: frames.py. After: projections/transcript.py; services/application/content.py for what was
encrypted in the row.
"""

from typing import Any

from loomlog.connectors.crypto.secret_patterns import clean_value, redact_secrets

CALLS = ("tool_use", "hook_acted")
"""Parts of frames that hold the arguments of a call, as `input`."""


def mask_input(value: Any) -> Any:
    """The arguments of a call without what looks like a secret; keys stay as they are."""
    return clean_value(value, redact_secrets)


def mask_frame(event: dict[str, Any]) -> dict[str, Any]:
    """A frame as it is stored; the same object when nothing in it has to be masked."""
    changes: dict[str, Any] = {}
    for name in CALLS:
        call = event.get(name)
        if isinstance(call, dict) and "input" in call:
            given = mask_input(call["input"])
            if given != call["input"]:
                changes[name] = {**call, "input": given}
    if event.get("type") == "tool_result":
        text = event.get("text", "")
        if (left := redact_secrets(text)) != text:
            changes["text"] = left
    return {**event, **changes} if changes else event
