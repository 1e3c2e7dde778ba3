"""Records of the namespace loom.callback.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.records import Record


class CallbackAttempted(Record, frozen=True, kw_only=True):
    """An attempt has failed; another one follows."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackAttempted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "run_id", "hook", "attempt", "status", "error", "next_at_ms",
    )

    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    attempt: int
    """The attempt, from 1."""
    next_at_ms: int
    """When the next attempt begins, UTC milliseconds."""
    status: int = 0
    """HTTP status of the answer; 0: there was none."""
    error: str = ''
    """What went wrong."""


class CallbackDead(Record, frozen=True, kw_only=True):
    """No further attempt is made."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackDead"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "run_id", "hook", "attempt", "status", "error", "reason",
    )

    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    attempt: int
    """The last attempt, from 1."""
    error: str
    """What went wrong at last."""
    reason: str
    """time: it took too long; refused: a further attempt cannot succeed."""
    status: int = 0
    """HTTP status of the last answer; 0: there was none."""


class CallbackDelivered(Record, frozen=True, kw_only=True):
    """The receiver has it."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackDelivered"

    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    attempt: int
    """The attempt, from 1."""
    status: int = 0
    """HTTP status of the answer."""


class CallbackRequested(Record, frozen=True, kw_only=True):
    """A request to an address of others is due; its first attempt begins."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackRequested"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "run_id", "hook", "url", "body", "secret_env", "give_up_at_ms", "lost_at_ms",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"url": "text", "body": "text"}

    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    url: str
    """The address."""
    body: str
    """The body, JSON; user content."""
    give_up_at_ms: int
    """When no further attempt is made, UTC milliseconds."""
    lost_at_ms: int
    """When the attempt is made again if its end is not known by then, UTC milliseconds."""
    secret_env: str = ''
    """Environment variable with the secret that signs it; empty: it is not signed."""


class CallbackStarted(Record, frozen=True, kw_only=True):
    """A further attempt begins, or one whose end is not known is made again."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackStarted"

    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    attempt: int
    """The attempt, from 1."""
    lost_at_ms: int
    """When the attempt is made again if its end is not known by then, UTC milliseconds."""


RECORDS = (
    CallbackAttempted,
    CallbackDead,
    CallbackDelivered,
    CallbackRequested,
    CallbackStarted,
)
Event = CallbackAttempted | CallbackDead | CallbackDelivered | CallbackRequested | CallbackStarted
