"""Names of the tools in events of calls: those events have the number of the call, the model's reply has the names.

Before: services/cli/log/events.py, services/cli/log/replay.py read events in order. After: event_text.py shows them.
"""

from collections.abc import Mapping
from typing import Any

CALL_EVENTS = frozenset(
    {
        "ApprovalDecided",
        "ToolCallRequested",
        "ToolReturned",
        "ToolOutcomeAsked",
        "ToolReconcileRequested",
        "CallNotBegun",
        "CallWaiting",
        "WaitReported",
    }
)
LIVE_TURNS_MAX = 10_000
"""Turns whose names are remembered; the oldest are forgotten first."""


class ToolNames:
    """Remembers the calls of each turn, and adds their names to the events of the calls."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Any], list[str]] = {}

    def annotate(self, run_id: str, type_: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the payload of an event; that of a call begins with `tool`, when its name is known."""
        if type_ == "ModelReplied":
            calls = payload.get("tool_calls") or ()
            self._names[run_id, payload.get("turn")] = [_name_of(call) for call in calls]
            if len(self._names) > LIVE_TURNS_MAX:
                del self._names[next(iter(self._names))]
        elif type_ in CALL_EVENTS:
            names = self._names.get((run_id, payload.get("turn")), [])
            index = payload.get("index")
            if isinstance(index, int) and 0 <= index < len(names):
                return {"tool": names[index], **payload}
        return payload


def _name_of(call: Any) -> str:
    return str(call.get("name") if isinstance(call, Mapping) else getattr(call, "name", ""))
