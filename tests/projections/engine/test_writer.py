import pytest
from psycopg import DataError
from psycopg.errors import UniqueViolation
from sqlalchemy import BigInteger, Boolean, Column, LargeBinary, MetaData, Table, Text

from loomlog.connectors.storage.postgres import create_tables
from loomlog.projections.engine.writer import COPY_FROM_ROWS, make_writer, write_all
from loomlog.projections.tables import JsonText

TABLE = Table(
    "things",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("number", BigInteger),
    Column("first", Text),
)
SIZES = [3, COPY_FROM_ROWS + 3]
"""Few rows are sent as a document, many by COPY."""


@pytest.fixture
async def things(connection, pg_schema):
    await create_tables(connection, TABLE.metadata, pg_schema)
    return pg_schema


def rows(size: int, number: int | None, first: str | None) -> list[tuple]:
    return [(f"n{n:04d}", number, first) for n in range(size)]


async def written(connection, schema, policy, *batches, **options) -> set[tuple]:
    write = make_writer(schema, TABLE, policy, **options)
    await write.prepare(connection)
    for batch in batches:
        async with connection.transaction():
            await write_all(connection, [(write, batch)])
    result = await connection.execute(f"SELECT DISTINCT number, first FROM {schema}.things")
    return set(await result.fetchall())


@pytest.mark.parametrize("size", SIZES)
async def test_replaced_rows_are_the_new_ones(connection, things, size):
    assert await written(connection, things, "replace", rows(size, 1, "a"), rows(size, 2, None)) == {(2, None)}


@pytest.mark.parametrize("size", SIZES)
async def test_added_numbers_are_summed(connection, things, size):
    table = Table(
        "things",
        MetaData(),
        Column("name", Text, primary_key=True),
        Column("number", BigInteger),
        Column("first", BigInteger),
    )
    schema = things
    await connection.execute(f"ALTER TABLE {schema}.things ALTER first TYPE bigint USING 0")
    write = make_writer(schema, table, "add")
    await write.prepare(connection)
    for number in (1, 2):
        async with connection.transaction():
            await write_all(connection, [(write, [(f"n{n:04d}", number, 10 * number) for n in range(size)])])
    result = await connection.execute(f"SELECT DISTINCT number, first FROM {schema}.things")
    assert await result.fetchall() == [(3, 30)]


@pytest.mark.parametrize("size", SIZES)
async def test_cover_keeps_values_that_are_null_in_new_rows(connection, things, size):
    batches = rows(size, 1, "a"), rows(size, None, "b"), rows(size, 3, None)
    assert await written(connection, things, "cover", *batches) == {(3, "b")}
    assert await written(connection, things, "cover", rows(size, 4, "c"), keep=frozenset({"first"})) == {(4, "b")}


@pytest.mark.parametrize("size", SIZES)
async def test_inserting_a_row_that_exists_is_an_error(connection, things, size):
    with pytest.raises(UniqueViolation):
        await written(connection, things, "insert", rows(size, 1, "a"), rows(size, 1, "a"))


@pytest.mark.parametrize("size", SIZES)
async def test_awkward_texts_come_back_as_they_went_in(connection, things, size):
    awkward = "tab\t newline\n back\\slash \\N quote' \" \r é 🙂"
    assert await written(connection, things, "insert", rows(size, 1, awkward)) == {(1, awkward)}


@pytest.mark.parametrize("size", SIZES)
async def test_a_zero_character_is_replaced(connection, things, size):
    assert await written(connection, things, "insert", rows(size, 1, "a\x00b")) == {(1, "a\ufffdb")}


@pytest.mark.parametrize("size", SIZES)
async def test_json_and_bytes_are_kept_to_the_byte(connection, pg_schema, size):
    kinds = Table(
        "kinds",
        MetaData(),
        Column("name", Text, primary_key=True),
        Column("document", JsonText),
        Column("digest", LargeBinary),
        Column("is_so", Boolean),
    )
    await create_tables(connection, kinds.metadata, pg_schema)
    write = make_writer(pg_schema, kinds, "replace")
    await write.prepare(connection)
    document = '{"b": "\\u0000 \\ud800",  "a":"\\\\x", "a":1}'
    both = [(f"n{n:04d}", document, b"\x00\xff\\", True) for n in range(size - 1)] + [("none", None, None, None)]
    async with connection.transaction():
        await write_all(connection, [(write, both)])
    result = await connection.execute(f"SELECT DISTINCT document::text, digest, is_so FROM {pg_schema}.kinds")
    assert set(await result.fetchall()) == {(document, b"\x00\xff\\", True), (None, None, None)}


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1])
@pytest.mark.parametrize("size", SIZES)
async def test_a_number_over_64_bits_is_refused_as_data(connection, things, size, value):
    with pytest.raises(DataError):
        await written(connection, things, "replace", rows(size, value, "a"))


async def test_no_rows_send_no_statement(connection, things):
    assert await written(connection, things, "insert", []) == set()


async def test_tables_are_written_together_some_by_copy_and_some_not_and_then_the_last_statement(connection, things):
    await connection.execute(f"CREATE TABLE {things}.others (LIKE {things}.things INCLUDING ALL)")
    others = make_writer(things, TABLE.to_metadata(MetaData(), name="others"), "insert")
    write = make_writer(things, TABLE, "replace")
    await write.prepare(connection)
    count = f"SELECT set_config('tests.seen', (SELECT count(*)::text FROM {things}.things), false)".encode()
    async with connection.transaction():
        both = [(write, rows(COPY_FROM_ROWS, 1, "a")), (others, rows(1, 2, "b"))]
        await write_all(connection, both, last=[(count, ())])
    result = await connection.execute(
        f"SELECT count(*), current_setting('tests.seen') FROM {things}.others WHERE number = 2"
    )
    assert await result.fetchone() == (1, str(COPY_FROM_ROWS))


async def test_rows_copied_in_a_transaction_that_was_rolled_back_are_gone(connection, things):
    write = make_writer(things, TABLE, "replace")
    await write.prepare(connection)
    async with connection.transaction(force_rollback=True):
        await write_all(connection, [(write, rows(COPY_FROM_ROWS, 1, "a"))])
    async with connection.transaction():
        await write_all(connection, [(write, rows(COPY_FROM_ROWS, 2, "b"))])
    result = await connection.execute(f"SELECT DISTINCT number FROM {things}.things")
    assert await result.fetchall() == [(2,)]
