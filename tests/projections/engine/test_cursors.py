import pytest

from loomlog.projections.engine.batch import Cursor
from loomlog.projections.engine.cursors import Fenced, advance, claim, list_cursors, require_advanced


async def move(connection, schema, old, new):
    async with connection.pipeline():
        advanced = await advance(connection, schema, "t", [(old, new)])
    require_advanced("t", advanced)


async def test_a_claim_raises_the_epoch_and_keeps_the_offset(connection, builds, prefix, reader):
    schema = f"{prefix}_1"
    first = await claim(connection, schema, "t", [1, 0], "one")
    assert first == {p: Cursor(partition=p, next_offset=0, term=-1, epoch=1) for p in (0, 1)}
    advanced_cursor = Cursor(partition=0, next_offset=5, term=2, epoch=1)
    async with connection.transaction():
        await move(connection, schema, first[0], advanced_cursor)
    second = await claim(connection, schema, "t", [0], "two")
    assert second == {0: Cursor(partition=0, next_offset=5, term=2, epoch=2)}
    rows = await list_cursors(reader)
    assert [(row.partition, row.next_offset, row.term, row.epoch, row.owner) for row in rows] == [
        (0, 5, 2, 2, "two"),
        (1, 0, -1, 1, "one"),
    ]


@pytest.mark.parametrize(("next_offset", "epoch"), [(0, 2), (1, 1)])
async def test_a_cursor_moves_only_from_where_it_is_and_in_its_epoch(connection, builds, prefix, next_offset, epoch):
    schema = f"{prefix}_1"
    cursor = (await claim(connection, schema, "t", [0], "one"))[0]
    wrong_cursor = Cursor(partition=0, next_offset=next_offset, term=-1, epoch=epoch)
    with pytest.raises(Fenced, match="t/0"):
        async with connection.transaction():
            await move(connection, schema, wrong_cursor, Cursor(partition=0, next_offset=9, term=0))
    assert (await claim(connection, schema, "t", [0], "one"))[0].next_offset == cursor.next_offset
