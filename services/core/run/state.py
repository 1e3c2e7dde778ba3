"""The states of a run: absent, refused, one of five live states, or ended.

    Absent -> AwaitingModel <-> AwaitingTools
                 |    ^               |
                 v    |               v
               Parked(interactive)   Ended (completed, failed, cancelled)      Absent -> Refused

At a turn boundary a run may be Compacting: its conversation is summarised, and then it continues as it would have.

A pause is in `RunFacts.pauses` from the moment it is requested. Wherever a model call would be due next the run becomes
Paused instead, and the call is made when the last pause is lifted.

Each state has only the fields that make sense in it; the common part of every live run is its `RunFacts`
(run_facts.py). Nothing here is stored: states are folded from events, and cached in verified snapshots.

Before: evolve.py creates these values. After: decide and react read them. Not chosen: one class with optional fields
(invalid states could be expressed), mutation (a failed flush discards the state).
"""

from typing import assert_never

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.values import BlobRef, QueueRef, ToolCall
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.conversation.compaction_split import CompactionSplit
from loomlog.services.core.run.interrupts.questions import CallAnswer, CallDecision, Question
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.subagents.delegation import Delegation

OUTCOME_UNKNOWN = "outcome_unknown"
"""Outcome of a call whose effect is not known."""
CALL_CANCELLED = "cancelled"
"""Outcome of a call that was cancelled with its turn."""
REPORTED_BY_TOOL = "tool"
"""ToolReturned.settled_by of an unknown outcome that the tool itself reports: no owner was lost with that call."""


class IllegalEvent(Exception):
    """An event that cannot follow: a bug of the fold or a damaged log. Quarantines the run, never the partition."""


class Absent(Value, frozen=True, kw_only=True):
    """No event yet. `history` is the conversation of the run that this one will continue."""

    run_id: str
    history: tuple[Message, ...] = ()


class Refused(Value, frozen=True, kw_only=True):
    """The run was not accepted."""

    code: str
    message: str


class AwaitingModel(Value, frozen=True, kw_only=True):
    """A model call is due or under way."""

    facts: RunFacts
    turn: int
    attempt: int
    provider: str
    model: str
    not_before_ms: int
    failures: int = 0
    """Failed attempts of this turn that count against the retries; lost owners do not count."""
    rate_limits: int = 0
    waited_ms: int = 0
    """Sum of the waits for rate limits in this turn."""
    lost_attempts: int = 0
    is_unstarted: bool = False
    """Its owner stopped before it started this attempt."""


class Wait(Value, frozen=True, kw_only=True):
    """What a tool call waits for in channels (connectors.protocols.CallWait), and what its queues have reported."""

    wait_id: str
    until_ms: int
    """When it returns in any case, UTC milliseconds; 0: not known yet."""
    queues: tuple[QueueRef, ...]
    mode: str
    """subscribe; or of await: any, all, at_least. Empty: not known yet."""
    needed: int = 0
    """Messages that at_least needs."""
    since_ms: int = 0
    """When it began, UTC milliseconds."""
    counts: tuple[int, ...] = ()
    """Messages that each of the queues has reported, in the order of `queues`."""


class OpenCall(Value, frozen=True, kw_only=True):
    """A tool call that was requested and has no result."""

    index: int
    call: ToolCall
    attempt: int
    effect_class: str
    reconcilable: bool = False
    reconcile_attempts: int = 0
    """Questions to the tool about this call, over all attempts."""
    is_reconciling: bool = False
    """The attempt was lost, and the last question has no answer yet."""
    awaits_person: bool = False
    """The attempt was lost, and a person has to resolve it."""
    is_unstarted: bool = False
    """Its owner stopped before it started this attempt."""
    delegation: Delegation | None = None
    """The children it waits for, if it was parsed as a call for children."""
    wait: Wait | None = None
    """What it waits for in channels; nothing of it is under way then."""
    answers: tuple[CallAnswer, ...] = ()
    """What people have answered to questions of its tool."""


class CallResult(Value, frozen=True, kw_only=True):
    """The result of a tool call, kept until all results of the turn have returned."""

    index: int
    call: ToolCall
    text: str
    blob: BlobRef | None
    is_error: bool
    whole: BlobRef | None = None


class AwaitingTools(Value, frozen=True, kw_only=True):
    """Tool calls of a turn are due or under way."""

    facts: RunFacts
    turn: int
    requested_calls: tuple[ToolCall, ...]
    """All calls of the turn, by index."""
    open: tuple[OpenCall, ...] = ()
    results: tuple[CallResult, ...] = ()
    questions: tuple[Question, ...] = ()
    """Calls that wait for a person; they are not in `open`."""
    idle_since_ms: int = 0
    """Time since which the run waits for people and channels only, and its clock is stopped; 0: calls are under way."""
    decisions: tuple[CallDecision, ...] = ()
    """What the rules of the run have said about calls of the turn."""


class Parked(Value, frozen=True, kw_only=True):
    """An interactive run that waits for input, since `since_ms` (UTC milliseconds)."""

    facts: RunFacts
    since_ms: int = 0


class Paused(Value, frozen=True, kw_only=True):
    """A model call is due and held back. The fields are those of AwaitingModel, `attempt` the last one made, 0: none.

    Without pauses only for a moment: the call follows in the same batch.
    """

    facts: RunFacts
    turn: int
    attempt: int = 0
    not_before_ms: int = 0
    failures: int = 0
    rate_limits: int = 0
    waited_ms: int = 0
    lost_attempts: int = 0
    since_ms: int = 0


class Compacting(Value, frozen=True, kw_only=True):
    """A summary is due or under way; until it has returned the conversation is unchanged.

    `attempt` 0: it has returned, or there will be none; what follows is in the same batch.
    """

    facts: RunFacts
    number: int
    attempt: int
    trigger: str
    """manual, auto, self or overflow."""
    keep_n: int
    keep_first: bool
    before_tokens: int
    provider: str
    model: str
    losses: int = 0
    """Owners lost during the call."""
    is_unstarted: bool = False
    """Its owner stopped before it started this attempt."""
    model_attempt: int = 0
    """Attempt of the next turn that failed because the conversation is too long; 0: none was made."""

    @property
    def split(self) -> CompactionSplit:
        return CompactionSplit(keep_n=self.keep_n, keep_first=self.keep_first)


class Ended(Value, frozen=True, kw_only=True):
    """The run has ended. `status` is completed, failed or cancelled; `reason` the stop reason, error or cancel reason.

    `answers`: results that had returned when the run ended in the middle of a turn's tool calls.
    """

    facts: RunFacts
    status: str
    reason: str
    results: tuple[CallResult, ...] = ()


LiveState = AwaitingModel | AwaitingTools | Parked | Paused | Compacting

State = Absent | Refused | LiveState | Ended


def idempotency_key(run_id: str, turn: int, index: int) -> str:
    """Return the key of a tool call, the same for all its attempts."""
    return f"{run_id}:{turn}.{index}"


def require_facts(state: State, event: object) -> RunFacts:
    if isinstance(state, (Absent, Refused)):
        raise IllegalEvent(f"{type(event).__name__} on a run that is {type(state).__name__}")
    if isinstance(state, Ended):
        raise IllegalEvent(f"{type(event).__name__} after the run was {state.status}")
    return state.facts


def find_open_call(state: AwaitingTools, index: int) -> OpenCall | None:
    """Return the open call at that index of the turn; None if it has its result."""
    # Not next() of a generator: that takes three times as long, and this is called for each event.
    for call in state.open:
        if call.index == index:
            return call
    return None


def has_only_waiting_calls(state: AwaitingTools) -> bool:
    """Whether no call of the turn is under way, and each that is open waits for a person or for a channel."""
    return all(call.awaits_person or call.wait is not None for call in state.open) and bool(
        state.open or state.questions
    )


def with_facts(state: State, facts: RunFacts) -> State:
    match state:
        case AwaitingModel() | AwaitingTools() | Parked() | Paused() | Compacting() | Ended():
            return replace(state, facts=facts)
        case Absent() | Refused():
            raise IllegalEvent(f"no facts in {type(state).__name__}")
        case _:
            assert_never(state)
