"""Records of the namespace loom.webhook.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import field

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope
from loomlog.schemas.records import Record


class NoteRunEnded(Record, frozen=True, kw_only=True):
    """Note what became of a delivery: its run has ended or was refused, or its message is published."""

    SCHEMA: ClassVar[str] = "loom.webhook.commands.NoteRunEnded"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the webhook."""
    status: str
    """completed, failed, cancelled, refused or published."""
    run_id: str = ''
    """The run."""
    code: str = ''
    """Code of a refusal or failure."""
    message: str = ''
    """Its text."""
    delivery_id: str = ''
    """The delivery, when it has no run."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "run_id": self.run_id,
            "status": self.status,
            "code": self.code,
            "message": self.message,
            "delivery_id": self.delivery_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            run_id=value["run_id"],
            status=value["status"],
            code=value["code"],
            message=value["message"],
            delivery_id=value["delivery_id"],
        )


class ReceiveDelivery(Record, frozen=True, kw_only=True):
    """Take a delivery, unless it was taken before or there are too many."""

    SCHEMA: ClassVar[str] = "loom.webhook.commands.ReceiveDelivery"
    CONTENT: ClassVar[Mapping[str, str]] = {
        "goal": "untrusted",
        "run_metadata": "untrusted",
        "metadata": "text",
        "on_complete": "hook",
    }

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the webhook."""
    delivery_id: str
    """Id of the delivery, from its sender."""
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
    earlier_run_id: str = ''
    """Run of the delivery with that id, when the owner may have forgotten it."""
    is_known: bool = False
    """A delivery with that id was taken before the owner's memory of ids begins."""
    requests_per_minute: int = 0
    """Deliveries a minute; 0: the default."""
    burst: int = 0
    """Deliveries at once; 0: the default."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
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
            "earlier_run_id": self.earlier_run_id,
            "is_known": self.is_known,
            "requests_per_minute": self.requests_per_minute,
            "burst": self.burst,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
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
            earlier_run_id=value["earlier_run_id"],
            is_known=value["is_known"],
            requests_per_minute=value["requests_per_minute"],
            burst=value["burst"],
        )


class RejectDelivery(Record, frozen=True, kw_only=True):
    """Note requests that were refused."""

    SCHEMA: ClassVar[str] = "loom.webhook.commands.RejectDelivery"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the webhook."""
    verdict: str
    """Why, such as rejected_sig."""
    delivery_id: str = ''
    """Id of the delivery; empty: several."""
    detail: str = ''
    """What is wrong with it."""
    count: int = 1
    """How many."""
    received_at_ms: int = 0
    """When the last of them came in, UTC milliseconds."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "delivery_id": self.delivery_id,
            "verdict": self.verdict,
            "detail": self.detail,
            "count": self.count,
            "received_at_ms": self.received_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            delivery_id=value["delivery_id"],
            verdict=value["verdict"],
            detail=value["detail"],
            count=value["count"],
            received_at_ms=value["received_at_ms"],
        )


class SubmitDelivery(Record, frozen=True, kw_only=True):
    """A request from outside, verified: a record of loom.ingress, from which its reader makes the command for the
    owner.
    """

    SCHEMA: ClassVar[str] = "loom.webhook.commands.SubmitDelivery"
    CONTENT: ClassVar[Mapping[str, str]] = {"body": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    delivery_id: str
    """Id of the delivery, from its sender."""
    received_at_ms: int
    """When it came in, UTC milliseconds."""
    name: str = ''
    """Name of the webhook; empty: it is for a channel."""
    address: str = ''
    """Tenant in the address of the webhook; empty: the address had none."""
    channel: str = ''
    """Without a webhook: channel that it is published to."""
    scope_id: str = ''
    """Without a webhook: user or agent of the scope of the channel."""
    body: str = ''
    """JSON text of the body; user content."""
    body_blob: BlobRef | None = None
    """The same when it is over the inline limit."""
    sealed_credentials: bytes = b''
    """Credentials that were taken out of the body, encrypted with the installation key."""
    positions: tuple[str, ...] = ()
    """Positions of the definition as its sender has read it."""
    replay_of: str = ''
    """Delivery that is given again; empty: none."""
    by: str = ''
    """Who published or replays it; empty: the sender of a webhook."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "address": self.address,
            "channel": self.channel,
            "scope_id": self.scope_id,
            "delivery_id": self.delivery_id,
            "received_at_ms": self.received_at_ms,
            "body": self.body,
            "body_blob": None if self.body_blob is None else self.body_blob.to_avro(),
            "sealed_credentials": self.sealed_credentials,
            "positions": self.positions,
            "replay_of": self.replay_of,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            address=value["address"],
            channel=value["channel"],
            scope_id=value["scope_id"],
            delivery_id=value["delivery_id"],
            received_at_ms=value["received_at_ms"],
            body=value["body"],
            body_blob=None if value["body_blob"] is None else BlobRef.from_avro(value["body_blob"]),
            sealed_credentials=value["sealed_credentials"],
            positions=tuple(value["positions"]),
            replay_of=value["replay_of"],
            by=value["by"],
        )


RECORDS = (
    NoteRunEnded,
    ReceiveDelivery,
    RejectDelivery,
    SubmitDelivery,
)
Command = NoteRunEnded | ReceiveDelivery | RejectDelivery | SubmitDelivery
