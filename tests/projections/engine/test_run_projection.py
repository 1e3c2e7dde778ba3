"""Rows in Postgres: they have the properties of the fold in memory."""

import asyncio
import hashlib

import psycopg
import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.audit import find_run
from loomlog.projections.engine import run_projection, writer
from loomlog.projections.engine.builds import COMPARED
from loomlog.projections.engine.cursors import Fenced
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.problems import list_problems
from loomlog.projections.run_queries import run_by_id
from loomlog.schemas.generated.values import Usage
from tests.projections.engine.test_fold import RECORDS
from tests.projections.locks import until_held_up
from tests.projections.stories import TOPIC, Partition, completed, eventful, many_runs, replied, requested, started
from tests.projections.twin import cut, cut_at_random, projected


async def rows_of(connection, builds, number: int = 1) -> dict[str, list[tuple]]:
    schema = builds.build(number).schema
    rows = {}
    for name in COMPARED:
        result = await connection.execute(f"SELECT * FROM {schema}.{name}")
        rows[name] = sorted(map(tuple, await result.fetchall()), key=repr)
    return rows


def clean(row: tuple) -> tuple:
    """The row as Postgres can hold it."""
    return tuple(value.replace("\x00", "\ufffd") if isinstance(value, str) else value for value in row)


def busy_records():
    """Enough runs at once that a poll of all goes through COPY."""
    partition = Partition()
    partition.claim()
    many_runs(partition, [f"r_{n:03d}" for n in range(60)], at_once=60)
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, partition.outgoing())
    return log.records[TOPIC, 0]


BUSY = busy_records()


async def test_the_rows_in_postgres_are_those_of_the_fold(connection, builds):
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    await projection.apply({0: RECORDS})
    rows, twin = await rows_of(connection, builds), projected([RECORDS]).tables
    expected = {**twin, "projection_problems": twin["problems"]}
    for name in COMPARED:
        assert rows[name] == sorted(map(clean, expected[name].values()), key=repr), name


@pytest.mark.parametrize("seed", range(4))
async def test_however_events_fall_into_polls_two_builds_are_equal(connection, builds, seed):
    whole = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await whole.claim([0])
    await whole.apply({0: RECORDS})
    other = await builds.make()
    polls = [[record] for record in RECORDS] if seed == 0 else cut_at_random(RECORDS, seed)
    for number, poll in enumerate(polls):
        if number % (seed + 1) == 0:
            projection = RunProjection(connection, other, TOPIC, owner="tests")
            await projection.claim([0])
        await projection.apply({0: poll})
    assert await builds.table_hashes(other.number) == await builds.table_hashes(1)


async def test_copied_rows_and_rows_of_a_document_are_the_same(connection, builds, monkeypatch):
    copied = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await copied.claim([0])
    for poll in cut(BUSY, [300]):
        await copied.apply({0: poll})
    monkeypatch.setattr(writer, "COPY_FROM_ROWS", 10**9)
    other = await builds.make()
    sent = RunProjection(connection, other, TOPIC, owner="tests")
    await sent.claim([0])
    for poll in cut(BUSY, [100, 250, 600]):
        await sent.apply({0: poll})
    hashes = await builds.table_hashes(1)
    assert await builds.table_hashes(other.number) == hashes
    assert hashes["runs"].rows == 60
    assert hashes["transcript"].rows == 60 * 14


async def test_an_evicted_run_is_read_again(connection, builds, monkeypatch):
    monkeypatch.setattr(run_projection, "KNOWN_RUNS_MAX", 1)
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    for poll in cut_at_random(RECORDS, 11):
        await projection.apply({0: poll})
        assert len(projection._states) <= 1
    whole = await builds.make()
    other = RunProjection(connection, whole, TOPIC, owner="tests")
    await other.claim([0])
    await other.apply({0: RECORDS})
    assert await builds.table_hashes(1) == await builds.table_hashes(whole.number)


async def test_a_live_run_costs_no_read(connection, builds, monkeypatch):
    partition = Partition()
    partition.claim()
    many_runs(partition, ["r_1"])
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, partition.outgoing())
    records = log.records[TOPIC, 0]
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    await projection.apply({0: records[:3]})

    async def refused(self, run_ids):
        raise AssertionError(f"read {run_ids} although they are cached")

    monkeypatch.setattr(RunProjection, "_read_states", refused)
    for number in range(3, len(records)):
        await projection.apply({0: records[number : number + 1]})
    assert len(projection._states) == 0


# --- fences ----------------------------------------------------------------------------------------------------------


async def test_the_same_poll_again_changes_nothing(connection, builds):
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    first = await projection.apply({0: RECORDS})
    before = await builds.table_hashes(1)
    again = await projection.apply({0: RECORDS})
    assert (first.events > 0, again.events) == (True, 0)
    assert await builds.table_hashes(1) == before


async def test_a_fenced_projector_writes_nothing_and_keeps_its_position(connection, connecting, builds):
    async with await connecting() as other:
        slow = RunProjection(connection, builds.build(1), TOPIC, owner="slow")
        await slow.claim([0])
        await slow.apply({0: BUSY[:100]})
        quick = RunProjection(other, builds.build(1), TOPIC, owner="quick")
        assert await quick.claim([0]) == {0: 100}
        before = await builds.table_hashes(1)
        with pytest.raises(Fenced, match="another projector"):
            await slow.apply({0: BUSY[100:200]})
        assert await builds.table_hashes(1) == before
        assert slow.positions == {0: 100}
        await quick.apply({0: BUSY[100:]})
        with pytest.raises(Fenced):
            await slow.apply({0: BUSY[100:200]})
    assert (await builds.table_hashes(1))["runs"].rows == 60


async def test_live_projectors_fence_each_other_and_no_row_is_doubled_or_lost(connection, connecting, builds):
    fences = 0

    async def project(owner: str) -> None:
        nonlocal fences
        async with await connecting() as own:
            projection = RunProjection(own, builds.build(1), TOPIC, owner=owner)
            at = (await projection.claim([0]))[0]
            while at < len(BUSY):
                try:
                    await projection.apply({0: BUSY[at : at + 7]})
                    at = projection.positions[0]
                except Fenced:
                    fences += 1
                    at = (await projection.claim([0]))[0]
                await asyncio.sleep(0)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for owner in ("one", "two", "three"):
            tasks.create_task(project(owner))
    assert fences > 0
    whole = await builds.make()
    alone = RunProjection(connection, whole, TOPIC, owner="alone")
    await alone.claim([0])
    await alone.apply({0: BUSY})
    assert await builds.table_hashes(1) == await builds.table_hashes(whole.number)


async def test_a_claim_waits_for_the_transaction_of_its_predecessor(connection, connecting, builds):
    async with await connecting() as one, await connecting() as other:
        slow = RunProjection(one, builds.build(1), TOPIC, owner="slow")
        quick = RunProjection(other, builds.build(1), TOPIC, owner="quick")
        await slow.claim([0])
        async with connection.transaction():
            # A writer of runs waits here, in the middle of its transaction.
            await connection.execute(f"LOCK TABLE {builds.build(1).schema}.runs IN SHARE MODE")
            applying = asyncio.create_task(slow.apply({0: BUSY[:50]}))
            await until_held_up(connection, one)
            claim = asyncio.create_task(quick.claim([0]))
            await until_held_up(connection, other)
            assert not claim.done()
        async with asyncio.timeout(30):
            await applying
            assert await claim == {0: 50}


async def test_a_lost_connection_in_the_middle_leaves_rows_and_cursor_together(connection, connecting, builds):
    own = await connecting()
    projection = RunProjection(own, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    await projection.apply({0: BUSY[:200]})
    before = await builds.table_hashes(1)
    async with connection.transaction():
        # A writer of runs waits here, in the middle of its transaction.
        await connection.execute(f"LOCK TABLE {builds.build(1).schema}.runs IN SHARE MODE")
        applying = asyncio.create_task(projection.apply({0: BUSY[200:]}))
        await until_held_up(connection, own)
        assert not applying.done()
        await connection.execute("SELECT pg_terminate_backend(%s)", (own.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            await applying
    assert await builds.table_hashes(1) == before
    assert await builds.positions(1, TOPIC) == {0: 200}
    again = RunProjection(connection, builds.build(1), TOPIC, owner="again")
    assert await again.claim([0]) == {0: 200}
    await again.apply({0: BUSY[200:]})
    assert (await builds.table_hashes(1))["runs"].rows == 60


# --- what must not stop the others -----------------------------------------------------------------------------------


async def test_a_poisoned_run_does_not_stop_its_partition(project, reader):
    partition = Partition()
    partition.claim()
    partition.add("r_bad", started("r_bad"), requested(1))
    partition.records[-1] = partition.records[-1][:-3]
    partition.add("r_good", started("r_good"), requested(1), replied(1, "hi"), completed())
    partition.add("r_bad", replied(1, "lost"), completed())
    projection = await project(partition)
    assert projection.positions == {0: len(partition.records)}
    assert (await run_by_id(reader, "default", "r_good")).status == "completed"
    bad = await run_by_id(reader, "default", "r_bad")
    assert (bad.status, bad.quarantined, bad.last_seq) == ("running", True, 1)


TOO_LONG = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(80))
"""More than a page of an index holds, and nothing to compress."""


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("a sum over 64 bits", replied(2, "b", usage=Usage(input_tokens=2**63 - 1))),
        ("a model name no index takes", replied(2, "b", model=TOO_LONG)),
    ],
)
@pytest.mark.parametrize("polls", [1, 3, 99])
async def test_rows_that_postgres_refuses_halt_their_run_at_that_event_and_no_other(
    connection, builds, reader, name, event, polls
):
    partition = Partition()
    partition.claim()
    partition.add("r_bad", started("r_bad"), requested(1), replied(1, "a"))
    partition.add("r_good", started("r_good"), requested(1))
    partition.add("r_bad", event)
    partition.records.append(b"garbage")
    partition.add("r_bad", completed())
    partition.add("r_good", replied(1, "hi"), completed())
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, partition.outgoing())
    records = log.records[TOPIC, 0]
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    offsets: list[int] = []
    for poll in cut(records, range(0, len(records), len(records) // polls or 1)):
        offsets += [row.offset for row in (await projection.apply({0: poll})).problems]
    assert sorted(offsets) == [6, 7]
    bad, good = await run_by_id(reader, "default", "r_bad"), await run_by_id(reader, "default", "r_good")
    assert (bad.quarantined, bad.last_seq, bad.iterations) == (True, 3, 1)
    assert (good.status, good.quarantined) == ("completed", False)
    audit_row = await find_run(reader, "default", "r_bad")
    assert (audit_row.halted_offset, audit_row.withheld, audit_row.last_seq) == (6, 2, 3)
    (problem,) = [row for row in await list_problems(reader) if row.run_id]
    assert (problem.kind, problem.offset, problem.value) == ("unwritable", 6, partition.records[6])


async def test_a_run_id_that_no_index_takes_makes_its_records_problems(project, reader):
    partition = Partition()
    partition.claim()
    partition.add("r_" + TOO_LONG, started("r_x"), requested(1))
    partition.records[-1] = partition.records[-1][:-1]
    partition.add("r_good", started("r_good"), completed())
    projection = await project(partition)
    assert projection.positions == {0: 5}
    assert [(row.offset, row.kind, row.run_id) for row in await list_problems(reader)] == [
        (1, "unwritable", ""),
        (2, "undecodable", ""),
    ]
    assert (await run_by_id(reader, "default", "r_good")).status == "completed"


async def test_a_time_out_of_range_does_not_stop_anything(project, reader):
    partition = Partition(clock_ms=2**62)
    partition.claim()
    partition.add("r_1", started("r_1"), replied(1, "a"), completed())
    await project(partition)
    assert (await run_by_id(reader, "default", "r_1")).status == "completed"


async def test_texts_that_postgres_cannot_hold_do_not_stop_anything(project, reader):
    partition = Partition()
    partition.claim()
    partition.add(
        "r_1", started("r_1", prompt="zero \x00", user_id="u\x00"), requested(1), replied(1, "a\x00b"), completed()
    )
    await project(partition)
    assert (await run_by_id(reader, "default", "r_1")).user_id == "u\ufffd"


async def test_the_cursor_moves_past_a_poll_without_events(connection, builds, project):
    partition = Partition()
    partition.claim()
    partition.claim("next")
    await project(partition)
    assert await builds.positions(1, TOPIC) == {0: 2}


async def test_several_partitions_move_in_one_transaction(builds, project):
    one, two = Partition(), Partition()
    eventful(one)
    two.claim()
    many_runs(two, ["r_x"])
    await project(one, two)
    assert await builds.positions(1, TOPIC) == {0: len(one.records), 1: len(two.records)}
