"""Records of the synthetic provider meet the schema."""

from typing import Any

import orjson
import pytest

from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.output_schema import REJECTED, check_answer, check_output_schema
from loomlog.connectors.protocols import ModelRequest, Reply
from loomlog.schemas.conversation import Message
from tests.connectors.models.samples import user

QUICK = MockOptions(latency_ms=0, latency_jitter_ms=0)


async def answer(schema: dict[str, Any] | None, *messages: Message) -> str:
    asked = ModelRequest(
        call_id="r_1:1.1", model="mock-generic", messages=messages or (user("go"),), output_schema=schema
    )
    items = [item async for item in MockModel(options=QUICK).stream(asked)]
    assert isinstance(items[-1], Reply)
    return items[-1].text


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "string"},
        {"type": "string", "minLength": 10, "maxLength": 12},
        {"type": "string", "maxLength": 2},
        {"enum": ["b", "a"]},
        {"const": 7},
        {"type": "integer", "minimum": 5},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "maximum": -3},
        {"type": "boolean"},
        {"type": ["null", "string"]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        record(inner=record(deep={"type": "string"})),
        {"type": "string", "examples": ["x"]},
    ],
)
async def test_a_record_meets_its_schema(form: dict[str, Any]) -> None:
    schema = record(value=form)
    assert check_answer(check_output_schema(schema), await answer(schema)).result


async def test_references_are_followed() -> None:
    schema = {**record(value={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}
    assert orjson.loads(await answer(schema)) == {"value": 0}


async def test_bad_answers_are_given_as_often_as_the_prompt_says() -> None:
    schema, prompt = record(n={"type": "integer"}), user("give 2 bad answers")
    assert await answer(schema, prompt) == "This is no record."
    assert await answer(schema, prompt, user(REJECTED)) == "This is no record."
    assert await answer(schema, prompt, user(REJECTED), user(REJECTED)) == '{"n":0}'


async def test_without_a_schema_the_answer_is_that_of_the_script() -> None:
    assert await answer(None) == "ok"
