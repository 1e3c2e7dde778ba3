"""A runtime over its open resources: the families, the calls, the host of its runs and those of its entities.

Before: main.py. After: services/stream/host.py runs the loop.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.connectors.process.liveness_sockets import request_handover, wait_for_disconnect
from loomlog.connectors.protocols import DefinitionsView, SkillShelf
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.tools.remote_calls import RESULTS_TOPIC
from loomlog.projections.run_queries import run_by_id
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.opening import (
    FamilyContext,
    OwnedPartitions,
    RunningProcess,
    StartedRuns,
    connect_families,
    open_families,
    read_family_options,
)
from loomlog.services.families.ports.agent_versions import AgentVersions
from loomlog.services.families.ports.approval_rules import TenantRules
from loomlog.services.families.ports.availability import ProviderAvailability
from loomlog.services.families.ports.call_budgets import RunBudgets
from loomlog.services.families.ports.call_waits import CallWaits
from loomlog.services.families.ports.callers import CallerDirectory
from loomlog.services.families.ports.compactions import DialogueKeeper
from loomlog.services.families.ports.credentials import CredentialValues
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.families.ports.prompts import DefinitionTextReader, PromptAdditions
from loomlog.services.families.ports.run_ends import EntryWriter, MessagePublisher, ToolCaller
from loomlog.services.families.ports.run_sources import RunSources
from loomlog.services.families.ports.startable_agents import StartableAgents
from loomlog.services.families.ports.tenant_tools import ToolsOfTenants
from loomlog.services.families.ports.tool_hooks import ToolHooks
from loomlog.services.families.ports.visible_channels import VisibleChannels
from loomlog.services.families.ports.wide_pauses import RunPauses
from loomlog.services.families.registry import all_families, all_operations, all_tools
from loomlog.services.runtime import topics
from loomlog.services.runtime.admission.queue import build_admission_queue
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.effects import NO_TOOLS, EffectHandlers, build_effect_handlers
from loomlog.services.runtime.entity_hosting import TopicSetResources
from loomlog.services.runtime.models.definition_resolver import can_start
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.resources import RuntimeResources
from loomlog.services.runtime.run.approval_notices import ApprovalNotices
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.end_hooks import RunEndHooks
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.run_end_actions import RunEndActions, run_end_commands
from loomlog.services.runtime.run.wait_answers import WaitAnswers
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_run_host, build_standby
from loomlog.services.runtime.telemetry.exposition import build_exposition
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.metrics_server import ADDRESS, bind_socket, serve
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.tools.operation_tools import build_operation_tools
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.encryption.content_fields import dead_letter_value
from loomlog.services.stream.entities.content import encrypt_content
from loomlog.services.stream.entities.hosting import HostedEntities
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates

log = logging.getLogger("loomlog.runtime")

OPEN_FILES = 8_192
"""File descriptors for the connections to providers, tools and clients of a few thousand calls; raised as far as the
system allows.
"""


async def open_process(loaded: ProcessConfiguration, resources: RuntimeResources) -> "RuntimeProcess":
    """Build a process. Raises as the families do that find their options or stores wrong."""
    settings = resources.settings
    stores = await connect_families(settings.postgres, settings.installation_secret, all_families())
    return RuntimeProcess(loaded, resources, stores)


class RuntimeProcess:
    """The parts of a runtime, built from its open resources in the order in which one needs the other."""

    def __init__(self, loaded: ProcessConfiguration, resources: RuntimeResources, stores: Iterable[Any]) -> None:
        """`stores`: those of the families, each of a type of its own."""
        self._loaded, self._resources, self._settings = loaded, resources, resources.settings
        self._clock_ms = resources.clock.now_ms
        self._blobs = FileBlobs(loaded.settings.effective_blob_folder)
        self._encryption = ContentEncryption(resources.keys)
        self._dead_letters = _build_dead_letters(resources)
        self._isolated = isolated_subjects(loaded.configuration)
        self._definition_texts = DefinitionTexts(self._blobs)
        self._admission_queue = build_admission_queue(loaded)
        self._run_family = RunFamily()
        self._ended_runs = EndedAggregates(self._run_family, resources.codec, resources.ranges, topics.TOPICS.events)
        self._metrics = RunMetrics()
        self._tracing = self._metrics.instrument(resources.tracing)
        self._run_summaries = RunSummaries(
            resources.codec, resources.appender, topic=topics.TALLY_TOPIC, clock_ms=self._clock_ms
        )
        self._metrics.on_model_answer = self._run_summaries.add_model_call
        self._context = self._family_context(stores)
        handlers, self._families = open_families(self._context, all_families())
        self._directory = self._context.get(CallerDirectory)
        self._operation_tools = build_operation_tools(
            all_tools(), all_operations(), handlers, is_isolated=self._is_isolated, clock_ms=self._clock_ms
        )
        self._complete_routing()
        self._approval_notices = ApprovalNotices(self._context.commands, clock_ms=self._clock_ms)
        self._previews = Previews(
            resources.codec,
            resources.appender,
            topic=topics.DELTAS_TOPIC,
            partitions=resources.partitions,
            term_of=self._term_of,
        )
        self._effects = self._build_effects()
        self._run_ends = self._build_run_ends()
        self._entities = [self._host_entities(opened) for opened in resources.entities.sets]
        self._host = self._host_runs()
        self._connect_hosts()

    async def serve(self) -> None:
        """Work until SIGTERM or SIGINT, then drain; or until something fails."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        raise_open_file_limit(OPEN_FILES)
        async with asyncio.TaskGroup() as tasks:
            running = list(self._start_tasks(tasks))
            metrics_address = "off"
            if self._settings.metrics_port is not None:
                listening = bind_socket(self._settings.metrics_port)
                metrics_address = f"http://{ADDRESS}:{listening.getsockname()[1]}/metrics"
                running.append(tasks.create_task(serve(listening, self._build_metrics_page()), name="metrics"))
            log.info(
                "runtime %s is up, %d partitions, metrics %s",
                self._settings.name,
                self._resources.partitions,
                metrics_address,
            )
            await stop.wait()
            await self._drain()
            for task in running:
                task.cancel()
        await self._effects.close()
        for services in reversed(self._families):
            await services.close()

    def _term_of(self, partition: int) -> int:
        """Return the term in which this process owns a partition of runs; -1 when it does not."""
        owner = self._host.owners.get(partition)
        return owner.partition.term if owner is not None and owner.partition is not None else -1

    def _is_first(self) -> bool:
        """Return whether it sweeps and probes: the owner of partition 0 does, so exactly one live runtime."""
        return self._term_of(0) >= 0

    def _is_isolated(self, tenant: str, subject: str) -> bool:
        return (tenant, subject) in self._isolated or self._directory.is_isolated(tenant, subject)

    def _on_run_ended(self, tenant: str, facts: RunFacts) -> None:
        for services in self._families:
            services.on_run_ended(tenant, facts)

    def _family_context(self, stores: Iterable[Any]) -> FamilyContext:
        resources, settings, entities = self._resources, self._settings, self._resources.entities
        context = FamilyContext(
            parts=entities.parts,
            commands=entities.parts.client,
            reads=entities.reads,
            codec=resources.codec,
            blobs=self._blobs,
            decrypt=self._encryption.decrypt_json,
            clock_ms=self._clock_ms,
            keys=resources.keys,
        )
        context.provide_as(StartableAgents, partial(can_start, resources.routing.definitions))
        context.provide_as(DefinitionTextReader, self._definition_texts)
        context.provide_as(Isolation, self._is_isolated)
        context.provide(
            *read_family_options(self._loaded, all_families()),
            *stores,
            RunSources(
                find=partial(run_by_id, resources.run_rows), ranges=resources.ranges, events_topic=topics.TOPICS.events
            ),
            ProviderAvailability(table=lambda: resources.routing.global_table.table),
            RunningProcess.of("runtime", self._loaded.settings.replica_id),
            StartedRuns(
                kafka=settings.kafka,
                ingress_topic=topics.INGRESS_TOPIC,
                ingress_group=topics.INGRESS_GROUP,
                session_timeout_ms=settings.session_timeout_ms,
                dead_letters=self._dead_letters,
                encryption=self._encryption,
                credentials=None if settings.installation_secret is None else resources.credentials,
                secret=settings.installation_secret,
            ),
            OwnedPartitions(
                terms=lambda: self._entities[0].owned_terms(),
                is_first=self._is_first,
                rows=entities.sets[0].topic_set.rows,
                run_rows=resources.run_rows,
            ),
        )
        return context

    def _complete_routing(self) -> None:
        """Give the routing what families know: versions of agents, rules of tenants, credentials."""
        routing, stored = self._resources.routing, self._context.get(CredentialValues)
        routing.definitions.versions = self._context.get(AgentVersions)
        routing.definitions.approval_policies.of_tenant = self._context.get(TenantRules).of_tenant
        routing.definitions.stored = routing.availability.stored = stored
        self._resources.credentials.stored = stored

    def _build_effects(self) -> EffectHandlers:
        resources, context = self._resources, self._context
        remote_tools = NO_TOOLS if resources.remote_tools is None else resources.remote_tools.tools
        return build_effect_handlers(
            self._loaded,
            self._settings,
            codec=resources.codec,
            appender=resources.appender,
            clock_ms=self._clock_ms,
            tracing=self._tracing,
            previews=self._previews,
            encryption=self._encryption,
            budgets=context.get(RunBudgets),
            routing=resources.routing,
            hooks=context.get(ToolHooks),
            credentials=resources.credentials,
            definition_texts=self._definition_texts,
            extra_tools={**remote_tools, **self._operation_tools},
            clients=resources.client_tools.tools,
            definitions=context.get(DefinitionsView),
            skills=context.get(SkillShelf),
            made_volumes=context.get(MadeVolumes),
            compaction_memory=context.get(DialogueKeeper),
            channels=context.get(VisibleChannels).rows,
            tenant_tools=context.get(ToolsOfTenants),
        )

    def _build_run_ends(self) -> RunEndActions:
        """Build what the ends of runs lead to: hooks, and reports to what has started them."""
        commands = self._context.commands
        hooks = RunEndHooks(
            commands,
            self._context.get(MessagePublisher),
            self._context.get(EntryWriter),
            self._blobs,
            self._context.get(ToolCaller),
            encryption=self._encryption,
            clock_ms=self._clock_ms,
        )
        triggers = run_end_commands(all_families())
        return RunEndActions(commands, hooks, self._ended_runs, self._resources.codec, triggers=triggers)

    def _run_context(self) -> RunContext:
        resources, effects, waits = self._resources, self._effects, self._context.get(CallWaits)
        return RunContext(
            family=self._run_family,
            partitions=resources.partitions,
            definitions=resources.routing.definitions,
            index=resources.index,
            ended_runs=self._ended_runs,
            run_summaries=self._run_summaries,
            clock_ms=self._clock_ms,
            tracing=self._tracing,
            pauses=self._context.get(RunPauses).now,
            encryption=self._encryption,
            interruption_answers=InterruptionAnswers(self._encryption, mask=effects.mask),
            read_partial_output=effects.partial_outputs.read,
            budgets=self._context.get(RunBudgets),
            replicas=resources.entities.parts.replicas,
            admission_queue=self._admission_queue,
            credentials=resources.credentials,
            definition_texts=self._definition_texts,
            prompt_memory=self._context.get(PromptAdditions),
            complete_call=effects.complete_call,
            wait_results=WaitAnswers(waits, self._operation_tools, is_isolated=self._is_isolated),
            release_lease=waits.release_lease,
            end_actions=self._run_ends,
            on_run_ended=self._on_run_ended,
            on_interruption=[services.on_question for services in self._families],
            on_approval=[
                self._approval_notices.on_asked,
                *(services.on_approval for services in self._families),
            ],
        )

    def _standby(self, readers: StandbyReaders | None) -> StandbyEdges | None:
        standby = self._resources.standby
        if standby is None:
            return None
        return StandbyEdges(
            incarnation=self._resources.incarnation,
            readers=readers,
            wait_for_disconnect=wait_for_disconnect,
            request_handover=request_handover,
            liveness_address=standby.liveness_server.endpoint,
        )

    def _host_entities(self, opened: TopicSetResources) -> HostedEntities:
        """Build the host of a topic set's partitions."""
        resources, encryption, standby = self._resources, self._encryption, self._standby(opened.readers)
        return HostedEntities(
            opened.topic_set.parts,
            resources.codec,
            appender=resources.appender,
            ranges=resources.ranges,
            commands=opened.commands_tail,
            dead_letters=self._dead_letters,
            rows=opened.topic_set.rows,
            run_topics=topics.TOPICS,
            clock_ms=self._clock_ms,
            name=self._settings.name,
            liveness_address="" if standby is None else standby.liveness_address,
            encrypt=encrypt_content(encryption.cipher, encryption.is_encrypted) if encryption.is_enabled else None,
            make_standby=None if standby is None else lambda context: build_standby(context, standby),
            request_handover=None if standby is None else standby.request_handover,
            drain_s=self._settings.drain_timeout_s,
        )

    def _host_runs(self) -> Host:
        """Build the host of the partitions of runs, and of the entities beside them."""
        resources = self._resources
        return build_run_host(
            self._run_context(),
            codec=resources.codec,
            topics=topics.TOPICS,
            appender=resources.appender,
            ranges=resources.ranges,
            membership=resources.group,
            commands=resources.commands_tail,
            dead_letters=self._dead_letters,
            run_effect=self._effects.run,
            name=self._settings.name,
            standby=self._standby(None if resources.standby is None else resources.standby.readers),
            drain_s=self._settings.drain_timeout_s,
            entities=[hosted.topic_set for hosted in self._entities],
        )

    def _connect_hosts(self) -> None:
        """Tell the hosts of each other, and of what families take from them."""
        for hosted in self._entities:
            hosted.attach(self._host)
            for services in self._families:
                hosted.receivers.update(services.receivers)
                hosted.put_credentials = services.put_credentials or hosted.put_credentials
        if self._resources.standby is not None:
            self._resources.standby.liveness_server.on_handover_request = self._host.handover_requested
        self._resources.group.report_held_partitions(lambda: self._host.owners)
        self._context.get(RunPauses).on_change(self._host.apply_wide_pauses)

    def _start_tasks(self, tasks: asyncio.TaskGroup) -> Iterator[asyncio.Task[None]]:
        resources = self._resources
        yield tasks.create_task(self._host.run(), name="host")
        yield tasks.create_task(resources.clock.run(), name="clock")
        for hosted in self._entities:
            yield tasks.create_task(hosted.run(), name="timers of resting entities")
        for one in resources.entities.sets:
            yield tasks.create_task(one.topic_set.parts.replicas.follow(one.events_tail), name="replicas of entities")
        for topic, follow in resources.tables.followers.items():
            yield tasks.create_task(follow(), name=topic)
        yield tasks.create_task(resources.credentials.run(), name="credentials")
        yield tasks.create_task(self._run_summaries.run(), name="run summaries")
        yield tasks.create_task(self._previews.run(), name="previews")
        yield tasks.create_task(self._metrics.measure_loop_lag(), name="event loop lag")
        yield from resources.client_tools.start_tasks(tasks)
        for services in self._families:
            for name, work in services.tasks.items():
                yield tasks.create_task(work(), name=name)
        yield tasks.create_task(self._approval_notices.run(), name="webhooks of approvals")
        yield tasks.create_task(self._run_ends.run(), name="actions at the ends of runs")
        yield from resources.routing.start_tasks(tasks, is_active_prober=self._is_first)
        if resources.remote_tools is not None:
            following = resources.remote_tools.calls.follow(resources.remote_tools.results)
            yield tasks.create_task(following, name="results of remote tools")

    def _build_metrics_page(self) -> Callable[[], bytes]:
        return build_exposition(
            self._metrics,
            self._host,
            self._host.context.effect_runner,
            self._dead_letters,
            queues=self._effects.queues,
            admission_queue=self._admission_queue,
            entities=self._entities,
            end_actions=self._run_ends,
            outcomes=[one for services in self._families for one in services.outcomes],
            ingress_lag=next(services.lags[topics.INGRESS_TOPIC] for services in self._families if services.lags),
            clock=self._resources.clock,
        )

    async def _drain(self) -> None:
        """Let calls under way finish, for a bounded time, and give the partitions up."""
        log.info("stopping: calls under way have %.0f s to finish", self._settings.drain_timeout_s)
        if not await self._host.drain(self._settings.drain_timeout_s):
            log.warning("not every call finished in time; the next owner continues them")
        if self._resources.standby is not None:
            self._resources.standby.liveness_server.announce_shutdown()


def _build_dead_letters(resources: RuntimeResources) -> DeadLetters:
    """Build the dead letters of commands, and of results of remote and client tools."""
    options: dict[str, Any] = {}
    if resources.keys is not None:
        commands = topics.TOPICS.commands
        kept = dead_letter_value(resources.keys, resources.codec, commands, never=RESULTS_TOPIC)
        # Commands for entities, and what others write, may have content in clear: they stay in their topics alone.
        entity_commands = {topics.ENTITY_TOPICS.commands, topics.CHANNEL_TOPICS.commands, topics.INGRESS_TOPIC}
        options["kept"] = lambda record: None if record.topic in entity_commands else kept(record)
    dead_letters = DeadLetters(
        resources.codec,
        resources.appender,
        topic=topics.TOPICS.dead_letters,
        service="runtime",
        clock_ms=resources.clock.now_ms,
        **options,
    )
    remote_tools = resources.remote_tools
    for results in (remote_tools.calls if remote_tools is not None else None, resources.client_tools.results):
        if results is not None:
            results.on_unreadable = lambda record, error: dead_letters.park(record, kind="undecodable", error=error)
    return dead_letters
