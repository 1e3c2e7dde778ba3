"""The laws of merging, over layers that agree on what is a mapping, and the examples people know."""

from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.merge import merge
from loomlog.connectors.configuration.tree import (
    MappingEntry,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    SequenceNode,
    read_tree,
    to_plain,
)

MARK = Mark(file="f", line=1)
EMPTY = MappingNode(entries={}, mark=MARK)

scalars = st.one_of(st.none(), st.integers(0, 3), st.sampled_from("ab"))
words = st.lists(st.sampled_from("abcd").map(lambda word: ScalarNode(value=word, mark=MARK)), max_size=4).map(tuple)
distinct = words.map(lambda nodes: tuple(dict.fromkeys(nodes)))
leaves = scalars.map(lambda value: ScalarNode(value=value, mark=MARK))
edits = st.one_of(
    words.map(lambda nodes: SequenceNode(mark=MARK, base=nodes)),
    distinct.map(lambda nodes: SequenceNode(mark=MARK, before=nodes)),
    distinct.map(lambda nodes: SequenceNode(mark=MARK, after=nodes)),
)


def branches(children: dict[str, st.SearchStrategy[Node]]) -> st.SearchStrategy[MappingNode]:
    entries = {key: child.map(lambda node: MappingEntry(key_mark=MARK, node=node)) for key, child in children.items()}
    return st.fixed_dictionaries({}, optional=entries).map(lambda found: MappingNode(entries=found, mark=MARK))


inner = branches({"scalar": leaves, "list": edits, "either": st.one_of(leaves, edits)})
layers = branches(
    {"scalar": leaves, "list": edits, "block": st.one_of(inner, st.just(ScalarNode(value=None, mark=MARK)))}
)


def over(*stack: MappingNode) -> MappingNode:
    merged = stack[0]
    for upper in stack[1:]:
        merged, _ = merge(merged, upper)
    return merged


@given(layers)
def test_an_empty_layer_changes_nothing_on_either_side(layer: MappingNode):
    assert over(layer, EMPTY) == layer
    assert to_plain(over(EMPTY, layer)) == to_plain(layer)


@given(layers, layers, layers)
def test_it_does_not_matter_which_layers_are_merged_first(a: MappingNode, b: MappingNode, c: MappingNode):
    assert to_plain(over(over(a, b), c)) == to_plain(over(a, over(b, c)))


@given(layers, layers)
def test_a_layer_over_itself_and_again_changes_nothing_more(a: MappingNode, b: MappingNode):
    once = over(a, b)
    assert to_plain(over(once, b)) == to_plain(once)


@given(layers, layers)
def test_what_the_upper_layer_says_plainly_is_what_holds(a: MappingNode, b: MappingNode):
    merged = over(a, b)
    for key, entry in b.entries.items():
        if isinstance(entry.node, ScalarNode) and entry.node.value is not None:
            assert to_plain(merged.entries[key].node) == entry.node.value
        if isinstance(entry.node, SequenceNode) and entry.node.base is not None:
            assert to_plain(merged.entries[key].node) == to_plain(entry.node)


@given(layers, layers)
def test_no_key_is_lost_and_none_appears(a: MappingNode, b: MappingNode):
    assert set(over(a, b).entries) == set(a.entries) | set(b.entries)


@given(layers, layers)
def test_an_override_is_reported_exactly_when_a_plain_value_changes(a: MappingNode, b: MappingNode):
    _, overrides = merge(a, b)
    output = {finding.message.split(" ")[0] for finding in overrides}
    expected = set()
    for key in ("scalar",):
        if key in a.entries and key in b.entries:
            old, new = to_plain(a.entries[key].node), to_plain(b.entries[key].node)
            if old is not None and new is not None and old != new:
                expected.add(key)
    assert {name for name in output if name == "scalar"} == expected


def merged(*texts: str) -> tuple[object, list[str]]:
    root = EMPTY
    output: list[str] = []
    for number, text in enumerate(texts, 1):
        root, overrides = merge(root, read_tree(text, file=f"{number}.yaml", environ={}).root)
        output += [str(finding) for finding in overrides]
    return to_plain(root), output


def test_mappings_merge_and_scalars_and_lists_replace():
    values, _ = merged("a: {x: 1, y: [1, 2]}\nb: 1\n", "a: {x: 5, y: [3], z: 7}\n")
    assert values == {"a": {"x": 5, "y": (3,), "z": 7}, "b": 1}


def test_an_override_names_both_places():
    _, output = merged("a:\n  x: 1\n", "\n\na: {x: 2}\n")
    assert output == ["2.yaml:3: a.x overrides the value in 1.yaml:2"]


def test_the_same_value_again_is_no_override():
    assert merged("a: {x: [1]}", "a: {x: [1]}")[1] == []


def test_items_are_put_before_and_after_and_move_when_named_again():
    base = "a: [x, y, z]\n"
    assert merged(base, "a: !prepend [new, z]")[0] == {"a": ("new", "z", "x", "y")}
    assert merged(base, "a: !append [new, x]")[0] == {"a": ("y", "z", "new", "x")}
    assert merged(base, "a: !prepend [p]", "a: !append [q]", "a: !append [p]")[0] == {"a": ("x", "y", "z", "q", "p")}
    assert merged(base, "a: !prepend [p]")[1] == []


def test_an_edit_of_nothing_is_the_list_itself():
    assert merged("b: 1", "a: !append [p, p]")[0] == {"b": 1, "a": ("p",)}


def test_a_key_without_a_value_says_nothing():
    assert merged("a: {x: 1}\nb: 2\n", "a:\nb:\n")[0] == {"a": {"x": 1}, "b": 2}
