"""Open resources of a runtime: the log, its group and replicas, Postgres, providers; opened in order, closed in
reverse.

Waits for a broker that does not answer. What is open here decides nothing; process.py builds the host from it.

Before: main.py with the configuration. After: process.py.
"""

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.kafka import (
    KafkaAppender,
    KafkaGroup,
    KafkaOptions,
    KafkaRanges,
    KafkaTail,
    open_tail,
)
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process.liveness_sockets import wait_for_disconnect
from loomlog.connectors.retries import until_answered
from loomlog.connectors.storage.postgres import PostgresReader, open_reader
from loomlog.connectors.storage.run_credentials import PostgresCredentialRows, RunCredentials
from loomlog.projections.engine.builds import PREFIX
from loomlog.schemas.codec import Codec
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET
from loomlog.services.families.entity_folds import entity_seals
from loomlog.services.runtime import topics
from loomlog.services.runtime.clock import CheckedClock
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.entity_hosting import EntityResources, open_entities
from loomlog.services.runtime.models.routing import Routing
from loomlog.services.runtime.run.projected_index import ProjectedIndex
from loomlog.services.runtime.run.run_index import RunIndex
from loomlog.services.runtime.settings import RuntimeSettings, build_runtime_settings
from loomlog.services.runtime.standby import StandbyResources, open_readers, open_standby
from loomlog.services.runtime.telemetry.tracing import Tracing, open_tracing
from loomlog.services.runtime.tools.client_tools import ClientToolResources, open_client_tools
from loomlog.services.runtime.tools.remote_tools import RemoteToolResources, open_remote_tools
from loomlog.services.stream.encryption.subject_keys import SubjectKeys, open_subject_keys
from loomlog.services.stream.global_tables.global_table import GlobalTables

log = logging.getLogger("loomlog.runtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeResources:
    """All open resources of a runtime."""

    settings: RuntimeSettings
    codec: Codec
    tracing: Tracing
    clock: CheckedClock
    appender: KafkaAppender
    ranges: KafkaRanges
    commands_tail: KafkaTail
    tables: GlobalTables
    group: KafkaGroup
    index: RunIndex
    run_rows: PostgresReader
    """Reads the read models of runs."""
    partitions: int
    keys: SubjectKeys | None
    incarnation: str
    standby: StandbyResources | None
    entities: EntityResources
    routing: Routing
    credentials: Credentials
    remote_tools: RemoteToolResources | None
    client_tools: ClientToolResources


async def connect_broker(kafka: KafkaOptions) -> KafkaAppender:
    """Return an appender connected to the broker; waits for the broker without a time limit."""
    appender = KafkaAppender(kafka)
    await until_answered(appender.start, "the runtime")
    return appender


@contextlib.asynccontextmanager
async def open_resources(loaded: ProcessConfiguration) -> AsyncIterator[RuntimeResources]:
    """Open all resources until the context exits. Waits for the broker; raises for errors that a retry cannot fix."""
    settings = build_runtime_settings(loaded.settings)
    async with contextlib.AsyncExitStack() as stack:
        codec = await load_codec(loaded.settings)
        tracing = await stack.enter_async_context(open_tracing(settings.tracing, settings.name))
        appender = await connect_broker(settings.kafka)
        stack.push_async_callback(appender.close)
        clock = CheckedClock(lambda: appender.read_broker_time(topics.CLOCK_TOPIC))
        await clock.measure()
        routing = Routing(
            loaded,
            os.environ,
            codec=codec,
            appender=appender,
            clock_ms=clock.now_ms,
            name=settings.name,
            topic=topics.PROVIDERS_TOPIC,
        )
        ranges = KafkaRanges(settings.kafka)
        await ranges.start()
        stack.push_async_callback(ranges.close)
        partitions = await appender.partitions(topics.TOPICS.commands)
        commands = await open_tail(
            settings.kafka,
            topics.TOPICS.commands,
            dict.fromkeys(range(partitions), 0),
        )
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        tables = GlobalTables(stack, ranges, partial(open_tail, settings.kafka))
        await routing.open(tables)
        credentials = _open_credentials(stack, settings)
        keys = await open_subject_keys(
            settings.key_encryption_keys, codec, appender, ranges, topic=topics.SUBJECTS_TOPIC, clock_ms=clock.now_ms
        )
        if keys is not None:
            await tables.open(keys.global_table)
        remote = await open_remote_tools(
            stack,
            loaded.configuration,
            settings.kafka,
            codec,
            appender,
            clock_ms=clock.now_ms,
            name=settings.name,
        )
        clients = await open_client_tools(
            tables, settings, codec, appender, remote, topic=topics.CLIENTS_TOPIC, clock_ms=clock.now_ms
        )
        life = token_hex(8)
        beside = await open_standby(stack, settings, topics.TOPICS.events, partitions, life)
        group = KafkaGroup(
            settings.kafka,
            topics.TOPICS.commands,
            topics.GROUP,
            session_timeout_ms=settings.session_timeout_ms,
            incarnation=life,
            is_standby=beside is not None,
            address=beside.liveness_server.endpoint if beside is not None else "",
            spares=settings.spares,
            until_gone=wait_for_disconnect if beside is not None else None,
            may_own=lambda: clock.is_believed,
        )
        await group.start()
        stack.push_async_callback(group.close)
        reader = await open_reader(settings.postgres, schema=PREFIX, max_connections=4)
        stack.push_async_callback(reader.close)
        index = ProjectedIndex(reader, topics.TOPICS.events)
        entities = await open_entities(
            stack,
            settings,
            codec,
            appender,
            ranges,
            {ENTITY_SET: topics.ENTITY_TOPICS, CHANNEL_SET: topics.CHANNEL_TOPICS},
            partitions=partitions,
            open_readers=lambda events_topic: open_readers(stack, settings, events_topic, partitions),
            seals=entity_seals(settings.installation_secret),
        )
        # Last: a range that is read in between makes the reader forget topics.
        families = (topics.TOPICS, topics.ENTITY_TOPICS, topics.CHANNEL_TOPICS)
        await ranges.learn_leaders(*(topic for family in families for topic in (family.events, family.snapshots)))
        yield RuntimeResources(
            settings=settings,
            codec=codec,
            tracing=tracing,
            clock=clock,
            appender=appender,
            ranges=ranges,
            commands_tail=commands,
            tables=tables,
            group=group,
            index=index,
            run_rows=reader,
            partitions=partitions,
            keys=keys,
            incarnation=life,
            standby=beside,
            entities=entities,
            routing=routing,
            credentials=credentials,
            remote_tools=remote,
            client_tools=clients,
        )


def _open_credentials(stack: contextlib.AsyncExitStack, settings: RuntimeSettings) -> Credentials:
    """Return the credentials of runs; without a key there are none. Connects when the first one is needed."""
    if settings.installation_secret is None:
        return Credentials()
    rows = PostgresCredentialRows(settings.postgres)
    stack.push_async_callback(rows.close)
    return Credentials(RunCredentials(rows, settings.installation_secret))
