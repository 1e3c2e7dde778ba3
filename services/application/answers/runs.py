"""JSON of the answers about runs, their questions and their events.

Those of one run or one event: services/application/queries/json_types.py. Times are RFC 3339, money is in millionths of
`currency`.

Before: handlers and endpoints, of which mypy checks the literals. After: services/api/openapi.py derives the schemas.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import (
    EventRecord,
    FinalUsage,
    Interrupt,
    LimitNoticeJson,
    Resident,
    ResidentState,
    Run,
    SessionSummary,
    TranscriptFrame,
)


class RunList(TypedDict):
    """A page of runs; `next` is the cursor of the following page."""

    runs: list[Run]
    next: str | None


class WaitingCounts(TypedDict):
    """Numbers of live runs by what they wait for; a run may be in several. `pause_requested`: paused or about to be."""

    awaiting_input: int
    interrupted: int
    pause_requested: int
    quarantined: int


class RunCountsView(TypedDict):
    """Numbers of runs by status. Without `is_exact` there are more than `counted_max` runs: the numbers of ended ones
    are those among the newest `counted_max`, so "at least". `is_live_exact` says the same of the live runs alone.
    """

    running: int
    completed: int
    failed: int
    cancelled: int
    waiting: WaitingCounts
    is_exact: bool
    is_live_exact: bool
    counted_max: int


class AgentList(TypedDict):
    """A page of a user's runs; `next` is the cursor of the following page."""

    agents: list[Run]
    next: str | None


class Transcript(TypedDict):
    """A page of the stored frames of a session."""

    session: SessionSummary
    events: list[TranscriptFrame]
    next: str | None


class InputAcknowledged(TypedDict):
    """The text is in the log."""

    run_id: str
    delivered: Literal[True]


class CallResolved(TypedDict):
    """`repeated`: the call had been resolved so before."""

    run_id: str
    call: str
    repeated: bool


class Cancelled(TypedDict):
    """The end of a run; `cascaded` has the handles of its descendants, which end with it."""

    cancelled: bool
    agent_id: str
    run_id: str
    cascaded: list[str]
    status: str
    reason: str


class Pausing(TypedDict):
    """The run pauses before its next model call."""

    run_id: str
    agent_id: str
    pausing: Literal[True]


class Resumed(TypedDict):
    """The pause of the run itself is lifted."""

    run_id: str
    agent_id: str
    resumed: Literal[True]


class Quarantined(TypedDict):
    """The run is parked until it is released."""

    run_id: str
    agent_id: str
    quarantined: Literal[True]


class Released(TypedDict):
    """The run is folded again and continues."""

    run_id: str
    agent_id: str
    released: Literal[True]


class Compacted(TypedDict):
    """`applied`: to the live run, as a marker for the session's next run, or not at all."""

    run_id: str
    compacted: bool
    before_tokens: int
    after_tokens: int
    applied: Literal["live", "marker", "noop"]


class SessionCopied(TypedDict):
    """A new session with the conversation of another."""

    new_session_id: str
    seed_run_id: str
    events_copied: int
    compacted: bool


class TurnCancelled(TypedDict):
    """`parked`: the run waits for input."""

    run_id: str
    stopped: Literal[True]
    parked: bool


class InterruptResolved(TypedDict):
    """The question is closed."""

    interrupt_id: str
    status: str
    resolved_at: str


class InterruptList(TypedDict):
    """A page of questions; `total` counts all pages."""

    interrupts: list[Interrupt]
    total: int
    next: str | None


class SpawnResult(TypedDict):
    """Result of one run of a batch."""

    agent_id: str | None
    run_id: str | None
    session_id: str | None
    status: str
    stop_reason: str | None
    final_text: str
    result: NotRequired[Any]
    """The record of a run with an output schema."""
    usage: FinalUsage | None
    error: str | None
    error_code: str | None
    limits: list[LimitNoticeJson]
    parent_context: Mapping[str, str] | None
    position: str | None


class Batch(TypedDict):
    """Results in the order of the request; `spawned` counts the runs that were started."""

    results: list[SpawnResult]
    spawned: int


class ResidentList(TypedDict):
    """A page of resident sub-agents."""

    residents: list[Resident]
    next: str | None


class ResidentClosed(TypedDict):
    """The resident sub-agent has ended."""

    child_run_id: str
    state: str
    closed: Literal[True]


class ResidentTurnCancelled(TypedDict):
    """The turn of the resident sub-agent is cancelled."""

    child_run_id: str
    state: ResidentState
    cancelled: Literal[True]


class BulkResult(TypedDict):
    """Outcome for one run."""

    run_id: str
    outcome: str
    position: str | None
    code: str | None
    error: str | None


class BulkAction(TypedDict):
    """A bulk action: a preview (`dry_run`) has matched, more and runs, the action itself results and next."""

    action: str
    where: str
    dry_run: bool
    matched: NotRequired[int]
    more: NotRequired[bool]
    runs: NotRequired[list[Run]]
    results: NotRequired[list[BulkResult]]
    next: NotRequired[str | None]


# --- the log ---------------------------------------------------------------------------------------------------------


class EventList(TypedDict):
    """A page of records. `resume`: the cursor of what is written after this page, of a list of one run or partition."""

    events: list[EventRecord]
    next: str | None
    resume: str | None


class ImportedRun(TypedDict):
    """`imported` false: the run was here before."""

    run_id: str
    imported: bool


class Imported(TypedDict):
    """The imported run, and all runs of its file."""

    run_id: str
    imported: bool
    runs: list[ImportedRun]
