"""Insights process: live metrics over windows, read from the insights topic, never authoritative.

    python -m loomlog.services.insights.main

Stops on SIGTERM or SIGINT with 0. Any failure ends it with an error on stderr and exit code 1, so that a supervisor
restarts it: wrong settings, a port in use, a broker that does not answer at the start, a crash of Faust, a stall.
All tasks run in one TaskGroup; none can die unnoticed.

Before: the environment. After: app.py (Faust), web.py (the report).
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.services.insights.app import Insights, Stalled, member_name
from loomlog.services.insights.broker import build_credentials
from loomlog.services.insights.settings import InsightsSettings, insights_settings
from loomlog.services.insights.web import bind_socket, create_app, serve

log = logging.getLogger("loomlog.insights")


def main() -> int:
    """Runs the process; returns the exit code."""
    try:
        settings, warnings = read_settings(os.environ, working_directory=Path.cwd())
        options = insights_settings(settings)
    except (ConfigurationError, Permanent) as error:
        print(f"insights cannot start: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        return 1
    logs.configure_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    return run_process(settings, options)


def run_process(settings: Settings, options: InsightsSettings) -> int:
    """Runs until a signal (returns 0) or any failure (returns 1)."""
    try:
        uvloop.run(run(settings, options))
    except Exception as error:  # ends the process: the supervisor restarts it
        for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            # Failures of other systems explain themselves; a traceback would not help.
            trace = None if isinstance(failure, ConnectorError | OSError | Stalled) else failure
            log.error("insights ends: %s: %s", type(failure).__name__, failure, exc_info=trace)
        return 1
    return 0


async def run(settings: Settings, options: InsightsSettings) -> None:
    """Runs until SIGTERM or SIGINT. Raises Transient or Permanent when broker or registry cannot be used."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listening = bind_socket(options.port, host=options.host)
    with listening:
        port = listening.getsockname()[1]
        credentials = await asyncio.to_thread(build_credentials, options.kafka)
        codec = await load_codec(settings)
        insights = Insights(options, member=member_name(port), credentials=credentials, codec=codec)
        async with insights.running(), asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(insights.watch()),
                tasks.create_task(serve(create_app(insights.view, host=options.host), listening)),
            ]
            log.info("reads %s, reports on %s:%d", options.source_topic, options.host, port)
            await stop.wait()
            for task in running:
                task.cancel()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    # Threads of Faust that did not stop in time must not keep a finished process alive.
    os._exit(code)
