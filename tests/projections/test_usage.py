import pytest
from sqlalchemy import func, select

from loomlog.projections import usage as usage_module
from loomlog.projections.tables import EVERY_TENANT
from loomlog.projections.usage import SUMS, UsageRow, spent_since, sum_rows, usage, usage_report
from loomlog.schemas.generated.values import ImportOrigin, Usage
from loomlog.schemas.records import replace
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import COMPACTED, NOT_COMPACTED, Partition, a3x2, completed, failed, replied, started
from tests.projections.twin import projected
from tests.services.core.run.given import cancel, compact, erred, says, summarised, talked

DAY_MS = 86_400_000


def rows_of(*events) -> list[UsageRow]:
    partition = Partition()
    partition.claim()
    partition.add("r_1", *events)
    return sorted(projected([records_of(partition)]).tables["usage"].values())


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(UsageRow._fields) == [column.name for column in usage.columns]


def test_the_answers_of_a_day_are_summed():
    (row,) = rows_of(*a3x2("r_1"))
    assert (row.day, row.tenant, row.user_id, row.agent, row.provider) == (
        "2026-05-28",
        "default",
        "ada",
        "writer",
        "mock",
    )
    assert (row.calls, row.unpriced_calls, row.input_tokens, row.output_tokens, row.cost_micros) == (3, 0, 306, 60, 21)


def test_currencies_are_never_added_and_unpriced_answers_are_counted():
    euro, none, dollar = (
        replied(1, "a", currency="EUR"),
        replied(2, "b", currency="", cost_micros=0),
        replied(3, "c", currency="USD"),
    )
    rows = rows_of(started(), euro, none, dollar)
    assert [(row.currency, row.calls, row.unpriced_calls) for row in rows] == [("", 1, 1), ("EUR", 1, 0), ("USD", 1, 0)]


def test_payers_are_counted_separately():
    paid = [
        replace(replied(turn, "a"), credential_source=source, credential_scope="r_1" if source == "run" else "")
        for turn, source in enumerate(("operator", "run", "run", ""), start=1)
    ]
    summary = replace(COMPACTED, credential_source="run", model="m-1")
    rows = rows_of(started(), *paid, summary)
    assert {(row.source, row.model): row.calls for row in rows} == {
        ("operator", paid[0].model): 2,
        ("run", paid[0].model): 2,
        ("run", "m-1"): 1,
    }


def test_a_summary_counts_like_a_reply_and_a_failed_one_only_with_usage():
    (row,) = rows_of(started(), COMPACTED)
    assert (row.model, row.calls, row.input_tokens, row.cost_micros) == ("small", 1, 800, 7)
    assert rows_of(started(), NOT_COMPACTED) == []
    (row,) = rows_of(started(), replace(NOT_COMPACTED, usage=Usage(input_tokens=5)))
    assert (row.calls, row.input_tokens) == (1, 5)


def test_a_run_costs_what_its_rows_of_usage_add_up_to():
    run = talked()
    run.give(compact())
    run.give(summarised(run.state))
    run.give(says("and now?"))
    run.give(erred(run.state, "overloaded", transient=True))
    run.give(cancel())
    ended = run.events[-1]
    rows = rows_of(*run.events)
    assert ended.cost_micros == sum(row.cost_micros for row in rows) > 0
    assert ended.usage.input_tokens == sum(row.input_tokens for row in rows) > 0
    assert ended.usage.output_tokens == sum(row.output_tokens for row in rows) > 0
    assert {row.user_id for row in rows} == {run.events[0].user_id}


def test_a_failed_call_costs_nothing():
    assert rows_of(started(), failed(1)) == []


@pytest.mark.parametrize(("is_restored", "counted"), [(False, []), (True, [3])])
def test_imported_usage_counts_only_after_a_restore(is_restored, counted):
    first, *others = a3x2("r_1")
    origin = ImportOrigin(
        topic="loom.run.events",
        partition=0,
        first_offset=1,
        tenant="there",
        events=len(others) + 1,
        tail_digest="ab",
        bundle_sha256="cd",
        restored=is_restored,
    )
    assert [row.calls for row in rows_of(replace(first, imported_from=origin), *others)] == counted


def test_sums_do_not_depend_on_grouping():
    (row,) = rows_of(started(), replied(1, "a"))
    assert sum_rows([row, row, row]) == sum_rows([*sum_rows([row, row]), row])


@pytest.fixture
async def spent(project):
    partition = Partition()
    partition.claim()
    for run_id, user, tenant in (("r_1", "ada", "default"), ("r_2", "bob", "default"), ("r_3", "ada", "acme")):
        partition.add(run_id, started(run_id, user_id=user), replied(1, "x"), tenant=tenant)
    partition.clock_ms += DAY_MS
    partition.add("r_1", replied(2, "y", currency="", cost_micros=0), completed())
    await project(partition)


async def test_a_report_groups_by_the_given_dimensions_and_splits_by_currency(reader, spent):
    rows = await usage_report(reader, "default", ["user_id"])
    assert [(row["user_id"], row["currency"], row["calls"], row["input_tokens"]) for row in rows] == [
        ("ada", "", 1, 102),
        ("ada", "USD", 1, 101),
        ("bob", "USD", 1, 101),
    ]
    assert set(rows[0]) == {"user_id", "currency", *SUMS}
    everyone = await usage_report(reader, EVERY_TENANT, ["tenant", "day"])
    assert [(row["tenant"], row["day"], row["calls"]) for row in everyone] == [
        ("acme", "2026-05-28", 1),
        ("default", "2026-05-28", 2),
        ("default", "2026-05-29", 1),
    ]


async def test_a_report_is_bounded_by_days_and_empty_outside(reader, spent):
    assert [row["calls"] for row in await usage_report(reader, "default", [], since_day="2026-05-29")] == [1]
    assert [row["calls"] for row in await usage_report(reader, "default", [], until_day="2026-05-28")] == [2]
    assert await usage_report(reader, "default", ["model"], since_day="2090-01-01") == []


async def test_an_unknown_dimension_is_refused(reader, spent):
    with pytest.raises(ValueError, match="colour"):
        await usage_report(reader, "default", ["colour"])


async def test_a_report_that_would_be_cut_is_refused(reader, spent, monkeypatch):
    monkeypatch.setattr(usage_module, "REPORT_MAX", 2)
    with pytest.raises(ValueError, match="fewer days"):
        await usage_report(reader, "default", ["user_id"])


async def test_a_report_of_one_user_has_nothing_of_others(reader, spent):
    rows = await usage_report(reader, "default", ["user_id"], user_id="bob")
    assert [(row["user_id"], row["calls"]) for row in rows] == [("bob", 1)]


async def test_usage_is_summed_for_limits(reader, spent):
    everything = await spent_since(reader, "default", "2026-05-01", user_id=None, currency="USD")
    assert everything[0] == 121 + 121 + 122
    [[micros]] = await reader.fetch(select(func.sum(usage.c.cost_micros)).where(usage.c.tenant == "default"))
    assert everything[1] == micros > 0
    assert await spent_since(reader, "default", "2026-05-29", user_id="ada", currency="USD") == (122, 0)
    assert (await spent_since(reader, "default", "2026-05-01", user_id=None, currency="EUR"))[1] == 0
    assert await spent_since(reader, "default", "2026-06-01", user_id=None, currency="USD") == (0, 0)
