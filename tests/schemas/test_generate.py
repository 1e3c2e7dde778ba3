import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema

from loomlog.schemas import generate

TOOL_RETURNED = "loom.run.events.ToolReturned"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the schemas that a test may edit."""
    here = tmp_path / "schemas"
    shutil.copytree(generate.HERE, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(generate, "HERE", here)
    monkeypatch.setattr(generate, "AVRO", here / "avro")
    monkeypatch.setattr(generate, "RELEASED", here / "released")
    monkeypatch.setattr(generate, "LOCK", here / "ids.json")
    return here


def edit(tree: Path, **field: Any) -> None:
    """One more field in ToolReturned."""
    path = tree / "avro/run/events/ToolReturned.avsc"
    schema = json.loads(path.read_text())
    text = {"text": "code"} if field["type"] == "string" else {}
    schema["fields"].append({"doc": "New.", **text, **field})
    path.write_text(json.dumps(schema))


def versions(tree: Path) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = json.loads((tree / "ids.json").read_text())[TOOL_RETURNED]
    return actual


def test_what_is_committed_is_what_the_schemas_give() -> None:
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"type": "string", "text": None}, "a text needs"),
        ({"type": ["null", "string"], "text": "secret"}, "a text needs"),
        ({"type": {"type": "array", "items": "string"}}, "a text needs"),
        ({"type": {"type": "map", "values": "long"}}, "a text needs"),
        ({"type": "long", "text": "code"}, "holds no text"),
        ({"type": "string", "text": "name", "untrusted": True}, "are for content"),
        ({"type": "string", "text": "content", "within": "letter"}, "must be one of"),
    ],
)
def test_a_text_without_a_class_fails_the_check(
    field: dict[str, Any], problem: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(tree, name="new", **field)
    assert generate.main(["--check"]) == 1
    text = capsys.readouterr().err
    assert f"{TOOL_RETURNED}.new: " in text
    assert problem in text


def test_classes_of_text_change_no_version(tree: Path) -> None:
    before = versions(tree)
    path = tree / "avro/run/events/ToolReturned.avsc"
    path.write_text(path.read_text().replace('"text": "content"', '"text": "name"'))
    assert generate.main([]) == 0
    assert versions(tree) == before


def test_an_edit_without_generating_is_stale_and_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(tree, name="new", type="string", default="")
    assert generate.main(["--check"]) == 1
    text = capsys.readouterr().err
    assert "run_events.py" in text
    assert "ids.json" in text
    assert "make schemas" in text


def test_check_writes_nothing(tree: Path) -> None:
    edit(tree, name="new", type="string", default="")
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    generate.main(["--check"])
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_an_open_version_follows_its_schema_under_the_same_id(tree: Path) -> None:
    before = versions(tree)
    edit(tree, name="new", type="string", default="")
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert [v["id"] for v in versions(tree)] == [v["id"] for v in before]
    assert versions(tree)[0]["sha256"] != before[0]["sha256"]
    assert "new: str = ''" in (tree / "generated" / "run_events.py").read_text()


def test_a_released_version_stays_and_an_edit_makes_a_new_one_with_a_new_id(tree: Path) -> None:
    generate.main(["--release"])
    first = (tree / "released" / TOOL_RETURNED / "1.avsc").read_bytes()
    highest = max(v["id"] for actual in json.loads((tree / "ids.json").read_text()).values() for v in actual)
    edit(tree, name="new", type="string", default="")
    generate.main([])
    assert [(v["version"], v["released"]) for v in versions(tree)] == [(1, True), (2, False)]
    assert versions(tree)[1]["id"] == highest + 1
    assert (tree / "released" / TOOL_RETURNED / "1.avsc").read_bytes() == first
    assert "new" in (tree / "released" / TOOL_RETURNED / "2.avsc").read_text()


def test_a_change_of_words_alone_makes_no_version(tree: Path) -> None:
    generate.main(["--release"])
    path = tree / "avro/run/events/ToolReturned.avsc"
    path.write_text(path.read_text().replace("A tool call ended.", "A tool call is over."))
    generate.main([])
    assert len(versions(tree)) == 1
    assert '"""A tool call is over."""' in (tree / "generated" / "run_events.py").read_text()


def test_a_changed_value_changes_every_record_that_holds_it(tree: Path) -> None:
    generate.main(["--release"])
    path = tree / "avro/values/Usage.avsc"
    schema = json.loads(path.read_text())
    schema["fields"].append({"name": "audio_tokens", "type": "long", "default": 0, "doc": "New."})
    path.write_text(json.dumps(schema))
    generate.main([])
    lock = json.loads((tree / "ids.json").read_text())
    changed = {name.rsplit(".", 1)[1] for name, actual in lock.items() if len(actual) == 2}
    assert changed == {
        "CompactionFailed",
        "ContextCompacted",
        "HandOverModelReply",
        "ModelReplied",
        "RunCompleted",
        "RunFailed",
        "RunCancelled",
    }


def same_id(tree: Path, *names: str) -> None:
    lock = json.loads((tree / "ids.json").read_text())
    for name in names:
        lock[name][0]["id"] = 1
    (tree / "ids.json").write_text(json.dumps(lock, indent=1, sort_keys=True) + "\n")


def test_two_records_that_took_the_same_id_are_told_apart_again(tree: Path) -> None:
    same_id(tree, TOOL_RETURNED, "loom.run.events.RunFailed")
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    lock = json.loads((tree / "ids.json").read_text())
    ids = [version["id"] for actual in lock.values() for version in actual]
    assert len(ids) == len(set(ids))
    assert generate.main(["--check"]) == 0


def test_two_released_records_with_one_id_are_an_error(tree: Path) -> None:
    generate.main(["--release"])
    same_id(tree, TOOL_RETURNED, "loom.run.events.RunFailed")
    with pytest.raises(SystemExit, match="both released under id 1"):
        generate.main(["--check"])


def test_a_file_must_be_called_like_its_record(tree: Path) -> None:
    path = tree / "avro/values/Usage.avsc"
    path.rename(path.with_name("Usages.avsc"))
    with pytest.raises(SystemExit, match=r"must be called Usage\.avsc"):
        generate.main(["--check"])


def test_an_unknown_type_is_named(tree: Path) -> None:
    edit(tree, name="new", type="loom.values.Usages")
    with pytest.raises(SystemExit, match=r"unknown type 'loom\.values\.Usages'"):
        generate.main(["--check"])


def test_a_type_used_in_two_places_is_written_out_once() -> None:
    """Also when it first appears deep inside another one."""
    inner = {"type": "record", "name": "Inner", "namespace": "x", "doc": "", "fields": []}
    outer = {
        "type": "record",
        "name": "Outer",
        "namespace": "x",
        "doc": "",
        "fields": [{"name": "inner", "type": "x.Inner", "doc": ""}],
    }
    whole = {
        "type": "record",
        "name": "Whole",
        "namespace": "x",
        "doc": "",
        "fields": [{"name": "one", "type": "x.Outer", "doc": ""}, {"name": "two", "type": "x.Inner", "doc": ""}],
    }
    actual = generate.expand(whole, {"x.Inner": inner, "x.Outer": outer, "x.Whole": whole}, set())
    assert actual["fields"][1]["type"] == "x.Inner"
    parse_schema(actual, named_schemas={})
