"""Whether bytes written with one version of a schema can be read with another, and mean the same.

Two ways of looking, because each sees what the other does not: sample records really go through Avro's schema
resolution, once as full and once as empty as the old schema allows; and fields are compared one by one, because a
removed field or another default reads without an error and is a loss all the same.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

Json = Any
SAMPLES: dict[str, Any] = {
    "string": "text",
    "long": 2**40,
    "int": 7,
    "boolean": True,
    "double": 0.5,
    "bytes": b"\0\xff",
    "null": None,
}


def problems(old: Json, new: Json) -> list[str]:
    """Why `new` must not follow `old`; empty when it may."""
    result = list(_losses(old, new))
    for full in (True, False):
        value = sample(old, full=full)
        try:
            read = _read(old, new, value)
        except Exception as error:  # noqa: BLE001 - whatever fastavro raises is what is asked for here
            result.append(f"{'full' if full else 'empty'} record: {type(error).__name__}: {error}")
            continue
        result += [
            f"{name}: {value[name]!r} was written and {read.get(name)!r} is read"
            for name in value
            if name in read and read[name] != value[name] and not isinstance(value[name], dict | list)
        ]
    return result


def sample(schema: Json, *, full: bool) -> Any:
    """A value of the schema: everything given, or as empty as it allows."""
    return _sample(schema, _named(schema), full)


def _read(old: Json, new: Json, value: Any) -> Any:
    source = BytesIO()
    written = parse_schema(old, named_schemas={})
    schemaless_writer(source, written, value)
    source.seek(0)
    return schemaless_reader(source, written, parse_schema(new, named_schemas={}))


def _losses(old: Json, new: Json) -> Iterator[str]:
    before, after = _named(old), _named(new)
    for name, record in before.items():
        if name not in after:
            yield f"{name} is gone"
            continue
        if "fields" not in record:
            continue
        fields = {field["name"]: field for field in after[name]["fields"]}
        for field in record["fields"]:
            now = fields.get(field["name"])
            if now is None:
                yield f"{name}.{field['name']} is gone"
            elif "default" in field and ("default" not in now or now["default"] != field["default"]):
                yield f"{name}.{field['name']} has another default, which changes what older records say"


def _named(schema: Json) -> dict[str, Json]:
    """Every named type inside, by full name. Schemas here write namespaces out or inherit them from the record."""
    jsons: dict[str, Json] = {}

    def walk(node: Json, namespace: str) -> None:
        if isinstance(node, list):
            for branch in node:
                walk(branch, namespace)
        elif isinstance(node, dict):
            namespace = node.get("namespace", namespace)
            if node["type"] in ("record", "fixed"):
                jsons[f"{namespace}.{node['name']}"] = node
            for field in node.get("fields", ()):
                walk(field["type"], namespace)
            for inner in ("items", "values"):
                if inner in node:
                    walk(node[inner], namespace)

    walk(schema, "")
    return jsons


def _sample(schema: Json, named: dict[str, Json], full: bool) -> Any:
    if isinstance(schema, str):
        return SAMPLES[schema] if schema in SAMPLES else _sample(named[schema], named, full)
    if isinstance(schema, list):
        return _sample(schema[1 if full else 0], named, full)
    match schema["type"]:
        case "record":
            return {field["name"]: _sample(field["type"], named, full) for field in schema["fields"]}
        case "array":
            return [_sample(schema["items"], named, full)] if full else []
        case "map":
            return {"key": _sample(schema["values"], named, full)} if full else {}
        case "fixed":
            return b"\1" * int(schema["size"])
        case other:
            return _sample(other, named, full)
