from datetime import UTC, datetime

from loomlog.connectors.client.run_stream import RunIds
from loomlog.services.cli.terminal.output import console
from loomlog.services.cli.terminal.run_text import print_facts, result_line, run_line, table_row
from tests.services.cli.fake_api import row

NOW = datetime(2026, 1, 31, 12, 5, tzinfo=UTC)


def cells(**changes: object) -> list[str]:
    return [str(cell) for cell in table_row(row(**changes), NOW)]


def test_a_row_of_the_list_says_the_essentials():
    assert cells() == ["r_1", "assistant", "completed", "1", "0", "1,234", "0.0012 USD", "1.5 s", "5 min ago"]


def test_a_run_under_way_has_taken_until_now():
    assert cells(status="running", completed_at=None)[7] == "5 min 00 s"


def test_parked_and_quarantined_are_told_before_the_status():
    assert cells(status="running", parked=True, awaited_state="awaiting_input")[2] == "parked"
    assert cells(status="running", parked=True, awaited_state="interrupted")[2] == "asking"
    assert cells(status="running", quarantined=True, parked=True)[2] == "quarantined"


def test_how_a_run_ended_names_the_reason_once():
    assert result_line(row()).plain.startswith("completed (end_turn)  1 turn, 0 tool calls")
    assert result_line(row(status="failed", stop_reason=None, error_code="model_error")).plain.startswith(
        "failed (model_error)"
    )
    assert result_line(row(status="cancelled", stop_reason="cancelled")).plain.startswith("cancelled  ")


def test_cached_tokens_count_as_read():
    usage = row()["usage"] | {"cache_read_input_tokens": 800}
    assert "2,000 tokens in" in result_line(row(usage=usage)).plain


def test_a_run_is_named_with_the_position_of_its_event_when_that_is_known():
    assert run_line(RunIds(run_id="r_1", session_id="s_1", position="loom.run.events/2:7")).plain == (
        "run r_1  session s_1  event loom.run.events/2:7"
    )
    assert run_line(RunIds(run_id="r_1", session_id="s_1")).plain == "run r_1  session s_1"


def test_facts_leave_out_what_there_is_not(capsys):
    print_facts(console(), row())
    shown = capsys.readouterr().out
    assert "assistant (mock/mock-generic)" in shown
    assert "continues" not in shown
    assert "quarantine" not in shown


def test_every_fact_stands_apart_from_its_name(capsys):
    print_facts(console(), row(quarantined=True, quarantine_error="x"))
    assert "quarantine  x\n" in capsys.readouterr().out


def test_the_facts_say_how_full_the_context_is_and_how_often_it_was_compacted():
    def shown(**changes: object) -> str:
        out = console()
        with out.capture() as captured:
            print_facts(out, row(**changes))
        return captured.get()

    gauge = {"used_tokens": 12_000, "max_tokens": 200_000, "used_pct": 6.0}
    assert "context     12.0k of 200.0k tokens (6 %)\n" in shown(context=gauge)
    assert "(6 %), compacted 2 times\n" in shown(context=gauge, compactions=2)
    assert "context" not in shown(context=None)
