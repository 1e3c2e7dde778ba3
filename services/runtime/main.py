"""runtime: owns partitions of runs, calls models and tools, appends.

    python -m loomlog.services.runtime.main

Several may run; the group spreads the partitions. SIGTERM drains: calls under way get a bounded time to finish and to
be recorded, then the partitions are given up. Any unexpected exception ends the process with 1, so that its supervisor
starts it again (no silent death).

Before: the environment and the configuration files. After: outside.py opens, work.py makes calls,
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

from loomlog.connectors.configuration import ConfigurationProblem, Loaded, load, prepare_volumes
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process import logs
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.process.liveness_sockets import request_handover, wait_for_disconnect
from loomlog.connectors.tools.remote_calls import RESULTS_TOPIC
from loomlog.services.runtime import topics
from loomlog.services.runtime.admission.queue import door_of
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.encryption import Secrecy
from loomlog.services.runtime.effects import NO_TOOLS, calls_of
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.routing import checked_tiers
from loomlog.services.runtime.resources import Outside, opened
from loomlog.services.runtime.run.command_handler import RunDesk
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import Responses
from loomlog.services.runtime.run.late_results import HandOver
from loomlog.services.runtime.settings import MissingSetting
from loomlog.services.runtime.telemetry.exposition import exposition
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.metrics_server import ADDRESS, bound_socket, serve
from loomlog.services.runtime.telemetry.run_summaries import Tallies
from loomlog.services.stream.context import Workplace
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import Calls
from loomlog.services.stream.encryption.content_fields import letters_value
from loomlog.services.stream.encryption.subject_keys import WrongKey
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.standby import Standby
from loomlog.services.stream.partition.ended_aggregates import Past
from loomlog.services.stream.snapshots.snapshots import Snapshots

log = logging.getLogger("loomlog.runtime")

OPEN_FILES = 8_192
"""Connections to providers, tools and clients of a few thousand calls; taken as far as the system allows it."""


async def run(loaded: Loaded) -> None:
    """Until SIGTERM or SIGINT, or until something fails."""
    async with opened(loaded) as outside:
        await _serve(loaded, outside)


async def _serve(loaded: Loaded, outside: Outside) -> None:
    settings, codec, appender, ranges = outside.settings, outside.codec, outside.appender, outside.ranges
    board, budgets, keys, remote, beside = outside.board, outside.budgets, outside.keys, outside.remote, outside.beside
    secrecy = Secrecy(keys)
    family = RunFamily()
    metrics = RunMetrics()
    watched = metrics.watching(outside.tracing)
    tallies = Tallies(codec, appender, topic=topics.TALLY_TOPIC, clock_ms=clock_ms)
    past = Past(family, codec, ranges, topics.TOPICS.events)

    def term_of(partition: int) -> int:
        owner = host.owners.get(partition)
        return owner.partition.term if owner is not None and owner.partition is not None else -1

    previews = Previews(codec, appender, topic=topics.DELTAS_TOPIC, partitions=outside.partitions, term_of=term_of)
    work = calls_of(
        loaded,
        settings,
        codec=codec,
        appender=appender,
        tracing=watched,
        previews=previews,
        secrecy=secrecy,
        budgets=budgets.spending,
        routing=outside.routing,
        hooks=outside.hooks.hooks,
        credentials=outside.credentials,
        more_tools=remote.tools if remote is not None else NO_TOOLS,
        clients=outside.clients.tools,
    )

    door = door_of(loaded)
    responses = Responses(secrecy, mask=work.mask)

    def desk(number: int, term: int, known_since_ms: int, forgotten_until: int) -> RunDesk:
        tallies.owns(number, term)
        return RunDesk(
            number=number,
            partitions=outside.partitions,
            known_since_ms=known_since_ms,
            forgotten_until=forgotten_until,
            definitions=outside.routing.definitions,
            index=outside.index,
            past=past,
            tallies=tallies,
            clock_ms=clock_ms,
            absent=family.absent,
            tracing=watched,
            pauses=lambda: board.table,
            secrecy=secrecy,
            responses=responses,
            so_far=work.so_far.said,
            budgets=budgets.spending,
            door=door,
            credentials=outside.credentials,
        )

    letters: dict[str, Any] = {}
    if keys is not None:
        letters = {"kept": letters_value(keys, codec, topics.TOPICS.commands, never=RESULTS_TOPIC)}
    dead_letters = DeadLetters(
        codec, appender, topic=topics.TOPICS.dead_letters, service="runtime", clock_ms=clock_ms, **letters
    )
    for results in (remote.calls if remote is not None else None, outside.clients.results):
        if results is not None:
            results.unreadable = lambda record, error: dead_letters.park(record, kind="undecodable", error=error)
    hand_over = HandOver(
        codec,
        appender,
        topic=topics.TOPICS.commands,
        partitions=outside.partitions,
        clock_ms=clock_ms,
        name=settings.name,
    )
    calls = Calls(
        family,
        run=work.run,
        done=lambda partition, aggregate, tenant, order: host.result(partition, aggregate, tenant, order),
        clock_ms=clock_ms,
        hand_over=hand_over.give,
        told=secrecy.crash,
    )
    workplace = Workplace(
        family=family,
        codec=codec,
        topics=topics.TOPICS,
        appender=appender,
        ranges=ranges,
        snapshots=Snapshots(family, codec, appender=appender, ranges=ranges, topic=topics.TOPICS.snapshots),
        past=past,
        dead_letters=dead_letters,
        calls=calls,
        desk=desk,
        clock_ms=clock_ms,
        name=settings.name,
        lifeline=beside.lifeline.endpoint if beside is not None else "",
    )
    standby = None
    if beside is not None:
        standby = Standby(
            workplace, life=outside.life, tail=beside.tail, ranges=beside.ranges, until_gone=wait_for_disconnect
        )
    host = Host(
        workplace,
        membership=outside.group,
        commands=outside.commands,
        standby=standby,
        ask_for=request_handover if beside is not None else None,
        drain_s=settings.drain_timeout_s,
    )
    if beside is not None:
        beside.lifeline.on_handover_request = host.ownership.asked
    outside.group.report_held_partitions(lambda: host.owners)
    board.changed = host.obey
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    raise_open_file_limit(OPEN_FILES)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(host.run(), name="host"),
            tasks.create_task(board.follow(outside.control), name="pauses"),
            tasks.create_task(budgets.host.run(), name="owner of the books"),
            tasks.create_task(budgets.board.follow(budgets.tail), name="the books"),
            tasks.create_task(budgets.clerk.run(), name="commands for the books"),
            tasks.create_task(outside.hooks.board.follow(outside.registrations), name="hooks"),
            tasks.create_task(outside.credentials.run(), name="credentials"),
            tasks.create_task(tallies.run(), name="tallies"),
            tasks.create_task(previews.run(), name="previews"),
            tasks.create_task(metrics.watch_loop(), name="event loop lag"),
            *outside.clients.begin(tasks),
            # Whoever owns the first partition probes, so somebody does as long as any runtime works.
            *outside.routing.begin(tasks, outside.providers, is_prober=lambda: term_of(0) >= 0),
        ]
        if remote is not None:
            running.append(tasks.create_task(remote.calls.follow(remote.results), name="results of remote tools"))
        if keys is not None and outside.erasures is not None:
            running.append(tasks.create_task(keys.follow(outside.erasures), name="subject keys"))
        where = "off"
        if settings.metrics_port is not None:
            listening = bound_socket(settings.metrics_port)
            where = f"http://{ADDRESS}:{listening.getsockname()[1]}/metrics"
            page = exposition(metrics, host, calls, dead_letters, queues=work.queues, door=door)
            running.append(tasks.create_task(serve(listening, page), name="metrics"))
        log.info(
            "runtime %s is up, %d partitions in all, metrics %s",
            settings.name,
            outside.partitions,
            where,
        )
        await stop.wait()
        log.info("stopping: calls under way may finish for %.0f s", settings.drain_timeout_s)
        if not await host.drain(settings.drain_timeout_s):
            log.warning("not every call finished in time; the next owner takes them up")
        if beside is not None:
            beside.lifeline.announce_shutdown()
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
        tiers = checked_tiers(loaded, os.environ)
        for warning in (*loaded.warnings, *prepare_volumes(loaded.configuration), *tiers):
            log.warning("%s", warning)
        tune_gc()
        uvloop.run(run(loaded))
    except (ConfigurationProblem, MissingSetting, WrongKey) as error:
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
