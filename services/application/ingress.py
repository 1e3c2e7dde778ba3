"""Appends what comes from outside to loom.ingress.

Before: services/families/ports/ingress.py. After: the readers of loom.ingress in runtimes.
"""

import logging

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.retries import until_answered
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import RETRY_SOON_S
from loomlog.services.core.refusals import Refused

log = logging.getLogger(__name__)


async def append_delivery(publisher: CommandPublisher, tenant: str, name: str, submitted: SubmitDelivery) -> None:
    """Append a delivery for a tenant and a name; it is acknowledged when this returns. Raises Refused."""
    if not publisher.partitions:
        text = f"{publisher.topic} is not open yet; try again in a moment"
        raise Refused("starting", text, retry_after_s=RETRY_SOON_S)
    await publisher.publish(f"{tenant}/{name}", submitted.envelope.command_id, submitted)


async def publish_ingress(publisher: CommandPublisher) -> None:
    """Append deliveries until cancelled."""
    if not publisher.partitions:
        await until_answered(publisher.open, "the input of webhooks", failures=(ConnectorError,))
    await publisher.run()
