"""The operations on what happened in a tenant or the installation, across runs. Pure.

Before: services/application/operations/__init__.py. After: view_handlers.py carries them out.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.application.operations.fields import PROCESS_TAG, QUERY_CHARACTERS_MAX, Cursor
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT_READ
from loomlog.services.core.operations import PRINTABLE, AnyOperation, Effect, Http, Input, Operation, Output

EVENTS_DEFAULT, EVENTS_MAX = 50, 500
OFFSET_MAX = 10_000
"""Events that a request may leave out; further ones are reached with a cursor, or with `to`."""
Instant = Annotated[str, Meta(max_length=64, pattern=PRINTABLE, description="Time, RFC 3339.")]


class EventsAsked(Input, frozen=True, kw_only=True):
    type: Annotated[
        str, Meta(max_length=QUERY_CHARACTERS_MAX, pattern=PRINTABLE, description="Only this type, such as done.")
    ] = ""
    since: Annotated[Instant, Meta(description="Only events at this time or later, RFC 3339.")] = ""
    until: Annotated[Instant, Meta(description="Only events before this time, RFC 3339.")] = ""
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="Most events of one answer.")] = EVENTS_DEFAULT
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Newest events to leave out.")] = 0
    cursor: Cursor = ""


class TranscriptEvent(Output, frozen=True, kw_only=True):
    """A stored frame of a run."""

    seq: Annotated[
        int, Meta(description="Rises with time over all runs. Events of one millisecond may share one, if seldom.")
    ]
    session_id: str
    run_id: str
    tenant_id: str
    timestamp: Annotated[str, Meta(description="RFC 3339.")]
    type: str
    payload: Annotated[dict[str, Any], Meta(description="What a stream sends of it.")]
    segments: (
        Annotated[list[dict[str, Any]], Meta(description="Of a user's input or a system prompt, its text.")] | UnsetType
    ) = UNSET


class TranscriptEvents(Output, frozen=True, kw_only=True):
    events: Annotated[list[TranscriptEvent], Meta(description="Newest first.")]
    total: Annotated[int, Meta(description="Events that the filter finds among the newest 50,000.")]
    total_is_exact: Annotated[bool, Meta(description="Whether there are no others.")]
    limit: int
    offset: int
    next: Annotated[
        str | None, Meta(description="Cursor of older events; null at the end. A page before it may be empty.")
    ]


LIST_EVENTS = Operation(
    name="session.list_events",
    summary="List what the runs of a tenant did, newest first: the stored frames of all transcripts.",
    input=EventsAsked,
    output=TranscriptEvents,
    access=requires(TENANT_READ),
    effect=Effect.READ,
    tag=PROCESS_TAG,
    unavailable_code="projection_unavailable",
    spans_tenants=True,
    http=(Http(route="GET /v1/_events", id="list_transcript_events", names={"since": "from", "until": "to"}),),
)
VIEW_OPERATIONS: tuple[AnyOperation, ...] = (LIST_EVENTS,)
