"""OpenAPI documents as tools: names, schemas and requests, and documents that are wrong."""

import json
from typing import Any

import pytest

from loomlog.connectors.json_schema import compile_schema
from loomlog.connectors.openapi import Api, ApiFileRefused, ApiOperation, OperationUnusable, read_api, request_parts

ORDERS = """
openapi: 3.0.3
servers: [{url: "https://shop.example/api"}]
paths:
  /orders/{id}:
    parameters:
      - {$ref: "#/components/parameters/Id"}
    get:
      operationId: order.get
      summary: Returns an order.
      parameters:
        - {name: fields, in: query, schema: {type: array, items: {type: string}}}
        - {name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}
        - {name: by, in: query, style: deepObject, schema: {type: object}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: Authorization, in: header, required: true, schema: {type: string}}
        - {name: since, in: query, schema: {type: string, example: 2026-01-01, nullable: true}}
      responses: {200: {description: It.}}
    put:
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
  /search:
    post:
      operationId: search
      requestBody:
        content: {application/x-www-form-urlencoded: {schema: {properties: {q: {type: string}, n: {type: integer}}}}}
components:
  parameters:
    Id: {name: id, in: path, required: true, description: "Its id\\e.", schema: {type: string}}
  schemas:
    Order:
      type: object
      required: [lines]
      properties:
        lines: {type: array, items: {type: integer, minimum: 0, exclusiveMinimum: true}}
        parent: {$ref: "#/components/schemas/Order"}
"""


def api(document: str | dict[str, Any] = ORDERS, **options: Any) -> Api:
    return read_api((document if isinstance(document, str) else json.dumps(document)).encode(), **options)


def operation(name: str, **options: Any) -> ApiOperation:
    return next(one for one in api(**options).operations if one.name == name)


def document(**entry: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "servers": [{"url": "http://a.example"}], "paths": {"/a": {"get": entry}}}


def test_each_operation_is_a_tool() -> None:
    read = api(prefix="shop_")
    assert [(one.name, one.method) for one in read.operations] == [
        ("shop_order_get", "GET"),
        ("shop_put_orders_id", "PUT"),
        ("shop_search", "POST"),
    ]
    assert (read.base_url, read.problems) == ("https://shop.example/api", ())
    assert api(base_url="http://here").base_url == "http://here"
    got = read.operations[0]
    assert got.description == "Returns an order."
    assert set(got.input_schema["properties"]) == {"id", "fields", "tags", "by", "X-Trace", "since"}
    assert got.input_schema["required"] == ["id"]
    assert got.input_schema["properties"]["since"] == {"type": ["string", "null"]}
    assert "X-Trace" not in operation("order_get", sent_headers=("x-trace",)).input_schema["properties"]


def test_schemas_are_taken_along_and_checked() -> None:
    schema = compile_schema(operation("put_orders_id").input_schema)
    good = {"id": "7", "body": {"lines": [1], "parent": {"lines": []}}}
    assert schema.find_problems(good) == []
    (problem,) = schema.find_problems({**good, "body": {"lines": [1], "parent": {"lines": [0]}}})
    assert problem.path == "/body/parent/lines/0"
    assert schema.find_problems({**good, "other": 1})


def test_a_request_has_its_arguments_in_their_places() -> None:
    arguments = {
        "id": "a/b c",
        "fields": ["x", "y"],
        "tags": ["p", "q"],
        "by": {"age": 7},
        "X-Trace": "t",
        "since": None,
    }
    target, headers, body = request_parts(operation("order_get"), arguments)
    assert target == "/orders/a%2Fb%20c?fields=x&fields=y&tags=p%2Cq&by%5Bage%5D=7"
    assert (headers, body) == ((("X-Trace", "t"),), b"")
    _, headers, body = request_parts(operation("put_orders_id"), {"id": "7", "body": {"lines": [1]}})
    assert (headers, body) == ((("Content-Type", "application/json"),), b'{"lines":[1]}')
    _, headers, body = request_parts(operation("search"), {"body": {"q": "a b", "n": 3}})
    assert (headers, body) == ((("Content-Type", "application/x-www-form-urlencoded"),), b"q=a+b&n=3")


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_would_change_the_path_is_refused(value: str) -> None:
    with pytest.raises(OperationUnusable, match="another path"):
        request_parts(operation("order_get"), {"id": value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "neither JSON nor YAML"),
        ("[]", "no mapping"),
        ('swagger: "2.0"', "expected 3.0 or 3.1"),
        ("a: &a [1]\nb: &b {x: *a, y: *b}", "more than 200000"),
        (json.dumps(document() | {"servers": [{"url": "/api"}]}), "set base_url"),
        (json.dumps(document() | {"paths": {}}), "there are no paths"),
        (json.dumps(document() | {"paths": {f"/{n}": {"get": {}} for n in range(129)}}), "more than 128"),
        ("x" * 5_000_000, "bytes"),
    ],
)
def test_a_document_that_gives_no_tools_is_refused(text: str, said: str) -> None:
    with pytest.raises(ApiFileRefused, match=said):
        api(text)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"operationId": "x" * 65}, "more than 64 characters"),
        ({"parameters": [{"$ref": "http://evil/x"}]}, "out of the document"),
        ({"parameters": [{"$ref": "#/nothing"}]}, "not in the document"),
        ({"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}, "is not in the document"),
        ({"parameters": [{"name": "c", "in": "cookie", "required": True}]}, "required parameter in cookie"),
        ({"parameters": [{"name": "body", "in": "query"}]}, "two of its arguments"),
        ({"requestBody": {"required": True, "content": {"image/png": {}}}}, "image/png: expected JSON or a form"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"pattern": "("}}]}, "pattern"),
    ],
)
def test_an_operation_that_cannot_be_a_tool_is_left_out_with_the_reason(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiFileRefused, match=said):
        api(document(**entry))
    both = document(**entry)
    both["paths"]["/b"] = {"get": {}}
    read = api(both)
    assert [one.name for one in read.operations] == ["get_b"]
    assert "GET /a: " in read.problems[0]
