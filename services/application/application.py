"""The entry point: all use cases over one log, one set of read models and one event hub.

A process creates one Application (bootstrap.py over Kafka and Postgres, or over the in-memory versions) and keeps `run`
running next to its transport. Every transport identifies the caller with `gate` and then calls one of

    acts      carry_out, note_refusal        (who did what)
    runs      start, continue_session            -> Accepted, with the run's stream
    forks     fork                              -> Accepted, with the fork's stream
    imports   take_in
    batches   join, detach
    control   post_input, cancel, close_resident, resolve, pause, resume, quarantine, release
    interrupts resolve, cancel_turn, of_run, of_all   (questions to people)
    compactions compact, replay                (a summary for the older part; a session for another agent)
    bulk      preview, act                      (one of those commands, for the runs of a filter)
    reads     run, agent, runs, transcript, stream
    run_states follow
    run_feed  read, follow            (what happens to runs, from any cursor)
    audit     events, record
    partitions list                  (owners and take-overs)
    log       topics, records        (of all topics, for administrators)
    dead_letters list, get, replay
    audits    verify, checkpoints
    health    checks
    projection_problems report       (what the read models lack)
    histories replay, at, compare, export
    snapshots create, list, manifest, open, remove   (state files)
    restoring restore
    limits    limits, set, remove        (of what is spent)
    usage     report
    dispatch  request                (every operation: of the families, and those of operations/, which call the others)
    runnable_agents list, find
    definition_runs runs, blame      (runs of a version, the version of a run)
    probing   probe                  (of the model providers)
    repairs   show, repair           (of an aggregate that is quarantined)
    clients   serve                  (a connection of a client that executes tools)
    erasing   report, erase, subjects, wrap_anew

All of them raise Refused, and nothing else, for errors that a caller can cause.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.protocols import Blobs, LogAppender, LogRanges, LogTail
from loomlog.connectors.storage.event_subscriptions import SubscriptionRows
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.connectors.storage.request_keys import RequestKeys
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.projections.acts import SqlActReads
from loomlog.projections.erasures import SqlErasures
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import fresh_token, partition_key
from loomlog.services.application import limits
from loomlog.services.application.admin.entity_references import EntityContent
from loomlog.services.application.admin.erasure import SubjectErasure
from loomlog.services.application.admin.erasure_receipts import ErasureReceipts
from loomlog.services.application.admin.probes import ProviderProbes
from loomlog.services.application.admin.repair import AggregateRepair
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.clients.connections import ClientConnections, ClientLimits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.definition_runs import DefinitionRuns
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import key_reused, run_refusing
from loomlog.services.application.event_webhooks import EventWebhooks
from loomlog.services.application.health.health_checks import EntityTables, HealthChecks
from loomlog.services.application.ingress import append_delivery, publish_ingress
from loomlog.services.application.log.access import LogAccess
from loomlog.services.application.log.audits import AuditVerifications
from loomlog.services.application.log.browser import LogBrowser
from loomlog.services.application.log.dead_letters import DeadLetters, OpenLetters
from loomlog.services.application.log.projection_problems import ProjectionProblems
from loomlog.services.application.log.verifier import LogSources, LogVerifier
from loomlog.services.application.operations import product_operations
from loomlog.services.application.operations.handlers import application_handlers
from loomlog.services.application.queries.audit_log import AuditLog
from loomlog.services.application.queries.partitions import FollowedTopic, Partitions
from loomlog.services.application.queries.read_models import Positions, ReadModels
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.queries.usage import Usage
from loomlog.services.application.request_context import command_id, command_tokens, current_request, repeatable
from loomlog.services.application.runs.approvals import RunApprovals
from loomlog.services.application.runs.batch import Batches
from loomlog.services.application.runs.bulk import BulkActions
from loomlog.services.application.runs.compactions import SessionCompactions
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.runs.forks import Forks
from loomlog.services.application.runs.interrupts import InterruptActions
from loomlog.services.application.runs.run_watch import HubRunWatch
from loomlog.services.application.runs.start import RunStarts
from loomlog.services.application.streaming.event_hub import EventHub
from loomlog.services.application.streaming.family_streams import FamilyStream, FamilyStreams
from loomlog.services.application.streaming.run_feed import RunFeed
from loomlog.services.application.streaming.run_states import RunStates
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.transfer.imports import RunImports
from loomlog.services.application.transfer.restore import StateRestore
from loomlog.services.application.transfer.state_files import Backups
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.families import Family
from loomlog.services.core.mcp_logins import McpLogins
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, open_families
from loomlog.services.families.ports.acts import ActRecorder
from loomlog.services.families.ports.approval_calls import ApprovalCalls
from loomlog.services.families.ports.callers import CallerDirectory
from loomlog.services.families.ports.change_feed import ChangeFeed
from loomlog.services.families.ports.content_erasure import counts_of_clients
from loomlog.services.families.ports.credential_erasure import CredentialErasure
from loomlog.services.families.ports.current_request import CurrentRequest
from loomlog.services.families.ports.ingress import IngressLog
from loomlog.services.families.ports.publishing import PublishRights
from loomlog.services.families.ports.quotas import CallerQuotas
from loomlog.services.families.ports.recorded_spending import RecordedSpending
from loomlog.services.families.ports.requests import AsOperation, EndpointAnswer, EndpointRequest
from loomlog.services.families.ports.row_erasure import RowErasure
from loomlog.services.families.ports.run_blame import RunBlame
from loomlog.services.families.ports.run_reads import RunReads
from loomlog.services.families.ports.run_sources import RunSources
from loomlog.services.families.ports.runnable_agents import RunnableAgents
from loomlog.services.families.ports.spending_limits import SpendingLimits
from loomlog.services.families.ports.users import UserSources
from loomlog.services.families.ports.wide_pauses import StatedPauses
from loomlog.services.families.registry import all_families
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.absence import AbsenceCheck
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.family import Topics
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS

log = logging.getLogger(__name__)

TOPIC_PREFIX = "loom"
RANDOM_BYTES = 10
"""Bytes of a new token; loomlog.schemas.ids takes that many."""


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
    return fresh_token(clock_ms(), os.urandom(RANDOM_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReads:
    """What a process has that may read all topics."""

    log: LogBrowser
    audits: AuditVerifications
    health: HealthChecks


class Application:
    """The use cases. Built from opened resources; `run` works until cancelled."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        hub: EventHub,
        appender: LogAppender,
        ranges: LogRanges,
        projection: ReadModels,
        positions: Positions,
        blobs: Blobs,
        codec: Codec,
        keepalive_s: float,
        entities: EntityParts,
        entity_commands: EntityCommands,
        entity_reads: EntityReads,
        reads_beside: Sequence[EntityReads] = (),
        state_files: StateFiles | None = None,
        topics: ApplicationTopics = TOPICS,
        clock_ms: Callable[[], int] = clock_ms,
        new_token: Callable[[], str] = new_token,
        publish_wait_s: float = limits.PUBLISH_WAIT_S,
        decision_wait_s: float = limits.DECISION_WAIT_S,
        control_wait_s: float = limits.CONTROL_WAIT_S,
        position_wait_s: float = limits.POSITION_WAIT_S,
        spent_wait_s: float = limits.SPENT_WAIT_S,
        compaction_wait_s: float = limits.COMPACTION_WAIT_S,
        on_batch: Callable[[int], None] = lambda records: None,
        keys: SubjectKeys | None = None,
        installation_key: SecretKey | None = None,
        credentials: RunCredentials | None = None,
        client_limits: ClientLimits | None = None,
        families: Sequence[Family[Any, Any, Any]] | None = None,
        family_options: Sequence[Any] = (),
        secrets: SecretRegistry = NO_SECRETS,
        request_keys: RequestKeys | None = None,
        change_feed: ChangeFeed | None = None,
        log_access: LogAccess | None = None,
        subscription_rows: SubscriptionRows | None = None,
        private_hosts: tuple[str, ...] = (),
        entity_tables: Sequence[EntityTables] = (),
        run_tables: PostgresReader | None = None,
        act_reads: SqlActReads | None = None,
        erasures: SqlErasures | None = None,
    ) -> None:
        """`families` None: those of the registry. `family_options`: what the configuration says of families, such as a
        ChannelOptions. `reads_beside`: of the further topic sets, for positions in their topics. `keys` None: content
        is not encrypted. `installation_key` None: callbacks are not signed. `subscription_rows` None: no events are
        sent to others; `private_hosts`: private addresses to which they may be. `credentials` None: requests with
        credentials are refused. `change_feed` None: it is off. `log_access` None: no transport offers all topics.
        `entity_tables`: the rows whose state health shows; these and `run_tables` have the problems of projections.
        `act_reads` None: no acts are listed. `erasures` None: an erasure leaves rows.
        """
        self.keys = keys
        self.authenticator = authenticator
        self.hub = hub
        self.clock_ms = clock_ms
        self.projection = projection
        self.publisher = CommandPublisher(
            appender, codec, topic=topics.commands, wait_s=publish_wait_s, on_batch=on_batch
        )
        self.ingress_publisher = CommandPublisher(appender, codec, topic=topics.ingress, wait_s=publish_wait_s)
        self.barrier = PositionBarrier(
            hub, positions, topic=topics.events, end_offset=ranges.end_offset, wait_s=position_wait_s
        )
        if keys is not None:
            self.barrier.register(topics.subjects, keys)
        self.sources = sources = StreamSources(
            hub=hub,
            projection=projection,
            barrier=self.barrier,
            blobs=blobs,
            partition_of=lambda any_id: self.publisher.partition_of(partition_key(any_id)),
            keepalive_s=keepalive_s,
            content=ContentAccess(keys),
        )
        self.entity_parts = entities
        self._replicas = entities.replicas
        families = all_families() if families is None else families
        self._of_starts = tuple(family.of_starts for family in families)
        self.queries = RunQueries(sources)
        self.provider_table = GlobalTable(codec, topics.providers, PROVIDERS)
        self.barrier.register(topics.providers, self.provider_table)
        self.probes = ProviderProbes(
            self.provider_table, appender, codec, clock_ms=clock_ms, fresh_token=repeatable(new_token, "probe")
        )
        self.clients = ClientConnections(
            appender,
            codec,
            topic=topics.clients,
            clock_ms=clock_ms,
            fresh_token=repeatable(new_token, "client"),
            client_limits=client_limits or ClientLimits(),
        )
        self.runs = RunStarts(
            sources,
            self.queries,
            self.publisher,
            clock_ms=clock_ms,
            fresh_token=repeatable(new_token, "run"),
            decision_wait_s=decision_wait_s,
            admit=self._admit_run,
            credentials=credentials,
            read_positions=self._positions_of_start,
            require_publisher=lambda caller, channel: self._publish_rights.require_publisher(caller, channel),
            secrets=secrets,
        )
        self.usage = Usage(sources, end_offset=partial(ranges.end_offset, topics.events), wait_s=spent_wait_s)
        self.forks = Forks(self.runs, self.queries, clock_ms=clock_ms, fresh_token=repeatable(new_token, "fork"))
        self.imports = RunImports(sources, self.publisher, clock_ms=clock_ms, wait_s=decision_wait_s)
        self.repairs = AggregateRepair(
            entities, clock_ms=clock_ms, fresh_token=command_tokens(new_token, "repair"), wait_s=control_wait_s
        )
        self.control = RunControl(
            sources,
            self.queries,
            self.publisher,
            clock_ms=clock_ms,
            fresh_token=command_tokens(new_token, "run control"),
            wait_s=control_wait_s,
        )
        for reads in (entity_reads, *reads_beside):
            self.barrier.register(reads.topic, reads, partitions=reads.partitions)
        self._request_keys = request_keys
        self.entity_reads = entity_reads
        absence = AbsenceCheck([parts.replicas for parts in entities.each])
        context = FamilyContext(
            parts=entities,
            commands=entity_commands,
            reads=entity_reads,
            codec=codec,
            blobs=blobs,
            decrypt=sources.content.decrypt,
            clock_ms=clock_ms,
            keys=keys,
        )
        context.provide(
            *family_options, absence, InstallationCommands(entities.client, entities.replicas, wait_s=control_wait_s)
        )
        context.provide(*(one for one in (act_reads, erasures) if one is not None))
        if change_feed is not None:
            context.provide_as(ChangeFeed, change_feed)
        self._provide_runs(context, ranges, topics.events, installation_key, new_token)
        handlers, self._families = open_families(context, families)
        authenticator.directory = context.get(CallerDirectory)
        self.quotas = context.get(CallerQuotas)
        self.acts = context.get(ActRecorder)
        self.limits = context.get(SpendingLimits)
        self.wide_pauses = context.get(StatedPauses)
        self.runnable_agents = context.get(RunnableAgents)
        self._publish_rights = context.get(PublishRights)
        self.mcp_logins = context.get(McpLogins)
        self.endpoints = {one: handler for each in self._families for one, handler in each.endpoints.items()}
        self.family_streams = FamilyStreams(keepalive_s=keepalive_s)
        self.backups = Backups(
            sources,
            ranges,
            codec,
            self.wide_pauses,
            state_files,
            self.limits,
            events_topic=topics.events,
            clock_ms=clock_ms,
            entities=entities,
        )
        self.state_restore = StateRestore(
            sources,
            self.publisher,
            self.wide_pauses,
            self.limits,
            clock_ms=clock_ms,
            wait_s=decision_wait_s,
            entities=entities,
            ranges=ranges,
        )
        self.run_states = RunStates(sources)
        self.interrupts = InterruptActions(sources, self.queries, self.control)
        self.compactions = SessionCompactions(
            self.runs,
            self.control,
            self.queries,
            clock_ms=clock_ms,
            fresh_token=repeatable(new_token, "compaction"),
            wait_s=compaction_wait_s,
        )
        self.erasure = SubjectErasure(
            sources,
            self.queries,
            self.control,
            fresh_token=repeatable(new_token, "erasure"),
            entities=EntityContent(entities, ranges, codec),
            erasers=[one for opened in self._families for one in opened.erasers],
            rows=context.find(RowErasure),
            receipts=ErasureReceipts(installation_key),
            credentials=context.get(CredentialErasure),
        )
        self.batches = Batches(sources, self.runs, self.control)
        self.bulk = BulkActions(self.queries, self.control, clock_ms=clock_ms)
        self.audit_log = AuditLog(sources, ranges, codec, events_topic=topics.events, commands_topic=topics.commands)
        log_reads = self.audit_log.reads
        self._event_webhooks: EventWebhooks | None = None
        self.run_feed = RunFeed(sources, ranges, codec, log_reads, events_topic=topics.events)
        if subscription_rows is not None and installation_key is not None:
            self._event_webhooks = EventWebhooks(
                subscription_rows,
                installation_key,
                CallbackClient(private_hosts=private_hosts),
                self.run_feed,
                private_hosts=private_hosts,
                process=new_token(),
                clock_ms=clock_ms,
                new_token=new_token,
            )
        self.dead_letters = DeadLetters(
            ranges, appender, codec, log_reads, clock_ms=clock_ms, request_token=repeatable(new_token, "dead letter")
        )
        self.projection_problems = ProjectionProblems(run_tables, [tables.reader for tables in entity_tables])
        self._log_reads: LogReads | None = None
        if log_access is not None:
            verifier = _log_verifier(log_access, projection, codec, blobs)
            self._log_reads = LogReads(
                log=LogBrowser(
                    log_access,
                    codec,
                    sources.content,
                    log_reads,
                    prefix=topics.events.removesuffix(".run.events"),
                ),
                audits=AuditVerifications(verifier),
                health=HealthChecks(
                    log_access,
                    verifier,
                    projection,
                    self.barrier,
                    entities.replicas,
                    entity_tables,
                    OpenLetters(log_access.ranges, codec),
                    clock_ms=clock_ms,
                ),
            )
        self.partitions = Partitions(_followed_topics(hub, topics, entities), projection, ranges, codec)
        self.histories = RunHistories(
            sources, self.queries, ranges, codec, events_topic=topics.events, clock_ms=clock_ms
        )
        self.definition_runs = DefinitionRuns(context.get(RunBlame), self.queries, self.histories)
        self.dispatch = Dispatch(
            {**application_handlers(self), **handlers},
            clock_ms=clock_ms,
            new_token=new_token,
            acts=self.acts,
            absence=absence,
        )

    def _provide_runs(
        self,
        context: FamilyContext,
        ranges: LogRanges,
        events_topic: str,
        secret: SecretKey | None,
        new_token: Callable[[], str],
    ) -> None:
        """Provide what families need of runs and of requests."""
        ingress = IngressLog(
            append=partial(append_delivery, self.ingress_publisher),
            ranges=ranges,
            read_positions=lambda tenant, agent: self._positions_of_start(tenant, agent, ""),
            runs=HubRunWatch(self.sources),
            secret=secret,
            new_token=repeatable(new_token, "webhook"),
        )
        request = CurrentRequest(
            command_ids=lambda step: partial(_command_id, command_tokens(new_token, step)),
            issued_at_ms=lambda: 0 if current_request.get().idempotency_key else self.clock_ms(),
            origin=_request_origin,
        )
        users = UserSources(
            operations=product_operations, principal=self.authenticator.named, count_memory=self._count_memory
        )
        runs = RunSources(find=self.projection.run, ranges=ranges, events_topic=events_topic)
        context.provide(ingress, request, users, runs)
        context.provide_as(RunReads, self.projection)
        context.provide_as(ApprovalCalls, RunApprovals(self))
        context.provide_as(RecordedSpending, self.usage)

    async def require_first_body(self, key: str, body: str) -> None:
        """Raise Refused(idempotency_key_reused) for a key that was used with another body. While the keys cannot
        be looked up only the owners compare bodies, each for what it owns.
        """
        if self._request_keys is None:
            return
        try:
            first = await self._request_keys.first_body(key, body)
        except ConnectorError as error:
            log.warning("Idempotency-Keys cannot be looked up: %s", error)
            return
        if first != body:
            raise key_reused()

    @property
    def log(self) -> LogBrowser:
        """All topics and their records."""
        return self._all_topics().log

    @property
    def audits(self) -> AuditVerifications:
        """Verifications of the log."""
        return self._all_topics().audits

    @property
    def health(self) -> HealthChecks:
        """Checks of the parts of the installation."""
        return self._all_topics().health

    def _all_topics(self) -> "LogReads":
        assert self._log_reads is not None, "this process was not given access to all topics"
        return self._log_reads

    @property
    def event_webhooks(self) -> EventWebhooks | None:
        """Events that are sent to others; None without an installation key."""
        return self._event_webhooks

    def _positions_of_start(self, tenant: str, agent: str, user_id: str) -> tuple[str, ...]:
        """Return what the owner of a run must have read of entities, because this process has."""
        replicated = (self._replicas.position(one) for of_starts in self._of_starts for one in of_starts(tenant))
        written = (one for services in self._families for one in services.start_positions(tenant, agent, user_id))
        return (*(one for one in replicated if one), *written)

    async def _count_memory(self, tenant: str, subject: str) -> tuple[Mapping[str, int], Sequence[str]]:
        findings = await self.erasure.content_of(tenant, subject)
        return {"user_scope_rows": counts_of_clients(findings).get("memory_rows", 0)}, findings.errors

    async def _admit_run(self, caller: Caller, who: RunIdentity, agent: str) -> None:
        for services in self._families:
            await services.admit_run(caller, who, agent)

    async def open_stream(self, endpoint: Endpoint, request: EndpointRequest) -> FamilyStream:
        """Open the stream of an endpoint that answers with one. Raises Refused."""
        code = endpoint.unavailable_code
        source = await run_refusing(self.endpoints[endpoint](request), unavailable_code=code)
        assert not isinstance(source, EndpointAnswer | AsOperation), "the declaration says that it is a stream"
        return self.family_streams.open(source, unavailable_code=code)

    def end_streams(self) -> None:
        """End the streams of all clients, because the process is shutting down; they reconnect to another."""
        self.hub.stop()
        if self._log_reads is not None:
            self._log_reads.audits.stop()
        self.family_streams.stop()

    async def run(self, events: LogTail, previews: LogTail, *background_tasks: Callable[[], Awaitable[None]]) -> None:
        """Publish and read until cancelled, together with `background_tasks`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.publisher.run(), name="publisher")
                group.create_task(self.hub.run(events, previews), name="hub")
                group.create_task(publish_ingress(self.ingress_publisher), name="deliveries")
                if self._event_webhooks is not None:
                    group.create_task(self._event_webhooks.run(), name="event webhooks")
                for opened in self._families:
                    for name, work in opened.tasks.items():
                        group.create_task(work(), name=name)
                for task in background_tasks:
                    group.create_task(_run_task(task))
        finally:
            for opened in reversed(self._families):
                await opened.close()
            for parts in self.entity_parts.each:
                parts.client.close()


def _request_origin() -> tuple[str, str]:
    request = current_request.get()
    return request.transport, request.request_id


def _command_id(draw: Callable[[], str]) -> str:
    """Return the id of a command of the present request."""
    return command_id(draw())


def _followed_topics(hub: EventHub, topics: ApplicationTopics, entities: EntityParts) -> list[FollowedTopic]:
    """Return what this process follows: the runs, and each set of entities."""
    runs = FollowedTopic(
        name="runs", topic=topics.events, partitions=hub.partitions, term=hub.term, end_offset=hub.position
    )
    sets = [
        FollowedTopic(
            name=parts.family.name,
            topic=parts.topics.events,
            partitions=range(parts.replicas.partitions),
            term=parts.replicas.term,
            end_offset=parts.replicas.next_offset,
        )
        for parts in entities.each
    ]
    return [runs, *sets]


def _log_verifier(access: LogAccess, projection: ReadModels, codec: Codec, blobs: Blobs) -> LogVerifier:
    return LogVerifier(
        LogSources(
            open_ranges=access.open_ranges,
            count_partitions=access.count_partitions,
            find_run=partial(projection.audit_row, EVERY_TENANT),
            codec=codec,
            keys=access.trusted_keys,
            blobs=blobs,
            place=access.place,
        )
    )


async def _run_task(task: Callable[[], Awaitable[None]]) -> None:
    await task()
