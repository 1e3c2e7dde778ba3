"""Webhooks in a runtime process: the reader of loom.ingress, a member of the group that all runtimes are in.

Before: main.py. After: services/runtime/ingress.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.group_reader import KafkaGroupReader
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.codec import Codec
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.webhook.ingress import WebhookServices
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.ingress.deliveries import DeliveryBuilder
from loomlog.services.runtime.ingress.reader import IngressReader
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.topics import INGRESS_GROUP, INGRESS_TOPIC
from loomlog.services.stream.dead_letters import DeadLetters

log = logging.getLogger(__name__)

START_RETRY_S = 1.0
LAG_EVERY_S = 5.0
"""Time between two measurements of the group's lag: one small request to each broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSetup:
    """What a runtime has of webhooks."""

    reader: IngressReader
    group: KafkaGroupReader

    async def run(self) -> None:
        """Join the group, whenever the broker answers, and read until cancelled."""
        while True:
            try:
                await self.group.start()
                break
            except Transient as error:
                log.warning("%s waits: %s", INGRESS_TOPIC, error)
                await asyncio.sleep(START_RETRY_S)
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
                log.warning("the lag of %s stays unknown: %s", INGRESS_TOPIC, error)
            await asyncio.sleep(LAG_EVERY_S)


def open_webhooks(
    loaded: ProcessConfiguration,
    settings: RuntimeSettings,
    entities: EntityResources,
    webhooks: WebhookServices,
    codec: Codec,
    *,
    channels: ChannelOperations,
    encryption: ContentEncryption,
    credentials: Credentials,
    stored: CredentialReader,
    dead_letters: DeadLetters,
    clock_ms: Callable[[], int],
) -> WebhookSetup:
    """Build the reader over the entities and channels of this process."""
    builder = DeliveryBuilder(
        blobs=FileBlobs(loaded.settings.effective_blob_folder),
        encryption=encryption,
        secrets=loaded.secret_registry,
        channel_value_bytes=loaded.settings.channels_max_value_bytes,
        credentials=None if settings.installation_secret is None else credentials,
        secret=settings.installation_secret,
        stored=stored,
    )
    group = KafkaGroupReader(
        settings.kafka, INGRESS_TOPIC, INGRESS_GROUP, session_timeout_ms=settings.session_timeout_ms
    )
    reader = IngressReader(
        group,
        codec,
        entities.parts.client,
        definitions=webhooks.definitions,
        builder=builder,
        rows=webhooks.rows,
        replicas=entities.parts.replicas,
        channels=channels,
        dead_letters=dead_letters,
        clock_ms=clock_ms,
    )
    return WebhookSetup(reader=reader, group=group)
