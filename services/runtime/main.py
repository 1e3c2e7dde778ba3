"""Main process of the runtime: owns partitions of runs, calls models and tools, appends.

    python -m loomlog.services.runtime.main

Several may run; the consumer group spreads the partitions. SIGTERM drains: calls under way get a bounded time to finish
and to be recorded, then the partitions are given up. Any unexpected exception ends the process with exit code 1, so
that its supervisor restarts it (no silent death).

Before: the environment and the configuration files. After: resources.py opens, effects.py makes calls,
services/stream/host.py runs the loop.
"""

import asyncio
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.connectors.configuration.volumes import prepare_volumes
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process import logs
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.process.liveness_sockets import request_handover, wait_for_disconnect
from loomlog.connectors.protocols import DefinitionsView, SkillShelf
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.tools.remote_calls import RESULTS_TOPIC
from loomlog.projections.run_queries import run_by_id
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families import FamilyProblem
from loomlog.services.families.opening import (
    Families,
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
from loomlog.services.families.process_start import load_for_start
from loomlog.services.families.registry import all_families, all_operations, all_tools
from loomlog.services.runtime import topics
from loomlog.services.runtime.admission.queue import build_admission_queue
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.effects import NO_TOOLS, build_effect_handlers
from loomlog.services.runtime.entity_hosting import host_entities
from loomlog.services.runtime.models.definition_resolver import can_start
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.resources import RuntimeResources, open_resources
from loomlog.services.runtime.run.approval_notices import ApprovalNotices
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.wait_answers import WaitAnswers
from loomlog.services.runtime.run_end_setup import open_run_ends
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_run_host
from loomlog.services.runtime.settings import MissingRuntimeSetting
from loomlog.services.runtime.telemetry.exposition import build_exposition, build_waiting_exposition
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.metrics_server import ADDRESS, bind_socket, serve
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.tools.operation_tools import build_operation_tools
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.encryption.content_fields import dead_letter_value
from loomlog.services.stream.encryption.subject_keys import WrongInstallationKey
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates

log = logging.getLogger("loomlog.runtime")

OPEN_FILES = 8_192
"""File descriptors for the connections to providers, tools and clients of a few thousand calls; raised as far as the
system allows.
"""


async def run(loaded: ProcessConfiguration) -> None:
    """Run until SIGTERM or SIGINT, or until something fails."""
    async with open_resources(loaded) as outside:
        if not outside.clock.is_believed:
            await _wait_for_clock(outside)
        await _serve(loaded, outside)


async def _wait_for_clock(resources: RuntimeResources) -> None:
    """Wait until the clock is believed, with metrics that say so. The parts are made after it: some remember when."""
    settings, clock = resources.settings, resources.clock
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(clock.run())]
        if settings.metrics_port is not None:
            page = build_waiting_exposition(clock)
            beside.append(tasks.create_task(serve(bind_socket(settings.metrics_port), page)))
        await clock.wait_until_believed()
        for task in beside:
            task.cancel()


def _dead_letters(resources: RuntimeResources) -> DeadLetters:
    """The dead letters of commands, and of results of remote and client tools."""
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


def _standby_edges(resources: RuntimeResources, readers: StandbyReaders | None) -> StandbyEdges | None:
    standby = resources.standby
    if standby is None:
        return None
    return StandbyEdges(
        incarnation=resources.incarnation,
        readers=readers,
        wait_for_disconnect=wait_for_disconnect,
        request_handover=request_handover,
        liveness_address=standby.liveness_server.endpoint,
    )


async def _family_context(
    loaded: ProcessConfiguration,
    resources: RuntimeResources,
    families: Families,
    encryption: ContentEncryption,
    dead_letters: DeadLetters,
) -> FamilyContext:
    """Return what families find in this process, apart from what is known once its host is built."""
    settings, parts = resources.settings, resources.entities.parts
    context = FamilyContext(
        parts=parts,
        commands=parts.client,
        reads=resources.entities.reads,
        codec=resources.codec,
        blobs=FileBlobs(loaded.settings.effective_blob_folder),
        decrypt=encryption.decrypt_json,
        clock_ms=resources.clock.now_ms,
        keys=resources.keys,
    )
    context.provide_as(StartableAgents, partial(can_start, resources.routing.definitions))
    context.provide(
        *read_family_options(loaded, families),
        *await connect_families(settings.postgres, settings.installation_secret, families),
        RunSources(
            find=partial(run_by_id, resources.run_rows), ranges=resources.ranges, events_topic=topics.TOPICS.events
        ),
        ProviderAvailability(table=lambda: resources.routing.global_table.table),
        RunningProcess.of("runtime", loaded.settings.replica_id),
        StartedRuns(
            kafka=settings.kafka,
            ingress_topic=topics.INGRESS_TOPIC,
            ingress_group=topics.INGRESS_GROUP,
            session_timeout_ms=settings.session_timeout_ms,
            dead_letters=dead_letters,
            encryption=encryption,
            credentials=None if settings.installation_secret is None else resources.credentials,
            secret=settings.installation_secret,
        ),
    )
    return context


async def _serve(loaded: ProcessConfiguration, resources: RuntimeResources) -> None:
    settings, codec, appender = resources.settings, resources.codec, resources.appender
    clock_ms = resources.clock.now_ms
    remote_tools = resources.remote_tools
    replicas = resources.entities.parts.replicas
    encryption = ContentEncryption(resources.keys)
    family = RunFamily()
    metrics = RunMetrics()
    tracing = metrics.instrument(resources.tracing)
    run_summaries = RunSummaries(codec, appender, topic=topics.TALLY_TOPIC, clock_ms=clock_ms)
    metrics.on_model_answer = run_summaries.add_model_call

    def term_of(partition: int) -> int:
        owner = host.owners.get(partition)
        return owner.partition.term if owner is not None and owner.partition is not None else -1

    def is_first() -> bool:
        return term_of(0) >= 0  # the owner of partition 0 sweeps and probes, so exactly one live runtime does

    isolated = isolated_subjects(loaded.configuration)

    def is_isolated(tenant: str, subject: str) -> bool:
        return (tenant, subject) in isolated or directory.is_isolated(tenant, subject)

    definition_texts = DefinitionTexts(FileBlobs(loaded.settings.effective_blob_folder))
    families, dead_letters = all_families(), _dead_letters(resources)
    opening = await _family_context(loaded, resources, families, encryption, dead_letters)
    opening.provide_as(DefinitionTextReader, definition_texts)
    opening.provide_as(Isolation, is_isolated)
    opening.provide(
        OwnedPartitions(
            terms=lambda: entities[0].owned_terms(),
            is_first=is_first,
            rows=resources.entities.sets[0].rows,
            run_rows=resources.run_rows,
        )
    )
    handlers, opened = open_families(opening, families)
    budgets, pauses = opening.get(RunBudgets), opening.get(RunPauses)
    resources.routing.definitions.versions = opening.get(AgentVersions)
    resources.routing.definitions.approval_policies.of_tenant = opening.get(TenantRules).of_tenant
    resources.credentials.stored = stored = opening.get(CredentialValues)
    resources.routing.definitions.stored = resources.routing.availability.stored = stored
    directory = opening.get(CallerDirectory)
    operation_tools = build_operation_tools(
        all_tools(),
        all_operations(),
        handlers,
        is_isolated=is_isolated,
        clock_ms=clock_ms,
    )
    waits = opening.get(CallWaits)
    approval_notices = ApprovalNotices(opening.commands, clock_ms=clock_ms)
    previews = Previews(codec, appender, topic=topics.DELTAS_TOPIC, partitions=resources.partitions, term_of=term_of)
    effects = build_effect_handlers(
        loaded,
        settings,
        codec=codec,
        appender=appender,
        clock_ms=clock_ms,
        tracing=tracing,
        previews=previews,
        encryption=encryption,
        budgets=budgets,
        routing=resources.routing,
        hooks=opening.get(ToolHooks),
        credentials=resources.credentials,
        definition_texts=definition_texts,
        extra_tools={
            **(remote_tools.tools if remote_tools is not None else NO_TOOLS),
            **operation_tools,
        },
        clients=resources.client_tools.tools,
        definitions=opening.get(DefinitionsView),
        skills=opening.get(SkillShelf),
        made_volumes=opening.get(MadeVolumes),
        compaction_memory=opening.get(DialogueKeeper),
        channels=opening.get(VisibleChannels).rows,
        tenant_tools=opening.get(ToolsOfTenants),
    )
    admission_queue = build_admission_queue(loaded)

    def on_run_ended(tenant: str, facts: RunFacts) -> None:
        for services in opened:
            services.on_run_ended(tenant, facts)

    ended_runs = EndedAggregates(family, codec, resources.ranges, topics.TOPICS.events)
    run_ends = open_run_ends(
        loaded,
        resources.entities,
        ended_runs,
        codec,
        publisher=opening.get(MessagePublisher),
        entries=opening.get(EntryWriter),
        tools=opening.get(ToolCaller),
        encryption=encryption,
        clock_ms=clock_ms,
    )
    context = RunContext(
        family=family,
        partitions=resources.partitions,
        definitions=resources.routing.definitions,
        index=resources.index,
        ended_runs=ended_runs,
        run_summaries=run_summaries,
        clock_ms=clock_ms,
        tracing=tracing,
        pauses=pauses.now,
        encryption=encryption,
        interruption_answers=InterruptionAnswers(encryption, mask=effects.mask),
        read_partial_output=effects.partial_outputs.read,
        budgets=budgets,
        replicas=replicas,
        admission_queue=admission_queue,
        credentials=resources.credentials,
        definition_texts=definition_texts,
        prompt_memory=opening.get(PromptAdditions),
        complete_call=effects.complete_call,
        wait_results=WaitAnswers(waits, operation_tools, is_isolated=is_isolated),
        release_lease=waits.release_lease,
        end_actions=run_ends,
        on_run_ended=on_run_ended,
        on_interruption=[services.on_question for services in opened],
        on_approval=[approval_notices.on_asked, *(services.on_approval for services in opened)],
    )
    entities = host_entities(
        resources.entities,
        settings,
        codec,
        appender,
        resources.ranges,
        dead_letters=dead_letters,
        run_topics=topics.TOPICS,
        encryption=encryption,
        make_standby=lambda readers: _standby_edges(resources, readers),
        clock_ms=clock_ms,
    )
    host = build_run_host(
        context,
        codec=codec,
        topics=topics.TOPICS,
        appender=appender,
        ranges=resources.ranges,
        membership=resources.group,
        commands=resources.commands_tail,
        dead_letters=dead_letters,
        run_effect=effects.run,
        name=settings.name,
        standby=_standby_edges(resources, resources.standby.readers if resources.standby is not None else None),
        drain_s=settings.drain_timeout_s,
        entities=[hosted.topic_set for hosted in entities],
    )
    for hosted in entities:
        hosted.attach(host)
        for services in opened:
            hosted.receivers.update(services.receivers)
            hosted.put_credentials = services.put_credentials or hosted.put_credentials
    if resources.standby is not None:
        resources.standby.liveness_server.on_handover_request = host.handover_requested
    resources.group.report_held_partitions(lambda: host.owners)
    pauses.on_change(host.apply_wide_pauses)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    raise_open_file_limit(OPEN_FILES)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(host.run(), name="host"),
            tasks.create_task(resources.clock.run(), name="clock"),
            *(tasks.create_task(hosted.run(), name="timers of resting entities") for hosted in entities),
            *(
                tasks.create_task(one.parts.replicas.follow(one.events_tail), name="replicas of entities")
                for one in resources.entities.sets
            ),
            *(tasks.create_task(follow(), name=topic) for topic, follow in resources.tables.followers.items()),
            tasks.create_task(resources.credentials.run(), name="credentials"),
            tasks.create_task(run_summaries.run(), name="run summaries"),
            tasks.create_task(previews.run(), name="previews"),
            tasks.create_task(metrics.measure_loop_lag(), name="event loop lag"),
            *resources.client_tools.start_tasks(tasks),
            *(tasks.create_task(work(), name=name) for services in opened for name, work in services.tasks.items()),
            tasks.create_task(approval_notices.run(), name="webhooks of approvals"),
            tasks.create_task(run_ends.run(), name="actions at the ends of runs"),
            *resources.routing.start_tasks(tasks, is_active_prober=is_first),
        ]
        if remote_tools is not None:
            following = remote_tools.calls.follow(remote_tools.results)
            running.append(tasks.create_task(following, name="results of remote tools"))
        metrics_address = "off"
        if settings.metrics_port is not None:
            page = build_exposition(
                metrics,
                host,
                host.context.effect_runner,
                dead_letters,
                queues=effects.queues,
                admission_queue=admission_queue,
                entities=entities,
                end_actions=run_ends,
                outcomes=[one for services in opened for one in services.outcomes],
                ingress_lag=next(services.lags[topics.INGRESS_TOPIC] for services in opened if services.lags),
                clock=resources.clock,
            )
            listening = bind_socket(settings.metrics_port)
            metrics_address = f"http://{ADDRESS}:{listening.getsockname()[1]}/metrics"
            running.append(tasks.create_task(serve(listening, page), name="metrics"))
        log.info(
            "runtime %s is up, %d partitions, metrics %s",
            settings.name,
            resources.partitions,
            metrics_address,
        )
        await stop.wait()
        log.info("stopping: calls under way have %.0f s to finish", settings.drain_timeout_s)
        if not await host.drain(settings.drain_timeout_s):
            log.warning("not every call finished in time; the next owner continues them")
        if resources.standby is not None:
            resources.standby.liveness_server.announce_shutdown()
        for task in running:
            task.cancel()
    await effects.close()
    for services in reversed(opened):
        await services.close()


def main() -> int:
    """Run the process and return its exit code."""
    try:
        loaded = load_for_start(os.environ, working_directory=Path.cwd(), services=["runtime"])
        logs.configure_logging(loaded.settings.log_level)
        if loaded.settings.bash_enabled:
            disable_process_dumping()
        prepare_volumes(loaded.configuration)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        tune_gc()
        uvloop.run(run(loaded))
    except (ConfigurationError, FamilyProblem, MissingRuntimeSetting, WrongInstallationKey) as error:
        print(f"runtime cannot start: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        return 2
    except Exception as error:
        for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            # Errors of external systems explain themselves; a stack trace would not help.
            trace = None if isinstance(failure, ConnectorError) else failure
            log.error("runtime ends: %s: %s", type(failure).__name__, failure, exc_info=trace)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
