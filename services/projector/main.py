"""Projector process: writes the events of runs into Postgres.

    python -m loomlog.services.projector.main            projects until SIGTERM or SIGINT, then ends with 0
    python -m loomlog.services.projector.main rebuild    rebuilds beside the live build, compares, switches

It waits for a lost broker or Postgres. Any other failure ends it with an error on stderr and exit code 1, so that a
supervisor restarts it. A rebuild that finds a difference ends with 1 and switches nothing.

Before: the environment. After: loop.py.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.storage.postgres import connect
from loomlog.projections.engine.parallel_rebuild import ParallelRebuild
from loomlog.projections.engine.rebuild import RebuildProgress
from loomlog.schemas.codec import Codec
from loomlog.services.projector.loop import Projector
from loomlog.services.projector.settings import ProjectorSettings, projector_settings

log = logging.getLogger("loomlog.projector")

FETCH_WAIT_MS = 250
"""Longest wait of an empty fetch: a rebuild that seeks back to an offset waits for it once or twice."""

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
        return uvloop.run(_run(settings, options, rebuild=bool(arguments)))
    except (ConfigurationError, ConnectorError) as error:
        log.error("projector ends: %s", error)
        return 1


async def _run(settings: Settings, options: ProjectorSettings, *, rebuild: bool) -> int:
    make_codec = partial(load_codec, settings)
    projector = build_projector(options, await make_codec(), make_codec=make_codec)
    return await (run_rebuild(options, projector) if rebuild else run(projector))


async def run(projector: Projector) -> int:
    """Projects until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tune_gc()
    await projector.run(stop)
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


def build_projector(
    settings: ProjectorSettings, codec: Codec | None = None, *, make_codec: MakeCodec | None = None
) -> Projector:
    """A Projector over Kafka and Postgres; the default codec uses the committed schema ids.

    With `make_codec`, rebuilds of a long log use several processes, each of which makes a codec of its own.
    """
    connecting = partial(connect, settings.postgres)
    opening = partial(open_tail, settings.kafka, settings.topic, fetch_max_wait_ms=FETCH_WAIT_MS)
    fill = None
    if make_codec is not None:
        fill = ParallelRebuild(
            connect=connecting, open_tail=opening, make_codec=make_codec, topic=settings.topic, owner=settings.owner
        )
    return Projector(
        settings,
        connect=connecting,
        open_tail=opening,
        count_partitions=lambda: count_partitions(settings.kafka, settings.topic),
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
