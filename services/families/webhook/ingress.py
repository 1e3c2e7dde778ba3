"""What a process has of webhooks: its options, which webhooks there are, and their deliveries.

Before: services.py. After: definition.py, deliveries.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.services.families.operation import read_rows
from loomlog.services.families.ports.ingress import IngressLog
from loomlog.services.families.webhook.definition import AddressedWebhook, WebhookDefinition, WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.own_deliveries import OwnDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """What the installation says about webhooks."""

    enabled: bool = True
    allow_unauthenticated: bool = False
    files: Mapping[str, Any] = field(default_factory=dict)
    """WebhookBlocks of the configuration files by name."""
    secrets: SecretRegistry = NO_SECRETS
    """The values of credentials that are environment variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServices:
    """What others use of webhooks."""

    options: WebhookOptions
    definitions: WebhookDefinitions
    rows: DeliveryRows
    own: OwnDeliveries = field(default_factory=OwnDeliveries)

    async def find(self, address: str, name: str) -> AddressedWebhook | None:
        """Return the webhook of an address; None also when webhooks are off. Raises Unavailable."""
        if not self.options.enabled:
            return None
        return await read_rows(self.definitions.find_addressed(address, name), behind_code="definitions_unavailable")

    def positions(
        self, ingress: IngressLog, definition: WebhookDefinition, address: str, *, now_ms: int
    ) -> tuple[str, ...]:
        """Return what the reader and the owner of the run must have read, because this process has."""
        own = self.definitions.positions(address, definition.name, now_ms=now_ms)
        agent = definition.webhook.agent
        return (*own, *(ingress.read_positions(definition.tenant, agent) if agent else ()))
