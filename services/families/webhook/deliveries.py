"""The rows of deliveries: the last ones of a webhook, one of them, and what began for an id that is forgotten.

A webhook that has taken more deliveries than its state remembers has each further id looked up. These lookups go
together, and they do not wait until the rows have the deliveries that were taken a moment ago: the state has those.
Before a delivery is taken for a repeated one, its row is read again, with everything that this process has written.

Before: receiving.py, ingress_reader.py. After: services/stream/entities/reads.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import orjson

from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.position import Position
from loomlog.schemas.records import Value, replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.webhook.items import DELIVERY_ITEM, OUTCOME_ITEM, outcome_id, row_key
from loomlog.services.families.webhook.limits import REMEMBERED
from loomlog.services.families.webhook.state import FAMILY_NAME, REFUSED, delivery_key
from loomlog.services.stream.entities.batched_lookups import BatchedLookups
from loomlog.services.stream.entities.reads import EntityReads

LOOKUPS_MAX = 500
"""Ids of one query."""
LAG_MAX = REMEMBERED // 2
"""Records that the rows may be behind: fewer deliveries are in them than the state remembers. The other half of what it
remembers is for those that are decided between the lookup and the decision on the delivery.
"""


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
    position: str = ""
    """The event that says so."""
    has_credentials: bool = False
    detail: str = ""
    count: int = 1
    run_metadata: Any = None
    status: str = ""
    """What became of its run, as far as that is known; of a message only that it was refused."""
    code: str = ""
    """Code of a refusal or failure."""


class DeliveryRows:
    """Reads the rows. Raises ConnectorError, PositionNotRead."""

    def __init__(self, reads: EntityReads) -> None:
        self._reads = reads
        self._taken: WeakValueDictionary[tuple[str, str], _TakenLookups] = WeakValueDictionary()
        """Lookups under way, by tenant and name of the webhook."""

    async def recent(self, tenant: str, name: str, *, limit: int, positions: Sequence[str] = ()) -> list[DeliveryRow]:
        """Return the last deliveries of a webhook, newest first, with those that were decided at the positions."""
        whose = aggregate_id(FAMILY_NAME, tenant, name)
        page = await self._reads.list_items(
            FAMILY_NAME, tenant, DELIVERY_ITEM, aggregate=whose, limit=limit, positions=positions
        )
        return await self._with_outcomes(tenant, name, page.rows)

    async def find(self, tenant: str, name: str, delivery_id: str) -> DeliveryRow | None:
        """Return a delivery that was taken; None when there is none, or only one whose run was refused."""
        key = row_key(name, delivery_id)
        newest = await self._reads.newest_items(FAMILY_NAME, tenant, DELIVERY_ITEM, "key_a", [key])
        item = newest.get(key)
        return None if item is None else (await self._with_outcomes(tenant, name, [item]))[0]

    async def find_taken(self, tenant: str, name: str, delivery_id: str) -> DeliveryRow | None:
        """Return a delivery that its owner may have forgotten; None when it knows all, or it counts as new."""
        lookups = self._taken.get((tenant, name))
        if lookups is None:
            lookups = self._taken[tenant, name] = _TakenLookups(self, self._reads, tenant, name)
        return await lookups.get(delivery_id)

    async def _with_outcomes(self, tenant: str, name: str, items: Sequence[ItemRow]) -> list[DeliveryRow]:
        """Return the deliveries of these rows, each with the outcome that came after it."""
        rows = [
            DeliveryRow(at_ms=item.at_ms, position=self._position(item), **orjson.loads(item.document))
            for item in items
        ]
        ids = [outcome_id(name, row.run_id, delivery_key(row.delivery_id)) for row in rows]
        asked = sorted({one for one, row in zip(ids, rows, strict=True) if row.run_id or row.channel})
        read = await self._reads.load_items(FAMILY_NAME, tenant, OUTCOME_ITEM, asked) if asked else ()
        outcomes = {item.id: item for item in read}
        return [_with_outcome(row, item, outcomes.get(one)) for one, row, item in zip(ids, rows, items, strict=True)]

    def _position(self, item: ItemRow) -> str:
        return str(Position(topic=self._reads.topic, partition=item.partition, offset=item.offset))


class _TakenLookups:
    """The lookups of one webhook: those that come while one is under way go together with the next one."""

    def __init__(self, rows: DeliveryRows, reads: EntityReads, tenant: str, name: str) -> None:
        self._rows = rows
        self._reads = reads
        self._tenant = tenant
        self._name = name
        self._has_forgotten = False
        """Whether the state was seen to have forgotten deliveries, which it does for good."""
        self._lookups = BatchedLookups(self._fetch, batch_max=LOOKUPS_MAX)

    async def get(self, delivery_id: str) -> DeliveryRow | None:
        return await self._lookups.get(delivery_id)

    async def _fetch(self, delivery_ids: Sequence[str]) -> Mapping[str, DeliveryRow]:
        if not self._has_forgotten:
            owned = await self._reads.local(FAMILY_NAME, self._tenant, self._name)
            self._has_forgotten = owned is not None and owned.entity.state.has_forgotten
            if owned is not None and not self._has_forgotten:
                return {}
        keys = {one: row_key(self._name, one) for one in delivery_ids}
        newest = await self._reads.newest_items(
            FAMILY_NAME, self._tenant, DELIVERY_ITEM, "key_a", tuple(keys.values()), lag_max=LAG_MAX
        )
        taken: dict[str, DeliveryRow] = {}
        for delivery_id in (one for one, key in keys.items() if key in newest):
            row = await self._rows.find(self._tenant, self._name, delivery_id)
            if row is not None and row.status != REFUSED:
                taken[delivery_id] = row
        return taken


def _with_outcome(row: DeliveryRow, item: ItemRow, outcome: ItemRow | None) -> DeliveryRow:
    """Return the row with what became of it. The outcome of an earlier delivery of the same id says nothing of it."""
    if outcome is None or outcome.seq < item.seq:
        return row
    document = orjson.loads(outcome.document)
    return replace(row, status=document["status"], code=document["code"])
