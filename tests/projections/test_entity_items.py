"""What can be asked of the items of aggregates."""

import math
import random
import re
import statistics
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from sqlalchemy.dialects.postgresql import psycopg as dialect

from loomlog.connectors.storage.postgres import connect
from loomlog.projections import entity_items as entity_items_module
from loomlog.projections.entity_items import (
    ItemSums,
    list_items,
    list_items_by_id,
    load_items,
    newest_items,
    sum_items,
    sum_items_by_key,
)
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken, page_token
from loomlog.services.core.families import Item
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.projector.expired_items import MARGIN_MS, ExpiredItems
from tests.projections.counters import ITEM_FOLDS, ITEMIZED, Counters, counter


@pytest.fixture
def partition() -> Counters:
    partition = Counters()
    partition.claim()
    return partition


@pytest.fixture
async def steps(partition, project_entities) -> Counters:
    """Steps of three counters, one of another tenant: their values, in the order of time."""
    partition.raise_("a", 1, 2, cause_id="c1")
    partition.raise_("b", 1, cause_id="c2")
    partition.raise_("a", 3, cause_id="c2")
    partition.raise_("a", 7, tenant="other", cause_id="c1")
    partition.raise_("b", 2)
    await project_entities(partition, folds=ITEM_FOLDS)
    return partition


def short(rows) -> list[str]:
    return [row.id.removeprefix("counter:") for row in rows]


BY_TIME = ["acme/a#1", "acme/a#2", "acme/b#1", "acme/a#3", "acme/b#2"]


async def test_items_are_loaded_by_id_many_at_once(steps, entity_reader, monkeypatch):
    monkeypatch.setattr(entity_items_module, "IDS_MAX", 2)
    ids = [f"{counter('a')}#2", "missing", "nul\x00", "\ud800", f"{counter('b')}#1", f"{counter('a', 'other')}#7"]
    rows = await load_items(entity_reader, "counter", "acme", "step", ids)
    assert sorted(short(rows)) == ["acme/a#2", "acme/b#1"]
    assert sorted(short(await load_items(entity_reader, "counter", EVERY_TENANT, "step", ids))) == [
        "acme/a#2",
        "acme/b#1",
        "other/a#7",
    ]
    assert await load_items(entity_reader, "tally", "acme", "step", ids) == []
    assert await load_items(entity_reader, "counter", "acme", "last", ids) == []
    assert await load_items(entity_reader, "counter", "acme", "step", []) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, BY_TIME),
        ({"key_a": "by 1"}, BY_TIME),
        ({"key_a": "by 2"}, []),
        ({"key_b": "c1"}, ["acme/a#1", "acme/a#2"]),
        ({"key_b": "c2"}, ["acme/b#1", "acme/a#3"]),
        ({"key_b": "c2", "aggregate": counter("a")}, ["acme/a#3"]),
        ({"aggregate": counter("b")}, ["acme/b#1", "acme/b#2"]),
        ({"aggregate": counter("a", "other")}, []),
        ({"key_a": "nul\x00"}, []),
        ({"key_b": "\ud800"}, []),
    ],
)
@pytest.mark.parametrize("newest_first", [True, False])
async def test_items_are_listed_by_keys_and_time_page_by_page(steps, entity_reader, keys, expected, newest_first):
    ids, after, pages = [], "", 0
    while True:
        page = await list_items(
            entity_reader, "counter", "acme", "step", **keys, newest_first=newest_first, limit=2, after=after
        )
        assert len(page.rows) <= 2
        ids, pages = ids + short(page.rows), pages + 1
        if not (after := page.next):
            break
    assert ids == (expected[::-1] if newest_first else expected)
    assert pages == max(1, math.ceil(len(expected) / 2))


async def test_an_operator_lists_the_items_of_every_tenant(steps, entity_reader):
    page = await list_items(entity_reader, "counter", EVERY_TENANT, "step", limit=1)
    assert short(page.rows) == ["acme/b#2"]
    rest = await list_items(entity_reader, "counter", EVERY_TENANT, "step", after=page.next)
    assert short(rest.rows) == ["other/a#7", *BY_TIME[3::-1]]
    assert rest.rows[0].document == '{"value": 7}'


async def test_items_of_one_time_have_an_order(partition, project_entities, entity_reader):
    names = ["B", "a", "é", "b", "Z"]
    folds = entity_folds(
        [replace(ITEMIZED, items=lambda *_: [Item(kind="step", id=name, document="{}") for name in names])]
    )
    partition.raise_("a", 1)
    await project_entities(partition, folds=folds)
    listed, after = [], ""
    for _ in names:
        page = await list_items(entity_reader, "counter", "acme", "step", limit=1, newest_first=False, after=after)
        listed, after = listed + short(page.rows), page.next
    assert (listed, after) == (sorted(names), "")


@pytest.mark.parametrize(
    "after", ["?", page_token(1, "x"), page_token("x", "x", "acme"), page_token(1, "\x00", "acme")]
)
async def test_a_token_of_another_list_is_refused(steps, entity_reader, after):
    with pytest.raises(InvalidPageToken):
        await list_items(entity_reader, "counter", "acme", "step", after=after)


# --- the newest of each key ----------------------------------------------------------------------------------------


@pytest.fixture
async def numbered(partition, project_entities) -> Counters:
    """Steps of two counters by key: a has the numbers 1, 9, 3; b has 2."""

    def items(state, event, envelope):
        name = envelope.aggregate.rpartition("/")[2]
        step = f"{name}{envelope.seq}"
        return [Item(kind="at", id=step, key_a=name, key_b=step, number=float(state.value), document="{}")]

    partition.raise_("a", 1, 9)
    partition.raise_("b", 2)
    partition.raise_("a", 3)
    partition.raise_("a", 5, tenant="other")
    await project_entities(partition, folds=entity_folds([replace(ITEMIZED, items=items)]))
    return partition


async def newest(entity_reader, keys, by="key_a", **bounds) -> dict[str, str]:
    rows = await newest_items(entity_reader, "counter", "acme", "at", by, keys, **bounds)
    return {key: row.id for key, row in rows.items()}


async def test_the_newest_item_of_each_key_is_that_of_the_highest_seq(numbered, entity_reader, monkeypatch):
    monkeypatch.setattr(entity_items_module, "IDS_MAX", 2)
    keys = ["a", "missing", "b", "nul\x00", "\ud800"]
    assert await newest(entity_reader, keys) == {"a": "a3", "b": "b1"}
    assert await newest(entity_reader, ["a2", "b1"], by="key_b") == {"a2": "a2", "b1": "b1"}
    assert await newest(entity_reader, []) == {}


async def test_the_newest_item_up_to_a_number_or_an_offset(numbered, entity_reader):
    assert await newest(entity_reader, ["a", "b"], number_max=8) == {"a": "a3", "b": "b1"}
    assert await newest(entity_reader, ["a", "b"], number_max=1) == {"a": "a1"}
    rows = await newest_items(entity_reader, "counter", "acme", "at", "key_a", ["a"])
    assert await newest(entity_reader, ["a"], offset_max=rows["a"].offset - 1) == {"a": "a2"}
    assert await newest(entity_reader, ["a"], offset_max=0) == {}


# --- sums ------------------------------------------------------------------------------------------------------------


async def scored(partition, project_entities, numbers, **fields) -> None:
    """Items of one counter with these numbers, in the order of time."""

    def items(state, event, envelope):
        return [Item(kind="score", id=str(state.value), number=numbers[state.value - 1], document="{}", **fields)]

    partition.raise_("a", *range(1, len(numbers) + 1))
    await project_entities(partition, folds=entity_folds([replace(ITEMIZED, items=items)]))


NUMBERS = [random.Random(7).uniform(-1, 1) for _ in range(50)]


@pytest.mark.parametrize(
    "numbers",
    [[0.5], [1.0, 0.0], [0.25, 0.5, 0.75], NUMBERS, NUMBERS[:-1], [1.7e308] * 3, [1.7e308, -1.7e308], [5e-324] * 2],
)
async def test_numbers_are_summed_up(partition, project_entities, entity_reader, numbers):
    await scored(partition, project_entities, numbers)
    sums = await sum_items(entity_reader, "counter", "acme", "score")
    assert (sums.count, sums.min, sums.max, sums.latest) == (len(numbers), min(numbers), max(numbers), numbers[-1])
    exact = sorted(map(Fraction, numbers))
    assert sums.mean == pytest.approx(float(sum(exact) / len(exact)), rel=1e-14, abs=0)
    assert sums.median == pytest.approx(float(statistics.median(exact)), rel=1e-14, abs=0)


async def test_a_mean_that_no_double_holds_is_zero(partition, project_entities, entity_reader):
    await scored(partition, project_entities, [5e-324, 0.0, 0.0, 0.0])
    assert (await sum_items(entity_reader, "counter", "acme", "score")).mean == 0.0


async def test_items_without_a_number_are_not_summed_up(partition, project_entities, entity_reader):
    await scored(partition, project_entities, [None, 0.5, None])
    assert await sum_items(entity_reader, "counter", "acme", "score") == ItemSums(
        count=1, mean=0.5, median=0.5, min=0.5, max=0.5, latest=0.5
    )
    assert len((await list_items(entity_reader, "counter", "acme", "score")).rows) == 3


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ({}, 5),
        ({"keys_a": ["by 1"]}, 5),
        ({"keys_b": ["c1"]}, 2),
        ({"keys_b": ["c1", "c2", "nul\x00"]}, 4),
        ({"keys_b": ["c2"], "aggregates": [counter("a")]}, 1),
        ({"aggregates": [counter("a"), counter("a", "other")]}, 3),
        ({"keys_a": []}, 0),
        ({"aggregates": []}, 0),
        ({"keys_b": ["\ud800"]}, 0),
    ],
)
async def test_sums_are_of_the_items_with_these_keys(steps, entity_reader, keys, count):
    sums = await sum_items(entity_reader, "counter", "acme", "step", **keys)
    assert sums.count == count
    assert sums.mean == (0.25 if count else 0)
    if not count:
        assert sums == ItemSums()


async def test_sums_are_grouped_by_a_key(steps, entity_reader, monkeypatch):
    quarters = {"mean": 0.25, "median": 0.25, "min": 0.25, "max": 0.25, "latest": 0.25}
    by = await sum_items_by_key(entity_reader, "counter", "acme", "step", "key_b")
    assert by == {key: ItemSums(count=count, **quarters) for key, count in {"": 1, "c1": 2, "c2": 2}.items()}
    by = await sum_items_by_key(entity_reader, "counter", EVERY_TENANT, "step", "key_a", keys_b=["c1"])
    assert by == {"by 1": ItemSums(count=3, **quarters)}
    assert await sum_items_by_key(entity_reader, "counter", "acme", "step", "key_a", keys_b=["none"]) == {}
    monkeypatch.setattr(entity_items_module, "GROUPS_MAX", 2)
    assert list(await sum_items_by_key(entity_reader, "counter", "acme", "step", "key_b")) == ["", "c1"]


# --- indexes ---------------------------------------------------------------------------------------------------------


class Explaining:
    """A reader that notes the plan of each query."""

    def __init__(self, connection, schema) -> None:
        self.connection, self.schema, self.plan = connection, schema, ""

    async def fetch(self, statement):
        compiled = statement.compile(
            dialect=dialect.dialect(),
            schema_translate_map={None: self.schema},
            render_schema_translate=True,
            compile_kwargs={"render_postcompile": True},
        )
        result = await self.connection.execute(f"EXPLAIN {compiled}", compiled.params)
        self.plan = "\n".join(line for (line,) in await result.fetchall())
        raise LookupError


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (lambda r: load_items(r, "counter", "acme", "step", ["i7"]), "entity_items_pkey"),
        (lambda r: list_items(r, "counter", "acme", "step", key_a="a7", limit=9), "entity_items_a"),
        (lambda r: list_items(r, "counter", "acme", "step", key_b="b7", limit=9), "entity_items_b"),
        (
            lambda r: list_items(r, "counter", "acme", "step", aggregate="counter:acme/7", limit=9),
            "entity_items_aggregate",
        ),
        (lambda r: list_items(r, "counter", "acme", "step", limit=9), "entity_items_time"),
        (
            lambda r: list_items(r, "counter", "acme", "step", limit=9, after=page_token(7, "i7", "acme")),
            "entity_items_time",
        ),
        (lambda r: list_items_by_id(r, "counter", "acme", "step", prefix="i77", limit=9), "entity_items_pkey"),
        (lambda r: sum_items(r, "counter", "acme", "step", keys_b=["b7", "b8"]), "entity_items_b"),
        (lambda r: sum_items(r, "counter", "acme", "step", aggregates=["counter:acme/7"]), "entity_items_aggregate"),
        (lambda r: sum_items_by_key(r, "counter", "acme", "step", "key_b", keys_a=["a7"]), "entity_items_a"),
    ],
)
async def test_each_query_has_its_index(connection, entity_builds, query, index):
    schema = entity_builds.build(1).schema
    await connection.execute(
        f"INSERT INTO {schema}.entity_items "
        "SELECT 'counter', 'acme', 'counter:acme/' || n / 20, n / 20, 'step', 'i' || n, "
        "CASE WHEN n % 2 = 0 THEN 'a' || n / 40 ELSE '' END, 'b' || n / 30, n, 0, n, n, n, '{}', 0 "
        "FROM generate_series(1, 20000) n"
    )
    await connection.execute(f"ANALYZE {schema}.entity_items")
    reader = Explaining(connection, schema)
    with pytest.raises(LookupError):
        await query(reader)
    assert re.search(rf"\b{index}\b", reader.plan), reader.plan
    assert "Seq Scan" not in reader.plan
    if index == "entity_items_time":
        assert "Sort" not in reader.plan, reader.plan


async def test_items_are_listed_by_the_beginning_of_their_ids(steps, entity_reader):
    async def ids(prefix: str, **more) -> list[str]:
        return short(await list_items_by_id(entity_reader, "counter", "acme", "step", prefix=prefix, **more))

    assert await ids(f"{counter('a')}#", limit=10) == ["acme/a#1", "acme/a#2", "acme/a#3"]
    assert await ids(f"{counter('a')}#", limit=10, after=f"{counter('a')}#1") == ["acme/a#2", "acme/a#3"]
    assert await ids("", limit=2) == ["acme/a#1", "acme/a#2"]
    assert await ids("%", limit=10) == await ids("counter:acme/_#", limit=10) == []
    assert await ids("\ud7ff", limit=10) == await ids("\U0010ffff", limit=10) == []


async def test_expired_items_are_deleted_and_others_are_not(
    partition, project_entities, entity_reader, entity_prefix, options
):
    def expiring(state, event, envelope):
        common = {"document": "{}", "kind": "step"}
        return [Item(id=f"{envelope.seq} kept", **common), Item(id=f"{envelope.seq} short", kept_ms=1_000, **common)]

    partition.raise_("a", 1, 2)
    await project_entities(partition, folds=entity_folds([replace(ITEMIZED, items=expiring)]))
    rows = await list_items_by_id(entity_reader, "counter", "acme", "step", limit=10)
    assert [row.id for row in rows] == ["1 kept", "1 short", "2 kept", "2 short"]
    expires_at_ms = rows[1].expires_at_ms
    assert (rows[0].expires_at_ms, expires_at_ms) == (0, rows[1].at_ms + 1_000)
    loop = ExpiredItems(partial(connect, options), entity_prefix)
    assert await loop.delete(expires_at_ms + MARGIN_MS) == 0
    assert await loop.delete(rows[3].expires_at_ms + MARGIN_MS + 1) == 2
    assert short(await list_items_by_id(entity_reader, "counter", "acme", "step", limit=10)) == ["1 kept", "2 kept"]
