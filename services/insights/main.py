"""insights: live metrics over windows, read from the thin topic, never authoritative.

    python -m services.insights.main

Stops on SIGTERM or SIGINT with 0. Everything else that ends it is an error on stderr and 1, so that a supervisor starts
it again: wrong settings, a port that is taken, a broker that does not answer at the start, a crash of Faust, a stall.
All tasks live in one TaskGroup; none can die alone.

Before: the environment. After: app (Faust), web (the report).
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

import uvloop

from connectors.errors import OutsideError
from services.insights.app import Insights, Stalled, member_name
from services.insights.quiet import quiet_logging
from services.insights.settings import InsightsSettings, WrongSettings, read_settings
from services.insights.web import bound_socket, serve, web_app

log = logging.getLogger("loomlog.insights")


def main() -> int:
    """The process; the exit code."""
    quiet_logging()
    try:
        settings = read_settings(os.environ)
    except WrongSettings as error:
        log.error("insights cannot start: %s", error)
        return 1
    return run_process(settings)


def run_process(settings: InsightsSettings) -> int:
    """Runs until a signal (0) or a failure (1), whatever it was."""
    try:
        uvloop.run(run(settings))
    except Exception as error:  # the end of the process: the supervisor starts it again
        for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            # What is outside explains itself; where it was noticed helps nobody.
            trace = None if isinstance(failure, OutsideError | OSError | Stalled | WrongSettings) else failure
            log.error("insights ends: %s: %s", type(failure).__name__, failure, exc_info=trace)
        return 1
    return 0


async def run(settings: InsightsSettings, on_ready: Callable[[int], None] = lambda port: None) -> None:
    """Runs until SIGTERM or SIGINT. `on_ready` is told the port once Faust has its partitions."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listening = bound_socket(settings.port)
    with listening:
        port = listening.getsockname()[1]
        credentials = await asyncio.to_thread(settings.broker.credentials)
        insights = Insights(settings, member=member_name(port), credentials=credentials)
        async with insights.running(), asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(insights.watch()),
                tasks.create_task(serve(web_app(insights.view), listening)),
            ]
            log.info("reads %s, reports on 127.0.0.1:%d", settings.source_topic, port)
            on_ready(port)
            await stop.wait()
            for task in running:
                task.cancel()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    # Threads of Faust that did not stop in time must not keep a finished process alive.
    os._exit(code)
