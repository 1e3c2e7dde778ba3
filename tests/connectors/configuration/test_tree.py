from decimal import Decimal
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.tree import (
    ParsedFile,
    SequenceNode,
    find_mark,
    iter_scalars,
    parse_scalar,
    read_tree,
    to_plain,
)


def read(text: str, **environ: str) -> ParsedFile:
    return read_tree(dedent(text).lstrip("\n"), file="f.yaml", environ=environ)


def errors(text: str) -> list[str]:
    return [str(error) for error in read(text).errors]


def test_an_empty_file_says_nothing():
    for text in ("", "# only words\n", "---\n", "null"):
        file = read(text)
        assert to_plain(file.root) == {}
        assert file.errors == []


def test_every_value_knows_its_line():
    file = read(
        """
        a:
          b: 1
          c:
            - x
            - y
        """
    )
    lines = {path: leaf.mark.line for path, leaf in iter_scalars(file.root)}
    assert lines == {("a", "b"): 2, ("a", "c", 0): 4, ("a", "c", 1): 5}
    assert find_mark(file.root, ("a",)).line == 1
    assert find_mark(file.root, ("a", "c"), of_key=True).line == 3
    assert find_mark(file.root, ("a", "nothing", "here")).line == 1


def test_plain_scalars_follow_the_core_schema():
    file = read("[1, -2, 0x1f, 0o17, 1.50, 1e3, true, False, null, ~, on, no, 12:30, 2024-01-01, .nan, 010]")
    assert file.errors[0].message.startswith("expected a mapping")
    values = [
        parse_scalar(word)
        for word in [
            "1",
            "-2",
            "0x1f",
            "0o17",
            "1.50",
            "1e3",
            "true",
            "False",
            "null",
            "~",
            "on",
            "no",
            "12:30",
            "2024-01-01",
            ".nan",
            "010",
        ]
    ]
    assert values[:10] == [1, -2, 31, 15, Decimal("1.50"), Decimal("1e3"), True, False, None, None]
    assert values[10:] == ["on", "no", "12:30", "2024-01-01", ".nan", 10]


@given(st.text(max_size=30))
def test_any_text_is_some_scalar_and_quoting_keeps_it_text(text: str):
    assert isinstance(parse_scalar(text), str | int | Decimal | bool | None)
    quoted = "a: '" + text.replace("'", "''") + "'"
    file = read_tree(quoted, file="f", environ={})
    if not file.errors:
        assert isinstance(to_plain(file.root)["a"], str)  # type: ignore[index]  # a mapping, as read


def test_long_runs_of_digits_are_names_and_not_numbers():
    assert parse_scalar("9" * 5000) == "9" * 5000
    assert parse_scalar("1e999999999") == "1e999999999"


def test_quotes_keep_a_number_text():
    assert to_plain(read("""a: "12"\nb: 'true'\nc: !!str 5\nd: !!int "7"\n""").root) == {
        "a": "12",
        "b": "true",
        "c": "5",
        "d": 7,
    }


def test_a_key_that_is_there_twice_is_an_error_in_its_line():
    assert errors("a: 1\nb: 2\na: 3\n") == ["f.yaml:3: the key a is here for the second time; the first is in line 1"]


def test_keys_are_always_text():
    assert to_plain(read("1: a\ntrue: b\non: c\n").root) == {"1": "a", "true": "b", "on": "c"}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !thing {b: 1}",
        "a: !prepend {b: 1}",
        "a: !append x",
        "a: !!set {x}",
    ],
)
def test_a_tag_that_is_not_known_is_an_error_and_builds_nothing(text: str):
    assert "is not known" in errors(text)[0]


def test_list_edits_are_kept_apart_from_lists():
    root = read("a: [x]\nb: !prepend [y]\nc: !append [z]\n").root
    a, b, c = (root.entries[key].node for key in "abc")
    assert isinstance(a, SequenceNode)
    assert isinstance(b, SequenceNode)
    assert isinstance(c, SequenceNode)
    assert (a.base is not None, b.base, c.base) == (True, None, None)
    assert (len(b.before), len(c.after)) == (1, 1)


def test_anchors_and_merge_keys_work_and_what_is_written_wins():
    file = read(
        """
        base: &base {x: 1, y: 2}
        other: &other {y: 3, z: 4}
        one: {<<: *base, x: 9}
        two: {<<: [*base, *other]}
        three: {x: 0, <<: *base}
        """
    )
    assert file.errors == []
    values = to_plain(file.root)
    assert isinstance(values, dict)
    assert values["one"] == {"x": 9, "y": 2}
    assert values["two"] == {"x": 1, "y": 2, "z": 4}
    assert values["three"] == {"x": 0, "y": 2}


def test_a_merge_of_something_else_is_an_error():
    assert errors("a: {<<: 5}") == ["f.yaml:1: << expects a mapping, or a list of mappings"]


def test_an_alias_without_an_anchor_and_one_of_itself_are_errors():
    assert "has no anchor" in errors("a: *nowhere")[0]
    assert "has no anchor" in errors("a: &a [*a]")[0]


def test_an_alias_bomb_is_stopped():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than 100000 values" in errors("\n".join(rows))[0]


def test_nesting_is_bounded():
    assert "nested deeper than 32" in errors("a: " + "[" * 200 + "]" * 200)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not YAML"),
        ("a: b: c", "not YAML"),
        ("a: \x00", "not YAML"),
        ("- a", "expected a mapping"),
        ("just words", "expected a mapping"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("[a]: 1", "a key must be"),
    ],
)
def test_what_is_no_configuration_is_said_with_the_line(text: str, words: str):
    (line,) = errors(text)
    assert words in line
    assert line.startswith("f.yaml:")


def test_expanded_values_are_resolved_when_plain_and_text_when_quoted():
    file = read('a: ${LOOMLOG_N}\nb: "${LOOMLOG_N}"\nc: x${LOOMLOG_N}\n', LOOMLOG_N="5")
    assert to_plain(file.root) == {"a": 5, "b": "5", "c": "x5"}
    assert file.names == {"LOOMLOG_N"}


def test_a_value_from_the_environment_cannot_add_keys():
    file = read("a: ${LOOMLOG_N}\n", LOOMLOG_N="x\nb: 2")
    assert to_plain(file.root) == {"a": "x\nb: 2"}


def test_what_is_wrong_with_an_expansion_has_its_line():
    file = read("a: 1\nb: ${LOOMLOG_AUTH_TOKEN}\nc: ${LOOMLOG_MISSING}\n")
    assert str(file.errors[0]).startswith("f.yaml:2: ${LOOMLOG_AUTH_TOKEN} is a secret")
    assert str(file.warnings[0]).startswith("f.yaml:3: ${LOOMLOG_MISSING} is not set")
