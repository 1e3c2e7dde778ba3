import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from loomlog.services.api.app import build_app
from loomlog.services.api.docs_page import curl, render_page
from loomlog.services.api.examples import BODY_EXAMPLES
from loomlog.services.api.openapi import build_document, encode_document
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.route import NamedSchema
from loomlog.services.api.routes import ROUTES
from loomlog.services.api.schema_examples import ENDINGS, REFERENCE, TEXTS, example_of
from loomlog.services.core.entity_operations import entity_operations
from loomlog.services.core.error_codes import STATUS_BY_CODE
from tests.services.api.serving import Wire, service_of
from tests.services.entities import COUNTER


def test_every_route_is_in_the_document_with_its_access() -> None:
    actual = build_document("1.2.3")
    assert actual["openapi"].startswith("3.1")
    for route in ROUTES:
        operation = actual["paths"][route.template][route.method.lower()]
        assert ("security" in operation) == (not route.access.is_public)
        assert {"400", "503"} <= set(operation["responses"])
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", route.template))


def test_every_reference_leads_somewhere() -> None:
    actual = build_document("1.2.3")
    text = orjson.dumps(actual).decode()
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in actual["components"]["schemas"]


def test_streams_say_what_a_client_that_comes_back_has_to_drop() -> None:
    parameters = build_document("1.2.3")["paths"]["/v1/runs/{run_id}/stream"]["get"]["parameters"]
    (header,) = [parameter for parameter in parameters if parameter["name"] == "Last-Event-ID"]
    assert "without an id" in header["description"]


def test_every_error_code_is_in_the_schema_of_its_status() -> None:
    schemas = build_document("1")["components"]["schemas"]
    listed = {
        code: int(name[5:])
        for name, schema in schemas.items()
        if re.fullmatch(r"Error\d+", name)
        for code in schema["properties"]["code"]["enum"]
    }
    expected = {code: status for code, status in STATUS_BY_CODE.items() if code != "method_not_allowed"}
    assert listed == expected


def test_every_body_has_an_example_that_it_accepts() -> None:
    for route in ROUTES:
        if isinstance(route.body, NamedSchema):
            jsonschema_rs.validate(route.body.schema, route.body.example)
        elif route.body is not None:
            route.body.model_validate(BODY_EXAMPLES[route.body])


def test_a_curl_command_has_the_address_the_token_and_an_example() -> None:
    document = build_document("1")
    (route,) = [route for route in ROUTES if route.operation_id == "post_input"]
    assert curl(route, document["components"]["schemas"]) == (
        'curl \\\n  -X POST \\\n  "http://127.0.0.1:8787/v1/runs/$RUN_ID/input" \\\n'
        '  -H "Authorization: Bearer $TOKEN" \\\n  --json \'{"text":"Look at the second file too."}\''
    )


def test_a_curl_command_of_a_route_that_takes_a_file_sends_one() -> None:
    (route,) = [route for route in ROUTES if route.handler.__name__ == "import_run"]
    assert curl(route, {}).endswith("--data-binary @FILE")


def json_bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operation and the schema of every JSON body of the document: of requests, answers and refusals."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for body in (operation.get("requestBody", {}), *operation["responses"].values()):
                if "$ref" in body:
                    body = document["components"]["responses"][body["$ref"].rpartition("/")[2]]
                for media, content in body.get("content", {}).items():
                    if media == "application/json":
                        for schema in content["schema"].get("anyOf", [content["schema"]]):
                            yield operation["operationId"], schema


def test_every_json_body_has_an_example_that_its_schema_accepts() -> None:
    document = build_document("1")
    components = document["components"]
    checked = set()
    for operation, schema in json_bodies(document):
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in checked:
            continue
        checked.add(name)
        examples = components["schemas"].get(name, schema).get("examples")
        assert examples, f"{operation}: {name or schema} has no example"
        for example in examples:
            assert example, f"{operation}: the example of {name} is empty"
            jsonschema_rs.validate({**schema, "components": components}, example)
    assert len(checked) > 150


def test_every_text_of_an_example_is_that_of_a_field() -> None:
    fields: set[str] = set()

    def collect(schema: Any) -> None:
        if isinstance(schema, dict):
            fields.update(schema.get("properties", {}))
            for part in schema.values():
                collect(part)
        elif isinstance(schema, list):
            for part in schema:
                collect(part)

    collect(build_document("1")["components"]["schemas"])
    assert fields >= TEXTS.keys()
    assert [end for end in ENDINGS if not any(name.endswith(end) for name in fields)] == []


def test_an_example_of_a_schema_that_contains_itself_ends() -> None:
    tree = {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": f"{REFERENCE}Tree"}}}}
    example = example_of(tree, {"Tree": tree})
    jsonschema_rs.validate({**tree, "components": {"schemas": {"Tree": tree}}}, example)
    assert example["parts"]


def test_the_document_names_its_server() -> None:
    assert [server["url"] for server in build_document("1")["servers"]] == ["/"]


VERBS = (
    "acknowledge|add|apply|approve|await|backfill|broadcast|cancel|change|close|compact|compare|connect|continue|"
    "copy|count|create|delete|deny|drop|erase|explain|export|follow|fork|get|import|inspect|judge|list|mint|pause|"
    "peek|post|preview|probe|publish|purge|put|quarantine|query|read|receive|reembed|register|release|remove|"
    "repair|replay|report|resolve|restore|resume|revoke|rewrap|run|search|set|show|sign|start|stream|take|test|"
    "update|verify|watch"
)


def test_operation_ids_are_a_verb_and_a_noun() -> None:
    ids = [one["operationId"] for of_path in build_document("1")["paths"].values() for one in of_path.values()]
    wrong = [one for one in ids if not re.fullmatch(rf"({VERBS})(_[a-z0-9]+)+", one) or "def_" in f"{one}_"]
    assert wrong == []


def test_operations_of_a_family_are_named_alike() -> None:
    assert {route.operation_id for route in operation_routes(entity_operations(COUNTER))} == {
        "increment_counter",
        "list_counter_aggregates",
        "show_counter_aggregate",
        "get_counter_remaining",
    }


def test_operation_ids_are_unique() -> None:
    actual = [op["operationId"] for path in build_document("1")["paths"].values() for op in path.values()]
    assert len(actual) == len(set(actual))


def test_the_document_is_the_same_every_time() -> None:
    assert encode_document("1.2.3") == encode_document("1.2.3")


def test_the_page_needs_nothing_from_anywhere() -> None:
    text = render_page("1.2.3<script>").decode()
    assert "<script" not in text
    assert not re.search(r"(src|href)=['\"](https?:)?//", text)
    for route in ROUTES:
        assert f"{route.method} {route.template}" in text


async def test_both_are_served_to_everybody(tmp_path: Path) -> None:
    app = build_app(service_of(None, tmp_path))
    for path, kind in (("/v1/openapi.json", "application/json"), ("/v1/docs", "text/html")):
        wire = Wire(app, "GET", path, caller=None).begin()
        body = await wire.done()
        assert wire.status == 200
        assert wire.headers["content-type"].startswith(kind)
        assert len(body) > 5_000
    assert "default-src 'none'" in wire.headers["content-security-policy"]


def test_fastapi_tells_the_same_document(tmp_path: Path) -> None:
    assert build_app(service_of(None, tmp_path)).openapi() == build_document("1.2.3")
