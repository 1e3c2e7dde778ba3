"""What an application is made of: opened resources, the topics, and how long it waits for what.

Before: bootstrap.py opens it; tests pass in-memory versions. After: application.py.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.protocols import Blobs, LogAppender, LogRanges
from loomlog.connectors.storage.event_subscriptions import SubscriptionRows
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.connectors.storage.request_keys import RequestKeys
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.projections.acts import SqlActReads
from loomlog.projections.erasures import SqlErasures
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import fresh_token
from loomlog.services.application import limits
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.clients.connections import ClientLimits
from loomlog.services.application.health.health_checks import EntityTables
from loomlog.services.application.log.access import LogAccess
from loomlog.services.application.queries.read_models import Positions, ReadModels
from loomlog.services.application.streaming.event_hub import EventHub
from loomlog.services.families.ports.change_feed import ChangeFeed
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.family import Topics

TOPIC_PREFIX = "loom"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationTopics:
    """Topics of runs, entities and channels, and of subject keys, providers and clients."""

    commands: str
    events: str
    previews: str
    subjects: str
    entities: Topics
    channels: Topics
    ingress: str
    providers: str
    clients: str

    @classmethod
    def with_prefix(cls, prefix: str) -> "ApplicationTopics":
        return cls(
            commands=f"{prefix}.run.commands",
            events=f"{prefix}.run.events",
            previews=f"{prefix}.run.deltas",
            subjects=f"{prefix}.subject.keys",
            entities=Topics.of("entity", prefix),
            channels=Topics.of("channel", prefix),
            ingress=f"{prefix}.ingress",
            providers=f"{prefix}.provider.events",
            clients=f"{prefix}.client.events",
        )


TOPICS = ApplicationTopics.with_prefix(TOPIC_PREFIX)


def clock_ms() -> int:
    """Return the UTC time in milliseconds."""
    return time.time_ns() // 1_000_000


def new_token() -> str:
    """Return a new token for ids."""
    return fresh_token(clock_ms())


def ignore_batch(records: int) -> None:
    """Do nothing about a batch of commands that was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds that requests wait."""

    publish_s: float = limits.PUBLISH_WAIT_S
    """For the broker to take a command."""
    decision_s: float = limits.DECISION_WAIT_S
    """For the owner of a run to accept it."""
    control_s: float = limits.CONTROL_WAIT_S
    """For an owner to carry a command out."""
    position_s: float = limits.POSITION_WAIT_S
    """For the read models to reach what a client has seen."""
    spent_s: float = limits.SPENT_WAIT_S
    """For the read models to have all that was spent."""
    compaction_s: float = limits.COMPACTION_WAIT_S
    """For a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResources:
    """Opened resources, and what the process says of itself."""

    authenticator: Authenticator
    hub: EventHub
    appender: LogAppender
    ranges: LogRanges
    projection: ReadModels
    positions: Positions
    blobs: Blobs
    codec: Codec
    keepalive_s: float
    """Seconds after which a stream without events sends a sign of life."""
    entities: EntityParts
    entity_commands: EntityCommands
    entity_reads: EntityReads
    reads_beside: Sequence[EntityReads] = ()
    """Reads of the further topic sets, for positions in their topics."""
    state_files: StateFiles | None = None
    topics: ApplicationTopics = TOPICS
    clock_ms: Callable[[], int] = clock_ms
    new_token: Callable[[], str] = new_token
    waits: Waits = field(default_factory=Waits)
    on_batch: Callable[[int], None] = ignore_batch
    """Called with the number of commands of each batch that was appended."""
    keys: SubjectKeys | None = None
    """None: content is not encrypted."""
    installation_key: SecretKey | None = None
    """None: callbacks are not signed."""
    credentials: RunCredentials | None = None
    """None: requests with credentials are refused."""
    client_limits: ClientLimits = field(default_factory=ClientLimits)
    family_options: Sequence[Any] = ()
    """What the configuration says of families, such as a ChannelOptions."""
    secrets: SecretRegistry = NO_SECRETS
    request_keys: RequestKeys | None = None
    """None: only owners compare the bodies of requests with the same key."""
    change_feed: ChangeFeed | None = None
    """None: it is off."""
    log_access: LogAccess | None = None
    """None: no transport offers all topics."""
    subscription_rows: SubscriptionRows | None = None
    """None, as without an installation key: no events are sent to others."""
    private_hosts: tuple[str, ...] = ()
    """Private addresses to which events may be sent."""
    entity_tables: Sequence[EntityTables] = ()
    """The rows whose state health shows; these and `run_tables` have the problems of projections."""
    run_tables: PostgresReader | None = None
    act_reads: SqlActReads | None = None
    """None: no acts are listed."""
    erasures: SqlErasures | None = None
    """None: an erasure leaves rows."""
