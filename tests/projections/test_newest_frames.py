"""The frames of all runs, newest first: their order, the filters, the pages, and what a page may cost."""

import pytest

from loomlog.projections import newest_frames as module
from loomlog.projections.newest_frames import FrameFilter, newest_frames
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.projections.transcript import PLACE_BITS, first_place
from tests.projections.stories import START_MS, Partition, completed, eventful, replied, started


@pytest.fixture
async def two_tenants(project) -> Partition:
    partition = Partition()
    eventful(partition)
    partition.add("r_acme", started("r_acme"), replied(1, "hi"), completed(), tenant="acme")
    await project(partition)
    return partition


async def read(reader, tenant="default", limit=500, offset=0, after="", **criteria):
    return await newest_frames(reader, tenant, FrameFilter(**criteria), limit=limit, offset=offset, after=after)


async def test_frames_come_newest_first_and_their_places_fall(reader, two_tenants):
    page = await read(reader)
    places = [row.place for row in page.rows]
    assert len(places) > 20
    assert places == sorted(places, reverse=True)
    assert [row.ts_ns for row in page.rows] == sorted((row.ts_ns for row in page.rows), reverse=True)
    assert max(places) < 2**53
    assert (page.total, page.is_total_exact, page.next) == (len(places), True, "")


async def test_a_tenant_sees_its_own_frames_and_an_operator_all(reader, two_tenants):
    own = await read(reader, "acme")
    assert {row.run_id for row in own.rows} == {"r_acme"}
    whole = await read(reader, EVERY_TENANT)
    assert whole.total == own.total + (await read(reader)).total


async def test_frames_are_filtered_by_type_and_time(reader, two_tenants):
    ends = await read(reader, type="done")
    assert {row.type for row in ends.rows} == {"done"}
    assert ends.total == len(ends.rows) > 1
    newest = ends.rows[0].ts_ns // 1_000_000
    assert (await read(reader, type="done", to_ms=newest)).rows == tuple(
        row for row in ends.rows if row.ts_ns // 1_000_000 < newest
    )
    assert (await read(reader, type="done", from_ms=newest)).rows[0] == ends.rows[0]
    assert (await read(reader, to_ms=START_MS - 1)).total == 0


async def test_pages_by_offset_and_by_cursor_are_the_whole_list(reader, two_tenants):
    whole = (await read(reader, EVERY_TENANT)).rows
    by_offset = [(await read(reader, EVERY_TENANT, limit=7, offset=n)).rows for n in range(0, len(whole), 7)]
    assert tuple(row for page in by_offset for row in page) == whole
    seen, after = [], ""
    for _ in range(len(whole)):
        page = await read(reader, EVERY_TENANT, limit=7, after=after)
        assert page.total == len(whole)
        seen += page.rows
        if not (after := page.next):
            break
    assert tuple(seen) == whole
    with pytest.raises(InvalidPageToken):
        await read(reader, after="x")


async def test_a_page_looks_at_so_many_frames_and_says_where_to_go_on(reader, two_tenants, monkeypatch):
    whole = await read(reader, type="done")
    monkeypatch.setattr(module, "SCANNED_MAX", 5)
    found, after, pages = [], "", 0
    for _ in range(100):
        page = await read(reader, type="done", after=after)
        assert not page.is_total_exact
        assert page.total <= 5
        found, pages = found + list(page.rows), pages + 1
        if not (after := page.next):
            break
    assert tuple(found) == whole.rows
    assert pages > 3


def test_a_time_out_of_range_has_a_place():
    assert first_place(-5) == first_place(0) == 0
    assert first_place(10**18) >> PLACE_BITS == 2**39 - 1
