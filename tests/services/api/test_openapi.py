import re
from pathlib import Path

import orjson

from loomlog.services.api.app import build_app
from loomlog.services.api.openapi import build_document, encode_document, render_page
from loomlog.services.api.route import Access
from loomlog.services.api.routes import ROUTES
from tests.services.api.serving import Wire, service_of


def test_every_route_is_in_the_document_with_its_access() -> None:
    actual = build_document("1.2.3")
    assert actual["openapi"].startswith("3.1")
    for route in ROUTES:
        operation = actual["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == (route.access is not Access.PUBLIC)
        assert "default" in operation["responses"]
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", route.path))


def test_every_reference_leads_somewhere() -> None:
    actual = build_document("1.2.3")
    text = orjson.dumps(actual).decode()
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in actual["components"]["schemas"]


def test_streams_say_what_a_client_that_comes_back_has_to_drop() -> None:
    parameters = build_document("1.2.3")["paths"]["/v1/runs/{run_id}/stream"]["get"]["parameters"]
    (header,) = [parameter for parameter in parameters if parameter["name"] == "Last-Event-ID"]
    assert "without an id" in header["description"]


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
        assert f"{route.method} {route.path}" in text


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
