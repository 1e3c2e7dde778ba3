"""The types of the HTTP API for the web page: those of the OpenAPI document, and one for every form of a schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from loomlog.services.api.openapi import build_document
from tests.lint import web_types
from tests.lint.web_types import TARGET, UnknownSchema, main, types_text

RUN = {"type": "object", "properties": {"id": {"type": "string"}, "error": {"type": "string"}}, "required": ["id"]}


def text_of(paths: dict[str, Any], **schemas: Any) -> str:
    return types_text({"components": {"schemas": schemas}, "paths": paths})


def answer(media_type: str, schema: Any) -> dict[str, Any]:
    return {"200": {"content": {media_type: {"schema": schema}}}, "404": {"content": {"application/json": {}}}}


def test_the_file_is_made_of_the_document() -> None:
    assert TARGET.read_text(encoding="utf-8") == types_text(build_document("0"))
    assert main(["--check"]) == 0


def test_a_stale_file_is_told_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web_types, "TARGET", tmp_path / "api_types.d.ts")
    assert main(["--check"]) == 1
    assert "run python -m tests.lint.web_types" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_a_field_that_may_be_missing_has_a_question_mark_and_refusals_are_left_out() -> None:
    text = text_of({"/v1/runs": {"get": {"responses": answer("text/plain", {})}}}, Run=RUN, Error404=RUN)
    assert "  interface Run {\n    id: string;\n    error?: string;\n  }\n" in text
    assert "Error404" not in text


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/components/schemas/Run"}, "Run"),
        ({"type": "integer"}, "number"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"allOf": [{"$ref": "#/components/schemas/Run"}]}, "Run"),
        ({"enum": ["a", "b"], "type": "string"}, '"a" | "b"'),
        ({"const": "a"}, '"a"'),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
        ({"type": "object"}, "Record<string, any>"),
        ({"type": "object", "properties": {"a-b": {"type": "boolean"}}, "required": ["a-b"]}, '{ "a-b": boolean }'),
        ({}, "any"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_each_form_of_a_schema_has_a_type(schema: Any, expected: str) -> None:
    text = text_of({"/v1/a": {"get": {"responses": answer("application/json", schema)}}}, Run=RUN)
    assert f'    | ["GET", `/v1/a`, {expected}, any];\n' in text


def test_a_route_has_the_type_of_its_answer_and_of_its_body() -> None:
    reference = {"schema": {"$ref": "#/components/schemas/Run"}}
    paths = {
        "/v1/runs/{run_id}/export": {
            "parameters": [],
            "get": {"responses": answer("application/gzip", {"type": "string"})},
            "post": {"responses": {"204": {}}, "requestBody": {"content": {"application/json": reference}}},
        }
    }
    text = text_of(paths, Run=RUN)
    assert '| ["GET", `/v1/runs/${string}/export`, string, any]\n' in text
    assert '| ["POST", `/v1/runs/${string}/export`, null, Run];\n' in text


def test_a_schema_without_a_type_is_refused() -> None:
    with pytest.raises(UnknownSchema, match='"type": "date"'):
        text_of({}, Day={"type": "date"})
