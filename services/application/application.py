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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.protocols import Blobs, LogTail
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import partition_key
from loomlog.services.application.admin.entity_references import EntityContent
from loomlog.services.application.admin.erasure import SubjectErasure
from loomlog.services.application.admin.erasure_receipts import ErasureReceipts
from loomlog.services.application.admin.probes import ProviderProbes
from loomlog.services.application.admin.repair import AggregateRepair
from loomlog.services.application.clients.connections import ClientConnections
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.definition_runs import DefinitionRuns
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import key_reused, run_refusing
from loomlog.services.application.event_webhooks import EventWebhooks
from loomlog.services.application.health.health_checks import HealthChecks
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
from loomlog.services.application.queries.read_models import ReadModels
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.queries.usage import Usage
from loomlog.services.application.request_context import command_id, command_tokens, current_request, repeatable
from loomlog.services.application.resources import ApplicationResources, ApplicationTopics, ignore_batch
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
from loomlog.services.core.operations import Handlers
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
from loomlog.services.stream.entities.absence import AbsenceCheck
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReads:
    """What a process has that may read all topics."""

    log: LogBrowser
    audits: AuditVerifications
    health: HealthChecks


class Application:
    """The use cases. Built from opened resources; `run` works until cancelled."""

    def __init__(
        self, resources: ApplicationResources, families: Sequence[Family[Any, Any, Any]] | None = None
    ) -> None:
        """`families` None: those of the registry."""
        self.resources = resources
        self._of_registry = all_families() if families is None else families
        self._read_log()
        self._start_runs()
        handlers = self._open_families()
        self._act_on_runs()
        self._carry_states()
        self._read_histories()
        self._read_all_topics()
        self.dispatch = Dispatch(
            {**application_handlers(self), **handlers},
            clock_ms=self.clock_ms,
            new_token=resources.new_token,
            acts=self.acts,
            absence=self._absence,
        )

    def _read_log(self) -> None:
        """Build what publishes commands and what streams and reads are made from."""
        of = self.resources
        self.keys, self.authenticator, self.hub = of.keys, of.authenticator, of.hub
        self.clock_ms, self.projection = of.clock_ms, of.projection
        self.publisher = self._publisher(of.topics.commands, of.on_batch)
        self.ingress_publisher = self._publisher(of.topics.ingress)
        self.barrier = PositionBarrier(
            of.hub,
            of.positions,
            topic=of.topics.events,
            end_offset=of.ranges.end_offset,
            wait_s=of.waits.position_s,
        )
        if of.keys is not None:
            self.barrier.register(of.topics.subjects, of.keys)
        self.sources = StreamSources(
            hub=of.hub,
            projection=of.projection,
            barrier=self.barrier,
            blobs=of.blobs,
            partition_of=lambda any_id: self.publisher.partition_of(partition_key(any_id)),
            keepalive_s=of.keepalive_s,
            content=ContentAccess(of.keys),
        )
        self.provider_table = GlobalTable(of.codec, of.topics.providers, PROVIDERS)
        self.barrier.register(of.topics.providers, self.provider_table)
        for reads in (of.entity_reads, *of.reads_beside):
            self.barrier.register(reads.topic, reads, partitions=reads.partitions)

    def _publisher(self, topic: str, on_batch: Callable[[int], None] = ignore_batch) -> CommandPublisher:
        of = self.resources
        return CommandPublisher(of.appender, of.codec, topic=topic, wait_s=of.waits.publish_s, on_batch=on_batch)

    def _start_runs(self) -> None:
        """Build what starts runs and commands them."""
        of = self.resources
        self.queries = RunQueries(self.sources)
        self.probes = ProviderProbes(
            self.provider_table, of.appender, of.codec, clock_ms=self.clock_ms, fresh_token=self._repeatable("probe")
        )
        self.clients = ClientConnections(
            of.appender,
            of.codec,
            topic=of.topics.clients,
            clock_ms=self.clock_ms,
            fresh_token=self._repeatable("client"),
            client_limits=of.client_limits,
        )
        self.runs = RunStarts(
            self.sources,
            self.queries,
            self.publisher,
            clock_ms=self.clock_ms,
            fresh_token=self._repeatable("run"),
            decision_wait_s=of.waits.decision_s,
            admit=self._admit_run,
            credentials=of.credentials,
            read_positions=self._positions_of_start,
            require_publisher=lambda caller, channel: self._publish_rights.require_publisher(caller, channel),
            secrets=of.secrets,
        )
        self.control = RunControl(
            self.sources,
            self.queries,
            self.publisher,
            clock_ms=self.clock_ms,
            fresh_token=command_tokens(of.new_token, "run control"),
            wait_s=of.waits.control_s,
        )
        self.usage = Usage(
            self.sources, end_offset=partial(of.ranges.end_offset, of.topics.events), wait_s=of.waits.spent_s
        )

    def _repeatable(self, step: str) -> Callable[[], str]:
        """Return what draws the tokens of a step of a request: the same ones when it is repeated."""
        return repeatable(self.resources.new_token, step)

    def _open_families(self) -> Handlers:
        """Open the families, take what they provide, and return the handlers of their operations."""
        of = self.resources
        self._absence = AbsenceCheck([parts.replicas for parts in of.entities.each])
        context = self._context = self._family_context()
        handlers, self._families = open_families(context, self._of_registry)
        self.authenticator.directory = context.get(CallerDirectory)
        self.quotas = context.get(CallerQuotas)
        self.acts = context.get(ActRecorder)
        self.limits = context.get(SpendingLimits)
        self.wide_pauses = context.get(StatedPauses)
        self.runnable_agents = context.get(RunnableAgents)
        self._publish_rights = context.get(PublishRights)
        self.mcp_logins = context.get(McpLogins)
        self.endpoints = {one: handler for each in self._families for one, handler in each.endpoints.items()}
        self.family_streams = FamilyStreams(keepalive_s=of.keepalive_s)
        return handlers

    def _family_context(self) -> FamilyContext:
        """Return what families find in this process: of the log, of runs and of requests."""
        of = self.resources
        context = FamilyContext(
            parts=of.entities,
            commands=of.entity_commands,
            reads=of.entity_reads,
            codec=of.codec,
            blobs=of.blobs,
            decrypt=self.sources.content.decrypt,
            clock_ms=self.clock_ms,
            keys=of.keys,
        )
        context.provide(
            *of.family_options,
            *(one for one in (of.act_reads, of.erasures) if one is not None),
            self._absence,
            InstallationCommands(of.entities.client, of.entities.replicas, wait_s=of.waits.control_s),
            IngressLog(
                append=partial(append_delivery, self.ingress_publisher),
                ranges=of.ranges,
                read_positions=lambda tenant, agent: self._positions_of_start(tenant, agent, ""),
                runs=HubRunWatch(self.sources),
                secret=of.installation_key,
                new_token=self._repeatable("webhook"),
            ),
            CurrentRequest(
                command_ids=lambda step: partial(_command_id, command_tokens(of.new_token, step)),
                issued_at_ms=lambda: 0 if current_request.get().idempotency_key else self.clock_ms(),
                origin=_request_origin,
            ),
            UserSources(
                operations=product_operations, principal=self.authenticator.named, count_memory=self._count_memory
            ),
            RunSources(find=self.projection.run, ranges=of.ranges, events_topic=of.topics.events),
        )
        context.provide_as(RunReads, self.projection)
        context.provide_as(ApprovalCalls, RunApprovals(self))
        context.provide_as(RecordedSpending, self.usage)
        if of.change_feed is not None:
            context.provide_as(ChangeFeed, of.change_feed)
        return context

    def _act_on_runs(self) -> None:
        """Build what is done with runs, and with what is owned besides."""
        of = self.resources
        self.forks = Forks(self.runs, self.queries, clock_ms=self.clock_ms, fresh_token=self._repeatable("fork"))
        self.repairs = AggregateRepair(
            of.entities,
            clock_ms=self.clock_ms,
            fresh_token=command_tokens(of.new_token, "repair"),
            wait_s=of.waits.control_s,
        )
        self.run_states = RunStates(self.sources)
        self.interrupts = InterruptActions(self.sources, self.queries, self.control)
        self.compactions = SessionCompactions(
            self.runs,
            self.control,
            self.queries,
            clock_ms=self.clock_ms,
            fresh_token=self._repeatable("compaction"),
            wait_s=of.waits.compaction_s,
        )
        self.batches = Batches(self.sources, self.runs, self.control)
        self.bulk = BulkActions(self.queries, self.control, clock_ms=self.clock_ms)
        self.erasure = SubjectErasure(
            self.sources,
            self.queries,
            self.control,
            fresh_token=self._repeatable("erasure"),
            entities=EntityContent(of.entities, of.ranges, of.codec),
            erasers=[one for opened in self._families for one in opened.erasers],
            rows=self._context.find(RowErasure),
            receipts=ErasureReceipts(of.installation_key),
            credentials=self._context.get(CredentialErasure),
        )

    def _carry_states(self) -> None:
        """Build what takes runs and entities out of an installation, and into it."""
        of = self.resources
        self.imports = RunImports(self.sources, self.publisher, clock_ms=self.clock_ms, wait_s=of.waits.decision_s)
        self.backups = Backups(
            self.sources,
            of.ranges,
            of.codec,
            self.wide_pauses,
            of.state_files,
            self.limits,
            events_topic=of.topics.events,
            clock_ms=self.clock_ms,
            entities=of.entities,
        )
        self.state_restore = StateRestore(
            self.sources,
            self.publisher,
            self.wide_pauses,
            self.limits,
            clock_ms=self.clock_ms,
            wait_s=of.waits.decision_s,
            entities=of.entities,
            ranges=of.ranges,
        )

    def _read_histories(self) -> None:
        """Build what reads the events of runs."""
        of = self.resources
        events = of.topics.events
        self.audit_log = AuditLog(
            self.sources, of.ranges, of.codec, events_topic=events, commands_topic=of.topics.commands
        )
        self.run_feed = RunFeed(self.sources, of.ranges, of.codec, self.audit_log.reads, events_topic=events)
        self.event_webhooks = self._event_webhooks()
        self.histories = RunHistories(
            self.sources, self.queries, of.ranges, of.codec, events_topic=events, clock_ms=self.clock_ms
        )
        self.definition_runs = DefinitionRuns(self._context.get(RunBlame), self.queries, self.histories)

    def _event_webhooks(self) -> EventWebhooks | None:
        """Return what sends events to others; None without an installation key."""
        of = self.resources
        if of.subscription_rows is None or of.installation_key is None:
            return None
        return EventWebhooks(
            of.subscription_rows,
            of.installation_key,
            CallbackClient(private_hosts=of.private_hosts),
            self.run_feed,
            private_hosts=of.private_hosts,
            process=of.new_token(),
            clock_ms=self.clock_ms,
            new_token=of.new_token,
        )

    def _read_all_topics(self) -> None:
        """Build what operators read: dead letters, problems, partitions, and all topics where a process may."""
        of, log_reads = self.resources, self.audit_log.reads
        self.dead_letters = DeadLetters(
            of.ranges,
            of.appender,
            of.codec,
            log_reads,
            clock_ms=self.clock_ms,
            request_token=self._repeatable("dead letter"),
        )
        self.projection_problems = ProjectionProblems(of.run_tables, [tables.reader for tables in of.entity_tables])
        self.partitions = Partitions(
            _followed_topics(of.hub, of.topics, of.entities), self.projection, of.ranges, of.codec
        )
        self._log_reads: LogReads | None = None
        if of.log_access is None:
            return
        verifier = _log_verifier(of.log_access, self.projection, of.codec, of.blobs)
        prefix = of.topics.events.removesuffix(".run.events")
        self._log_reads = LogReads(
            log=LogBrowser(of.log_access, of.codec, self.sources.content, log_reads, prefix=prefix),
            audits=AuditVerifications(verifier),
            health=HealthChecks(
                of.log_access,
                verifier,
                self.projection,
                self.barrier,
                of.entities.replicas,
                of.entity_tables,
                OpenLetters(of.log_access.ranges, of.codec),
                clock_ms=self.clock_ms,
            ),
        )

    async def require_first_body(self, key: str, body: str) -> None:
        """Raise Refused(idempotency_key_reused) for a key that was used with another body. While the keys cannot
        be looked up only the owners compare bodies, each for what it owns.
        """
        if self.resources.request_keys is None:
            return
        try:
            first = await self.resources.request_keys.first_body(key, body)
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

    def _positions_of_start(self, tenant: str, agent: str, user_id: str) -> tuple[str, ...]:
        """Return what the owner of a run must have read of entities, because this process has."""
        replicas = self.resources.entities.replicas
        replicated = (replicas.position(one) for family in self._of_registry for one in family.of_starts(tenant))
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
                if self.event_webhooks is not None:
                    group.create_task(self.event_webhooks.run(), name="event webhooks")
                for opened in self._families:
                    for name, work in opened.tasks.items():
                        group.create_task(work(), name=name)
                for task in background_tasks:
                    group.create_task(_run_task(task))
        finally:
            for opened in reversed(self._families):
                await opened.close()
            for parts in self.resources.entities.each:
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
