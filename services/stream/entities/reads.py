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
    """Reads entities. Both methods wait, within a bound of their own, until all `positions` (position tokens of earlier
    writes) are included, and raise PositionNotRead otherwise; Transient when the store does not answer.
    """

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
