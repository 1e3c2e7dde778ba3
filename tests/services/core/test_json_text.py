import orjson
import pytest

from loomlog.services.core.json_text import JsonInvalid, parse_json

KEYS = 50_000
"""Of an object: compared pairwise they would take minutes."""


@pytest.mark.parametrize("value", [None, 1, 0.5, "a", [1, [2]], {"a": {"b": []}}, {"": {"": 1}}])
def test_json_is_read(value: object) -> None:
    assert parse_json(orjson.dumps(value)) == value


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"{", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"1e999", "is not JSON"),
        (b'"\\ud800"', "is not JSON"),
        (b"[" * 10_000 + b"]" * 10_000, "is not JSON|is nested too deeply"),
        (b'{"b": 1, "a": 1, "a": 2, "b": 2}', "has the key 'a' twice in one object"),
        (b'[{"c": [{"b": 1, "b": 2}]}]', "has the key 'b' twice in one object"),
        (b'{"": 1, "": 2}', "has the key '' twice in one object"),
        (b'{"' + b"k" * 100 + b'": 1, "' + b"k" * 100 + b'": 2}', f"has the key '{'k' * 60}' twice in one object"),
        (b"{" + b"".join(b'"%d":1,' % at for at in range(KEYS)) + b'"7":1}', "has the key '7' twice in one object"),
    ],
)
def test_what_is_not_json_or_would_lose_a_part_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(JsonInvalid, match=problem):
        parse_json(raw)
