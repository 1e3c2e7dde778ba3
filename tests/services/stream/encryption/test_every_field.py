"""Content of every record is what the schemas class so: encrypted wherever it stands, and nothing else is changed."""

import json
from typing import Any

import msgspec
import pytest

from loomlog.schemas import generate
from loomlog.schemas.codec import CLASSES
from loomlog.schemas.generated import values
from loomlog.schemas.generated.values import ContentBlock, RunOptions, Segment
from loomlog.schemas.records import Record
from loomlog.services.stream.encryption.content_fields import content_texts, encrypt_content, has_content
from tests.services.families.contract.commands import plain_value, planted

MARK = "mark"


def places(value: Any, name: str = "") -> list[str]:
    """Return the fields in whose texts the mark is."""
    if isinstance(value, str):
        return [name] if MARK in value else []
    if isinstance(value, msgspec.Struct):
        return [place for one in value.__struct_fields__ for place in places(getattr(value, one), one)]
    if isinstance(value, dict):
        return [place for one in value.values() for place in places(one, name)]
    if isinstance(value, tuple | list):
        return [place for one in value for place in places(one, name)]
    return []


RECORDS = {**CLASSES, **{record.SCHEMA: record for record in values.RECORDS}}
SCHEMAS = generate.load_schemas()


def content_fields(schema: Any) -> set[str]:
    """Return the names of the fields of a record that are content, with those of the records that it holds."""
    return {one["name"] for one in schema["fields"] if one.get("text") == "content"} | {
        name
        for one in schema["fields"]
        for held in generate.dependencies({"type": "record", "fields": [one]})
        for name in content_fields(SCHEMAS[held])
    }


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_content_is_encrypted_and_nothing_else(name: str) -> None:
    record = RECORDS[name]
    whole = planted(plain_value(record), MARK)
    expected = content_fields(SCHEMAS[name])
    assert set(places(whole)) == expected
    assert has_content(record) == bool(expected)
    sealed = encrypt_content(whole, lambda text, untrusted: "token")
    assert places(sealed) == []
    assert encrypt_content(sealed, lambda text, untrusted: text) == sealed
    bare = plain_value(record)
    changed = encrypt_content(bare, lambda text, untrusted: "token")
    for field in set(record.__struct_fields__) - {one["name"] for one in SCHEMAS[name]["fields"] if one.get("text")}:
        if not isinstance(getattr(bare, field), Record | tuple):
            assert getattr(changed, field) == getattr(bare, field)


def test_parts_of_a_hook_are_content_and_the_rest_says_when_it_is_due() -> None:
    hook = json.dumps({"kind": "http", "on": "failed", "url": "https://a.example/?q=mark", "payload": {"a": "mark"}})
    options = RunOptions(on_complete=(hook, "no hook"))
    assert sorted(content_texts(options)) == ["https://a.example/?q=mark", '{"a":"mark"}']
    sealed = encrypt_content(options, lambda text, untrusted: "token")
    assert [*map(json.loads, sealed.on_complete[:1]), sealed.on_complete[1]] == [
        {"kind": "http", "on": "failed", "url": "token", "payload": "token"},
        "no hook",
    ]


def test_an_untrusted_text_stays_one() -> None:
    blocks = tuple(ContentBlock(type=kind, text=kind, data="data") for kind in ("trusted-text", "untrusted-block", "x"))
    options = RunOptions(payload_metadata={"k": "said"}, metadata={"k": "trusted"})
    forms: dict[str, bool] = {}
    for record in (Segment(role="user", content=blocks), options):
        encrypt_content(record, lambda text, untrusted: (forms.setdefault(text, untrusted) and text) or text)
    assert forms == {
        "trusted-text": False, "untrusted-block": True, "x": True, "data": False, "said": True, "trusted": False
    }  # fmt: skip
