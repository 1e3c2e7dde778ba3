import io

from loomlog.services.application.log.records import CLAIM, LEGAL, STALE, UNREADABLE, RecordView
from loomlog.services.cli.terminal.event_text import fit_to_width, format_fields, print_record, record_line
from loomlog.services.cli.terminal.output import Terminal, console


def view(**changes: object) -> RecordView:
    fields = {
        "topic": "loom.run.events",
        "partition": 0,
        "offset": 84,
        "at_ms": 1_780_000_000_123,
        "kind": LEGAL,
        "type": "ToolReturned",
        "run_id": "r_1",
        "seq": 7,
        "term": 83,
        "term_in_force": 83,
        "payload": {"turn": 1, "text": "a\nb", "is_error": False, "text_blob": None, "tool_calls": [{}, {}]},
    }
    return RecordView(**(fields | changes))


def test_a_record_is_one_line_with_what_it_says():
    assert (
        record_line(view()).plain
        == "20:26:40.123  loom.run.events/0:84  r_1  seq 7  ToolReturned  turn=1 text=a b tool_calls=2 items"
    )


def test_a_claim_tells_the_new_term():
    claim = view(kind=CLAIM, type="Claim", run_id="", seq=-1, payload={"owner": "box-1", "reason": "assigned"})
    assert record_line(claim).plain.endswith("loom.run.events/0:84  Claim  term is 84 now  owner=box-1 reason=assigned")


def test_a_stale_record_cannot_be_taken_for_an_event():
    assert "stale: term 2, in force is 83" in record_line(view(kind=STALE, term=2)).plain


def test_an_unreadable_record_says_why():
    assert record_line(view(kind=UNREADABLE, error="not framed")).plain.endswith("unreadable: not framed")


def test_fields_that_say_nothing_are_left_out_and_records_say_their_name():
    payload = {
        "definition": {"name": "writer"},
        "continues": None,
        "metadata": {},
        "x": 0,
        "run_id": "r_1",
        "blob": {"sha256": "ab" * 32},
    }
    assert format_fields(payload, skip=("run_id",)) == "definition=writer blob=abababababab"


def test_a_terminal_gets_the_line_cut_and_a_file_whole():
    terminal = Terminal(file=io.StringIO(), force_terminal=True, width=30)
    assert fit_to_width(record_line(view()), terminal).cell_len == 29
    file = Terminal(file=io.StringIO(), force_terminal=False, width=30)
    assert fit_to_width(record_line(view()), file).plain == record_line(view()).plain


def test_the_whole_record_keeps_zeros_and_lines(capsys):
    shown = {"position": "loom.run.events/0:0", "partition": 0, "offset": 0, "stale": True, "seq": None}
    print_record(
        console(), {**shown, "headers": {"ce_id": "x"}, "payload": {"text": "a\nb", "n": {"m": 1}, "l": [{"k": 2}]}}
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stale: ")
    assert "partition     0" in lines
    assert "header        ce_id: x" in lines
    assert "  | b" in lines
    assert any(line.strip().startswith("k ") for line in lines)
    assert not any(line.startswith("seq") for line in lines)
