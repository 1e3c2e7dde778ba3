"""Generate the Python classes of the Avro schemas, the schema-id lock and the released copies.

`python -m loomlog.schemas.generate` after an edit under avro/; `--check` (in make check) fails when something is stale;
`--release` freezes every current version, after which an edit makes a new version with a new id.

One .avsc file holds one record and is the single source. For each namespace one module of frozen Structs is written
(schemas/records.py). An event's `envelope` is left out of its class: the core decides events without knowing term, seq
or hash, and the codec joins both again. Released versions are append-only: a reader must understand every id ever
written.

Every field with text has a class, the property `text`: the check fails for one without.

    content   what users, models and tools say: encrypted with the key of a subject (services/stream/encryption). A list
              of names under `CONTENT` of the class; `untrusted` and `within` say how
    name      what people choose as a name, and reasons they give: readable, also after an erasure
    code      ids, hashes, words of the program, texts of the configuration

Not chosen: reading the schemas at run time and building classes dynamically (mypy would see nothing).
"""

import argparse
import hashlib
import json
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

HERE = Path(__file__).parent
AVRO = HERE / "avro"
RELEASED = HERE / "released"
LOCK = HERE / "ids.json"
HEADER = "# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.\n"

Json = Any
PRIMITIVES = {"string": "str", "long": "int", "int": "int", "boolean": "bool", "double": "float", "bytes": "bytes"}
ENVELOPE = "loom.values.Envelope"
FIRST_ID = 1
TEXT_CLASSES = ("content", "name", "code")
WITHIN = ("hook",)
"""JSON texts of which only parts are content (services/stream/encryption/content_fields.py)."""
FIELD_NOTES = frozenset({"text", "within", "untrusted"})
"""Properties of fields that are ours: they say nothing about bytes, and the released copies lack them."""
LINE_LENGTH = 120
"""Maximum characters of a generated line, without its end."""


def import_text(module: str, names: list[str]) -> str:
    """Return the import statement, on one line when it fits."""
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"


def module_of(namespace: str) -> str:
    """Return the module of a namespace's records: loom.run.events is in run_events."""
    return namespace.removeprefix("loom.").replace(".", "_")


def load_schemas() -> dict[str, Json]:
    """Return every record by full name, in the order of their paths."""
    records: dict[str, Json] = {}
    for path in sorted(AVRO.rglob("*.avsc")):
        schema = json.loads(path.read_text())
        name = f"{schema['namespace']}.{schema['name']}"
        if path.stem != schema["name"]:
            raise SystemExit(f"{path}: holds the record {schema['name']}, so it must be called {schema['name']}.avsc")
        records[name] = schema
    return records


def expand(schema: Json, records: dict[str, Json], seen: set[str]) -> Json:
    """Return the schema with every named type written out where it first occurs, so that it is self-contained."""
    if isinstance(schema, str):
        if schema in PRIMITIVES or schema == "null" or schema in seen:
            return schema
        seen.add(schema)
        return expand(records[schema], records, seen) if schema in records else _unknown(schema)
    if isinstance(schema, list):
        return [expand(s, records, seen) for s in schema]
    if schema["type"] == "record":
        seen.add(f"{schema['namespace']}.{schema['name']}")
        fields = []
        for field in schema["fields"]:
            kept = {name: value for name, value in field.items() if name not in FIELD_NOTES}
            fields.append({**kept, "type": expand(field["type"], records, seen)})
        return {**schema, "fields": fields}
    if schema["type"] == "array":
        return {**schema, "items": expand(schema["items"], records, seen)}
    return schema


def _unknown(name: str) -> Json:
    raise SystemExit(f"schemas/avro: unknown type {name!r}; write it in full, for example loom.values.Usage")


def strip_docs(schema: Json) -> Json:
    """Return the part of a schema that determines the bytes: everything but documentation."""
    if isinstance(schema, dict):
        return {k: strip_docs(v) for k, v in schema.items() if k != "doc"}
    if isinstance(schema, list):
        return [strip_docs(s) for s in schema]
    return schema


def fingerprint(schema: Json) -> str:
    return hashlib.sha256(json.dumps(strip_docs(schema), sort_keys=True).encode()).hexdigest()


# --- classes of text -------------------------------------------------------------------------------------------------


def has_text(kind: Json) -> bool:
    """Whether a type holds text itself, not in a record of its own."""
    if isinstance(kind, list):
        return any(map(has_text, kind))
    if isinstance(kind, dict):
        return bool(kind["type"] == "map" or (kind["type"] == "array" and has_text(kind["items"])))
    return bool(kind == "string")


def text_problems(records: dict[str, Json]) -> list[str]:
    """Return what is wrong with the classes of texts; empty when each text has one."""
    problems = []
    for name, schema in records.items():
        for field in schema["fields"]:
            text_class, place = field.get("text"), f"{name}.{field['name']}"
            if has_text(field["type"]) and text_class not in TEXT_CLASSES:
                problems.append(f'{place}: a text needs "text": one of {", ".join(TEXT_CLASSES)}')
            elif not has_text(field["type"]) and text_class is not None:
                problems.append(f'{place}: holds no text, so "text" has no meaning')
            if text_class != "content" and ("within" in field or "untrusted" in field):
                problems.append(f'{place}: "within" and "untrusted" are for content')
            if field.get("within", WITHIN[0]) not in WITHIN:
                problems.append(f'{place}: "within" must be one of {", ".join(WITHIN)}')
    return problems


def content_text(schema: Json) -> str:
    """Return the line that lists the content of a record; empty when it has none."""
    names = {
        field["name"]: field.get("within") or ("untrusted" if field.get("untrusted") else "text")
        for field in schema["fields"]
        if field.get("text") == "content"
    }
    if not names:
        return ""
    items = ", ".join(f'"{name}": "{form}"' for name, form in names.items())
    line = f"    CONTENT: ClassVar[Mapping[str, str]] = {{{items}}}"
    if len(line) <= LINE_LENGTH:
        return line
    rows = "".join(f'        "{name}": "{form}",\n' for name, form in names.items())
    return f"    CONTENT: ClassVar[Mapping[str, str]] = {{\n{rows}    }}"


# --- Python text -----------------------------------------------------------------------------------------------------


def python_type(schema: Json, imports: set[str]) -> str:
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        imports.add(schema)
        return schema.rsplit(".", 1)[1]
    if isinstance(schema, list):
        return f"{python_type(schema[1], imports)} | None"
    match schema["type"]:
        case "array":
            return f"tuple[{python_type(schema['items'], imports)}, ...]"
        case "map":
            return f"Mapping[str, {python_type(schema['values'], imports)}]"
        case "fixed":
            return "bytes"
        case _:
            return python_type(schema["type"], imports)


def default_text(field: Json) -> str:
    if "default" not in field:
        return ""
    value, kind = field["default"], field["type"]
    if isinstance(kind, dict) and kind["type"] == "map":
        return " = field(default_factory=dict)"
    if isinstance(kind, dict) and kind["type"] == "array":
        return " = ()"
    if is_record(kind):
        return f" = {kind.rsplit('.', 1)[1]}()"
    if kind == "bytes":
        return f" = {value.encode('latin-1')!r}"  # Avro writes the default of bytes as code points up to 255
    return f" = {value!r}"


def is_record(schema: Json) -> bool:
    return isinstance(schema, str) and schema not in PRIMITIVES


def order_text(schema: Json, names: list[str]) -> str:
    """Return the lines with the order of the schema's fields; empty when that of the class is the same."""
    in_order = [field["name"] for field in schema["fields"] if field["type"] != ENVELOPE]
    if in_order == names:
        return ""
    items = ", ".join(f'"{name}"' for name in in_order)
    rows = textwrap.fill(items, LINE_LENGTH, initial_indent="        ", subsequent_indent="        ")
    return f"    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (\n{rows},\n    )"


def docstring_lines(text: str) -> list[str]:
    """Return the lines of a docstring, wrapped to the line length."""
    lines = textwrap.wrap(text.replace('"', "'"), width=108)
    if len(lines) == 1:
        return [f'    """{lines[0]}"""']
    return [f'    """{lines[0]}', *(f"    {line}" for line in lines[1:]), '    """']


def class_text(schema: Json, imports: set[str]) -> str:
    fields = [f for f in schema["fields"] if f["type"] != ENVELOPE]
    required_last = sorted(fields, key=lambda f: "default" in f)
    lines = [f"class {schema['name']}(Record, frozen=True, kw_only=True):"]
    lines += [*docstring_lines(schema["doc"]), ""]
    lines.append(f'    SCHEMA: ClassVar[str] = "{schema["namespace"]}.{schema["name"]}"')
    lines += filter(None, [order_text(schema, [field["name"] for field in required_last]), content_text(schema)])
    lines.append("")
    for field in required_last:
        lines.append(f"    {field['name']}: {python_type(field['type'], imports)}{default_text(field)}")
        lines += docstring_lines(field["doc"])
    lines.append("")
    return "\n".join(lines)


def dependencies(schema: Json) -> set[str]:
    names: set[str] = set()

    def walk(node: Json) -> None:
        if isinstance(node, str):
            if node not in PRIMITIVES and node != "null":
                names.add(node)
        elif isinstance(node, list):
            for item in node:
                walk(item)
        elif node["type"] == "record":
            for field in node["fields"]:
                walk(field["type"])
        elif node["type"] == "array":
            walk(node["items"])

    walk(schema)
    return names


def dependency_order(names: list[str], records: dict[str, Json]) -> list[str]:
    """Return the names sorted so that each record comes after its dependencies."""
    done: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        for need in sorted(dependencies(records[name]) & set(names) - {name}):
            visit(need)
        done.append(name)

    for name in names:
        visit(name)
    return done


def module_texts(records: dict[str, Json]) -> dict[Path, str]:
    """Return the text of every generated module by path."""
    by_namespace: dict[str, list[str]] = {}
    for name, schema in records.items():
        by_namespace.setdefault(schema["namespace"], []).append(name)
    texts: dict[Path, str] = {}
    for namespace, names in by_namespace.items():
        imports: set[str] = set()
        classes = [class_text(records[name], imports) for name in dependency_order(names, records)]
        foreign = {"records": ["Record"]}
        for name in sorted(imports):
            if records[name]["namespace"] != namespace:
                module = f"generated.{module_of(records[name]['namespace'])}"
                foreign.setdefault(module, []).append(name.rsplit(".", 1)[1])
        body = "\n\n".join(classes)
        mapping = "from collections.abc import Mapping\n" if "Mapping[" in body else ""
        field_import = "from msgspec import field\n\n" if "field(default_factory" in body else ""
        head = [f'"""Records of the namespace {namespace}."""\n\n', HEADER, "\n", mapping]
        head += ["from typing import ClassVar\n", "\n", field_import]
        in_order = ((module, sorted(types, key=str.lower)) for module, types in sorted(foreign.items()))
        head += [import_text(f"loomlog.schemas.{module}", types) for module, types in in_order]
        text = "".join(head) + "\n\n" + body
        names_tuple = "".join(f"    {records[n]['name']},\n" for n in sorted(names))
        union = " | ".join(records[n]["name"] for n in sorted(names))
        text += f"\n\nRECORDS = (\n{names_tuple})\n"
        if namespace.endswith((".commands", ".events")):
            kind = "Command" if namespace.endswith(".commands") else "Event"
            text += f"{kind} = {union}\n"
        texts[HERE / "generated" / f"{module_of(namespace)}.py"] = text
    return texts


# --- the lock --------------------------------------------------------------------------------------------------------


def update_lock(records: dict[str, Json], lock: dict[str, Json]) -> tuple[dict[str, Json], dict[Path, str]]:
    """Return the updated lock and released copies. An open version follows its schema, a released one never changes."""
    result = deduplicate_ids({name: [dict(v) for v in versions] for name, versions in lock.items()})
    next_id = max((v["id"] for versions in lock.values() for v in versions), default=FIRST_ID - 1) + 1
    copies: dict[Path, str] = {}
    for name in sorted(records):
        if records[name]["namespace"] == "loom.values":
            continue
        full = expand(records[name], records, set())
        mark = fingerprint(full)
        versions = result.setdefault(name, [])
        if not versions or (versions[-1]["sha256"] != mark and versions[-1]["released"]):
            versions.append({"version": len(versions) + 1, "id": next_id, "sha256": mark, "released": False})
            next_id += 1
        versions[-1]["sha256"] = mark if not versions[-1]["released"] else versions[-1]["sha256"]
        path = RELEASED / name / f"{versions[-1]['version']}.avsc"
        if not versions[-1]["released"] or not path.exists():
            copies[path] = json.dumps(full, indent=1, ensure_ascii=False) + "\n"
    return result, copies


def deduplicate_ids(lock: dict[str, Json]) -> dict[str, Json]:
    """Return the lock with unique ids: two branches that each added a record may have taken the same next number.

    The open version gets a new id. Raises SystemExit when two released ones have the same id, which cannot be repaired.
    """
    next_id = max((v["id"] for versions in lock.values() for v in versions), default=FIRST_ID - 1) + 1
    taken: dict[int, str] = {}
    entries = [(name, version) for name, versions in lock.items() for version in versions]
    for name, version in sorted(entries, key=lambda item: (not item[1]["released"], item[0], item[1]["version"])):
        if version["id"] in taken:
            if version["released"]:
                raise SystemExit(
                    f"ids.json: {taken[version['id']]} and {name} are both released under id {version['id']}"
                )
            version["id"] = next_id
            next_id += 1
        taken[version["id"]] = name
    return lock


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    parser.add_argument("--release", action="store_true", help="freeze every current version")
    options = parser.parse_args(arguments)
    records = load_schemas()
    if problems := text_problems(records):
        print("\n".join(f"schemas/avro: {problem}" for problem in problems), file=sys.stderr)
        return 1
    lock = cast("dict[str, Json]", json.loads(LOCK.read_text())) if LOCK.exists() else {}
    new_lock, copies = update_lock(records, lock)
    if options.release:
        for versions in new_lock.values():
            versions[-1]["released"] = True
    files = {**module_texts(records), **copies, LOCK: json.dumps(new_lock, indent=1, sort_keys=True) + "\n"}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if options.check:
        for path in stale:
            print(f"stale: schemas/{path.relative_to(HERE)}; run `make schemas`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        print(f"wrote schemas/{path.relative_to(HERE)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
