"""Opens the application over Kafka and Postgres, and waits for both as long as needed.

A missing broker or server is normal after a restart of everything: the wait is logged from time to time, and nothing
crashes. What can never work (a wrong password, a missing topic) is logged the same way, because an operator may be
fixing it.

Before: a service's main. After: application.py.
"""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.retries import until_answered
from loomlog.connectors.storage.event_subscriptions import PostgresSubscriptionRows
from loomlog.connectors.storage.postgres import PostgresOptions, connect, open_reader
from loomlog.connectors.storage.request_keys import PostgresRequestKeys
from loomlog.connectors.storage.run_credentials import PostgresCredentialRows, RunCredentials
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC
from loomlog.projections.acts import SqlActReads, acts_schema
from loomlog.projections.engine.builds import CHANNEL_SUFFIX, ENTITY_SUFFIX, PREFIX
from loomlog.projections.engine.positions import PositionWatch
from loomlog.projections.erasures import SqlErasures, erasures_schema
from loomlog.projections.memory_feed.tables import feed_schema
from loomlog.projections.run_queries import LiveRun
from loomlog.redpanda.topics import Topic, load_topics
from loomlog.schemas.codec import Codec
from loomlog.services.application import limits
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.clients.connections import ClientLimits
from loomlog.services.application.health.components import CHANNELS, ENTITIES
from loomlog.services.application.health.health_checks import EntityTables
from loomlog.services.application.log.access import kafka_access
from loomlog.services.application.queries.change_feed import SqlChangeFeed
from loomlog.services.application.queries.read_models import SqlReadModels, has_no_tables
from loomlog.services.application.resources import (
    TOPICS,
    ApplicationResources,
    ApplicationTopics,
    clock_ms,
    ignore_batch,
)
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.core.families import TOPIC_SETS
from loomlog.services.core.refusals import Refused
from loomlog.services.families.entity_folds import entity_seals
from loomlog.services.families.opening import connect_families
from loomlog.services.families.ports.entity_ends import EntityEnds
from loomlog.services.families.registry import all_families, families_of
from loomlog.services.stream.encryption.subject_keys import SubjectKeys, open_subject_keys
from loomlog.services.stream.entities.content import encrypt_content
from loomlog.services.stream.entities.topic_sets import TopicSet, join_topic_sets, open_topic_set
from loomlog.services.stream.global_tables.global_table import GlobalTable, GlobalTables

log = logging.getLogger(__name__)

LIVE_RUNS_MAX = 200_000
"""Live runs loaded at the start; others are counted as their events arrive."""
AUDIT_PERIOD_S = 10.0
"""How often the auditor signs by default."""

Resource = TypeVar("Resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses and keys of everything the application connects to."""

    kafka: KafkaOptions
    postgres: PostgresOptions
    blobs: Blobs
    state_files: StateFiles | None = None
    postgres_connections: int = 10
    postgres_min_connections: int = 1
    read_model_prefix: str = PREFIX
    """Prefix of the schemas of the read models."""
    topics: ApplicationTopics = TOPICS
    key_encryption_keys: KeyEncryptionKeys | None = None
    """None: content is not encrypted."""
    client_limits: ClientLimits = field(default_factory=ClientLimits)
    installation_key: SecretKey | None = field(default=None, repr=False)
    """None: callbacks are not signed, and runs take no credentials."""
    private_hosts: tuple[str, ...] = ()
    """Hosts with private addresses to which events may be sent."""
    memory_changes_enabled: bool = True
    required_topics: Sequence[Topic] = field(default_factory=load_topics)
    """The topics of the installation, as topics.yaml has them."""
    audit_keys: Mapping[str, PublicKey] = field(default_factory=dict)
    """Public keys of signed checkpoints that are trusted, by id."""
    audit_period_s: float = AUDIT_PERIOD_S
    """How often the auditor signs."""


@dataclass(slots=True)
class Readiness:
    """What is not available yet, for /readyz. Empty when everything is."""

    missing: dict[str, str] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def open_application(
    endpoints: Endpoints,
    authenticator: Authenticator,
    codec: Codec,
    *,
    keepalive_s: float,
    readiness: Readiness,
    on_batch: Callable[[int], None] = ignore_batch,
    family_options: Sequence[Any] = (),
    secrets: SecretRegistry = NO_SECRETS,
    beside: Sequence[Callable[[], Awaitable[None]]] = (),
) -> AsyncIterator[tuple[Application, Callable[[], Awaitable[None]]]]:
    """Open the application, and the tasks that must run next to the transport until the context is left.

    `beside`: further tasks.
    """
    readiness.missing |= {"broker": "not asked yet", "postgres": "not asked yet"}
    async with contextlib.AsyncExitStack() as stack:
        opener = _Opener(stack, endpoints, codec, readiness)
        await opener.connect()
        hub, events, previews = await opener.open_runs()
        keys = await opener.wait("broker", opener.open_subject_keys)
        watch = PositionWatch(lambda: connect(endpoints.postgres), endpoints.read_model_prefix, *opener.prefixes)
        sets = await opener.open_topic_sets(keys, watch)
        entities, entity_reads = join_topic_sets([one for one, _ in sets])
        reader, tail = sets[0][0].reader, sets[0][1]
        resources = ApplicationResources(
            authenticator=authenticator,
            hub=hub,
            appender=opener.appender,
            ranges=opener.ranges,
            projection=opener.projection,
            positions=watch,
            blobs=endpoints.blobs,
            state_files=endpoints.state_files,
            codec=codec,
            keepalive_s=keepalive_s,
            topics=endpoints.topics,
            on_batch=on_batch,
            keys=keys,
            installation_key=endpoints.installation_key,
            credentials=opener.open_credentials(),
            client_limits=endpoints.client_limits,
            entities=entities,
            entity_commands=entities.client,
            entity_reads=entity_reads,
            reads_beside=entity_reads.beside,
            family_options=(
                *family_options,
                *await connect_families(endpoints.postgres, endpoints.installation_key, all_families()),
                EntityEnds(read=tail.end_offsets),
            ),
            secrets=secrets,
            request_keys=opener.until_closed(PostgresRequestKeys(endpoints.postgres)),
            subscription_rows=opener.until_closed(PostgresSubscriptionRows(endpoints.postgres)),
            private_hosts=endpoints.private_hosts,
            change_feed=SqlChangeFeed(reader, feed_schema(endpoints.read_model_prefix))
            if endpoints.memory_changes_enabled
            else None,
            log_access=kafka_access(
                endpoints.kafka,
                opener.ranges,
                opener.appender,
                required_topics=endpoints.required_topics,
                trusted_keys=endpoints.audit_keys,
                audit_period_s=endpoints.audit_period_s,
            ),
            entity_tables=[
                EntityTables(name=table, topic=one.parts.topics.events, reader=one.reader)
                for table, (one, _) in zip((ENTITIES, CHANNELS), sets, strict=True)
            ],
            run_tables=opener.reader,
            erasures=SqlErasures(opener.reader, erasures_schema(endpoints.read_model_prefix)),
            act_reads=SqlActReads(reader, acts_schema(endpoints.read_model_prefix)),
        )
        application = Application(resources)
        await application.publisher.open()
        tables: list[GlobalTable[Any]] = [application.provider_table]
        if keys is not None:
            tables.append(keys.global_table)
        followers = await opener.open_tables(tables)

        async def work() -> None:
            await application.run(
                events,
                previews,
                watch.run,
                *(partial(one.parts.replicas.follow, tail) for one, tail in sets),
                partial(application.clients.run, opener.open_client_requests),
                *followers,
                *beside,
            )

        yield application, work


class _Closable(Protocol):
    async def close(self) -> None: ...


ClosableT = TypeVar("ClosableT", bound=_Closable)


class _Opener:
    """Opens the resources of an application one after the other, each until the stack is closed."""

    def __init__(
        self, stack: contextlib.AsyncExitStack, endpoints: Endpoints, codec: Codec, readiness: Readiness
    ) -> None:
        self._stack, self._endpoints, self._codec, self._readiness = stack, endpoints, codec, readiness
        self.prefixes = [endpoints.read_model_prefix + suffix for suffix in (ENTITY_SUFFIX, CHANNEL_SUFFIX)]
        """Prefixes of the schemas of entities and of channels."""

    def until_closed(self, resource: ClosableT) -> ClosableT:
        """Return the resource, which is closed with the others."""
        self._stack.push_async_callback(resource.close)
        return resource

    async def wait(self, name: str, open_resource: Callable[[], Awaitable[Resource]]) -> Resource:
        """Return the resource once it opens."""
        return await wait_for(name, self._readiness, open_resource)

    async def connect(self) -> None:
        """Connect to the broker and to Postgres, which may be away and come back."""
        endpoints = self._endpoints
        self.appender = KafkaAppender(endpoints.kafka)
        await self.wait("broker", self.appender.start)
        self.until_closed(self.appender)
        self.ranges = KafkaRanges(endpoints.kafka)
        await self.wait("broker", self.ranges.start)
        self.until_closed(self.ranges)
        self._partitions = await self.wait("broker", lambda: _partition_count(self.appender, endpoints.topics))
        self.reader = await open_reader(
            endpoints.postgres,
            schema=endpoints.read_model_prefix,
            max_connections=endpoints.postgres_connections,
            min_connections=endpoints.postgres_min_connections,
        )
        self.until_closed(self.reader)
        self.projection = SqlReadModels(self.reader)

    async def tail(self, topic: str, offsets: Mapping[int, int]) -> KafkaTail:
        """Open a tail of the topic from these offsets."""
        return self.until_closed(await self.wait("broker", partial(open_tail, self._endpoints.kafka, topic, offsets)))

    async def open_runs(self) -> tuple[EventHub, KafkaTail, KafkaTail]:
        """Open the hub of runs; the tail of their events from where the read models are, and the tail of what models
        are saying from the turns under way on.
        """
        topics = self._endpoints.topics
        starts = await self.wait("postgres", lambda: _hub_starts(self.projection, topics.events, self._partitions))
        ranges = await self.wait("broker", lambda: _preview_ranges(self.ranges, topics.previews, self._partitions))
        hub = EventHub(
            self._codec,
            starts,
            preview_ends={partition: end for partition, (start, end) in ranges.items() if start < end},
            live_runs=await self.wait("postgres", lambda: _list_live_runs(self.projection)),
        )
        log.info("the log has %d partitions; reading from %s", self._partitions, _describe_starts(starts))
        return (
            hub,
            await self.tail(topics.events, {partition: start.next_offset for partition, start in starts.items()}),
            await self.tail(topics.previews, {partition: start for partition, (start, _) in ranges.items()}),
        )

    async def open_subject_keys(self) -> SubjectKeys | None:
        """Read the keys of subjects; None when content is not encrypted. Raises Transient."""
        endpoints = self._endpoints
        return await open_subject_keys(
            endpoints.key_encryption_keys,
            self._codec,
            self.appender,
            self.ranges,
            topic=endpoints.topics.subjects,
            clock_ms=clock_ms,
        )

    def open_credentials(self) -> RunCredentials | None:
        """Return the credentials of runs; None without an installation key."""
        key = self._endpoints.installation_key
        if key is None:
            return None
        return RunCredentials(self.until_closed(PostgresCredentialRows(self._endpoints.postgres)), key)

    async def open_topic_sets(
        self, keys: SubjectKeys | None, positions: PositionWatch
    ) -> list[tuple[TopicSet, KafkaTail]]:
        """Open each topic set, that of entities first, and read its replicas; with the tail of its events."""
        endpoints, sets = self._endpoints, []
        topics = (endpoints.topics.entities, endpoints.topics.channels)
        for name, of_set, schema in zip(TOPIC_SETS, topics, self.prefixes, strict=True):
            opened = await open_topic_set(
                self._stack,
                families_of(name),
                of_set,
                self._codec,
                self.appender,
                self.ranges,
                name=name,
                partitions=self._partitions,
                postgres=endpoints.postgres,
                schema=schema,
                connections=endpoints.postgres_connections,
                seals=entity_seals(endpoints.installation_key),
                positions=positions,
            )
            if keys is not None:
                opened.parts.client.encrypt = encrypt_content(keys.cipher_for, keys.is_encrypted)
            await self.wait("broker", opened.parts.replicas.open)
            sets.append((opened, await self.tail(of_set.events, opened.parts.replicas.next_offsets)))
        return sets

    async def open_tables(self, tables: Sequence[GlobalTable[Any]]) -> Sequence[Callable[[], Awaitable[None]]]:
        """Read tables to their ends; return what follows them."""
        opened = GlobalTables(self._stack, self.ranges, partial(open_tail, self._endpoints.kafka))
        for table in tables:
            await self.wait("broker", partial(opened.open, table))
        return list(opened.followers.values())

    async def open_client_requests(self) -> KafkaTail:
        """Open a tail of requests for clients, from now on; its user closes it. Raises Transient."""
        partitions = await self.appender.partitions(REQUESTS_TOPIC)
        if not partitions:
            raise Transient(
                f"there is no topic {REQUESTS_TOPIC}; run python -m loomlog.redpanda.apply", kind="unavailable"
            )
        ends = await self.ranges.end_offsets(REQUESTS_TOPIC, partitions)
        return await open_tail(self._endpoints.kafka, REQUESTS_TOPIC, ends)


async def wait_for(name: str, readiness: Readiness, open_resource: Callable[[], Awaitable[Resource]]) -> Resource:
    """Return the resource once it opens; until then `readiness` has the error under that name."""

    async def open_noted() -> Resource:
        try:
            return await open_resource()
        except (ConnectorError, Refused) as error:
            readiness.missing[name] = str(error)
            raise

    resource = await until_answered(open_noted, f"what needs the {name}", failures=(ConnectorError, Refused))
    readiness.missing.pop(name, None)
    return resource


async def _partition_count(appender: KafkaAppender, topics: ApplicationTopics) -> int:
    of_sets = (one for each in (topics.entities, topics.channels) for one in (each.commands, each.events))
    names = (topics.commands, topics.events, topics.previews, *of_sets)
    counts = {topic: await appender.partitions(topic) for topic in names}
    if not all(counts.values()) or len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
        raise Transient(
            f"{listed} partitions: they must exist and agree; run python -m loomlog.redpanda.apply", kind="unavailable"
        )
    return counts[topics.events]


async def _hub_starts(projection: SqlReadModels, topic: str, partitions: int) -> dict[int, HubStart]:
    """Return the positions of the read models; a partition they have not begun is read from its start."""
    try:
        cursors = await projection.cursors()
    except Refused as declined:
        if not has_no_tables(declined):
            raise
        cursors = []  # no projector has run here yet
    starts = {
        cursor.partition: HubStart(next_offset=cursor.next_offset, term=cursor.term)
        for cursor in cursors
        if cursor.topic == topic
    }
    return {partition: starts.get(partition, HubStart()) for partition in range(partitions)}


async def _list_live_runs(projection: SqlReadModels) -> list[LiveRun]:
    try:
        return await projection.live_runs(limit=LIVE_RUNS_MAX)
    except Refused as declined:
        if not has_no_tables(declined):
            raise
        return []


async def _preview_ranges(ranges: KafkaRanges, topic: str, partitions: int) -> Mapping[int, tuple[int, int]]:
    """Return offsets of previews from which the turns that are under way are whole, if they are not too long; and the
    ends of their partitions.
    """
    since_ms = int((time.time() - limits.RECENT_AGE_MAX_S) * 1_000)
    most = limits.PREVIEWS_READ_BACK_MAX // partitions
    ends = await ranges.end_offsets(topic, partitions)
    return {
        partition: (max(end - most, await ranges.offset_at(topic, partition, since_ms)), end)
        for partition, end in ends.items()
    }


def _describe_starts(starts: Mapping[int, HubStart]) -> str:
    return ", ".join(f"{partition}:{start.next_offset}" for partition, start in sorted(starts.items()))
