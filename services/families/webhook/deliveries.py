"""The rows of deliveries: the last ones of a webhook, one of them, and what began for an id that is forgotten.

Before: services/application/webhooks.py, services/runtime/ingress/reader.py. After: services/stream/entities/reads.py.
"""

from typing import Any

import orjson

from loomlog.schemas.records import Value, replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.webhook.items import DELIVERY_ITEM, OUTCOME_ITEM, outcome_id, row_key
from loomlog.services.families.webhook.state import FAMILY_NAME, REFUSED, delivery_key
from loomlog.services.stream.entities.reads import EntityReads


class DeliveryRow(Value, frozen=True, kw_only=True):
    """A delivery as it was taken, repeated or refused."""

    verdict: str
    received_at_ms: int = 0
    at_ms: int
    """When that was decided, UTC milliseconds."""
    delivery_id: str = ""
    """Empty: several were refused."""
    run_id: str = ""
    channel: str = ""
    def_id: str = ""
    replay_of: str = ""
    by: str = ""
    source_position: str = ""
    """Its record in loom.ingress."""
    has_credentials: bool = False
    detail: str = ""
    count: int = 1
    run_metadata: Any = None
    status: str = ""
    """What became of its run or its message, as far as that is known."""
    code: str = ""
    """Code of a refusal or failure."""


class DeliveryRows:
    """Reads the rows. Raises ConnectorError, PositionNotRead."""

    def __init__(self, reads: EntityReads) -> None:
        self._reads = reads

    async def recent(self, tenant: str, name: str, *, limit: int) -> list[DeliveryRow]:
        """Return the last deliveries of a webhook, newest first."""
        page = await self._reads.list_items(
            FAMILY_NAME, tenant, DELIVERY_ITEM, aggregate=aggregate_id(FAMILY_NAME, tenant, name), limit=limit
        )
        rows = [_row(item) for item in page.rows]
        outcomes = await self._outcomes(tenant, name, rows)
        return [_with_outcome(row, outcomes.get(_outcome_of(name, row))) for row in rows]

    async def find(self, tenant: str, name: str, delivery_id: str) -> DeliveryRow | None:
        """Return a delivery that was taken; None when there is none, or only one whose run was refused."""
        key = row_key(name, delivery_id)
        newest = await self._reads.newest_items(FAMILY_NAME, tenant, DELIVERY_ITEM, "key_a", [key])
        item = newest.get(key)
        if item is None:
            return None
        row = _row(item)
        return _with_outcome(row, (await self._outcomes(tenant, name, [row])).get(_outcome_of(name, row)))

    async def find_taken(self, tenant: str, name: str, delivery_id: str) -> DeliveryRow | None:
        """Return a delivery that its owner may have forgotten; None when it knows all, or it counts as new."""
        owned = await self._reads.local(FAMILY_NAME, tenant, name)
        if owned is not None and not owned.entity.state.has_forgotten:
            return None
        row = await self.find(tenant, name, delivery_id)
        return None if row is None or row.status == REFUSED else row

    async def _outcomes(self, tenant: str, name: str, rows: list[DeliveryRow]) -> dict[str, Any]:
        ids = sorted({_outcome_of(name, row) for row in rows if row.run_id or row.channel})
        if not ids:
            return {}
        items = await self._reads.load_items(FAMILY_NAME, tenant, OUTCOME_ITEM, ids)
        return {item.id: orjson.loads(item.document) for item in items}


def _row(item: Any) -> DeliveryRow:
    return DeliveryRow(at_ms=item.at_ms, **orjson.loads(item.document))


def _outcome_of(name: str, row: DeliveryRow) -> str:
    return outcome_id(name, row.run_id, delivery_key(row.delivery_id))


def _with_outcome(row: DeliveryRow, outcome: Any) -> DeliveryRow:
    if outcome is None:
        return row
    return replace(row, status=outcome["status"], code=outcome["code"])
