"""Opens the application over Kafka and Postgres, and waits for both as long as needed.

A missing broker or server is normal after a restart of everything: the wait is logged from time to time, and nothing
crashes. What can never work (a wrong password, a missing topic) is logged the same way, because an operator may be
fixing it.

Before: a service's main. After: application.py.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.event_subscriptions import PostgresSubscriptionRows
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, connect, open_reader
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
from loomlog.services.application.application import (
    TOPICS,
    Application,
    ApplicationTopics,
    clock_ms,
)
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.clients.connections import ClientLimits
from loomlog.services.application.health.components import CHANNELS, ENTITIES
from loomlog.services.application.health.health_checks import EntityTables
from loomlog.services.application.log.access import kafka_access
from loomlog.services.application.queries.change_feed import SqlChangeFeed
from loomlog.services.application.queries.read_models import SqlReadModels, has_no_tables
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.core.families import TOPIC_SETS
from loomlog.services.core.refusals import Refused
from loomlog.services.families.entity_folds import entity_seals
from loomlog.services.families.opening import connect_families
from loomlog.services.families.ports.entity_ends import EntityEnds
from loomlog.services.families.registry import all_families, families_of
from loomlog.services.stream.encryption.subject_keys import SubjectKeys, open_subject_keys
from loomlog.services.stream.entities.content import encrypt_content
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, build_entity_parts, join_parts
from loomlog.services.stream.entities.reading import EntityReader
from loomlog.services.stream.entities.routed_reads import RoutedReads
from loomlog.services.stream.entities.rows import EntityRows
from loomlog.services.stream.family import Topics
from loomlog.services.stream.global_tables.global_table import GlobalTable, GlobalTables

log = logging.getLogger(__name__)

RETRY_S = 1.0
LOG_EVERY_TRIES = 10
"""Attempts between two log lines about the same wait."""
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
    on_batch: Callable[[int], None] = lambda records: None,
    family_options: Sequence[Any] = (),
    secrets: SecretRegistry = NO_SECRETS,
    beside: Sequence[Callable[[], Awaitable[None]]] = (),
) -> AsyncIterator[tuple[Application, Callable[[], Awaitable[None]]]]:
    """Open the application, and the tasks that must run next to the transport until the context is left.

    `beside`: further tasks.
    """
    readiness.missing |= {"broker": "not asked yet", "postgres": "not asked yet"}
    async with contextlib.AsyncExitStack() as stack:
        appender = KafkaAppender(endpoints.kafka)
        await wait_for("broker", readiness, appender.start)
        stack.push_async_callback(appender.close)
        ranges = KafkaRanges(endpoints.kafka)
        await wait_for("broker", readiness, ranges.start)
        stack.push_async_callback(ranges.close)
        partitions = await wait_for("broker", readiness, lambda: _partition_count(appender, endpoints.topics))
        reader = await open_reader(
            endpoints.postgres,
            schema=endpoints.read_model_prefix,
            max_connections=endpoints.postgres_connections,
            min_connections=endpoints.postgres_min_connections,
        )
        stack.push_async_callback(reader.close)
        projection = SqlReadModels(reader)
        starts = await wait_for(
            "postgres", readiness, lambda: _hub_starts(projection, endpoints.topics.events, partitions)
        )
        hub = EventHub(
            codec, starts, live_runs=await wait_for("postgres", readiness, lambda: _list_live_runs(projection))
        )

        async def tail(topic: str, offsets: Mapping[int, int]) -> KafkaTail:
            """Open a tail of the topic from these offsets, until everything is closed."""
            kafka_tail = await wait_for("broker", readiness, partial(open_tail, endpoints.kafka, topic, offsets))
            stack.push_async_callback(kafka_tail.close)
            return kafka_tail

        events = await tail(endpoints.topics.events, {p: start.next_offset for p, start in starts.items()})
        preview_starts = await wait_for(
            "broker", readiness, lambda: _preview_starts(ranges, endpoints.topics.previews, partitions)
        )
        previews = await tail(endpoints.topics.previews, preview_starts)
        keys = await wait_for("broker", readiness, lambda: _open_subject_keys(endpoints, codec, appender, ranges))
        credentials: RunCredentials | None = None
        if endpoints.installation_key is not None:
            rows = PostgresCredentialRows(endpoints.postgres)
            stack.push_async_callback(rows.close)
            credentials = RunCredentials(rows, endpoints.installation_key)
        prefixes = [endpoints.read_model_prefix + suffix for suffix in (ENTITY_SUFFIX, CHANNEL_SUFFIX)]
        watch = PositionWatch(lambda: connect(endpoints.postgres), endpoints.read_model_prefix, *prefixes)
        opened_sets = [
            await _open_topic_set(
                stack,
                endpoints,
                codec,
                appender,
                ranges,
                name,
                topics,
                prefix,
                partitions=partitions,
                keys=keys,
                positions=watch,
            )
            for name, topics, prefix in zip(
                TOPIC_SETS, (endpoints.topics.entities, endpoints.topics.channels), prefixes, strict=True
            )
        ]
        entities = join_parts(*(one.parts for one in opened_sets))
        entity_reads = RoutedReads(entities, *(one.reads for one in opened_sets))
        followed, tails = [], []
        for parts in entities.each:
            await wait_for("broker", readiness, parts.replicas.open)
            tail_of_set = await tail(parts.topics.events, parts.replicas.next_offsets)
            followed.append(partial(parts.replicas.follow, tail_of_set))
            tails.append(tail_of_set)
        request_keys = PostgresRequestKeys(endpoints.postgres)
        stack.push_async_callback(request_keys.close)
        subscription_rows = PostgresSubscriptionRows(endpoints.postgres)
        stack.push_async_callback(subscription_rows.close)
        stores = await connect_families(endpoints.postgres, endpoints.installation_key, all_families())
        layer = Application(
            authenticator=authenticator,
            hub=hub,
            appender=appender,
            ranges=ranges,
            projection=projection,
            positions=watch,
            blobs=endpoints.blobs,
            state_files=endpoints.state_files,
            codec=codec,
            keepalive_s=keepalive_s,
            topics=endpoints.topics,
            on_batch=on_batch,
            keys=keys,
            installation_key=endpoints.installation_key,
            credentials=credentials,
            client_limits=endpoints.client_limits,
            entities=entities,
            entity_commands=entities.client,
            entity_reads=entity_reads,
            reads_beside=entity_reads.beside,
            family_options=(*family_options, *stores, EntityEnds(read=tails[0].end_offsets)),
            secrets=secrets,
            request_keys=request_keys,
            subscription_rows=subscription_rows,
            private_hosts=endpoints.private_hosts,
            change_feed=SqlChangeFeed(opened_sets[0].reader, feed_schema(endpoints.read_model_prefix))
            if endpoints.memory_changes_enabled
            else None,
            log_access=kafka_access(
                endpoints.kafka,
                ranges,
                appender,
                required_topics=endpoints.required_topics,
                trusted_keys=endpoints.audit_keys,
                audit_period_s=endpoints.audit_period_s,
            ),
            entity_tables=[
                EntityTables(name=table, topic=one.parts.topics.events, reader=one.reader)
                for table, one in zip((ENTITIES, CHANNELS), opened_sets, strict=True)
            ],
            run_tables=reader,
            erasures=SqlErasures(reader, erasures_schema(endpoints.read_model_prefix)),
            act_reads=SqlActReads(opened_sets[0].reader, acts_schema(endpoints.read_model_prefix)),
        )
        await layer.publisher.open()

        opened: list[GlobalTable[Any]] = [layer.provider_table]
        if keys is not None:
            opened.append(keys.global_table)
        tables = GlobalTables(stack, ranges, partial(open_tail, endpoints.kafka))
        for table in opened:
            await wait_for("broker", readiness, partial(tables.open, table))
        client_requests = partial(_open_client_requests, endpoints.kafka, ranges, appender)
        log.info("the log has %d partitions; reading from %s", partitions, _describe_starts(starts))

        async def work() -> None:
            await layer.run(
                events,
                previews,
                lambda: _watch_positions(watch),
                *followed,
                partial(layer.clients.run, client_requests),
                *tables.followers.values(),
                *beside,
            )

        yield layer, work


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicSet:
    """What is open for the families of a topic set."""

    parts: EntityParts
    reads: EntityReader
    reader: PostgresReader


async def _open_topic_set(
    stack: contextlib.AsyncExitStack,
    endpoints: Endpoints,
    codec: Codec,
    appender: KafkaAppender,
    ranges: KafkaRanges,
    name: str,
    topics: Topics,
    prefix: str,
    *,
    partitions: int,
    keys: SubjectKeys | None,
    positions: PositionWatch,
) -> _TopicSet:
    """Open the rows of a topic set, whose schema has the prefix, and build its replicas, client and reads."""
    reader = await open_reader(endpoints.postgres, schema=prefix, max_connections=endpoints.postgres_connections)
    stack.push_async_callback(reader.close)
    families, seals = families_of(name), entity_seals(endpoints.installation_key)
    rows = EntityRows(reader, FamilySet(families), events_topic=topics.events, seals=seals)
    parts = build_entity_parts(
        families, codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows, name=name
    )
    if keys is not None:
        parts.client.encrypt = encrypt_content(keys.cipher_for, keys.is_encrypted)
    reads = EntityReader(parts.family.families, parts.replicas, rows, reader, parts.client, positions=positions)
    return _TopicSet(parts=parts, reads=reads, reader=reader)


async def _open_subject_keys(
    endpoints: Endpoints, codec: Codec, appender: KafkaAppender, ranges: KafkaRanges
) -> SubjectKeys | None:
    return await open_subject_keys(
        endpoints.key_encryption_keys, codec, appender, ranges, topic=endpoints.topics.subjects, clock_ms=clock_ms
    )


async def wait_for(name: str, readiness: Readiness, open_resource: Callable[[], Awaitable[Resource]]) -> Resource:
    """Return the resource once it opens; until then `readiness` has the error under that name."""
    tries = 0
    while True:
        try:
            resource = await open_resource()
        except (ConnectorError, Refused) as error:
            readiness.missing[name] = str(error)
            if tries % LOG_EVERY_TRIES == 0:
                log.warning("waiting for the %s: %s", name, error)
            tries += 1
            await asyncio.sleep(RETRY_S)
            continue
        readiness.missing.pop(name, None)
        if tries:
            log.info("the %s is there", name)
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


async def _open_client_requests(options: KafkaOptions, ranges: KafkaRanges, appender: KafkaAppender) -> KafkaTail:
    """Open a tail of requests for clients, from now on. Raises Transient."""
    partitions = await appender.partitions(REQUESTS_TOPIC)
    if not partitions:
        raise Transient(f"there is no topic {REQUESTS_TOPIC}; run python -m loomlog.redpanda.apply", kind="unavailable")
    return await open_tail(options, REQUESTS_TOPIC, await ranges.end_offsets(REQUESTS_TOPIC, partitions))


async def _preview_starts(ranges: KafkaRanges, topic: str, partitions: int) -> Mapping[int, int]:
    """Return offsets of previews from which the turns that are under way are whole, if they are not too long."""
    since_ms = int((time.time() - limits.RECENT_AGE_MAX_S) * 1_000)
    most = limits.PREVIEWS_READ_BACK_MAX // partitions
    ends = await ranges.end_offsets(topic, partitions)
    return {
        partition: max(end - most, await ranges.offset_at(topic, partition, since_ms))
        for partition, end in ends.items()
    }


async def _watch_positions(watch: PositionWatch) -> None:
    """Follow the positions of the read models, also while their tables do not exist yet."""
    logged = False
    while True:
        try:
            await watch.run()
        except Permanent as error:
            if error.kind != "not_found":
                raise
            if not logged:
                log.warning("the read models do not exist yet; the projector makes them: %s", error)
            logged = True
            await asyncio.sleep(RETRY_S)


def _describe_starts(starts: Mapping[int, HubStart]) -> str:
    return ", ".join(f"{partition}:{start.next_offset}" for partition, start in sorted(starts.items()))
