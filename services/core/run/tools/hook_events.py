"""What hooks did about a tool call, told with its result: one HookActed for each, in the order they were asked.

They change nothing in the state of the run: the conversation keeps the call as the model wrote it, and the result as it
is after the hooks. A hook of an attempt that was lost with its owner is not in the log; it is asked again with the next
attempt.

Before: decide has the result of a call. After: the frames of projections/frames/frames.py.
"""

from collections.abc import Iterable

from loomlog.schemas.generated.run_events import Event, HookActed
from loomlog.schemas.generated.values import HookAct
from loomlog.services.core.run.state import OpenCall


def hook_events(turn: int, opened: OpenCall, acts: Iterable[HookAct]) -> list[Event]:
    """The events of the acts about an open call."""
    return [
        HookActed(turn=turn, index=opened.index, call_id=opened.call.id, attempt=opened.attempt, act=act)
        for act in acts
    ]
