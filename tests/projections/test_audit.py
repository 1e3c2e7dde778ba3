import hashlib

from loomlog.projections.audit import AuditRow, audit, find_run, last_run_of_session
from loomlog.schemas.generated.run_events import CommandRefused, RunRefused
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import Partition, completed, eventful, requested, started
from tests.projections.twin import projected


def eventful_rows() -> tuple[Partition, dict[str, AuditRow]]:
    partition = Partition()
    eventful(partition)
    return partition, projected([records_of(partition)]).tables["audit"]


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(AuditRow._fields) == [column.name for column in audit.columns]


def test_a_row_spans_the_first_to_the_last_event_without_stale_ones():
    partition, rows = eventful_rows()
    row = rows["r_talk"]
    assert (row.partition, row.first_offset, row.events, row.last_seq) == (0, 3, 11, 11)
    assert row.last_offset == len(partition.records) - 1


def test_the_tail_digest_is_what_the_next_event_must_name():
    partition, rows = eventful_rows()
    for run_id in ("r_tools", "r_talk", "r_no"):
        assert rows[run_id].tail_digest == partition.digests[run_id]
    last = partition.records[rows["r_tools"].last_offset]
    assert rows["r_tools"].tail_digest == hashlib.sha256(last).digest()[:16]


def test_a_row_has_the_outcome_of_its_run():
    _, rows = eventful_rows()
    assert {run_id: (row.status, row.reason) for run_id, row in rows.items()} == {
        "r_tools": ("completed", "end_turn"),
        "r_talk": ("cancelled", "enough"),
        "r_lost": ("failed", "model_error"),
        "r_no": ("refused", "unknown_agent"),
    }


def test_a_run_under_way_is_open_and_a_command_to_an_unknown_run_is_refused():
    partition = Partition()
    partition.claim()
    partition.add("r_1", started())
    partition.add("r_2", CommandRefused(code="not_found", message="no such run"))
    rows = projected([records_of(partition)]).tables["audit"]
    assert (rows["r_1"].status, rows["r_2"].status) == ("open", "refused")


async def test_runs_are_found_by_id_and_by_session_within_the_tenant(project, reader):
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1", session_id="s_1"), completed())
    partition.add("r_2", started("r_2", session_id="s_1"), requested(1))
    partition.add("r_3", RunRefused(code="session_busy", message="busy", session_id="s_1"))
    await project(partition)
    assert (await find_run(reader, "default", "r_1")).last_offset == 2
    assert (await find_run(reader, "default", "r_3")).status == "refused"
    assert await find_run(reader, "acme", "r_1") is None
    newest = await last_run_of_session(reader, "default", "s_1")
    assert (newest.run_id, newest.status, newest.first_offset, newest.last_offset) == ("r_2", "open", 3, 4)
    assert await last_run_of_session(reader, "acme", "s_1") is None
    assert await last_run_of_session(reader, "default", "s_2") is None
