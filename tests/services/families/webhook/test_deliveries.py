"""Rows of deliveries: lookups of ids that may be forgotten go together; outcomes belong to the delivery before them."""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from loomlog.connectors.errors import Transient
from loomlog.projections.entity_items import ItemRow
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.webhook.deliveries import LAG_MAX, DeliveryRows
from loomlog.services.families.webhook.items import DELIVERY_ITEM, OUTCOME_ITEM, outcome_id, row_key
from loomlog.services.families.webhook.limits import GENERATION_MAX, GENERATIONS
from loomlog.services.families.webhook.state import REFUSED, Webhook, delivery_key
from loomlog.services.stream.entities.reads import EntityReads

TENANT, NAME = "acme", "feed"


class Owned:
    """What a process has of an aggregate in memory."""

    def __init__(self, state: Webhook) -> None:
        self.entity = self
        self.state = state


class Reads:
    """The rows of a webhook. `late` are there for reads that wait for everything only."""

    topic = "loom.entity.events"

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], ItemRow] = {}
        self.late: set[tuple[str, str]] = set()
        self.owned: Owned | None = None
        self.queries: list[Collection[str]] = []
        self.looked = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    def put(self, kind: str, key: str, seq: int, document: Mapping[str, Any], *, is_late: bool = False) -> None:
        at = {"partition": 0, "offset": seq, "seq": seq, "at_ms": seq, "number": 1.0, "key_b": ""}
        whose = {"family": "webhook", "tenant": TENANT, "aggregate": aggregate_id("webhook", TENANT, NAME)}
        row = ItemRow(**whose, name=NAME, kind=kind, id=key, key_a=key, document=json.dumps(document), **at)  # type: ignore[arg-type]  # of a dict
        self.items[kind, key] = row
        if is_late:
            self.late.add((kind, key))

    def take(self, delivery_id: str, seq: int, *, is_late: bool = False) -> None:
        """A delivery was taken."""
        document = {"verdict": "accepted", "delivery_id": delivery_id, "channel": "feed"}
        self.put(DELIVERY_ITEM, row_key(NAME, delivery_id), seq, document, is_late=is_late)

    def refuse(self, delivery_id: str, seq: int, *, is_late: bool = False) -> None:
        """Its message was refused."""
        key = outcome_id(NAME, "", delivery_key(delivery_id))
        self.put(OUTCOME_ITEM, key, seq, {"status": REFUSED, "code": "channel_full"}, is_late=is_late)

    async def local(self, family: str, tenant: str, name: str) -> Owned | None:
        assert (family, tenant, name) == ("webhook", TENANT, NAME)
        self.looked += 1
        return self.owned

    async def newest_items(
        self, family: str, tenant: str, kind: str, by: str, keys: Collection[str], *, lag_max: int = 0
    ) -> Mapping[str, ItemRow]:
        assert (family, tenant, kind, by) == ("webhook", TENANT, DELIVERY_ITEM, "key_a")
        assert lag_max in (0, LAG_MAX)
        self.queries.append(keys)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {key: row for key in keys if (row := self._shown(kind, key, lag_max)) is not None}

    async def load_items(self, family: str, tenant: str, kind: str, ids: Sequence[str]) -> Sequence[ItemRow]:
        return [row for one in ids if (row := self._shown(kind, one, 0)) is not None]

    def _shown(self, kind: str, key: str, lag_max: int) -> ItemRow | None:
        return None if lag_max and (kind, key) in self.late else self.items.get((kind, key))


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def rows(reads: Reads) -> DeliveryRows:
    return DeliveryRows(cast(EntityReads, reads))


FORGETFUL = Webhook(number=GENERATIONS * GENERATION_MAX + 1, generations=({},))
WHOLE = Webhook(number=1, generations=({"k": "#feed"},))


async def test_lookups_that_come_during_one_go_together_with_the_next(reads: Reads, rows: DeliveryRows) -> None:
    reads.owned, reads.gate = Owned(FORGETFUL), asyncio.Event()
    reads.take("d3", 1)
    lookups = [asyncio.ensure_future(rows.find_taken(TENANT, NAME, "d0"))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lookups += [asyncio.ensure_future(rows.find_taken(TENANT, NAME, f"d{number}")) for number in range(1, 6)]
    await asyncio.sleep(0)
    reads.gate.set()
    found = await asyncio.gather(*lookups)
    assert [row.delivery_id if row else None for row in found] == [None, None, None, "d3", None, None]
    assert [len(keys) for keys in reads.queries] == [1, 5, 1], "the last one makes sure of what was found"
    assert reads.looked == 1, "what has forgotten once has forgotten for good"


async def test_a_webhook_that_has_forgotten_nothing_is_not_looked_up(reads: Reads, rows: DeliveryRows) -> None:
    reads.owned = Owned(WHOLE)
    reads.take("d1", 1)
    assert await rows.find_taken(TENANT, NAME, "d1") is None
    assert reads.queries == []


async def test_a_webhook_that_is_owned_elsewhere_is_looked_up(reads: Reads, rows: DeliveryRows) -> None:
    reads.take("d1", 1)
    assert await rows.find_taken(TENANT, NAME, "d1") is not None


async def test_a_delivery_that_the_rows_do_not_have_yet_is_left_to_the_state(reads: Reads, rows: DeliveryRows) -> None:
    reads.owned = Owned(FORGETFUL)
    reads.take("d1", 1, is_late=True)
    assert await rows.find_taken(TENANT, NAME, "d1") is None
    assert len(reads.queries) == 1


async def test_a_delivery_whose_refusal_the_rows_do_not_have_yet_is_new(reads: Reads, rows: DeliveryRows) -> None:
    reads.owned = Owned(FORGETFUL)
    reads.take("d1", 1)
    reads.refuse("d1", 2, is_late=True)
    assert await rows.find_taken(TENANT, NAME, "d1") is None


async def test_a_delivery_that_was_taken_after_a_refused_one_of_its_id_is_known(
    reads: Reads, rows: DeliveryRows
) -> None:
    reads.refuse("d1", 2)
    reads.take("d1", 3)
    row = await rows.find_taken(TENANT, NAME, "d1")
    assert row is not None
    assert (row.status, row.code) == ("", "")


async def test_a_refused_delivery_says_so(reads: Reads, rows: DeliveryRows) -> None:
    reads.take("d1", 1)
    reads.refuse("d1", 2)
    row = await rows.find(TENANT, NAME, "d1")
    assert row is not None
    assert (row.status, row.code) == (REFUSED, "channel_full")


async def test_rows_that_do_not_answer_are_asked_again_by_the_next_lookup(reads: Reads, rows: DeliveryRows) -> None:
    reads.error = Transient("away", kind="unavailable")
    with pytest.raises(Transient):
        await rows.find_taken(TENANT, NAME, "d1")
    reads.error = None
    reads.take("d1", 1)
    assert await rows.find_taken(TENANT, NAME, "d1") is not None
