"""The operations on sessions. Pure.

Before: __init__.py. After: session_handlers.py carries them out.
"""

from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.runs import SessionCopied, Transcript
from loomlog.services.application.operations.fields import Cursor, SessionId, http
from loomlog.services.application.operations.runs import TAG
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation

SESSION = "/v1/sessions/{session_id}"


class SessionTranscript(Input, frozen=True, kw_only=True):
    """A page of the frames of a session."""

    session_id: SessionId
    limit: Annotated[int, Meta(ge=1, le=limits.TRANSCRIPT_MAX, description="Most entries of one answer.")] = (
        limits.TRANSCRIPT_MAX
    )
    cursor: Cursor = ""


class SessionCopy(Input, frozen=True, kw_only=True):
    """The agent that continues a session's conversation."""

    session_id: SessionId
    agent: Annotated[
        str,
        Meta(
            max_length=128,
            pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$",
            description="Name of the agent of the new session.",
        ),
    ]
    compress: Annotated[bool | None, Meta(description="Replace the older part of it by a summary.")] = None


TRANSCRIPT = Operation(
    name="session.transcript",
    summary="List the stored frames of a session.",
    input=SessionTranscript,
    output=Transcript,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="projection_unavailable",
    http=(http(route=f"GET {SESSION}/transcript", id="get_transcript"),),
)
COPY = Operation(
    name="session.copy",
    summary="Create a session of another agent with the conversation of this one.",
    input=SessionCopy,
    output=SessionCopied,
    access=own_data(RUNS_CREATE, RUNS_READ),
    effect=Effect.WRITE,
    tag=TAG,
    unavailable_code="log_unavailable",
    http=(
        http(
            route=f"POST {SESSION}/replay",
            id="copy_session",
            body_name="ReplayBody",
            example={"agent": "reviewer", "compress": True},
        ),
    ),
)
SESSION_OPERATIONS: tuple[AnyOperation, ...] = (TRANSCRIPT, COPY)
