"""Records of the namespace loom.webhook.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Record


class DeliveryRejected(Record, frozen=True, kw_only=True):
    """Requests were refused."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.DeliveryRejected"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "name", "delivery_id", "verdict", "detail", "count", "received_at_ms", "retry_after_s",
    )

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


class EventReceived(Record, frozen=True, kw_only=True):
    """A delivery was taken."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.EventReceived"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "name", "delivery_id", "def_id", "delivery", "received_at_ms", "source_position", "replay_of", "by", "agent",
        "user_id", "user_tier", "goal", "goal_blob", "run_metadata", "metadata", "credentials", "on_complete",
        "operator_key_restricted", "channel", "after", "run_id", "number", "level",
    )
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


class HookDispatched(Record, frozen=True, kw_only=True):
    """What a delivery asked for was done, or could not be done."""

    SCHEMA: ClassVar[str] = "loom.webhook.events.HookDispatched"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "name", "delivery_key", "run_id", "status", "code", "message",
    )

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


RECORDS = (
    DeliveryRejected,
    DeliveryRepeated,
    EventReceived,
    HookDispatched,
)
Event = DeliveryRejected | DeliveryRepeated | EventReceived | HookDispatched
