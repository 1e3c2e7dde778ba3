"""Refused requests of webhooks, told to their owners: ten a minute of each webhook at once, the rest as a number.

So a flood of bad signatures costs a dozen events a minute, and none is forgotten. Nothing waits for it: while an owner
is away, what does not fit the bound is dropped with a line in the log.

Before: receiving.py. After: the owner of the webhook (RejectDelivery).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import RejectDelivery
from loomlog.schemas.ids import hashed_token
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.webhook.definition import AddressedWebhook
from loomlog.services.families.webhook.own_deliveries import OwnDeliveries
from loomlog.services.families.webhook.state import FAMILY_NAME
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands

log = logging.getLogger(__name__)

AT_ONCE, MINUTE_S = 10, 60.0
WEBHOOKS_MAX = 10_000
"""Webhooks that are counted; each has a definition, so there are never more than definitions."""
WAIT_S = 10.0


class _Count(Struct):
    """Refusals of a webhook with one verdict in the present minute."""

    tenant: str
    name: str
    verdict: str
    detail: str = ""
    """Why the last of them was refused."""
    noted: int = 0
    rest: int = 0
    last_at_ms: int = 0


class RejectionLog:
    """Notes refusals; run `run` as a task."""

    def __init__(
        self,
        commands: EntityCommands,
        own: OwnDeliveries,
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        self.dropped = 0
        self._commands = commands
        self._own = own
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._counts: dict[tuple[str, str, str], _Count] = {}

    def note(self, webhook: AddressedWebhook, verdict: str, delivery_id: str, detail: str) -> None:
        """Note a refused request."""
        key = (webhook.tenant, webhook.name, verdict)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= WEBHOOKS_MAX:
                self.dropped += 1
                return
            count = self._counts[key] = _Count(*key)
        count.last_at_ms, count.detail = self._clock_ms(), detail
        if count.noted < AT_ONCE:
            count.noted += 1
            self._start(self._command(count, 1, delivery_id, detail))
        else:
            count.rest += 1

    async def run(self) -> None:
        """Tell each minute how many more there were, until cancelled."""
        while True:
            await asyncio.sleep(MINUTE_S)
            self.flush()

    def flush(self) -> None:
        """End the minute."""
        counts, self._counts = self._counts, {}
        for count in counts.values():
            if count.rest:
                self._start(self._command(count, count.rest, detail=count.detail))

    async def tell(self, command: Any) -> None:
        """Send a command; what is not answered in time is dropped."""
        try:
            await self._commands.ask(command, wait_s=WAIT_S)
        except (CommandInvalid, CommandUnanswered, ConnectorError) as error:
            self.dropped += 1
            log.warning("a webhook was not told: %s", error)

    def _command(self, count: _Count, number: int, delivery_id: str = "", detail: str = "") -> RejectDelivery:
        return RejectDelivery(
            envelope=CommandEnvelope(
                command_id=hashed_token("webhook rejection", self._new_token()),
                tenant=count.tenant,
                issued_at_ms=self._clock_ms(),
            ),
            name=count.name,
            delivery_id=delivery_id,
            verdict=count.verdict,
            detail=detail,
            received_at_ms=count.last_at_ms,
            count=number,
        )

    def _start(self, command: RejectDelivery) -> None:
        aggregate = aggregate_id(FAMILY_NAME, command.envelope.tenant, command.name)
        if not self._own.start(aggregate, self.tell(command)):
            self.dropped += command.count
