from pathlib import Path

import pytest

from loomlog.connectors.tools.help import (
    BUILT_IN,
    DESCRIPTION_CHARACTERS_MAX,
    OPERATOR,
    RESULTS_MAX,
    TOPIC_BYTES_MAX,
    HelpTopics,
    load_help_topics,
    parse_topic,
)


def topics(**texts: str) -> HelpTopics:
    return HelpTopics([parse_topic(name, text, OPERATOR) for name, text in texts.items()])


def test_a_header_is_read_and_left_out() -> None:
    topic = parse_topic(
        "a", "---\r\ndescription: 'Of it.'\r\naliases: [b, \"c\"]\r\nother: x\r\n---\r\n# A\n\nText.", BUILT_IN
    )
    assert (topic.description, topic.aliases, topic.content) == ("Of it.", ("b", "c"), "# A\n\nText.")


def test_without_a_header_the_first_line_describes() -> None:
    topic = parse_topic("a", "\ufeff# A\n\nFirst line.\nSecond.", OPERATOR)
    assert (topic.description, topic.aliases) == ("First line.", ())
    assert parse_topic("a", "", OPERATOR).description == ""
    assert len(parse_topic("a", "x" * 500, OPERATOR).description) == DESCRIPTION_CHARACTERS_MAX


def test_a_header_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no line --- at its end"):
        parse_topic("a", "---\ndescription: x\n# A\n", OPERATOR)


def test_topics_of_the_operator_replace_and_add(tmp_path: Path) -> None:
    (tmp_path / "LOOMLOG.md").write_text("Ours.")
    (tmp_path / "on-call.md").write_text("Whom to call.")
    (tmp_path / "notes.txt").write_text("not a topic")
    loaded, built_in = load_help_topics(tmp_path), load_help_topics()
    assert set(loaded.names) == (set(built_in.names) - {"loomlog"}) | {"LOOMLOG", "on-call"}
    topic = loaded.find("loomlog")
    assert topic is not None
    assert (topic.content, topic.source) == ("Ours.", OPERATOR)
    assert {row["source"] for row in loaded.index()["topics"]} == {BUILT_IN, OPERATOR}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a b.md", b"x", "the name must be"),
        ("a.md", b"\xff", "is not UTF-8"),
        ("a.md", b"x" * (TOPIC_BYTES_MAX + 1), f"more than {TOPIC_BYTES_MAX} bytes"),
        ("a.md", b"---\nx", "no line ---"),
    ],
)
def test_a_file_that_is_not_usable_is_named(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=expected) as caught:
        load_help_topics(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist \(LOOMLOG_HELP_ROOT\)"):
        load_help_topics(tmp_path / "none")


def test_a_name_comes_before_an_alias() -> None:
    both = topics(a="---\naliases: b\n---\nText of a.", b="Text of b.")
    topic = both.find(" B ")
    assert topic is not None
    assert topic.name == "b"
    assert both.find("c") is None


def test_sections_with_more_of_the_words_come_first_and_rare_words_count_more() -> None:
    shelf = topics(
        volumes="# Volumes\n\nA run has folders.\n\n## Modes\n\nA run reads; a rw volume is written.",
        hooks="# Hooks\n\nA run is checked by a hook.\n\n```\n# a run in code\n```",
        other="# Other\n\nA run is a run.",
    )
    found_by = {query: shelf.search(query)["results"] for query in ("rw volume", "a hook", "nothing-here", "...")}
    first = found_by["rw volume"][0]
    assert (first["topic_slug"], first["heading"]) == ("volumes", "Modes")
    assert first["snippet"] == "A run reads; a rw volume is written."
    assert found_by["a hook"][0]["topic_slug"] == "hooks"
    assert "# a run in code" in found_by["a hook"][0]["snippet"]
    assert found_by["nothing-here"] == found_by["..."] == []
    assert "lists the topics" in shelf.search("...")["hint"]


def test_results_are_few_and_snippets_short() -> None:
    shelf = topics(**{f"t{number}": "word " * 200 + f"needle{number} " + "word " * 200 for number in range(20)})
    answer = shelf.search("needle7 word")
    assert answer["count"] == len(answer["results"]) == RESULTS_MAX
    best = answer["results"][0]
    assert best["topic_slug"] == "t7"
    assert "needle7" in best["snippet"]
    assert best["snippet"].startswith("... ")
    assert best["snippet"].endswith(" ...")
    assert len(best["snippet"]) < 260
