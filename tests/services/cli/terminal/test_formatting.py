import pytest

from loomlog.services.cli.terminal.formatting import (
    describe_hook_act,
    duration,
    first_line,
    format_age,
    format_arguments,
    money,
    number,
    one_line,
    pluralize,
    size,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.0454, "45 ms"), (3.21, "3.2 s"), (245, "4 min 05 s"), (7380, "2 h 03 min")],
)
def test_a_duration_has_the_unit_that_fits(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "now"), (12, "12 s ago"), (300, "5 min ago"), (90_000, "1 d ago")])
def test_ago_is_coarse(seconds, text):
    assert format_age(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(812, "812 B"), (3482, "3.4 KiB"), (1_258_291, "1.2 MiB")])
def test_a_size_has_the_unit_that_fits(count, text):
    assert size(count) == text


def test_numbers_and_their_nouns_agree():
    assert [pluralize(n, "file") for n in (0, 1, 2, 12_345)] == ["0 files", "1 file", "2 files", "12.3k files"]
    assert pluralize(2, "search", "searches") == "2 searches"
    assert number(3_100_000) == "3.1M"


def test_money_keeps_the_digits_of_small_amounts_and_says_when_there_is_no_price():
    assert money(0, "USD") == "0.00 USD"
    assert money(1_234, "USD") == "0.0012 USD"
    assert money(12_340_000, "EUR") == "12.34 EUR"
    assert money(0, "") == "unpriced"


def test_one_line_takes_out_control_characters_and_says_that_it_was_cut():
    assert one_line("a\n b\x1b[31m\tc", 40) == "a b [31m c"
    assert one_line("abcdefgh", 5) == "abcd…"
    assert one_line("x" * 1_000_000, 3) == "xx…"


def test_the_first_line_that_says_something_is_shown():
    assert first_line("\n  \n  second\nthird", 40) == "second"
    assert first_line("", 40) == ""


def test_arguments_begin_with_what_the_call_is_about():
    said = format_arguments({"output_mode": "content", "head_limit": 400, "pattern": "TODO", "path": "services"})
    assert said == "path=services pattern=TODO output_mode=content head_limit=400"


def test_a_text_of_many_lines_is_told_by_its_size():
    assert format_arguments({"path": "report.md", "content": "a\nb\nc\n"}) == "path=report.md content=(3 lines, 6 B)"


def test_arguments_that_are_no_mapping_are_shown_all_the_same():
    assert format_arguments("not json {") == "not json {"
    assert format_arguments([1, 2]) == "[1, 2]"
    assert format_arguments(None) == "null"


HOOK = {"hook_owner": "ops", "hook_name": "guard", "tool_name": "HTTP"}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"act": "denied"}, "hook ops/guard denied HTTP"),
        ({"act": "rewrote_input"}, "hook ops/guard changed the arguments of HTTP"),
        ({"act": "unavailable", "reason": "timed out"}, "hook ops/guard could not be asked about HTTP: timed out"),
        ({"hosts_added": ["a.com", "b.com"]}, "hook ops/guard opened a.com, b.com for HTTP"),
    ],
)
def test_what_a_hook_did_is_said_in_words(told, words):
    assert describe_hook_act(HOOK | told) == words
