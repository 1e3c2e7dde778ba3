"""Appends what comes from outside to loom.ingress.

Before: services/families/ports/ingress.py. After: the readers of loom.ingress in runtimes.
"""

import asyncio
import logging

from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import RETRY_SOON_S
from loomlog.services.core.refusals import Refused

log = logging.getLogger(__name__)

OPEN_RETRY_S = 1.0


async def append_delivery(publisher: CommandPublisher, tenant: str, name: str, submitted: SubmitDelivery) -> None:
    """Append a delivery for a tenant and a name; it is acknowledged when this returns. Raises Refused."""
    if not publisher.partitions:
        text = f"{publisher.topic} is not open yet; try again in a moment"
        raise Refused("starting", text, retry_after_s=RETRY_SOON_S)
    await publisher.publish(f"{tenant}/{name}", submitted.envelope.command_id, submitted)


async def publish_ingress(publisher: CommandPublisher) -> None:
    """Append deliveries until cancelled."""
    is_logged = False
    while not publisher.partitions:
        try:
            await publisher.open()
        except ConnectorError as error:
            if not is_logged:
                log.warning("webhooks wait: %s", error)
            is_logged = True
            await asyncio.sleep(OPEN_RETRY_S)
    await publisher.run()
