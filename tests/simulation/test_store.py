"""The small Postgres does what the real one does with the projector's statements."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest

from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import Cursor
from loomlog.projections.engine.cursors import Fenced, claim
from loomlog.projections.engine.writer import COPY_FROM_ROWS, make_writer, write_all
from loomlog.projections.usage import UsageRow, usage
from tests.simulation.faults import Faults
from tests.simulation.loop import VirtualLoop
from tests.simulation.store import Connection, Store

SCHEMA, TOPIC = "loom_1", "events"
SPENT = UsageRow("2026-01-01", "t", "u", "helper", "acme", "large", "", "", 1, 1, 10, 5, 0, 0, 0)


class Bench:
    """A store, and connections to it from processes of their own, without faults."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(1))  # type: ignore[abstract]  # it has no I/O
        self.store = Store(self.loop)
        self.faults = Faults(1)
        self.faults.calm = True
        self.tasks: list[asyncio.Task[Any]] = []

    def connection(self, name: str) -> Connection:
        process = self.loop.process(name)
        return self.store.connect(process, self.faults.fates(name), lambda fate, amount: None)

    def begin(self, connection: Connection, work: Any) -> None:
        self.tasks.append(self.loop.spawn(connection.process, work))

    def run(self) -> None:
        self.loop.run(100.0)
        for task in self.tasks:
            task.result()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


async def advance(connection: Any, schema: str, topic: str, steps: list[tuple[Cursor, Cursor]]) -> None:
    async with connection.pipeline():
        advanced = await cursors.advance(connection, schema, topic, steps)
    cursors.require_advanced(topic, advanced)


def moved(cursor: Cursor, to: int) -> list[tuple[Cursor, Cursor]]:
    return [(cursor, Cursor(partition=cursor.partition, next_offset=to, term=0, epoch=cursor.epoch))]


def test_the_one_who_claimed_last_moves_the_cursor_and_the_other_is_fenced(bench: Bench) -> None:
    one, other = bench.connection("one"), bench.connection("other")

    async def work() -> None:
        first = (await claim(one, SCHEMA, TOPIC, [0], "one"))[0]  # type: ignore[arg-type]  # the part that is used
        second = (await claim(other, SCHEMA, TOPIC, [0], "other"))[0]  # type: ignore[arg-type]
        with pytest.raises(Fenced):
            await advance(one, SCHEMA, TOPIC, moved(first, 5))
        await advance(other, SCHEMA, TOPIC, moved(second, 7))
        with pytest.raises(Fenced):
            await advance(other, SCHEMA, TOPIC, moved(second, 9))

    bench.begin(one, work())
    bench.run()
    assert bench.store.positions(SCHEMA) == {0: 7}


def test_a_claim_waits_for_the_transaction_under_way_and_sees_what_it_wrote(bench: Bench) -> None:
    one, other = bench.connection("one"), bench.connection("other")
    actual: list[int] = []

    async def holds() -> None:
        cursor = (await claim(one, SCHEMA, TOPIC, [0], "one"))[0]  # type: ignore[arg-type]
        async with one.transaction():
            await advance(one, SCHEMA, TOPIC, moved(cursor, 5))
            await asyncio.sleep(3.0)

    async def takes() -> None:
        await asyncio.sleep(1.0)
        actual.append((await claim(other, SCHEMA, TOPIC, [0], "other"))[0].next_offset)  # type: ignore[arg-type]
        assert bench.loop.time() > 3.0

    bench.begin(one, holds())
    bench.begin(other, takes())
    bench.run()
    assert actual == [5]


def test_a_transaction_whose_process_dies_leaves_nothing_and_frees_its_rows(bench: Bench) -> None:
    one, other = bench.connection("one"), bench.connection("other")

    async def dies() -> None:
        cursor = (await claim(one, SCHEMA, TOPIC, [0], "one"))[0]  # type: ignore[arg-type]
        async with one.transaction():
            await advance(one, SCHEMA, TOPIC, moved(cursor, 5))
            await asyncio.sleep(1_000.0)

    async def takes() -> None:
        await asyncio.sleep(1.0)
        bench.loop.freeze(one.process)
        bench.store.disconnect(one.process)
        await claim(other, SCHEMA, TOPIC, [0], "other")  # type: ignore[arg-type]

    bench.loop.spawn(one.process, dies())
    bench.begin(other, takes())
    bench.run()
    assert bench.store.positions(SCHEMA) == {0: 0}


def test_sums_are_added_and_a_key_twice_is_refused(bench: Bench) -> None:
    connection = bench.connection("one")
    adds, inserts = make_writer(SCHEMA, usage, "add"), make_writer(SCHEMA, usage, "insert")

    async def work() -> None:
        await write_all(connection, [(adds, [SPENT])])  # type: ignore[arg-type]  # the part that is used
        await write_all(connection, [(adds, [SPENT])])  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.UniqueViolation):
            await write_all(connection, [(inserts, [SPENT])])  # type: ignore[arg-type]

    bench.begin(connection, work())
    bench.run()
    (row,) = bench.store.table(SCHEMA, "usage").values()
    assert UsageRow._make(row) == SPENT._replace(calls=2, unpriced_calls=2, input_tokens=20, output_tokens=10)


def test_many_rows_are_copied_and_mean_the_same(bench: Bench) -> None:
    connection = bench.connection("one")
    many = [SPENT._replace(user_id=f"u{number:03}") for number in range(COPY_FROM_ROWS)]

    async def work() -> None:
        for policy in ("add", "add"):
            async with connection.transaction():
                await write_all(connection, [(make_writer(SCHEMA, usage, policy), many)])  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.UniqueViolation):
            await write_all(connection, [(make_writer(SCHEMA, usage, "insert"), many)])  # type: ignore[arg-type]

    bench.begin(connection, work())
    bench.run()
    assert [row[8] for row in bench.store.table(SCHEMA, "usage").values()] == [2] * len(many)


def test_an_error_inside_takes_the_whole_transaction_back(bench: Bench) -> None:
    connection = bench.connection("one")

    async def work() -> None:
        try:
            async with connection.transaction():
                await write_all(connection, [(make_writer(SCHEMA, usage, "add"), [SPENT])])  # type: ignore[arg-type]
                raise KeyError
        except KeyError:
            return
        raise AssertionError("the error was swallowed")

    bench.begin(connection, work())
    bench.run()
    assert bench.store.table(SCHEMA, "usage") == {}
