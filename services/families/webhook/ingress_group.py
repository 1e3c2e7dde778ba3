"""The membership of a runtime in the group that reads loom.ingress.

Before: services.py. After: ingress_reader.py.
"""

import asyncio
import logging
from dataclasses import dataclass

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.group_reader import KafkaGroupReader
from loomlog.connectors.retries import until_answered
from loomlog.services.families.webhook.ingress_reader import IngressReader

log = logging.getLogger(__name__)

LAG_EVERY_S = 5.0
"""Time between two measurements of the group's lag: one small request to each broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressGroup:
    """A member of the group."""

    topic: str
    reader: IngressReader
    group: KafkaGroupReader

    async def run(self) -> None:
        """Join the group, whenever the broker answers, and read until cancelled."""
        await until_answered(self.group.start, self.topic)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._measure_lag(), name="lag of deliveries")
                await self.reader.run()
        finally:
            await self.group.close()

    async def _measure_lag(self) -> None:
        while True:
            try:
                await self.group.measure_lag()
            except Transient as error:
                log.warning("the lag of %s stays unknown: %s", self.topic, error)
            await asyncio.sleep(LAG_EVERY_S)
