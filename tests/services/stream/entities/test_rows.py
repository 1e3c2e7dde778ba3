"""Rows of entities while they cannot be read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.rows import EntityRows
from tests.services.stream.entities.counters import FAMILY

READS: list[Callable[[EntityRows], Awaitable[Any]]] = [
    lambda rows: rows.next_offset(0),
    lambda rows: rows.load(0, ["counter:acme/hits"]),
    lambda rows: rows.find_command(0, "counter:acme/hits", "c1"),
    lambda rows: rows.due_timers(0, 1, 10),
]


class Broken:
    """A reader that fails."""

    def __init__(self, error: ConnectorError) -> None:
        self.error = error

    async def fetch(self, query: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("kind", "raised"),
    [("not_found", Transient), ("invalid", Permanent)],
)
async def test_tables_that_no_projector_has_made_yet_are_waited_for(
    read: Callable[[EntityRows], Awaitable[Any]], kind: str, raised: type[ConnectorError]
) -> None:
    reader: Any = Broken(Permanent("no such table", kind=kind))
    with pytest.raises(raised):
        await read(EntityRows(reader, FamilySet([FAMILY]), events_topic="t", seals=()))


async def test_timers_of_several_partitions_are_read_by_one_statement() -> None:
    class Rows:
        queries = 0

        async def fetch(self, query: Any) -> list[tuple[int, str, int]]:
            self.queries += 1
            return [(0, "counter:acme/a", 5), (2, "counter:acme/b", 7)]

    reader: Any = Rows()
    rows = EntityRows(reader, FamilySet([FAMILY]), events_topic="t", seals=())
    timers = await asyncio.gather(*(rows.due_timers(number, 10, 100) for number in range(3)))
    assert [list(one) for one in timers] == [[("counter:acme/a", 5)], [], [("counter:acme/b", 7)]]
    assert reader.queries == 1
