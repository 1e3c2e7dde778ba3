"""What a process has of webhooks: its options, which webhooks there are, and the log that deliveries are appended to.

Before: services.py. After: definition.py, deliveries.py.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.families.operation import read_rows
from loomlog.services.families.webhook.definition import AddressedWebhook, WebhookDefinition, WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.own_deliveries import OwnDeliveries

DECISION_WAIT_S = 1.0
"""How long a sender waits for the owner's decision and for the first event of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """What the installation says about webhooks."""

    enabled: bool = True
    allow_unauthenticated: bool = False
    files: Mapping[str, Any] = field(default_factory=dict)
    """WebhookBlocks of the configuration files by name."""
    secrets: SecretRegistry = NO_SECRETS
    """The values of credentials that are environment variables."""


@dataclass(slots=True, kw_only=True)
class IngressLog:
    """What a process has that appends deliveries to loom.ingress; one that only reads them provides none."""

    append: Callable[[str, str, SubmitDelivery], Awaitable[None]]
    """Appends a delivery for a tenant and a name; it is acknowledged when this returns. Raises Refused."""
    ranges: LogRanges
    read_positions: Callable[[str, str], Sequence[str]]
    """For a tenant and an agent, what the owner of a run must have read, because this process has."""
    wait_s: float = DECISION_WAIT_S


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
