"""The OpenAPI document as a page: navigation, and for each operation a curl command, parameters and schemas.

Plain HTML without a script, because FastAPI's own pages load scripts from a foreign host.

Before: openapi.py. After: document_endpoints.py serves it.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

import orjson

from loomlog.services.api.openapi import DESCRIPTION, build_document, operation_tag, schema_name
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#1b1b1f;display:flex}
nav{width:19rem;height:100vh;overflow:auto;position:sticky;top:0;padding:1rem;box-sizing:border-box;background:#f3f3f6;
flex-shrink:0}
nav a{display:block;text-decoration:none;color:inherit;font-size:13px;padding:.1rem 0}
nav b{display:block;margin-top:.8rem}
main{padding:1rem 2rem;max-width:56rem;min-width:0}a{color:#2350c8}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f3f3f6;padding:.8rem;overflow:auto;border-radius:6px}
h2{margin:2.4rem 0 .2rem}h3{font-size:1rem;margin:1.8rem 0 .2rem}
.m{display:inline-block;min-width:3.6rem;font-weight:600}
td,th{text-align:left;padding:.15rem .9rem .15rem 0;vertical-align:top}.a{color:#666}
@media(max-width:48rem){body{display:block}nav{width:auto;height:auto;position:static}}
@media(prefers-color-scheme:dark){body{background:#16161a;color:#e6e6ea}pre,nav{background:#222228}a{color:#9db8ff}.a{color:#aaa}}
"""
ADDRESS = "http://127.0.0.1:8787"


def render_page(version: str, routes: Sequence[Route] = ROUTES) -> bytes:
    """The page, complete in itself."""
    document = build_document(version, routes)
    schemas = document["components"]["schemas"]
    tags = list(dict.fromkeys(map(operation_tag, routes)))
    ordered = sorted(routes, key=lambda route: tags.index(operation_tag(route)))
    groups = {tag: list(members) for tag, members in groupby(ordered, key=operation_tag)}
    texts = {tag["name"]: tag["description"] for tag in document["tags"]}
    links = "".join(
        f"<b>{escape(tag)}</b>"
        + "".join(
            f"<a href='#{route.operation_id}'><span class='m'>{route.method}</span>{escape(route.template)}</a>"
            for route in members
        )
        for tag, members in groups.items()
    )
    sections = "".join(
        f"<h2>{escape(tag)}</h2><p>{escape(texts[tag])}</p>"
        + "".join(
            _section(route, document["paths"][route.template][route.method.lower()], schemas) for route in members
        )
        for tag, members in groups.items()
    )
    definitions = "".join(
        f"<h3 id='{escape(name)}'>{escape(name)}</h3><pre>{_pretty(schema)}</pre>" for name, schema in schemas.items()
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>loomlog API</title>"
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>"
        f"<nav><strong>loomlog {escape(version)}</strong>{links}<b>Schemas</b>"
        + "".join(f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in schemas)
        + f"</nav><main><h1>loomlog API {escape(version)}</h1><p>{escape(DESCRIPTION)}</p>"
        f"<p>For machines: <a href='/v1/openapi.json'>/v1/openapi.json</a></p>{sections}"
        f"<h2>Schemas</h2>{definitions}</main></body></html>"
    ).encode()


def curl(route: Route, schemas: dict[str, Any]) -> str:
    """A command that calls the route, with an example of its body."""
    path = route.template.replace("{", "$").replace("}", "").upper() if "{" in route.template else route.template
    path = "/".join(part.upper() if part.startswith("$") else part.lower() for part in path.split("/"))
    words = ["curl"]
    if route.is_stream:
        words.append("-N")
    if route.method != "GET":
        words.append(f"-X {route.method}")
    words.append(f'"{ADDRESS}{path}"' if "$" in path else f"{ADDRESS}{path}")
    if not route.access.is_public:
        words.append('-H "Authorization: Bearer $TOKEN"')
    if route.takes_file:
        words.append("--data-binary @FILE")
    if route.body is not None:
        example = schemas[schema_name(route.body)]["examples"][0]
        words.append(f"--json '{orjson.dumps(example).decode()}'")
    return " \\\n  ".join(words)


def _section(route: Route, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(entry['name'])}</code></td><td>{entry['in']}</td>"
        f"<td>{escape(entry.get('description', ''))}</td></tr>"
        for entry in operation["parameters"]
    )
    answers = "".join(
        f"<tr><td>{status}</td><td>{_schema_links(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    body = "" if route.body is None else f"<p>Body: {_link(schema_name(route.body))}</p>"
    return (
        f"<h3 id='{operation['operationId']}'><code>{route.method} {escape(route.template)}</code></h3>"
        f"<p>{escape(route.summary)} <span class='a'>{escape(str(route.access))}</span></p>"
        f"<pre>{escape(curl(route, schemas))}</pre>{body}"
        + (f"<table>{rows}</table>" if rows else "")
        + f"<table>{answers}</table>"
    )


def _schema_links(answer: dict[str, Any]) -> str:
    """Links to the schemas of an answer."""
    if "$ref" in answer:
        return _link(f"Error{answer['$ref'].rpartition('/')[2]}")
    for media, content in answer.get("content", {}).items():
        schema = content["schema"]
        names = [entry["$ref"].rpartition("/")[2] for entry in schema.get("anyOf", [schema]) if "$ref" in entry]
        return " or ".join(map(_link, names)) or escape(media)
    return "no content"


def _link(name: str) -> str:
    return f"<a href='#{escape(name)}'>{escape(name)}</a>"


def _pretty(schema: Any) -> str:
    return escape(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())
