"""Records of the namespace loom.webhook.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope
from loomlog.schemas.records import Record


class NoteRunEnded(Record, frozen=True, kw_only=True):
    """Note what became of a delivery: its run has ended or was refused, or its message is published."""

    SCHEMA: ClassVar[str] = "loom.webhook.commands.NoteRunEnded"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "run_id", "status", "code", "message", "delivery_id",
    )

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


class RejectDelivery(Record, frozen=True, kw_only=True):
    """Note requests that were refused."""

    SCHEMA: ClassVar[str] = "loom.webhook.commands.RejectDelivery"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "delivery_id", "verdict", "detail", "count", "received_at_ms",
    )

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


class SubmitDelivery(Record, frozen=True, kw_only=True):
    """A request from outside, verified: a record of loom.ingress, from which its reader makes the command for the
    owner.
    """

    SCHEMA: ClassVar[str] = "loom.webhook.commands.SubmitDelivery"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "address", "channel", "scope_id", "delivery_id", "received_at_ms", "body", "body_blob",
        "sealed_credentials", "positions", "replay_of", "by",
    )
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


RECORDS = (
    NoteRunEnded,
    ReceiveDelivery,
    RejectDelivery,
    SubmitDelivery,
)
Command = NoteRunEnded | ReceiveDelivery | RejectDelivery | SubmitDelivery
