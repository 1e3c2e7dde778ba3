"""Decisions about consolidation: one run at a time has the lease, and the watermark only moves forward, by its owner.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the events.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

import orjson

from loomlog.schemas.generated.consolidation_commands import (
    AckPending,
    AdvanceTarget,
    BankPending,
    DropTarget,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
from loomlog.schemas.generated.consolidation_events import (
    ChatSettled,
    ConsolidationRequested,
    PendingAcked,
    PendingBanked,
    TargetAdvanced,
    TargetDropped,
    TargetLeased,
    TargetReleased,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import RunOptions
from loomlog.schemas.ids import ID_PATTERN, hashed_token
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import FROM_OUTBOX, At, Send, TimerFired, aggregate_id
from loomlog.services.core.refusals import Refused
from loomlog.services.core.system_agents import CONSOLIDATOR
from loomlog.services.families.consolidation import limits
from loomlog.services.families.consolidation.state import (
    FAMILY_NAME,
    ConsolidationEvent,
    Target,
    number_of,
    open_numbers,
    pending_id,
)
from loomlog.services.families.memory.author import USER, aggregate_name, named_scope

PROMPT = "Consolidate the memory of your target."
SCOPE_FIELD, SCOPE_ID_FIELD = "memory_scope", "memory_scope_id"
"""Metadata of its runs: JSON texts."""
ORIGINS = frozenset({"agent_explicit", "operator", "compaction", "service"})

ConsolidationCommand = (
    LeaseTarget | AdvanceTarget | ReleaseTarget | NoteSettledChat | BankPending | AckPending | DropTarget
)


def decide(
    target: Target, command: ConsolidationCommand | TimerFired, at: At
) -> Sequence[ConsolidationEvent | CommandRefused]:
    """Return the events that follow a command."""
    if isinstance(command, TimerFired):
        return [_requested(target, at)]
    if problem := _scope_problem(command):
        return [CommandRefused(code="invalid_scope", message=problem)]
    match command:
        case LeaseTarget():
            return [_leased(target, command, at)]
        case AdvanceTarget():
            return _advanced(target, command, at)
        case ReleaseTarget():
            return _released(target, command)
        case NoteSettledChat(scope=scope, scope_id=scope_id):
            is_of_drop = at.at_ms < target.dropped_at_ms + limits.DROPPED_MS
            return [] if is_of_drop else [ChatSettled(scope=scope, scope_id=scope_id)]
        case BankPending():
            return [_banked(target, command)]
        case AckPending():
            return _acked(target, command, at)
        case DropTarget():
            return _dropped(target, command)
        case _:
            assert_never(command)


def _scope_problem(command: ConsolidationCommand) -> str:
    try:
        scope = named_scope("", command.scope, command.scope_id)
    except Refused as refused:
        return str(refused)
    return "" if scope.id == command.scope_id else "scope tenant has no scope_id"


def has_lease(target: Target, owner: str, at_ms: int) -> bool:
    """Whether the run has the lease at that time."""
    return bool(owner) and target.owner == owner and at_ms < target.expires_at_ms


def lease_lost(target: Target, owner: str, at_ms: int) -> str:
    """Return what to say to a run without the lease."""
    is_held = target.owner and at_ms < target.expires_at_ms
    holder = f"{target.owner} has it" if is_held else "it has expired, or was never taken"
    return f"{owner or 'this caller'} does not have the lease of {target.scope}/{target.scope_id}: {holder}"


def _refused(code: str, message: str) -> CommandRefused:
    return CommandRefused(code=code, message=message)


def _leased(target: Target, command: LeaseTarget, at: At) -> TargetLeased | CommandRefused:
    if not ID_PATTERN.match(command.owner):
        return _refused("bad_request", "owner: expected the id of a run")
    if not 0 < command.lease_ms <= limits.LEASE_MS_MAX:
        return _refused("bad_request", f"lease_ttl_ms: expected 1 to {limits.LEASE_MS_MAX} milliseconds")
    is_free = not target.owner or target.owner == command.owner or target.expires_at_ms <= at.at_ms
    return TargetLeased(
        scope=command.scope,
        scope_id=command.scope_id,
        is_acquired=is_free,
        owner=command.owner if is_free else target.owner,
        expires_at_ms=at.at_ms + command.lease_ms if is_free else target.expires_at_ms,
        watermark_at_ms=target.watermark_at_ms,
        watermark_session_id=target.watermark_session_id,
    )


def _advanced(target: Target, command: AdvanceTarget, at: At) -> Sequence[TargetAdvanced | CommandRefused]:
    if not 0 < len(command.session_id) <= limits.SESSION_ID_CHARACTERS_MAX or command.completed_at_ms <= 0:
        return [_refused("bad_request", "session_id and completed_at: expected those of a settled chat")]
    if not has_lease(target, command.owner, at.at_ms):
        return [_refused("lease_lost", lease_lost(target, command.owner, at.at_ms))]
    if command.completed_at_ms > at.at_ms + limits.CLOCK_SKEW_MS:
        return [_refused("not_yet", "completed_at is in the future: a watermark moves past chats that have settled")]
    new = (command.completed_at_ms, command.session_id)
    old = (target.watermark_at_ms, target.watermark_session_id)
    if new == old:
        return []
    if new < old:
        message = f"the watermark is past {command.session_id}, and only moves forward: read it with cursor_get"
        return [_refused("cursor_regression", message)]
    return [
        copy_as(
            TargetAdvanced, command, watermark_at_ms=command.completed_at_ms, watermark_session_id=command.session_id
        )
    ]


def _released(target: Target, command: ReleaseTarget) -> Sequence[TargetReleased]:
    """A lease that has expired and was taken by another run is not given back."""
    if not command.owner or target.owner != command.owner:
        return []
    return [copy_as(TargetReleased, command)]


def _banked(target: Target, command: BankPending) -> PendingBanked | CommandRefused:
    if command.origin not in ORIGINS:
        return _refused("bad_request", f"origin: expected one of {', '.join(sorted(ORIGINS))}")
    if bool(command.payload) == (command.payload_blob is not None):
        return _refused("missing_value", "payload: expected a text, or a reference to one in the blob store")
    if not 0 < command.payload_bytes <= limits.PAYLOAD_BYTES_MAX:
        message = f"the payload has {command.payload_bytes} bytes: expected 1 to {limits.PAYLOAD_BYTES_MAX}"
        return _refused("memory_value_too_large", message)
    if len(command.payload) > limits.INLINE_CHARACTERS_MAX:
        message = f"payload: a text of more than {limits.PAYLOAD_INLINE_BYTES} bytes belongs in the blob store"
        return _refused("memory_value_too_large", message)
    if target.pending >= limits.PENDING_MAX:
        message = (
            f"{target.scope}/{target.scope_id} has {target.pending} pending entries, the most there may be: "
            f"run {CONSOLIDATOR}, or add with infer: false"
        )
        return _refused("memory_quota_exceeded", message)
    number = target.last_number + 1
    return copy_as(
        PendingBanked, command, pending_id=pending_id(target, number), number=number, pending=target.pending + 1
    )


def _acked(target: Target, command: AckPending, at: At) -> Sequence[PendingAcked | CommandRefused]:
    """Ids that are acknowledged already, or are of no entry, change nothing."""
    if not 0 < len(command.ids) <= limits.ACK_IDS_MAX:
        return [_refused("bad_request", f"ids: expected 1 to {limits.ACK_IDS_MAX} ids of pending_drain")]
    if not has_lease(target, command.owner, at.at_ms):
        return [_refused("lease_lost", lease_lost(target, command.owner, at.at_ms))]
    numbers = {one: number_of(target, one) for one in command.ids}
    known = [(one, number) for one, number in numbers.items() if number and target.is_open(number)]
    return list(_removed(target, command, known, command.owner))


def _dropped(target: Target, command: DropTarget) -> Sequence[PendingAcked | TargetDropped]:
    entries = [(pending_id(target, number), number) for number in open_numbers(target)]
    dropped = TargetDropped(scope=command.scope, scope_id=command.scope_id, dropped_pending=len(entries))
    return [*_removed(target, command, entries, ""), dropped]


def _removed(
    target: Target, command: AckPending | DropTarget, known: Sequence[tuple[str, int]], owner: str
) -> Iterator[PendingAcked]:
    """Yield the events that remove pending entries, named by id and number."""
    pending = target.pending
    for start in range(0, len(known), limits.ACK_EVENT_IDS_MAX):
        some = known[start : start + limits.ACK_EVENT_IDS_MAX]
        pending -= len(some)
        yield PendingAcked(
            scope=command.scope,
            scope_id=command.scope_id,
            owner=owner,
            ids=tuple(one for one, _ in some),
            numbers=tuple(number for _, number in some),
            pending=pending,
        )


def _requested(target: Target, at: At) -> ConsolidationRequested:
    aggregate = aggregate_id(FAMILY_NAME, target.tenant, aggregate_name(target.scope, target.scope_id))
    return ConsolidationRequested(
        scope=target.scope,
        scope_id=target.scope_id,
        run_id=f"r_{hashed_token('consolidation', aggregate, str(target.starts), str(at.at_ms))}",
        attempt=target.attempts + 1,
    )


def sends(target: Target, event: ConsolidationEvent) -> Sequence[Send]:
    """Return the start of the consolidator; without such an agent it is refused, and tried more and more rarely."""
    if not isinstance(event, ConsolidationRequested):
        return ()
    metadata = {SCOPE_FIELD: event.scope, SCOPE_ID_FIELD: event.scope_id}
    command = StartRun(
        envelope=FROM_OUTBOX,
        agent=CONSOLIDATOR,
        prompt=PROMPT,
        run_id=event.run_id,
        user_id=event.scope_id if event.scope == USER else "",
        options=RunOptions(metadata={name: orjson.dumps(value).decode() for name, value in metadata.items()}),
    )
    return [Send(to="run", command=command)]
