"""Records of the namespace loom.webhook.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import field

from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Record


class DeliveryRejected(Record, frozen=True, kw_only=True):
    """Requests were refused."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.DeliveryRejected"

    name: str
    """Name of the webhook."""
    verdict: str
    """Why, such as rejected_rate."""
    delivery_id: str = ''
    """Id of the delivery; empty: several."""
    detail: str = ''
    """What is wrong with it."""
    count: int = 1
    """How many."""
    received_at_ms: int = 0
    """When the last of them came in, UTC milliseconds."""
    retry_after_s: int = 0
    """Seconds after which another one may be taken; 0: unknown."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "delivery_id": self.delivery_id,
            "verdict": self.verdict,
            "detail": self.detail,
            "count": self.count,
            "received_at_ms": self.received_at_ms,
            "retry_after_s": self.retry_after_s,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            delivery_id=value["delivery_id"],
            verdict=value["verdict"],
            detail=value["detail"],
            count=value["count"],
            received_at_ms=value["received_at_ms"],
            retry_after_s=value["retry_after_s"],
        )


class DeliveryRepeated(Record, frozen=True, kw_only=True):
    """A delivery was taken before."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.DeliveryRepeated"

    name: str
    """Name of the webhook."""
    delivery_id: str
    """Id of the delivery, from its sender."""
    run_id: str = ''
    """Run of the first one."""
    channel: str = ''
    """Channel of the first one."""
    received_at_ms: int = 0
    """When it came in, UTC milliseconds."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "delivery_id": self.delivery_id,
            "run_id": self.run_id,
            "channel": self.channel,
            "received_at_ms": self.received_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            delivery_id=value["delivery_id"],
            run_id=value["run_id"],
            channel=value["channel"],
            received_at_ms=value["received_at_ms"],
        )


class EventReceived(Record, frozen=True, kw_only=True):
    """A delivery was taken."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.EventReceived"
    CONTENT: ClassVar[Mapping[str, str]] = {
        "goal": "untrusted",
        "run_metadata": "untrusted",
        "metadata": "text",
        "on_complete": "hook",
    }

    name: str
    """Name of the webhook."""
    delivery_id: str
    """Id of the delivery, from its sender."""
    number: int
    """Number of the delivery, from 1."""
    level: int
    """What is left for further deliveries after it: 60,000 each."""
    def_id: str = ''
    """Definition that was used."""
    delivery: str = 'spawn'
    """spawn or channel."""
    received_at_ms: int = 0
    """When it came in, UTC milliseconds."""
    source_position: str = ''
    """Its record in loom.ingress: <topic>/<partition>:<offset>."""
    replay_of: str = ''
    """Delivery that is given again; empty: none."""
    by: str = ''
    """Who replays it."""
    agent: str = ''
    """Agent of the run."""
    user_id: str = ''
    """User of the run."""
    user_tier: str = ''
    """Routing plan."""
    goal: str = ''
    """Text for the agent; user content."""
    goal_blob: BlobRef | None = None
    """The same when it is over the inline limit."""
    run_metadata: Mapping[str, str] = field(default_factory=dict)
    """What the body says about the run, untrusted; user content."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the definition, trusted; values are JSON texts."""
    credentials: tuple[str, ...] = ()
    """Names of the credentials of the run."""
    on_complete: tuple[str, ...] = ()
    """JSON texts of the hooks of the definition."""
    operator_key_restricted: bool = False
    """The run may not use the operator's provider keys."""
    channel: str = ''
    """Channel that it is published to."""
    after: tuple[str, ...] = ()
    """Positions that the owner of the run reads first, as StartRun has them."""
    run_id: str = ''
    """Run that it starts."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "delivery_id": self.delivery_id,
            "def_id": self.def_id,
            "delivery": self.delivery,
            "received_at_ms": self.received_at_ms,
            "source_position": self.source_position,
            "replay_of": self.replay_of,
            "by": self.by,
            "agent": self.agent,
            "user_id": self.user_id,
            "user_tier": self.user_tier,
            "goal": self.goal,
            "goal_blob": None if self.goal_blob is None else self.goal_blob.to_avro(),
            "run_metadata": self.run_metadata,
            "metadata": self.metadata,
            "credentials": self.credentials,
            "on_complete": self.on_complete,
            "operator_key_restricted": self.operator_key_restricted,
            "channel": self.channel,
            "after": self.after,
            "run_id": self.run_id,
            "number": self.number,
            "level": self.level,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            delivery_id=value["delivery_id"],
            def_id=value["def_id"],
            delivery=value["delivery"],
            received_at_ms=value["received_at_ms"],
            source_position=value["source_position"],
            replay_of=value["replay_of"],
            by=value["by"],
            agent=value["agent"],
            user_id=value["user_id"],
            user_tier=value["user_tier"],
            goal=value["goal"],
            goal_blob=None if value["goal_blob"] is None else BlobRef.from_avro(value["goal_blob"]),
            run_metadata=value["run_metadata"],
            metadata=value["metadata"],
            credentials=tuple(value["credentials"]),
            on_complete=tuple(value["on_complete"]),
            operator_key_restricted=value["operator_key_restricted"],
            channel=value["channel"],
            after=tuple(value["after"]),
            run_id=value["run_id"],
            number=value["number"],
            level=value["level"],
        )


class HookDispatched(Record, frozen=True, kw_only=True):
    """What a delivery asked for was done, or could not be done."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.HookDispatched"

    name: str
    """Name of the webhook."""
    status: str
    """completed, failed, cancelled, refused or published."""
    delivery_key: str = ''
    """Hash of the id of the delivery; empty: it is forgotten."""
    run_id: str = ''
    """Its run."""
    code: str = ''
    """Code of a refusal or failure."""
    message: str = ''
    """Its text."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "delivery_key": self.delivery_key,
            "run_id": self.run_id,
            "status": self.status,
            "code": self.code,
            "message": self.message,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            delivery_key=value["delivery_key"],
            run_id=value["run_id"],
            status=value["status"],
            code=value["code"],
            message=value["message"],
        )


RECORDS = (
    DeliveryRejected,
    DeliveryRepeated,
    EventReceived,
    HookDispatched,
)
Event = DeliveryRejected | DeliveryRepeated | EventReceived | HookDispatched
