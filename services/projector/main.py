"""Projector process: writes the events of runs, of entities and of channels into Postgres.

    python -m loomlog.services.projector.main            projects until SIGTERM or SIGINT, then ends with 0
    python -m loomlog.services.projector.main rebuild    rebuilds runs beside the live build, compares, switches

Each topic has a projector of its own: a task with its own lock, cursors, builds and status. Others write the list of
acts and the feed of changes of memory, delete the rows of people who were erased, and push changes of memory to
change_subscriptions. All of them wait for a lost broker or Postgres. Any other failure ends the process with an error
on stderr and exit code 1, so that a supervisor restarts it. A rebuild that finds a difference ends with 1 and switches
nothing.

Before: the environment and the configuration files. After: loop.py, acts.py, memory_feed.py, change_push.py.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import uvloop

from loomlog.connectors.configuration.driver_options import embedder_options, encryption_keys
from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load_configuration
from loomlog.connectors.configuration.secret_registry import build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.embedders.catalog import build_embedder
from loomlog.connectors.embedders.errors import EmbedderNotConfigured
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.storage.postgres import connect
from loomlog.projections.engine.builds import CHANNEL_TABLES, ENTITY_TABLES
from loomlog.projections.engine.parallel_rebuild import ParallelRebuild
from loomlog.projections.engine.read_models import ReadModel, RunModel
from loomlog.projections.engine.rebuild import RebuildProgress
from loomlog.schemas.codec import Codec
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET
from loomlog.services.families import FamilyProblem
from loomlog.services.families.entity_folds import entity_model
from loomlog.services.families.registry import family_tools
from loomlog.services.projector.acts import build_act_log
from loomlog.services.projector.change_push import build_change_push, change_subscriptions
from loomlog.services.projector.erasures import build_erasures
from loomlog.services.projector.expired_items import ExpiredItems
from loomlog.services.projector.loop import Projector
from loomlog.services.projector.memory_feed import build_memory_feed
from loomlog.services.projector.memory_indexing import MemoryIndexing
from loomlog.services.projector.settings import ProjectorSettings, projector_settings

log = logging.getLogger("loomlog.projector")

MakeCodec = Callable[[], Awaitable[Codec]]


def main(arguments: Sequence[str] = ()) -> int:
    """Runs the process; returns the exit code."""
    if list(arguments) not in ([], ["rebuild"]):
        sys.stderr.write("usage: python -m loomlog.services.projector.main [rebuild]\n")
        return 2
    logs.configure_logging()
    try:
        settings, warnings = read_settings(os.environ, working_directory=Path.cwd())
        logs.configure_logging(settings.log_level)
        for warning in warnings:
            log.warning("%s", warning)
        options = projector_settings(settings)
        if settings.bash_enabled:
            disable_process_dumping()
        return uvloop.run(_run(settings, options, rebuild=bool(arguments)))
    except (ConfigurationError, ConnectorError, EmbedderNotConfigured, FamilyProblem) as error:
        log.error("projector ends: %s", error)
        return 1


async def _run(settings: Settings, options: ProjectorSettings, *, rebuild: bool) -> int:
    make_codec = partial(load_codec, settings)
    runs, entities, channels = build_projectors(options, await make_codec(), make_codec=make_codec)
    if rebuild:
        return await run_rebuild(options, runs)
    loops: list[Loop] = [runs, entities, channels]
    for tables, prefix in ((ENTITY_TABLES, options.of_entities.prefix), (CHANNEL_TABLES, options.of_channels.prefix)):
        loops.append(ExpiredItems(partial(connect, options.postgres), prefix, tables))
    files = load_configuration(settings, os.environ, working_directory=Path.cwd(), family_tools=family_tools())
    loops += [build_act_log(options, await make_codec()), build_erasures(options, await make_codec())]
    if options.memory_changes_enabled:
        loops.append(build_memory_feed(options, await make_codec()))
        secrets = build_secret_registry(files.configuration, settings, os.environ)
        if subscriptions := change_subscriptions(files.configuration.change_subscriptions, secrets):
            loops.append(build_change_push(options, subscriptions))
    loops.append(
        MemoryIndexing(
            options,
            make_codec,
            wrapping=encryption_keys(settings),
            embedder=build_embedder(embedder_options(files.configuration, settings), os.environ),
            clock_ms=lambda: time.time_ns() // 1_000_000,
        )
    )
    return await run(*loops)


class Loop(Protocol):
    """Work of the process until a stop."""

    async def run(self, stop: asyncio.Event) -> None: ...


async def run(*loops: Loop) -> int:
    """Runs the loops until SIGTERM or SIGINT. Raises what the first of them raised that ended with an error."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tune_gc()
    try:
        async with asyncio.TaskGroup() as tasks:
            for loop_of_process in loops:
                tasks.create_task(loop_of_process.run(stop))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return 0


async def run_rebuild(settings: ProjectorSettings, projector: Projector) -> int:
    """Rebuilds once and logs the comparison; returns the exit code."""
    partitions = await count_partitions(settings.kafka, settings.topic)
    report = await projector.rebuild(partitions, on_progress=_log_progress)
    for name, (live, new) in report.tables.items():
        log.info(
            "%s: %d rows live, %d rows new, %s", name, live.rows, new.rows, "equal" if live == new else "DIFFERENT"
        )
    log.info("build %d after %d events in %.1f s", report.build, report.events, report.seconds)
    if not report.switched:
        log.error("the builds differ: nothing is switched, build %d stays live", report.replaced)
        return 1
    log.info("it is live now")
    return 0


def build_projectors(
    settings: ProjectorSettings, codec: Codec | None = None, *, make_codec: MakeCodec | None = None
) -> tuple[Projector, Projector, Projector]:
    """The projectors of runs, of entities and of channels. Raises FamilyProblem."""
    entities, channels = (
        build_projector(
            of_topic, codec, make_codec=make_codec, make_model=partial(entity_model, settings.secret, topic_set)
        )
        for topic_set, of_topic in ((ENTITY_SET, settings.of_entities), (CHANNEL_SET, settings.of_channels))
    )
    return build_projector(settings, codec, make_codec=make_codec), entities, channels


def build_projector(
    settings: ProjectorSettings,
    codec: Codec | None = None,
    *,
    make_codec: MakeCodec | None = None,
    make_model: Callable[[], ReadModel] = RunModel,
) -> Projector:
    """A Projector over Kafka and Postgres; the default codec uses the committed schema ids.

    `make_model` is a function of a module, or a partial of one. With `make_codec`, rebuilds of a long log use several
    processes, each of which makes a codec and a model of its own.
    """
    connecting = partial(connect, settings.postgres)
    opening = partial(open_tail, settings.kafka, settings.topic)
    fill = None
    if make_codec is not None:
        fill = ParallelRebuild(
            connect=connecting,
            open_tail=opening,
            make_codec=make_codec,
            topic=settings.topic,
            owner=settings.owner,
            make_model=make_model,
        )
    return Projector(
        settings,
        connect=connecting,
        open_tail=opening,
        count_partitions=lambda: count_partitions(settings.kafka, settings.topic),
        model=make_model(),
        codec=codec,
        fill=fill,
    )


def _log_progress(progress: RebuildProgress) -> None:
    log.info(
        "%d events, %d to go, %.0f events/s, about %.0f s left",
        progress.events,
        progress.remaining,
        progress.events_per_s,
        progress.remaining / max(progress.events_per_s, 1.0),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
