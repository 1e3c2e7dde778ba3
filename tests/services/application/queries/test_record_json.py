from typing import Annotated, Any

import jsonschema_rs
import orjson
import pytest
from pydantic import TypeAdapter

from loomlog.schemas.generated.values import AgentDefinition, BlobRef, DefinitionPin, ModelChoice, Sampling
from loomlog.services.application.queries.json_types import JsonObject
from loomlog.services.application.queries.record_json import RecordJson

DEFINITION = AgentDefinition(
    name="soaker",
    provider="mock",
    model="generic",
    tools=("Read",),
    sampling=Sampling(temperature=0.5, stop=("END",)),
    candidates=(ModelChoice(provider="mock", model="generic"),),
    code_blob=BlobRef(sha256="ab", size_bytes=2),
    pin=DefinitionPin(def_id="def_1", version=1, content_sha256="ab"),
)


def schema_of(record: Any) -> dict[str, Any]:
    return TypeAdapter(Annotated[JsonObject, RecordJson(record)]).json_schema()


@pytest.mark.parametrize("definition", [DEFINITION, AgentDefinition(name="a", provider="b", model="c")])
def test_what_a_record_is_written_as_fits_its_schema(definition: AgentDefinition) -> None:
    jsonschema_rs.validate(schema_of(AgentDefinition), orjson.loads(orjson.dumps(definition.to_avro())))


def test_every_field_is_required_and_described() -> None:
    schema = schema_of(AgentDefinition)
    assert schema["required"] == list(schema["properties"])
    assert set(schema["properties"]) == set(DEFINITION.to_avro())
    assert schema["description"] == AgentDefinition.__doc__


def test_another_object_does_not_fit() -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema_of(BlobRef), {"sha256": "ab", "size_bytes": "2", "media_type": "text/plain"})
