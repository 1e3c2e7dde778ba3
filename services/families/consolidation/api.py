"""The operations of a consolidation target, for the consolidator: they are ops of the tool Memory. Pure.

    cursor_get, cursor_scan     the watermark and the lease; settled chats behind it, oldest first
    cursor_lease, cursor_release, cursor_advance    one run at a time moves the watermark, past chats that have settled
    pending_drain, pending_ack  dialogue that was kept to be learnt from
    read_session                what was said in a settled chat

Before: __init__.py. After: handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import MEMORY_WRITE, TENANT_READ
from loomlog.services.core.operations import Effect, Input, Operation, Output, ToolOperation
from loomlog.services.families.consolidation import limits
from loomlog.services.families.memory.api import SCOPE_CODES, TAG, TOOL, ScopeOrDefault, Time

SESSION_BYTES, SESSION_BYTES_MIN = 256 * 1024, 1_024
SessionId = Annotated[str, Meta(min_length=1, description="Session.")]
EntryId = Annotated[str, Meta(min_length=1)]


class ConsolidationInput(Input, frozen=True, kw_only=True):
    """Base of what is about a target: that of the memory of a scope."""

    scope: ScopeOrDefault | UnsetType = UNSET


class ConsolidationScan(ConsolidationInput, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.SCAN_MAX, description="Most chats.")] = limits.SCAN


class ConsolidationLease(ConsolidationInput, frozen=True, kw_only=True):
    lease_ttl_ms: Annotated[int, Meta(ge=1_000, le=limits.LEASE_MS_MAX, description="Milliseconds of the lease.")] = (
        limits.LEASE_MS
    )


class ConsolidationAdvance(ConsolidationInput, frozen=True, kw_only=True):
    session_id: SessionId
    completed_at: Annotated[str, Meta(min_length=1, description="When the session was completed.")]


class ConsolidationRelease(ConsolidationInput, frozen=True, kw_only=True):
    more: Annotated[bool, Meta(description="Whether work is left, for another pass.")] = False


class ConsolidationDrain(ConsolidationInput, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.DRAIN_MAX, description="Most entries.")] = limits.DRAIN


class ConsolidationAck(ConsolidationInput, frozen=True, kw_only=True):
    ids: Annotated[
        list[EntryId], Meta(min_length=1, max_length=limits.ACK_IDS_MAX, description="Ids of pending entries.")
    ]


class ConsolidationReadSession(ConsolidationInput, frozen=True, kw_only=True):
    session_id: SessionId
    max_bytes: Annotated[
        int,
        Meta(ge=SESSION_BYTES_MIN, le=limits.PAYLOAD_BYTES_MAX, description="Most bytes of messages, the newest ones."),
    ] = SESSION_BYTES


# --- answers ---------------------------------------------------------------------------------------------------------


class ConsolidationCursor(Output, frozen=True, kw_only=True):
    """The watermark of a target, and the run that has its lease; empty: none."""

    watermark_completed_at: Time | None
    watermark_session_id: str
    leased_by: str
    lease_expires_at: Time | None


class ConsolidationBands(Output, frozen=True, kw_only=True):
    """What the consolidator does with near facts."""

    merge_threshold: float
    related_threshold: float
    verify_writes: bool
    detect_conflicts: bool


class ConsolidationLeased(ConsolidationCursor, frozen=True, kw_only=True):
    acquired: bool
    owner: str
    consolidation: ConsolidationBands | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Why it was not asked for.")] | UnsetType = UNSET


class ConsolidationChat(Output, frozen=True, kw_only=True):
    session_id: str
    completed_at: Time


class ConsolidationChats(Output, frozen=True, kw_only=True):
    sessions: list[ConsolidationChat]
    truncated: bool


class ConsolidationAdvanced(Output, frozen=True, kw_only=True):
    ok: bool
    watermark_completed_at: Time | None
    watermark_session_id: str


class ConsolidationReleased(Output, frozen=True, kw_only=True):
    ok: bool
    released: bool


class ConsolidationPendingRow(Output, frozen=True, kw_only=True):
    id: str
    payload: Any
    origin: str
    source_session_id: str
    source_run_id: str
    created_at: Time


class ConsolidationPending(Output, frozen=True, kw_only=True):
    pending: list[ConsolidationPendingRow]
    truncated: bool


class ConsolidationAcked(Output, frozen=True, kw_only=True):
    ok: bool
    acked: int


class ConsolidationMessage(Output, frozen=True, kw_only=True):
    """What was said: `seq` is the number of its event in the run."""

    run_id: str
    seq: int
    role: str
    text: str
    at: Time


class ConsolidationSession(Output, frozen=True, kw_only=True):
    session_id: str
    completed_at: Time
    messages: list[ConsolidationMessage]
    truncated: bool


# --- operations ------------------------------------------------------------------------------------------------------

_operation = partial(Operation, tag=TAG, field_codes=SCOPE_CODES, unavailable_code="memory_unavailable")
_read = partial(_operation, access=requires(TENANT_READ), effect=Effect.READ)
_write = partial(_operation, access=requires(MEMORY_WRITE), effect=Effect.WRITE)


def _tool(op: str) -> ToolOperation:
    return ToolOperation(tool=TOOL.name, op=op)


GET_CURSOR = _read(
    name="consolidation.cursor",
    summary="Tell the watermark of a target, and who has its lease.",
    input=ConsolidationInput,
    output=ConsolidationCursor,
    tool=_tool("cursor_get"),
)
SCAN = _read(
    name="consolidation.scan",
    summary="List the settled chats behind the watermark, oldest first.",
    input=ConsolidationScan,
    output=ConsolidationChats,
    tool=_tool("cursor_scan"),
)
LEASE = _write(
    name="consolidation.lease",
    summary="Take the lease of a target.",
    input=ConsolidationLease,
    output=ConsolidationLeased,
    tool=_tool("cursor_lease"),
)
ADVANCE = _write(
    name="consolidation.advance",
    summary="Move the watermark past a chat that has settled.",
    input=ConsolidationAdvance,
    output=ConsolidationAdvanced,
    tool=_tool("cursor_advance"),
)
RELEASE = _write(
    name="consolidation.release",
    summary="Give the lease back.",
    input=ConsolidationRelease,
    output=ConsolidationReleased,
    tool=_tool("cursor_release"),
)
DRAIN = _read(
    name="consolidation.drain",
    summary="List the oldest pending entries.",
    input=ConsolidationDrain,
    output=ConsolidationPending,
    tool=_tool("pending_drain"),
)
ACK = _write(
    name="consolidation.ack",
    summary="Remove pending entries.",
    input=ConsolidationAck,
    output=ConsolidationAcked,
    tool=_tool("pending_ack"),
)
READ_SESSION = _read(
    name="consolidation.session",
    summary="Read what was said in a settled chat.",
    input=ConsolidationReadSession,
    output=ConsolidationSession,
    tool=_tool("read_session"),
)
OPERATIONS = (GET_CURSOR, SCAN, LEASE, ADVANCE, RELEASE, DRAIN, ACK, READ_SESSION)
