import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.cli.claude_code.configuration_file import put_entries, read_plain
from loomlog.services.cli.claude_code.entries import Entry

NEW = Entry(block="agents", name="new", source="agents/new.md", value={"model": "sonnet", "tools": ("Read", "Grep")})
NEW_LINES = "  new:\n    # from agents/new.md\n    model: sonnet\n    tools: [Read, Grep]\n"


def agent(name: str, **value: object) -> Entry:
    return Entry(block="agents", name=name, source=f"agents/{name}.md", value=value)


def test_an_entry_goes_to_the_end_of_its_block_and_the_rest_stays() -> None:
    text = "# mine\nagents:\n  # the first\n  a: { model: x }  # keep\n\n# the tiers\ntiers: {}\n"
    assert put_entries(text, [NEW], file="f") == text.replace("# keep\n", "# keep\n" + NEW_LINES)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "providers: {}", "a: 1\n\n# the end\n"])
def test_a_missing_block_is_appended(text: str) -> None:
    new = put_entries(text, [NEW], file="f")
    assert new.startswith(text)
    assert new.endswith("agents:\n" + NEW_LINES)


def test_a_missing_block_is_put_before_the_end_of_the_document() -> None:
    assert put_entries("a: 1\n...\n", [NEW], file="f") == "a: 1\n\nagents:\n" + NEW_LINES + "...\n"


@pytest.mark.parametrize("value", ["", " {}", " ~", " {\n}", " null"])
def test_an_empty_block_is_filled(value: str) -> None:
    assert put_entries(f"agents:{value}  # all\nb: 1\n", [NEW], file="f") == f"agents:  # all\n{NEW_LINES}b: 1\n"


@pytest.mark.parametrize(
    "last",
    [
        "a: |\n    text\n\n    more\n",
        "a: |+\n    text\n\n\n",
        'a: "x\n    y"\n',
        "a: {b: 1,\n    c: 2}\n",
        "a: [x, &here y]\n  b: *here\n",
        "a:\n",
        "a:\n    - x\n    # a comment\n",
    ],
)
def test_an_entry_is_put_behind_any_form_of_the_last_one(last: str) -> None:
    for after in ("", "b: 1\n"):
        text = f"agents:\n  {last}{after}"
        assert read_plain(put_entries(text, [NEW], file="f"), "f") == {
            **read_plain(text, "f"),
            "agents": {**read_plain(text, "f")["agents"], "new": dict(NEW.value)},
        }


def test_an_entry_of_the_same_name_is_replaced() -> None:
    text = "agents:\n    # old\n    new:\n        model: y\n        # inside\n    b: {}  # b\nlast: 1"
    new = put_entries(text, [NEW, agent("c", model="z")], file="f")
    assert new == (
        "agents:\n    # old\n    new:\n      # from agents/new.md\n      model: sonnet\n      tools: [Read, Grep]\n"
        "        # inside\n    b: {}  # b\n    c:\n      # from agents/c.md\n      model: z\nlast: 1"
    )


def test_lines_end_as_in_the_file() -> None:
    new = put_entries("agents:\r\n  a: {}\r\n", [agent("n", system_prompt="one\n\ntwo")], file="f")
    assert "\n" not in new.replace("\r\n", "")
    assert read_plain(new, "f")["agents"]["n"]["system_prompt"] == "one\n\ntwo"


def test_a_prompt_is_readable() -> None:
    new = put_entries("", [agent("n", system_prompt="You:  \n\n  - a 😀\n\tb: ${HOME}")], file="f")
    assert new.endswith("    system_prompt: |-\n      You:  \n\n        - a 😀\n      \tb: ${HOME}\n")


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=3),
    name=st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
)
def test_any_text_is_read_back(texts: list[str], name: str) -> None:
    value = {"system_prompt": texts[0], "description": "\n".join(texts), "tools": tuple(texts)}
    text = "agents:\n  a: {}\nb: 1\n"
    assert read_plain(put_entries(text, [agent(name, **value)], file="f"), "f")["agents"][name] == value


@pytest.mark.parametrize("text", ["0o17", "1e3", "0x1F", "on", "null", "~", "", "12:30", "- x", "${HOME}", "a: b", "#"])
def test_words_of_yaml_stay_texts(text: str) -> None:
    new = put_entries("", [agent("n", description=text, tools=(text,))], file="f")
    assert read_plain(new, "f")["agents"]["n"] == {"description": text, "tools": (text,)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agents: {a: {}}\n", "f:1: agents is not written as a block of indented lines; write it so"),
        ("a: &a\n  x: 1\nagents: *a\n", "f:3: agents is not written as a block of indented lines; write it so"),
        ("agents:\n- x\n", "f:1: agents is not written as a block"),
        ("{agents: {}}\n", "f: expected blocks, each beginning with a line"),
        ("agents:\n  new: &n {}\n  b: *n\n", "f is written in a form that cannot be edited"),
        ("agents:\n  a: 1\n  a: 2\n", "f:3: the key a is here for the second time"),
        ("a: [\n", "f:2: not YAML"),
        ("# " + "x" * 1024 * 1024, "f would have 1048"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(problem)):
        put_entries(text, [NEW], file="f")
