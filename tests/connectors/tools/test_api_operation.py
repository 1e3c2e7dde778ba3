"""Tools of an OpenAPI file against a server."""

import json
from pathlib import Path
from typing import Any

from loomlog.connectors.configuration.local_api_block import LocalApiBlock
from loomlog.connectors.protocols import EffectClass, Tool
from loomlog.connectors.tools.api_operation import build_api_tools
from tests.connectors.tools.given import context
from tests.connectors.tools.web_server import Server, page, redirect, running

DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {
        "/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "get"},
            "post": {"operationId": "add", "requestBody": {"content": {"application/json": {"schema": {}}}}},
        }
    },
}


def tools(folder: Path, server: Server, **fields: Any) -> dict[str, Tool]:
    spec = folder / "api.json"
    spec.write_text(json.dumps(DOCUMENT))
    return build_api_tools(LocalApiBlock(spec=str(spec), base_url=f"http://127.0.0.1:{server.port}/v1", **fields))


async def test_an_operation_is_one_request_with_the_headers_of_the_configuration(tmp_path: Path) -> None:
    async with running() as server:
        server.answers["/v1/orders/7"] = page('{"id": 7}')
        built = tools(
            tmp_path, server, headers={"X-Key": "${run.credentials.shop}", "X-Other": "${run.credentials.no}"}
        )
        result = await built["add"].call({"id": "7", "body": {"n": 1}}, context(credentials={"shop": "s3cret"}))
        assert (result.text, result.is_error) == ('{"id": 7}', False)
        assert server.requests[-1].startswith("POST /v1/orders/7 HTTP/1.1")
        assert server.requests[-1].endswith('{"n":1}')
        assert (server.header("x-key"), server.header("x-other")) == ("s3cret", None)
        assert server.header("idempotency-key") == "key-1"
        effects = [built[name].effect_class({}) for name in ("get", "add")]
        assert effects == [EffectClass.READ, EffectClass.UNSAFE]


async def test_what_goes_wrong_is_an_error_for_the_model(tmp_path: Path) -> None:
    async with running() as server:
        server.answers["/v1/orders/7"] = page("no such order", status="404 Not Found")
        server.answers["/v1/orders/8"] = redirect("http://169.254.169.254/latest")
        get = tools(tmp_path, server)["get"]
        for arguments, said in (
            ({"id": "7"}, "404 Not Found\nno such order"),
            ({"id": "8"}, "is not allowed"),
            ({"id": ".."}, "another path"),
            ({}, "was not called"),
        ):
            result = await get.call(arguments, context())
            assert result.is_error
            assert said in result.text
        assert len(server.requests) == 2


async def test_a_connection_that_breaks_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    async with running() as server:
        server.answers["/v1/orders/7"] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno"
        built = tools(tmp_path, server)
        assert (await built["add"].call({"id": "7"}, context())).is_unknown
        assert not (await built["get"].call({"id": "7"}, context())).is_unknown


def test_without_a_file_there_are_no_tools() -> None:
    assert build_api_tools(LocalApiBlock()) == {}
