import asyncio

import pytest

from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import COMPARED, TABLES, VERSION, Builds, StatusRow, has_status, read_status
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.run_queries import RunFilter, list_runs
from tests.projections.engine.test_fold import RECORDS
from tests.projections.stories import TOPIC


async def filled(connection, builds, number: int, records=RECORDS) -> None:
    projection = RunProjection(connection, builds.build(number), TOPIC, owner="tests")
    await projection.claim([0])
    await projection.apply({0: records})


async def test_the_first_build_is_made_once_and_is_live(connection, builds):
    await builds.prepare()
    (row,) = await builds.list_builds()
    assert (row.number, row.state, row.version) == (1, "live", VERSION)
    assert (await builds.live()).number == 1


async def test_readers_see_the_live_build_before_and_after_a_switch(connection, builds, reader):
    await filled(connection, builds, 1)
    other = await builds.make()
    assert len((await list_runs(reader, "default", RunFilter())).rows) > 3
    async with connection.transaction():
        await builds.switch(other)
    assert (await list_runs(reader, "default", RunFilter())).rows == ()
    assert [(row.number, row.state) for row in await builds.list_builds()] == [(1, "previous"), (2, "live")]
    async with connection.transaction():
        await builds.switch(builds.build(1))
    assert len((await list_runs(reader, "default", RunFilter())).rows) > 3


async def test_a_reader_continues_over_many_switches(connection, builds, prefix, options):
    await filled(connection, builds, 1)
    other = await builds.make()
    await filled(connection, builds, other.number)
    own = await open_reader(options, schema=prefix, max_connections=1)
    try:
        for number in (2, 1, 2, 1, 2, 1, 2):
            for _ in range(6):
                assert len((await list_runs(own, "default", RunFilter())).rows) > 3
            async with connection.transaction():
                await builds.switch(builds.build(number))
    finally:
        await own.close()


async def test_hashes_tell_two_builds_apart_by_a_single_value(connection, builds):
    await filled(connection, builds, 1)
    other = await builds.make()
    await filled(connection, builds, other.number)
    same = await builds.table_hashes(1)
    assert await builds.table_hashes(other.number) == same
    assert set(same) == set(COMPARED) == {table.name for table in TABLES} - {"cursors"}
    assert all(table_hash.rows > 0 for table_hash in same.values())
    await connection.execute(f"UPDATE {other.schema}.runs SET iterations = iterations + 1 WHERE run_id = 'r_tools'")
    changed = await builds.table_hashes(other.number)
    assert [name for name in COMPARED if changed[name] != same[name]] == ["runs"]


async def test_an_unfinished_build_is_dropped_when_the_next_is_made(connection, builds):
    first = await builds.make()
    second = await builds.make()
    assert [(row.number, row.state) for row in await builds.list_builds()] == [(1, "live"), (second.number, "building")]
    assert second.number > first.number


async def test_all_but_the_live_and_the_previous_build_are_dropped(connection, builds, prefix):
    for _ in range(3):
        build = await builds.make()
        async with connection.transaction():
            await builds.switch(build)
    assert await builds.drop_unused() == [1, 2]
    assert [(row.number, row.state) for row in await builds.list_builds()] == [(3, "previous"), (4, "live")]
    result = await connection.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s ORDER BY 1", (prefix + r"\_%",)
    )
    assert [name for (name,) in await result.fetchall()] == [f"{prefix}_3", f"{prefix}_4"]


async def test_the_live_build_is_never_dropped(builds):
    with pytest.raises(AssertionError):
        await builds.drop(builds.build(1))


async def test_one_connection_at_a_time_projects_and_one_rebuilds(builds, connecting, prefix):
    async with await connecting() as other:
        theirs = Builds(other, prefix)
        assert await builds.reserve_projecting("t")
        assert not await theirs.reserve_projecting("t")
        assert await theirs.reserve_projecting("another topic")
        assert await theirs.reserve_rebuild()
        assert not await builds.reserve_rebuild()
    async with asyncio.timeout(30):
        while not await builds.reserve_rebuild():
            await asyncio.sleep(0.01)


async def test_has_status_is_false_until_the_projector_has_made_its_tables(builds, reader, prefix):
    assert await has_status(reader, prefix)
    assert not await has_status(reader, f"{prefix}_missing")


async def test_the_status_is_the_last_one_written(builds, reader):
    status = StatusRow(TOPIC, "me", 1, "projecting", 3, 12, 100, 1, 0, None)
    await builds.write_status(status)
    await builds.write_status(status._replace(events_behind=0))
    (row,) = await read_status(reader)
    assert row[:-1] == status._replace(events_behind=0)[:-1]
    assert row.at is not None
