import io
import json

from rich.text import Text

from loomlog.services.cli.terminal import output
from loomlog.services.cli.terminal.output import Terminal, console, print_json, print_json_line, print_table


def printed(*objects: object) -> str:
    file = io.StringIO()
    Terminal(file=file, force_terminal=False, width=40).print(*objects)
    return file.getvalue()


def test_nothing_printed_controls_the_terminal():
    evil = "a\x1b[2Jb\x07c\x9b31md\u202ee"
    for shown in (printed(evil), printed(Text(evil, style="red")), printed(Text.assemble(("x", "dim"), evil))):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
        assert "a\N{REPLACEMENT CHARACTER}[2Jb" in shown


def test_lines_stay_lines_and_tabs_become_spaces():
    assert printed("a\n\tb") == "a\n b\n"


def test_long_lines_are_not_broken():
    path = "/very/long/" + "x" * 200
    assert printed(path) == path + "\n"


def test_brackets_are_no_markup():
    assert printed("[red]x[/red] :smile:") == "[red]x[/red] :smile:\n"


def test_a_program_gets_one_line_of_json(capsys):
    print_json({"a": [1, None], "b": {"c": "ü"}})
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert json.loads(shown) == {"a": [1, None], "b": {"c": "ü"}}


def test_json_lines_are_a_line_each(capsys):
    print_json_line({"text": "a\nb"})
    print_json_line({"n": 1})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"text": "a\nb"}, {"n": 1}]


def test_columns_are_as_wide_as_their_cells_and_nothing_trails(capsys):
    print_table(
        console(), ("RUN", "TURNS", "AGENT"), [("r_1", "2", Text("writer")), ("r_long", "12", "b")], right_aligned=(1,)
    )
    assert capsys.readouterr().out.splitlines() == [
        "RUN     TURNS  AGENT",
        "r_1         2  writer",
        "r_long     12  b",
    ]


def test_a_console_is_made_for_the_stdout_of_the_moment(capsys):
    output.console().print("x")
    assert capsys.readouterr().out == "x\n"
    output.error_console().print("y")
    assert capsys.readouterr().err == "y\n"
