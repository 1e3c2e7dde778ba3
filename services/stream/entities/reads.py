"""How entities are read, wherever their family's reads are answered: from rows in Postgres or from this process's fold.

Before: services/application/entities.py and the tools of agents. After: an implementation for each kind of Reads.
"""

from collections.abc import Sequence
from typing import Any, Protocol

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
    """Reads entities. `show` and `list` wait, within a bound of their own, until all `positions` (position tokens of
    earlier writes) that may be of aggregates they return are included, and raise PositionNotRead otherwise;
    ConnectorError when the store does not answer.
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

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        """Return at most `limit` aggregates of the tenant whose names begin with `prefix` and come after `after`, in
        the order of the UTF-8 bytes of their names.
        """
        ...
