import time

from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.definitions import KINDS, diff
from tests.connectors.definitions import examples

AGENT, SKILL, TEAM = KINDS["agent"], KINDS["skill"], KINDS["team"]


def test_fields_are_compared_one_by_one_in_the_order_of_the_kind():
    one = {"model": "a", "tools": ["Read"], "sampling": {"temperature": 0.2, "seed": 1}, "internal": True}
    other = {"model": "b", "tools": ["Read", "Bash"], "sampling": {"temperature": 0.7, "seed": 1}, "max_tokens": 5}
    assert diff(AGENT, one, other) == [
        {"field": "model", "before": "a", "after": "b"},
        {"field": "tools", "before": ["Read"], "after": ["Read", "Bash"]},
        {"field": "max_tokens", "before": None, "after": 5},
        {"field": "sampling.temperature", "before": 0.2, "after": 0.7},
        {"field": "internal", "before": True, "after": None},
    ]


def test_equal_contents_have_no_difference():
    for name, kind in KINDS.items():
        content = kind.compose("x", examples.OVERLAYS[name][0])
        assert diff(kind, content, dict(reversed(content.items()))) == []


def test_objects_in_lists_are_compared_by_their_place():
    one = TEAM.compose("x", examples.TEAM)
    states = [{"state": "work", "handler": {**one["states"][0]["handler"], "wait": "any"}}, *one["states"][1:]]
    other = {**one, "states": states, "transitions": one["transitions"][:2]}
    assert diff(TEAM, one, other) == [
        {"field": "states[0].handler.wait", "before": "at_least:2", "after": "any"},
        {"field": "transitions[2]", "before": one["transitions"][2], "after": None},
    ]


def test_long_texts_are_compared_by_lines():
    lines = [f"line {number}" for number in range(20)]
    one = {"body": "\n".join(lines), "files": {"a/b.md": "x\ny"}}
    other = {"body": "\n".join([*lines[:10], "new", *lines[11:]]), "files": {"a/b.md": "x\nz"}}
    assert diff(SKILL, one, other) == [
        {
            "field": "body",
            "diff": [
                "@@ -8,7 +8,7 @@",
                *(f" line {number}" for number in (7, 8, 9)),
                "-line 10",
                "+new",
                *(f" line {number}" for number in (11, 12, 13)),
            ],
        },
        {"field": 'files["a/b.md"]', "diff": ["@@ -1,2 +1,2 @@", " x", "-y", "+z"]},
    ]


def test_another_line_end_is_a_difference():
    assert diff(SKILL, {"body": "a\nb"}, {"body": "a\r\nb"}) == [
        {"field": "body", "diff": ["@@ -1,2 +1,2 @@", "-a", "+a\r", " b"]}
    ]


def test_very_long_texts_are_compared_in_bounded_time():
    one, other = ("\n".join(str(number * step % 97) for number in range(40_000)) for step in (31, 37))
    begun = time.process_time()
    (entry,) = diff(SKILL, {"body": f"same\n{one}\nend"}, {"body": f"same\n{other}\nend"})
    assert time.process_time() - begun < 30
    assert entry["diff"][0].startswith("@@ -")
    assert sum(line.startswith("-") for line in entry["diff"]) > 1_000


LINES = st.lists(st.sampled_from(["a", "b", "-c", "+d", "@@", ""]), min_size=2, max_size=30)


@given(LINES, LINES)
def test_a_difference_applied_to_the_old_text_gives_the_new_one(one: list[str], other: list[str]):
    entries = diff(SKILL, {"body": "\n".join(one)}, {"body": "\n".join(other)})
    if one == other:
        assert entries == []
        return
    result, position = [], 0
    for line in entries[0]["diff"]:
        if line.startswith("@@"):
            start, _, length = line.split()[1][1:].partition(",")
            begin = int(start) - (length != "0")
            result += one[position:begin]
            position = begin
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert one[position] == line[1:]
            position += 1
            if line[0] == " ":
                result.append(line[1:])
    assert result + one[position:] == other
