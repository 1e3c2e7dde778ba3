"""auditor: signs what the events partitions hold, those of runs and that of the books.

    python -m loomlog.services.auditor.main

Runs until SIGTERM or SIGINT, then ends with 0. A lost broker is waited for. Everything else that ends it is an error on
stderr and 1, so that a supervisor starts it again. A second one beside it is harmless.

Before: the environment. After: loop.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import FETCH_MAX_WAIT_MS, KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.schemas.codec import Codec
from loomlog.services.auditor.loop import Auditor
from loomlog.services.auditor.settings import AuditorSettings, auditor_settings, budget_settings

log = logging.getLogger("loomlog.auditor")


def main() -> int:
    """The process; the exit code."""
    logs.configure_logging()
    disable_process_dumping()  # our environment may hold the key that signs
    try:
        settings, warnings = read_settings(os.environ, working_directory=Path.cwd())
        logs.configure_logging(settings.log_level)
        for warning in warnings:
            log.warning("%s", warning)
        return uvloop.run(_run(settings, auditor_settings(settings)))
    except (ConfigurationError, ConnectorError) as error:
        log.error("auditor ends: %s", error)
        return 1


async def _run(settings: Settings, options: AuditorSettings) -> int:
    return await run([options, budget_settings(options)], await load_codec(settings))


async def run(topics: Sequence[AuditorSettings], codec: Codec) -> int:
    """Signs each topic of events until SIGTERM or SIGINT. What ends one of them ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await asyncio.gather(
        *(Auditor(told, connect=partial(connect_log, told.kafka), codec=codec).run(stop) for told in topics)
    )
    return 0


class KafkaLogConnection:
    """The log over Kafka (protocol loomlog.services.auditor.loop.LogConnection)."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self.ranges = KafkaRanges(options)
        self.appender = KafkaAppender(options)

    async def open_tail(self, topic: str, starts: Mapping[int, int]) -> KafkaTail:
        return await open_tail(self._options, topic, starts, fetch_max_wait_ms=FETCH_MAX_WAIT_MS)

    async def close(self) -> None:
        await self.ranges.close()
        await self.appender.close()


async def connect_log(options: KafkaOptions) -> KafkaLogConnection:
    """Raises Transient when the broker does not answer."""
    outside = KafkaLogConnection(options)
    try:
        await outside.ranges.start()
        await outside.appender.start()
    except BaseException:
        await outside.close()
        raise
    return outside


if __name__ == "__main__":
    sys.exit(main())
