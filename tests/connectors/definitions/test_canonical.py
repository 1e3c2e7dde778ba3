import pytest

from loomlog.connectors.definitions import DefinitionProblem, canonical_json
from loomlog.connectors.definitions.canonical import join_path


def test_the_text_is_unique():
    text = '{"a":[1,1.0,null,true],"b":{"c":"é<","d":{}}}'
    assert canonical_json({"b": {"d": {}, "c": "é<"}, "a": [1, 1.0, None, True]}) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b c": [float("inf")]}}, 'a["b c"][0]: expected a finite number'),
        ({"a": float("nan")}, "a: expected a finite number"),
        ({"a": "x\udc00"}, "a: expected text without"),
        ({"a": {"x\ud800": 1}}, "a: expected text without"),
        ({"a": "\0"}, "a: expected text without"),
        ({"a": -(2**63) - 1}, "a: expected a whole number of at most 64 bits"),
        ({1: 2}, "the definition: expected an object whose keys are text"),
        ({"a": {1, 2}}, "a: expected a JSON value, not a set"),
        ({"a": (1,)}, "a: expected a JSON value, not a tuple"),
        ({"a": b"x"}, "a: expected a JSON value, not a bytes"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(value: object, message: str):
    with pytest.raises(DefinitionProblem) as caught:
        canonical_json(value)
    assert (caught.value.reason, message in caught.value.message) == ("invalid_definition", True), caught.value.message


def test_the_ends_of_the_range_are_taken():
    assert canonical_json([2**63 - 1, -(2**63)]) == "[9223372036854775807,-9223372036854775808]"
    assert canonical_json("😀") == '"😀"'


def test_paths():
    assert join_path(join_path(join_path("", "states"), 1), "handler") == "states[1].handler"
    assert join_path("files", "a/b.md") == 'files["a/b.md"]'
