"""Generator of docs/reference from the code: command line, HTTP routes, families, frames, records, errors, metrics.

It also keeps the parts of README.md and docs/COMPARISON.md that come from docs/features.yaml (features.py).

    python -m tests.lint.references            writes the pages
    python -m tests.lint.references --check    exits with 1 when one is stale, or when something has no sentence

Everything comes from what runs: the Typer application, the OpenAPI document, schemas/avro, the table of error codes and
the calls that make frames and metrics. Only frames and error codes get their sentence here (reference_texts.py), and
the generator fails when one is missing or left over.
"""

import ast
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
import typer.core

from loomlog.projections.frames.other_events import COMPACTION_FAILED
from loomlog.services.api.openapi import STATUS_TEXT, build_document
from loomlog.services.cli.main import app
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.families import Family, Reads
from loomlog.services.core.operation_input import describe_schema, field_schemas, required_fields
from loomlog.services.core.operations import AnyOperation
from loomlog.services.families.registry import ENVIRONMENT, all_families, operations_of
from tests.lint.features import feature_pages
from tests.lint.reference_texts import ERRORS, FRAMES

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "reference"
HEAD = "# {title}\n\nMade by `python -m tests.lint.references` from the code; do not edit by hand.\n"
FRAME_MODULES = ("projections/frames", "services/application/streaming")
METRIC_MODULES = ("services/runtime/telemetry/exposition.py", "services/api/metrics.py", "services/insights/report.py")
NAMED_FRAMES = {COMPACTION_FAILED, "cache_invalidated", "reasoning_invalidated", "model_downgraded"}
"""Frames whose type is not written as a constant where they are made."""
CONTENT_TYPES = {"trusted-text", "untrusted-block", "image"}
"""Types of blocks within a payload."""
OUR_NAMES = ("loomlog_", "loomcycle_")
METRIC_KINDS = {
    "_counter": "counter",
    "_counters": "counter",
    "_gauge": "gauge",
    "_gauges": "gauge",
    "_histogram": "histogram",
    "_histograms": "histogram",
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
}
RECORD_FOLDERS = {
    "run/commands": "Commands of runs (loom.run.commands)",
    "run/events": "Events of runs (loom.run.events)",
    "budget/commands": "Commands of budgets (loom.entity.commands)",
    "budget/events": "Events of budgets (loom.entity.events)",
    "entity/commands": "Commands of all families (loom.entity.commands)",
    "entity/events": "Events of all families (loom.entity.events)",
    "pause/commands": "Commands of pauses (loom.entity.commands)",
    "pause/events": "Events of pauses (loom.entity.events)",
    "hook/commands": "Commands of hooks (loom.entity.commands)",
    "hook/events": "Events of hooks (loom.entity.events)",
    "stream/events": "Events of partitions",
    "stream/records": "Records of other topics",
    "values": "Values within records",
}


class Incomplete(Exception):
    """Something in the code has no sentence, or a sentence is about nothing."""


def pages() -> dict[str, str]:
    """Return the text of every page by file name. Raises Incomplete."""
    if os.environ.get(ENVIRONMENT):
        raise Incomplete(f"unset {ENVIRONMENT}: the pages describe the families that every installation has")
    return {
        "CLI.md": "\n".join(_command_line()),
        "HTTP.md": "\n".join(_routes()),
        "FAMILIES.md": "\n".join(families_page(all_families())),
        "FRAMES.md": "\n".join(_frames()),
        "RECORDS.md": "\n".join(_records()),
        "ERRORS.md": "\n".join(_errors()),
        "METRICS.md": "\n".join(_metrics()),
    }


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or compare them; return the exit code."""
    stale = []
    for path, text in ({TARGET / name: text for name, text in pages().items()} | feature_pages()).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        sys.stderr.write(f"stale: {', '.join(stale)}; run python -m tests.lint.references\n")
        return 1
    return 0


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"
    yield ""


def _command_line() -> Iterator[str]:
    yield HEAD.format(title="Command line")
    yield "Exit codes, the same for every command, are in OPERATING.md. `--json` prints JSON.\n"
    yield from _command(typer.main.get_command(app), ("loomlog",))


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    if command.hidden:
        return
    if isinstance(command, typer.core.TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, (*path, name))
        return
    arguments = [(one.metavar or one.name.upper()) for one in command.params if one.param_type_name == "argument"]
    yield f"## {' '.join(path)}\n"
    yield f"    {' '.join([*path, *arguments, '[OPTIONS]'])}\n"
    yield f"{_cell(command.help or command.short_help or '')}\n"
    rows = [
        (
            " ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts)),
            str(getattr(one, "help", "") or ""),
            "" if one.default in (None, False, "", ()) or callable(one.default) else f"`{one.default}`",
        )
        for one in command.params
        if one.param_type_name == "option" and not one.hidden and one.name != "help"
    ]
    if rows:
        yield from _table(("option", "what", "default"), rows)


def _routes() -> Iterator[str]:
    document = build_document("0")
    yield HEAD.format(title="HTTP API")
    yield (
        "The whole contract, with every body and answer, is the OpenAPI document: `GET /v1/openapi.json`, as a page\n"
        "at `/v1/docs`. This is its list of routes. Error codes are in [ERRORS.md](ERRORS.md), frames of streams in\n"
        "[FRAMES.md](FRAMES.md).\n"
    )
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method == "parameters":
                continue
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            known = body.get("$ref", "").rpartition("/")[2]
            fields = ", ".join(document["components"]["schemas"].get(known, {}).get("properties", {}))
            query = ", ".join(one["name"] for one in operation.get("parameters", ()) if one.get("in") == "query")
            access = operation.get("description", "").removeprefix("Access: ").rstrip(".")
            rows.append((f"`{method.upper()} {path}`", operation["summary"], access, query, fields))
    yield from _table(("route", "what", "access", "query", "body"), rows)


def families_page(families: Sequence[Family[Any, Any, Any]]) -> Iterator[str]:
    """Yield the lines of the page of families: what each is, and its operations in every transport."""
    yield HEAD.format(title="Families")
    yield (
        "A family is a kind of aggregate; its declaration (services/families) makes all of this. An operation is\n"
        "asked for over HTTP, in the command line, and by agents that list the tool: `loomlog operations NAME` shows\n"
        "one with its fields and answer, `loomlog call NAME` calls it. The answer of a write names its position, and\n"
        "reads that are given it include the write.\n\n"
        "Refusals have the codes of [ERRORS.md](ERRORS.md); a code of the family itself is in `refusal` of a\n"
        "`command_invalid` (422: sent again, it is refused again) or `command_refused` (409: the state does not allow\n"
        "it). A quarantined aggregate answers `aggregate_quarantined`.\n"
    )
    for family in families:
        if operations := operations_of([family]):
            yield from _family(family, operations)


def _family(family: Family[Any, Any, Any], operations: Sequence[AnyOperation]) -> Iterator[str]:
    yield f"## {family.name}\n"
    yield f"{_cell(family.summary)}\n"
    source = "rows in Postgres" if family.reads is Reads.INDEXED else "the memory of every process"
    yield f"Reads are answered from {source}. Topics: `loom.{family.topics}.*`.\n"
    rows = [
        (
            f"`{operation.name}`",
            operation.summary,
            ", ".join(f"`{http.route}`" for http in operation.http),
            str(operation.access),
            f"`{operation.tool.tool}` op `{operation.tool.op}`" if operation.tool is not None else "",
        )
        for operation in operations
    ]
    yield from _table(("operation", "what", "HTTP", "access", "tool"), rows)
    for operation in operations:
        yield from _fields(operation)


def _fields(operation: AnyOperation) -> Iterator[str]:
    schemas, required = field_schemas(operation.input), required_fields(operation.input)
    if not schemas:
        return
    yield f"### {operation.name}\n"
    rows = [
        (f"`{name}`", describe_schema(schema), schema.get("description", ""), _default(name, schema, required))
        for name, schema in schemas.items()
    ]
    yield from _table(("field", "value", "what", "default"), rows)


def _default(name: str, schema: Mapping[str, Any], required: Collection[str]) -> str:
    if name in required:
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def frame_types() -> set[str]:
    """Return the types of all frames: the values of `type` in the dictionaries of the code, and those it names."""
    found = set(NAMED_FRAMES)
    for folder in FRAME_MODULES:
        for path in sorted((ROOT / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values, strict=True)
                    found |= {
                        value.value
                        for key, value in pairs
                        if isinstance(key, ast.Constant) and key.value == "type" and isinstance(value, ast.Constant)
                    }
    return found - CONTENT_TYPES


def _frames() -> Iterator[str]:
    _require_same("frame", frame_types(), set(FRAMES))
    yield HEAD.format(title="Frames of streams")
    yield (
        "A stream (`POST /v1/runs`, `GET /v1/runs/{id}/stream` and those of sessions and users) sends server-sent\n"
        "events: `event` is the type, `data` one line of JSON with the same `type`, `id` the position to resume after\n"
        "with `Last-Event-ID` (on `POST /v1/runs` only with `?ids=1`). Frames without an id are previews of a turn\n"
        "that is not in the log yet. A client ignores types that it does not know.\n"
    )
    yield from _table(("type", "when, and its fields"), sorted((f"`{name}`", text) for name, text in FRAMES.items()))


def _errors() -> Iterator[str]:
    _require_same("error code", set(STATUS_BY_CODE), set(ERRORS))
    yield HEAD.format(title="Error codes")
    yield (
        'Every refusal is JSON: `{"code": ..., "error": ..., "request_id": ...}`. `code` is one of these and stays;\n'
        "`error` is a sentence for people. Answers with 429 and 503 may be repeated, after `Retry-After` seconds\n"
        "where it is given, with the same `Idempotency-Key`.\n"
    )
    order = sorted(STATUS_BY_CODE.items(), key=lambda pair: (pair[1], pair[0]))
    yield from _table(("status", "code", "when"), [(str(status), f"`{code}`", ERRORS[code]) for code, status in order])
    yield "Statuses: " + ", ".join(f"{number} {_cell(text)}" for number, text in sorted(STATUS_TEXT.items())) + "\n"


def _records() -> Iterator[str]:
    yield HEAD.format(title="Records")
    yield (
        "Every record is Avro in Confluent framing; the schemas are in `schemas/avro`, the released versions in\n"
        "`schemas/released`. How to read and write them: [docs/examples](../examples/README.md).\n"
    )
    for folder, title in {**RECORD_FOLDERS, **_family_folders()}.items():
        yield f"## {title}\n"
        for path in sorted((ROOT / "schemas" / "avro" / folder).glob("*.avsc")):
            schema = json.loads(path.read_text(encoding="utf-8"))
            yield f"### {schema['name']}\n\n{_cell(schema.get('doc', ''))}\n"
            rows = [
                (f"`{one['name']}`", _avro_type(one["type"]), one.get("doc", "")) for one in schema.get("fields", ())
            ]
            if rows:
                yield from _table(("field", "type", "what"), rows)
            elif "symbols" in schema:
                yield ", ".join(f"`{symbol}`" for symbol in schema["symbols"]) + "\n"


def _family_folders() -> dict[str, str]:
    """Return the folders with the records of families that have topics in common, with their titles."""
    return {
        f"{family.name}/{kind}": f"{kind.capitalize()} of the family {family.name} (loom.{family.topics}.{kind})"
        for family in all_families()
        for kind in ("commands", "events")
        if f"{family.name}/{kind}" not in RECORD_FOLDERS and (ROOT / "schemas" / "avro" / family.name / kind).is_dir()
    }


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        names = [_avro_type(one) for one in kind if one != "null"]
        return " or ".join(names) + (" or null" if "null" in kind else "")
    if isinstance(kind, dict):
        if kind["type"] in ("array", "map"):
            return f"{kind['type']} of {_avro_type(kind.get('items', kind.get('values')))}"
        return str(kind.get("logicalType") or kind.get("name") or kind["type"])
    return str(kind).rpartition(".")[2]


def _metrics() -> Iterator[str]:
    yield HEAD.format(title="Metrics")
    yield (
        "In the Prometheus text format. The api serves `/metrics` (administrators); each runtime and insights serve\n"
        "it on a loopback port that their log names. Counters end in `_total` there. Labels are in parentheses.\n"
    )
    titles = {"telemetry": "A runtime", "api": "The api", "insights": "Insights"}
    for module in METRIC_MODULES:
        yield f"## {titles[Path(module).parent.name]}\n"
        rows = sorted({*_metrics_of(ROOT / module), *(_metrics_of_families() if "runtime" in module else ())})
        yield from _table(("name", "kind", "what"), rows)


def _metrics_of_families() -> Iterator[tuple[str, str, str]]:
    """Yield the metrics that the services of families have in a runtime (services/families/opening.py)."""
    for path in sorted((ROOT / "services/families").glob("*/services.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "OutcomeCounts":
                texts = {one.arg: _text(one.value, "") for one in call.keywords}
                yield f"`loomlog_{texts['name']}` (outcome)", "counter", texts["summary"]


def _metrics_of(path: Path) -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prefix = next(
        (ast.literal_eval(one.value) for one in tree.body if isinstance(one, ast.Assign) and _is_prefix(one)), "loomlog"
    )
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in METRIC_KINDS:
            continue
        words = [text for one in call.args if (text := _text(one, prefix))]
        if len(words) < 2:
            continue
        labels = [one for node in call.args if isinstance(node, ast.Tuple) for one in node.elts]
        names = ", ".join(str(label.value) for label in labels if isinstance(label, ast.Constant))
        name = words[0] if words[0].startswith(OUR_NAMES) else f"{prefix}_{words[0]}"
        yield f"`{name}`{f' ({names})' if names else ''}", METRIC_KINDS[call.func.id], words[1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pair = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if len(pair) == 2 and str(pair[0]).startswith(OUR_NAMES):
                yield f"`{pair[0]}`", "gauge", str(pair[1])


def _is_prefix(node: ast.Assign) -> bool:
    return ast.unparse(node.targets[0]) == "PREFIX"


def _text(node: ast.expr, prefix: str) -> str:
    """Return a text of the code, also one that begins with PREFIX; empty for anything else."""
    if isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith("f'{PREFIX}_"):
        return ast.unparse(node)[2:-1].replace("{PREFIX}", prefix)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _require_same(what: str, there: set[str], described: set[str]) -> None:
    if missing := there - described:
        raise Incomplete(f"no sentence in tests/lint/reference_texts.py for the {what} {', '.join(sorted(missing))}")
    if left_over := described - there:
        raise Incomplete(f"tests/lint/reference_texts.py describes no {what}: {', '.join(sorted(left_over))}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
