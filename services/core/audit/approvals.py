"""The rule that no call of a run with rules is made before its approval (decision 68).

A call may be made once its verdict is `allow`, or its approval has ended as `resolved`. Only the events of runs that
are pinned to rules are looked at, and of all other runs the first one.

Memory: the calls of the present turn of each live run with rules, at most RUNS_MAX runs; the calls of a run that is
forgotten, or whose beginning was not read, are not checked. Before: history.py. After: verify.py reports.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from loomlog.schemas.approval_policy import ALLOW
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    InterruptionClosed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCallRequested,
)
from loomlog.services.core.run.interrupts.questions import RESOLVED

RUNS_MAX = 100_000
WATCHED = (RunStarted, ApprovalDecided, InterruptionClosed, ToolCallRequested, RunCompleted, RunFailed, RunCancelled)


@dataclass(slots=True)
class _Calls:
    """The calls of the present turn: those that may be made, and those that wait for approval."""

    turn: int = 0
    permitted: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)


class ApprovalOrder:
    """Follow the events of a partition in order."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._ids = codec.schema_ids_of(frozenset(record.SCHEMA for record in WATCHED))
        self._started_ids = codec.schema_ids_of(frozenset({RunStarted.SCHEMA}))
        self._runs: OrderedDict[str, _Calls] = OrderedDict()

    def read(self, schema_id: int, run_id: str, value: bytes) -> str:
        """Follow an accepted event; return what is wrong with it, or an empty text."""
        if schema_id not in self._ids or (run_id not in self._runs and schema_id not in self._started_ids):
            return ""
        event = self._codec.decode(value).record
        if isinstance(event, RunStarted):
            self._begin(run_id, has_rules=bool(event.definition.approvals))
            return ""
        calls = self._runs[run_id]
        match event:
            case ApprovalDecided(turn=turn, index=index, verdict=verdict):
                if turn != calls.turn:
                    calls = self._runs[run_id] = _Calls(turn)
                (calls.permitted if verdict.outcome == ALLOW else calls.waiting).add(index)
            case InterruptionClosed(turn=calls.turn, index=index) if index in calls.waiting:
                calls.waiting.discard(index)
                if event.status == RESOLVED:
                    calls.permitted.add(index)
            case ToolCallRequested(turn=turn, index=index):
                if turn != calls.turn or index not in calls.permitted:
                    return f"the call {turn}.{index} is due without an approval before it"
            case RunCompleted() | RunFailed() | RunCancelled():
                del self._runs[run_id]
        return ""

    def forget(self, run_id: str) -> None:
        """Check no further call of a run: one of its records is missing or changed."""
        self._runs.pop(run_id, None)

    def _begin(self, run_id: str, *, has_rules: bool) -> None:
        if has_rules:
            self._runs[run_id] = _Calls()
            if len(self._runs) > RUNS_MAX:
                self._runs.popitem(last=False)
