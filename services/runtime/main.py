"""Main process of the runtime: owns partitions of runs, calls models and tools, appends.

    python -m loomlog.services.runtime.main

Several may run; the consumer group spreads the partitions. SIGTERM drains: calls under way get a bounded time to finish
and to be recorded, then the partitions are given up. Any unexpected exception ends the process with exit code 1, so
that its supervisor restarts it (no silent death).

Before: the environment and the configuration files. After: resources.py opens, process.py runs.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.volumes import prepare_volumes
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process import logs
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.services.core.refusals import StartProblem
from loomlog.services.families import FamilyProblem
from loomlog.services.families.process_start import load_for_start
from loomlog.services.runtime.process import open_process
from loomlog.services.runtime.resources import RuntimeResources, open_resources
from loomlog.services.runtime.telemetry.exposition import build_waiting_exposition
from loomlog.services.runtime.telemetry.metrics_server import bind_socket, serve

log = logging.getLogger("loomlog.runtime")


async def run(loaded: ProcessConfiguration) -> None:
    """Run until SIGTERM or SIGINT, or until something fails."""
    async with open_resources(loaded) as outside:
        if not outside.clock.is_believed:
            await _wait_for_clock(outside)
        process = await open_process(loaded, outside)
        await process.serve()


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
    except (ConfigurationError, FamilyProblem, StartProblem) as error:
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
