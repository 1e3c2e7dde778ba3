"""Every version of every record that was ever written stays readable by today's code."""

import copy
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from loomlog.schemas import generate
from loomlog.schemas.codec import CLASSES, FRAME_BYTES, local_codec
from loomlog.schemas.generated.run_events import ModelReplied
from tests.schemas.compatibility import problems, sample

RELEASED = sorted(generate.RELEASED.glob("*/*.avsc"))
SCHEMAS = generate.load_schemas()
NOW = {name: generate.expand(schema, SCHEMAS, set()) for name, schema in SCHEMAS.items()}
REPLIED = NOW[ModelReplied.SCHEMA]


def field_of(schema: Any, *path: str) -> Any:
    """A field by the names that lead to it."""
    actual: Any = None
    for name in path:
        actual = next(field for field in schema["fields"] if field["name"] == name)
        schema = actual["type"][1] if isinstance(actual["type"], list) else actual["type"]
    return actual


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_written_with_a_released_version_can_be_read_today(path: Path) -> None:
    assert problems(json.loads(path.read_text()), NOW[path.parent.name]) == []


def test_every_version_of_the_lock_has_its_schema_and_no_other_is_there() -> None:
    lock = json.loads(generate.LOCK.read_text())
    expected = {generate.RELEASED / name / f"{v['version']}.avsc" for name, versions in lock.items() for v in versions}
    assert set(RELEASED) == expected
    assert set(lock) == set(CLASSES)


def test_no_schema_id_is_given_twice() -> None:
    lock = json.loads(generate.LOCK.read_text())
    ids = [version["id"] for versions in lock.values() for version in versions]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("full", [True, False], ids=["full", "empty"])
def test_bytes_of_every_released_version_become_todays_class(full: bool) -> None:
    for name, versions in json.loads(generate.LOCK.read_text()).items():
        for version in versions:
            schema = json.loads((generate.RELEASED / name / f"{version['version']}.avsc").read_text())
            out = BytesIO(b"\0" + version["id"].to_bytes(4, "big"))
            out.seek(FRAME_BYTES)
            schemaless_writer(out, parse_schema(schema, named_schemas={}), sample(schema, full=full))
            decoded = local_codec().decode(out.getvalue())
            assert type(decoded.record) is CLASSES[name]
            assert (decoded.envelope is not None) == (".events." in name)


# --- the check itself: each of these mutations must be seen -----------------------------------------------------------


def test_a_new_field_with_a_default_is_no_problem() -> None:
    old = copy.deepcopy(REPLIED)
    old["fields"] = [field for field in old["fields"] if field["name"] != "traceparent"]
    assert problems(old, REPLIED) == []


def test_a_new_field_without_a_default_is_seen() -> None:
    old, new = copy.deepcopy(REPLIED), copy.deepcopy(REPLIED)
    old["fields"] = [field for field in old["fields"] if field["name"] != "traceparent"]
    del field_of(new, "traceparent")["default"]
    assert any("traceparent" in problem for problem in problems(old, new))


@pytest.mark.parametrize("path", [("reasoning",), ("usage", "input_tokens"), ("text_blob", "media_type")])
def test_a_removed_default_is_seen(path: tuple[str, ...]) -> None:
    new = copy.deepcopy(REPLIED)
    del field_of(new, *path)["default"]
    assert any(path[-1] in problem for problem in problems(REPLIED, new))


@pytest.mark.parametrize("path", [("reasoning",), ("usage", "input_tokens")])
def test_another_default_is_seen(path: tuple[str, ...]) -> None:
    new = copy.deepcopy(REPLIED)
    field_of(new, *path)["default"] = "other" if path == ("reasoning",) else 1
    assert any(path[-1] in problem for problem in problems(REPLIED, new))


@pytest.mark.parametrize(
    ("path", "type_now"),
    [
        (("turn",), "string"),
        (("text",), "long"),
        (("text",), "bytes"),
        (("usage", "output_tokens"), "string"),
        (("text_blob", "size_bytes"), "boolean"),
        (("text_blob",), "string"),
        (("tool_calls",), {"type": "array", "items": "string"}),
    ],
)
def test_another_type_is_seen(path: tuple[str, ...], type_now: Any) -> None:
    new = copy.deepcopy(REPLIED)
    changed = field_of(new, *path)
    changed["type"] = type_now
    changed.pop("default", None)
    assert problems(REPLIED, new)


@pytest.mark.parametrize("path", [("provider",), ("usage", "cache_read_input_tokens")])
def test_a_removed_field_is_seen(path: tuple[str, ...]) -> None:
    new = copy.deepcopy(REPLIED)
    holder = new if len(path) == 1 else field_of(new, *path[:-1])["type"]
    holder["fields"] = [field for field in holder["fields"] if field["name"] != path[-1]]
    assert any(path[-1] in problem for problem in problems(REPLIED, new))


def test_a_renamed_field_is_seen() -> None:
    new = copy.deepcopy(REPLIED)
    field_of(new, "stop_reason")["name"] = "ended_because"
    assert problems(REPLIED, new)
