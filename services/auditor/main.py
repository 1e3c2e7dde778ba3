"""Auditor process: signs the contents of the events partitions: of runs, of entities and of channels.

    python -m loomlog.services.auditor.main

Runs until SIGTERM or SIGINT, then ends with 0. It waits for a lost broker. Any other failure ends it with an error on
stderr and exit code 1, so that a supervisor restarts it. A second auditor is harmless.

Before: the environment. After: loop.py.
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
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.schemas.codec import Codec
from loomlog.services.auditor.loop import Auditor
from loomlog.services.auditor.settings import AuditorSettings, auditor_settings, channel_settings, entity_settings

log = logging.getLogger("loomlog.auditor")


def main() -> int:
    """Runs the process; returns the exit code."""
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
    return await run([options, entity_settings(options), channel_settings(options)], await load_codec(settings))


async def run(topics: Sequence[AuditorSettings], codec: Codec) -> int:
    """Signs each topic of events until SIGTERM or SIGINT. The failure of one ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await asyncio.gather(
        *(Auditor(options, connect=partial(connect_log, options.kafka), codec=codec).run(stop) for options in topics)
    )
    return 0


class KafkaLogConnection:
    """The log over Kafka (protocol loomlog.services.auditor.loop.LogConnection)."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self.ranges = KafkaRanges(options)
        self.appender = KafkaAppender(options)

    async def open_tail(self, topic: str, starts: Mapping[int, int]) -> KafkaTail:
        return await open_tail(self._options, topic, starts)

    async def close(self) -> None:
        await self.ranges.close()
        await self.appender.close()


async def connect_log(options: KafkaOptions) -> KafkaLogConnection:
    """Connects to the log. Raises Transient when the broker does not answer."""
    connection = KafkaLogConnection(options)
    try:
        await connection.ranges.start()
        await connection.appender.start()
    except BaseException:
        await connection.close()
        raise
    return connection


if __name__ == "__main__":
    sys.exit(main())
