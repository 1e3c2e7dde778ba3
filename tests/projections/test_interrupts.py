import orjson
import pytest

from loomlog.projections.interrupts import InterruptFilter, InterruptRow, interrupt_by_id, interrupts, list_interrupts
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.schemas.generated.run_events import ApprovalDecided
from loomlog.schemas.generated.values import ApproverGroup, CallVerdict
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import START_MS, Partition, asking, call, closed, opened, replied, requested, started
from tests.projections.twin import cut, projected


def rows_of(partition: Partition, *, singly: bool = False) -> dict[str, InterruptRow]:
    records = records_of(partition)
    polls = cut(records, range(len(records))) if singly else [records]
    twin = projected(polls, restart_after=range(len(polls)) if singly else ())
    return {row.interrupt_id: row for row in twin.tables["interrupts"].values()}


@pytest.fixture
def story() -> Partition:
    partition = Partition()
    partition.claim()
    asking(partition)
    return partition


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(InterruptRow._fields) == [column.name for column in interrupts.columns]


@pytest.mark.parametrize("singly", [False, True])
def test_a_row_has_the_question_and_its_outcome_however_events_fall_into_polls(story, singly):
    rows = rows_of(story, singly=singly)
    timed_out, answered, notice = rows["intr_0"], rows["intr_1"], rows["intr_2"]
    assert (timed_out.status, timed_out.context, timed_out.priority) == ("timed_out", "why", "high")
    assert (timed_out.question, orjson.loads(timed_out.options)) == ("Shall I?", ["yes", "no"])
    assert timed_out.expires_at_ms == START_MS + 60_000
    assert (timed_out.user_id, timed_out.agent, timed_out.agent_id) == ("ada", "writer", "a_asks")
    assert (answered.status, answered.answer, answered.resolved_by, answered.sent_by) == (
        "resolved",
        "yes",
        "Ada",
        "ada",
    )
    assert timed_out.created_at_ms < answered.ended_at_ms < timed_out.ended_at_ms
    assert (notice.kind, notice.question, notice.ended_at_ms) == ("notice", "Half done.", None)


def test_a_notice_is_delivered_and_never_counts_as_cancelled(story):
    assert rows_of(story)["intr_2"].status == "delivered"


def test_the_row_of_the_run_has_the_pending_questions():
    partition = Partition()
    partition.claim()
    asks = [call("i0", "Interruption", "{}"), call("i1", "Interruption", "{}")]
    partition.add("r_1", started(), requested(1), replied(1, "", *asks))
    partition.add("r_1", opened(1, 0, "i0", "intr_0"), opened(1, 1, "i1", "intr_1"))

    def row():
        return projected([records_of(partition)]).tables["runs"]["r_1"]

    assert (row().open_interrupts, row().tool_calls) == ("intr_0 intr_1", 2)
    partition.add("r_1", closed(1, 0, "i0", "intr_0", "declined"))
    assert row().open_interrupts == "intr_1"
    partition.add("r_1", closed(1, 1, "i1", "intr_1", "cancelled"))
    assert row().open_interrupts == ""


# --- with a database -------------------------------------------------------------------------------------------------


@pytest.fixture
async def asked(project) -> Partition:
    partition = Partition()
    partition.claim()
    asking(partition)
    for number, tenant in enumerate(("default", "default", "acme")):
        run_id = f"r_w{number}"
        partition.add(run_id, started(run_id, user_id=f"user{number % 2}"), requested(1), tenant=tenant)
        partition.add(run_id, replied(1, "", call("i0", "Interruption", "{}")), tenant=tenant)
        partition.add(run_id, opened(1, 0, "i0", f"intr_w{number}"), tenant=tenant)
    await project(partition)
    return partition


async def test_lists_are_narrowed_newest_first_and_counted(reader, asked):
    pending = InterruptFilter(statuses=frozenset({"pending"}))
    everywhere = await list_interrupts(reader, EVERY_TENANT, pending)
    assert [row.interrupt_id for row in everywhere.rows] == ["intr_w2", "intr_w1", "intr_w0"]
    assert everywhere.total == 3
    of_user = await list_interrupts(reader, "default", InterruptFilter(user_id="user0"))
    assert [row.interrupt_id for row in of_user.rows] == ["intr_w0"]
    run = await list_interrupts(reader, "default", InterruptFilter(run_id="r_asks"))
    assert {row.status for row in run.rows} == {"timed_out", "resolved", "delivered"}
    some = await list_interrupts(reader, "default", InterruptFilter(statuses=frozenset({"resolved", "declined"})))
    assert [row.interrupt_id for row in some.rows] == ["intr_1"]


async def test_an_approver_has_the_calls_that_wait_for_him_beside_his_own(reader, asked, project):
    for number, subjects in enumerate((("ann", "bob"), ("bob",))):
        run_id, interrupt_id = f"r_p{number}", f"intr_p{number}"
        groups = tuple(ApproverGroup(subjects=names, within_ms=60_000) for names in (("cy",), subjects))
        decided = ApprovalDecided(
            turn=1,
            index=0,
            call_id="i0",
            tool="pay\0",  # a model may call anything
            verdict=CallVerdict(index=0, outcome="ask", groups=groups),
            arguments_sha256="",
            effect_class="unsafe",
            interrupt_id=interrupt_id,
        )
        asked.add(run_id, started(run_id, user_id="ivy"), requested(1), replied(1, "", call("i0", "pay", "{}")))
        asked.add(run_id, decided, opened(1, 0, "i0", interrupt_id))
    await project(asked)

    async def ids(subject: str) -> list[str]:
        page = await list_interrupts(reader, "default", InterruptFilter(user_id=subject, approver=subject))
        return sorted(row.interrupt_id for row in page.rows)

    assert await ids("ann") == ["intr_p0"]
    assert await ids("bob") == ["intr_p0", "intr_p1"]
    assert await ids("user0") == ["intr_w0"]
    asked.add("r_p1", closed(1, 0, "i0", "intr_p1", "resolved"))
    await project(asked)
    assert await ids("bob") == ["intr_p0"]


async def test_pages_follow_each_other_without_a_repetition(reader, asked):
    ids, token = [], ""
    while True:
        page = await list_interrupts(reader, EVERY_TENANT, InterruptFilter(), limit=2, after=token)
        ids += [row.interrupt_id for row in page.rows]
        assert page.total == 6
        token = page.next
        if not token:
            break
    assert sorted(ids) == ["intr_0", "intr_1", "intr_2", "intr_w0", "intr_w1", "intr_w2"]
    with pytest.raises(InvalidPageToken):
        await list_interrupts(reader, EVERY_TENANT, InterruptFilter(), after="nonsense")


async def test_an_interrupt_is_read_by_run_and_id_within_its_tenant(reader, asked):
    row = await interrupt_by_id(reader, "acme", "r_w2", "intr_w2")
    assert row is not None
    assert row.status == "pending"
    assert await interrupt_by_id(reader, "default", "r_w2", "intr_w2") is None
    assert await interrupt_by_id(reader, "acme", "r_asks", "intr_w2") is None
