"""How entities are read, wherever their family's reads are answered: from rows in Postgres or from this process's fold.

Items (rows for single facts of a history) are in Postgres for every family, so reads of them wait for the projector.

Before: services/families/entity_handlers.py. After: an implementation for each kind of Reads.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from loomlog.projections.entity_items import OFFSET_MAX, ItemPage, ItemRow, ItemSums
from loomlog.schemas.records import Value
from loomlog.services.core.entity import Entity


class EntityRow(Value, frozen=True, kw_only=True):
    """An aggregate as a read found it: its id within the tenant, and its state of the type of its family."""

    name: str
    entity: Entity[Any]


class PositionNotRead(Exception):
    """What a read is answered from has not passed a position in time, or never will; the text says which.

    `lag` is the number of records that are missing; 0 when it is unknown.
    """

    def __init__(self, message: str, lag: int = 0) -> None:
        super().__init__(message)
        self.lag = lag


class EntityReads(Protocol):
    """Reads entities. All reads wait, within a bound of their own, until all `positions` (position tokens of earlier
    writes) that may be of aggregates they return are included, and raise PositionNotRead otherwise; ConnectorError when
    the store does not answer. Reads of items take what projections/entity_items.py takes.
    """

    topic: str
    """Topic of the events, as positions name it."""
    partitions: int

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until every kind of read includes the event at the offset; returns the number of records that are
        missing, 0 when it is included.
        """
        ...

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        """Return an aggregate; None when nothing has happened in it."""
        ...

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        """Return an aggregate as this process has it in memory as its owner, once all of it is in the log; None when it
        does not own it, the aggregate rests, nothing has happened in it, or a position is not reached here.
        """
        ...

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        """Return at most `limit` aggregates of the tenant whose names begin with `prefix` and come after `after`, in
        the order of the UTF-8 bytes of their names.
        """
        ...

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        """Return those of the items that there are, in no order."""
        ...

    async def list_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        key_a: str = "",
        key_b: str = "",
        aggregate: str = "",
        newest_first: bool = True,
        limit: int,
        after: str = "",
        positions: Sequence[str] = (),
    ) -> ItemPage:
        """Return a page of the items with these keys and of this aggregate (its full id), by time; empty: of any.

        Raises InvalidPageToken.
        """
        ...

    async def list_items_by_id(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        positions: Sequence[str] = (),
    ) -> Sequence[ItemRow]:
        """Return at most `limit` items whose ids begin with `prefix` and come after `after`, in the order of their
        bytes.
        """
        ...

    async def newest_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        keys: Collection[str],
        *,
        number_max: float = math.inf,
        offset_max: int = OFFSET_MAX,
        lag_max: int = 0,
        positions: Sequence[str] = (),
    ) -> Mapping[str, ItemRow]:
        """Return for each key the item of the highest seq, among those with a number and an offset up to these; keys
        without one are left out. `lag_max`: so many records that the read should include may be missing.
        """
        ...

    async def sum_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
        positions: Sequence[str] = (),
    ) -> ItemSums:
        """Return the sums of the items with one of these keys and of one of these aggregates; None: of any."""
        ...

    async def sum_items_by_key(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
        positions: Sequence[str] = (),
    ) -> Mapping[str, ItemSums]:
        """Return the sums for each value of a key."""
        ...
