"""Records of the namespace loom.callback.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.records import Record


class CallbackAttempted(Record, frozen=True, kw_only=True):
    """An attempt has failed; another one follows."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackAttempted"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "hook": self.hook,
            "attempt": self.attempt,
            "status": self.status,
            "error": self.error,
            "next_at_ms": self.next_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            hook=value["hook"],
            attempt=value["attempt"],
            status=value["status"],
            error=value["error"],
            next_at_ms=value["next_at_ms"],
        )


class CallbackDead(Record, frozen=True, kw_only=True):
    """No further attempt is made."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackDead"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "hook": self.hook,
            "attempt": self.attempt,
            "status": self.status,
            "error": self.error,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            hook=value["hook"],
            attempt=value["attempt"],
            status=value["status"],
            error=value["error"],
            reason=value["reason"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "hook": self.hook,
            "attempt": self.attempt,
            "status": self.status,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            hook=value["hook"],
            attempt=value["attempt"],
            status=value["status"],
        )


class CallbackRequested(Record, frozen=True, kw_only=True):
    """A request to an address of others is due; its first attempt begins."""

    SCHEMA: ClassVar[str] = "loom.callback.events.CallbackRequested"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "hook": self.hook,
            "url": self.url,
            "body": self.body,
            "secret_env": self.secret_env,
            "give_up_at_ms": self.give_up_at_ms,
            "lost_at_ms": self.lost_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            hook=value["hook"],
            url=value["url"],
            body=value["body"],
            secret_env=value["secret_env"],
            give_up_at_ms=value["give_up_at_ms"],
            lost_at_ms=value["lost_at_ms"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "hook": self.hook,
            "attempt": self.attempt,
            "lost_at_ms": self.lost_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            hook=value["hook"],
            attempt=value["attempt"],
            lost_at_ms=value["lost_at_ms"],
        )


RECORDS = (
    CallbackAttempted,
    CallbackDead,
    CallbackDelivered,
    CallbackRequested,
    CallbackStarted,
)
Event = CallbackAttempted | CallbackDead | CallbackDelivered | CallbackRequested | CallbackStarted
