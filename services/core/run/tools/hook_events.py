"""Actions of hooks on a tool call, recorded with its result: one HookActed for each, in the order of the hooks.

They change nothing in the state of the run: the conversation keeps the call as the model wrote it, and the result as it
is after the hooks. A hook of an attempt that was lost with its owner is not in the log; it is called again with the
next attempt.

Before: decide has the result of a call. After: the frames of projections/frames/frames.py.
"""

from collections.abc import Iterable

from loomlog.schemas.generated.run_events import Event, HookActed
from loomlog.schemas.generated.values import HookAct
from loomlog.services.core.run.state import OpenCall


def hook_events(turn: int, opened: OpenCall, acts: Iterable[HookAct]) -> list[Event]:
    """Return the events of the actions on an open call."""
    return [
        HookActed(turn=turn, index=opened.index, call_id=opened.call.id, attempt=opened.attempt, act=act)
        for act in acts
    ]
