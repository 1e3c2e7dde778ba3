"""What a runtime has open: the log, its group and boards, Postgres, providers; opened in order, closed in reverse.

A broker that does not answer is waited for. What is open here decides nothing; main.py puts the host together from it.

Before: main.py with the configuration. After: services/stream/host.py and the calls use it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from secrets import token_hex

from loomlog.connectors.configuration import Loaded
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import (
    FETCH_MAX_WAIT_MS,
    KafkaAppender,
    KafkaGroup,
    KafkaOptions,
    KafkaRanges,
    KafkaTail,
    open_tail,
)
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import PREFIX
from loomlog.schemas.codec import Codec
from loomlog.services.runtime import topics
from loomlog.services.runtime.budget_hosting import HostedBudgets, hosted_budgets
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.models.agent_definitions import stored_scripts
from loomlog.services.runtime.models.routing import Routing
from loomlog.services.runtime.run.projected_index import ProjectedIndex
from loomlog.services.runtime.run.run_index import RunIndex
from loomlog.services.runtime.run.start_paused import pause_once
from loomlog.services.runtime.settings import RuntimeSettings, runtime_settings
from loomlog.services.runtime.standby_setup import StandingBy, standing_by
from loomlog.services.runtime.telemetry.tracing import Tracing, open_tracing
from loomlog.services.runtime.tools.client_tools import OpenedClients, open_clients
from loomlog.services.runtime.tools.hook_setup import RegisteredHooks, opened_credentials
from loomlog.services.runtime.tools.remote_tools import Remote, open_remote
from loomlog.services.stream.encryption.subject_keys import SubjectKeys, opened_keys
from loomlog.services.stream.global_tables.pauses import PARTITION, PauseBoard

log = logging.getLogger("loomlog.runtime")

BROKER_WAIT_S = 1.0
"""Pause between tries to reach the broker at the start; starting Python anew for each try would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """All of it."""

    settings: RuntimeSettings
    codec: Codec
    tracing: Tracing
    appender: KafkaAppender
    ranges: KafkaRanges
    commands: KafkaTail
    control: KafkaTail
    board: PauseBoard
    group: KafkaGroup
    index: RunIndex
    partitions: int
    keys: SubjectKeys | None
    erasures: KafkaTail | None
    life: str
    beside: StandingBy | None
    budgets: HostedBudgets
    routing: Routing
    providers: KafkaTail
    hooks: RegisteredHooks
    registrations: KafkaTail
    credentials: Credentials
    remote: Remote | None
    clients: OpenedClients


async def connected(kafka: KafkaOptions) -> KafkaAppender:
    """An appender over a broker that answers; waits for one as long as it takes."""
    while True:
        appender = KafkaAppender(kafka)
        try:
            await appender.start()
        except Transient as error:
            log.warning("waiting for the broker: %s", error)
            await asyncio.sleep(BROKER_WAIT_S)
        else:
            return appender


@contextlib.asynccontextmanager
async def opened(loaded: Loaded) -> AsyncIterator[Outside]:
    """Until it is left. Raises what can never work; waits for the broker."""
    settings = runtime_settings(loaded.settings)
    async with contextlib.AsyncExitStack() as stack:
        codec = await load_codec(loaded.settings)
        tracing = await stack.enter_async_context(open_tracing(settings.tracing, settings.name))
        appender = await connected(settings.kafka)
        stack.push_async_callback(appender.close)
        routing = Routing(
            loaded,
            os.environ,
            codec=codec,
            appender=appender,
            clock_ms=clock_ms,
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
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        )
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        board = PauseBoard(codec, topics.CONTROL_TOPIC)
        await board.catch_up(ranges)
        if settings.start_paused:
            switch = settings.start_paused
            await pause_once(board, appender, ranges, codec, switch=switch, by=settings.name, at_ms=clock_ms())
        control = await open_tail(settings.kafka, topics.CONTROL_TOPIC, {PARTITION: board.next_offset})
        stack.push_async_callback(control.close)
        providers = await routing.open(stack, ranges, settings.kafka)
        hooks = RegisteredHooks(loaded, settings, codec=codec, clock_ms=clock_ms, topic=topics.HOOKS_TOPIC)
        registrations = await hooks.open(stack, ranges, settings.kafka)
        credentials = opened_credentials(stack, settings)
        keys = await opened_keys(
            settings.wrapping, codec, appender, ranges, topic=topics.SUBJECTS_TOPIC, clock_ms=clock_ms
        )
        erasures: KafkaTail | None = None
        if keys is not None:
            erasures = await open_tail(settings.kafka, topics.SUBJECTS_TOPIC, {PARTITION: keys.next_offset})
            stack.push_async_callback(erasures.close)
        routing.definitions.scripts.update(await stored_scripts(loaded.configuration, FileBlobs(loaded.settings.blobs)))
        remote = await open_remote(
            stack,
            loaded.configuration,
            settings.kafka,
            codec,
            appender,
            clock_ms=clock_ms,
            name=settings.name,
        )
        clients = await open_clients(
            stack, settings, codec, appender, ranges, remote, topic=topics.CLIENTS_TOPIC, clock_ms=clock_ms
        )
        life = token_hex(8)
        beside = await standing_by(stack, settings, topics.TOPICS.events, partitions, life)
        group = KafkaGroup(
            settings.kafka,
            topics.TOPICS.commands,
            topics.GROUP,
            session_timeout_ms=settings.session_timeout_ms,
            incarnation=life,
            is_standby=beside is not None,
        )
        await group.start()
        stack.push_async_callback(group.close)
        reader = await open_reader(settings.postgres, schema=PREFIX, max_connections=4)
        stack.push_async_callback(reader.close)
        index = ProjectedIndex(reader, topics.TOPICS.events)
        budgets = await hosted_budgets(
            stack,
            settings,
            codec,
            appender,
            ranges,
            topics.BUDGET_TOPICS,
            group_name=f"{topics.GROUP}-budgets",
            life=life,
            clock_ms=clock_ms,
        )
        yield Outside(
            settings=settings,
            codec=codec,
            tracing=tracing,
            appender=appender,
            ranges=ranges,
            commands=commands,
            control=control,
            board=board,
            group=group,
            index=index,
            partitions=partitions,
            keys=keys,
            erasures=erasures,
            life=life,
            beside=beside,
            budgets=budgets,
            routing=routing,
            providers=providers,
            hooks=hooks,
            registrations=registrations,
            credentials=credentials,
            remote=remote,
            clients=clients,
        )
