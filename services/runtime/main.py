"""runtime: owns partitions of runs, calls models and tools, appends.

    python -m loomlog.services.runtime.main

Several may run; the group spreads the partitions. SIGTERM drains: calls under way get a bounded time to finish and to
be recorded, then the partitions are given up. Any unexpected exception ends the process with 1, so that its supervisor
starts it again (no silent death).

Before: the environment and the configuration files. After: resources.py opens, effects.py makes calls,
services/stream/host.py goes round.
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop

from loomlog.connectors.configuration import ConfigurationError, ProcessConfiguration, load, prepare_volumes
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process import logs
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.process.liveness_sockets import request_handover, wait_for_disconnect
from loomlog.connectors.tools.remote_calls import RESULTS_TOPIC
from loomlog.services.runtime import topics
from loomlog.services.runtime.admission.queue import build_admission_queue
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.effects import NO_TOOLS, build_effect_handlers
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.routing import check_configured_tiers
from loomlog.services.runtime.resources import RuntimeResources, open_resources
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.late_results import ResultForwarder
from loomlog.services.runtime.settings import MissingRuntimeSetting
from loomlog.services.runtime.telemetry.exposition import build_exposition
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.metrics_server import ADDRESS, bind_socket, serve
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.encryption.content_fields import dead_letter_value
from loomlog.services.stream.encryption.subject_keys import WrongInstallationKey
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.standby import Standby
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.snapshots.snapshots import Snapshots

log = logging.getLogger("loomlog.runtime")

OPEN_FILES = 8_192
"""Connections to providers, tools and clients of a few thousand calls; taken as far as the system allows it."""


async def run(loaded: ProcessConfiguration) -> None:
    """Until SIGTERM or SIGINT, or until something fails."""
    async with open_resources(loaded) as outside:
        await _serve(loaded, outside)


async def _serve(loaded: ProcessConfiguration, resources: RuntimeResources) -> None:
    settings, codec, appender, ranges = resources.settings, resources.codec, resources.appender, resources.ranges
    board, budgets, keys, remote, beside = (
        resources.pauses,
        resources.budgets,
        resources.keys,
        resources.remote_tools,
        resources.standby,
    )
    secrecy = ContentEncryption(keys)
    family = RunFamily()
    metrics = RunMetrics()
    watched = metrics.instrument(resources.tracing)
    tallies = RunSummaries(codec, appender, topic=topics.TALLY_TOPIC, clock_ms=clock_ms)
    past = EndedAggregates(family, codec, ranges, topics.TOPICS.events)

    def term_of(partition: int) -> int:
        owner = host.owners.get(partition)
        return owner.partition.term if owner is not None and owner.partition is not None else -1

    previews = Previews(codec, appender, topic=topics.DELTAS_TOPIC, partitions=resources.partitions, term_of=term_of)
    work = build_effect_handlers(
        loaded,
        settings,
        codec=codec,
        appender=appender,
        tracing=watched,
        previews=previews,
        encryption=secrecy,
        budgets=budgets.reservations,
        routing=resources.routing,
        hooks=resources.hooks.runner,
        credentials=resources.credentials,
        extra_tools=remote.tools if remote is not None else NO_TOOLS,
        clients=resources.client_tools.tools,
    )

    door = build_admission_queue(loaded)
    responses = InterruptionAnswers(secrecy, mask=work.mask)

    def desk(number: int, term: int, known_since_ms: int, forgotten_until: int) -> RunCommandHandler:
        tallies.set_term(number, term)
        return RunCommandHandler(
            number=number,
            partitions=resources.partitions,
            known_since_ms=known_since_ms,
            forgotten_until=forgotten_until,
            definitions=resources.routing.definitions,
            index=resources.index,
            past=past,
            run_summaries=tallies,
            clock_ms=clock_ms,
            absent_state=family.absent,
            tracing=watched,
            pauses=lambda: board.table,
            encryption=secrecy,
            interruption_answers=responses,
            read_partial_output=work.partial_outputs.read,
            budgets=budgets.reservations,
            admission_queue=door,
            credentials=resources.credentials,
        )

    letters: dict[str, Any] = {}
    if keys is not None:
        letters = {"kept": dead_letter_value(keys, codec, topics.TOPICS.commands, never=RESULTS_TOPIC)}
    dead_letters = DeadLetters(
        codec, appender, topic=topics.TOPICS.dead_letters, service="runtime", clock_ms=clock_ms, **letters
    )
    for results in (remote.calls if remote is not None else None, resources.client_tools.results):
        if results is not None:
            results.on_unreadable = lambda record, error: dead_letters.park(record, kind="undecodable", error=error)
    hand_over = ResultForwarder(
        codec,
        appender,
        topic=topics.TOPICS.commands,
        partitions=resources.partitions,
        clock_ms=clock_ms,
        name=settings.name,
    )
    calls = EffectRunner(
        family,
        run=work.run,
        done=lambda partition, aggregate, tenant, order: host.result(partition, aggregate, tenant, order),
        clock_ms=clock_ms,
        hand_over=hand_over.forward,
        told=secrecy.describe_error,
    )
    workplace = HostContext(
        family=family,
        codec=codec,
        topics=topics.TOPICS,
        appender=appender,
        ranges=ranges,
        snapshots=Snapshots(family, codec, appender=appender, ranges=ranges, topic=topics.TOPICS.snapshots),
        ended_aggregates=past,
        dead_letters=dead_letters,
        effect_runner=calls,
        make_handler=desk,
        clock_ms=clock_ms,
        name=settings.name,
        liveness_address=beside.liveness_server.endpoint if beside is not None else "",
    )
    standby = None
    if beside is not None:
        standby = Standby(
            workplace,
            life=resources.incarnation,
            tail=beside.tail,
            ranges=beside.ranges,
            until_gone=wait_for_disconnect,
        )
    host = Host(
        workplace,
        membership=resources.group,
        commands=resources.commands_tail,
        standby=standby,
        request_handover=request_handover if beside is not None else None,
        drain_s=settings.drain_timeout_s,
    )
    if beside is not None:
        beside.liveness_server.on_handover_request = host.ownership.handover_requested
    resources.group.report_held_partitions(lambda: host.owners)
    board.changed = host.apply_wide_pauses
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    raise_open_file_limit(OPEN_FILES)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(host.run(), name="host"),
            tasks.create_task(board.follow(resources.control_tail), name="pauses"),
            tasks.create_task(budgets.host.run(), name="owner of the books"),
            tasks.create_task(budgets.replica.follow(budgets.tail), name="the books"),
            tasks.create_task(budgets.client.run(), name="commands for the books"),
            tasks.create_task(resources.hooks.global_table.follow(resources.hooks_tail), name="hooks"),
            tasks.create_task(resources.credentials.run(), name="credentials"),
            tasks.create_task(tallies.run(), name="tallies"),
            tasks.create_task(previews.run(), name="previews"),
            tasks.create_task(metrics.measure_loop_lag(), name="event loop lag"),
            *resources.client_tools.start_tasks(tasks),
            # Whoever owns the first partition probes, so somebody does as long as any runtime works.
            *resources.routing.start_tasks(tasks, resources.providers_tail, is_active_prober=lambda: term_of(0) >= 0),
        ]
        if remote is not None:
            running.append(tasks.create_task(remote.calls.follow(remote.results), name="results of remote tools"))
        if keys is not None and resources.subject_keys_tail is not None:
            running.append(tasks.create_task(keys.follow(resources.subject_keys_tail), name="subject keys"))
        where = "off"
        if settings.metrics_port is not None:
            listening = bind_socket(settings.metrics_port)
            where = f"http://{ADDRESS}:{listening.getsockname()[1]}/metrics"
            page = build_exposition(metrics, host, calls, dead_letters, queues=work.queues, admission_queue=door)
            running.append(tasks.create_task(serve(listening, page), name="metrics"))
        log.info(
            "runtime %s is up, %d partitions in all, metrics %s",
            settings.name,
            resources.partitions,
            where,
        )
        await stop.wait()
        log.info("stopping: calls under way may finish for %.0f s", settings.drain_timeout_s)
        if not await host.drain(settings.drain_timeout_s):
            log.warning("not every call finished in time; the next owner takes them up")
        if beside is not None:
            beside.liveness_server.announce_shutdown()
        for task in running:
            task.cancel()
    await work.close()


def main() -> int:
    """The process; the exit code."""
    try:
        loaded = load(os.environ, working_directory=Path.cwd())
        logs.configure_logging(loaded.settings.log_level)
        if loaded.settings.bash_enabled:
            disable_process_dumping()
        tiers = check_configured_tiers(loaded, os.environ)
        for warning in (*loaded.warnings, *prepare_volumes(loaded.configuration), *tiers):
            log.warning("%s", warning)
        tune_gc()
        uvloop.run(run(loaded))
    except (ConfigurationError, MissingRuntimeSetting, WrongInstallationKey) as error:
        print(f"runtime cannot start: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        return 2
    except Exception as error:
        for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            # What is outside explains itself; where it was noticed helps nobody.
            trace = None if isinstance(failure, ConnectorError) else failure
            log.error("runtime ends: %s: %s", type(failure).__name__, failure, exc_info=trace)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
