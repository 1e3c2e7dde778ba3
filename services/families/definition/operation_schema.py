"""The JSON schema of the operations of a kind: one for the bodies of requests and the inputs of tool calls.

Before: services/api/definition_routes.py, services/runtime/tools/definition_tools.py. After: operations.py.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.definitions import Kind
from loomlog.services.families.definition.operations import FIELDS, operations_of

TEXT = {"type": "string"}
OBJECT = {"type": "object"}
FIELD_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "name": {**TEXT, "description": "Name of the definition."},
    "overlay": {**OBJECT, "description": "Keys of the definition; a fork keeps those that are absent."},
    "description": {**TEXT, "description": "Why this version is made."},
    "promote": {"type": "boolean", "description": "Whether the version becomes the active one."},
    "expect_active": {**TEXT, "description": "Refuse unless this version is active; empty: unless none is."},
    "expires_at": {**TEXT, "description": "When the version is retired by itself, RFC 3339."},
    "parent_def_id": {**TEXT, "description": "Version to fork; absent: the active one, or the file's."},
    "def_id": {**TEXT, "description": "Id of a version."},
    "retired": {"type": "boolean", "description": "True retires the version, false restores it."},
    "why": {**TEXT, "description": "Reason, for people."},
    "content_sha256": {**TEXT, "description": "Content hash to compare with the active version's."},
    "format": {**TEXT, "enum": ["mermaid"], "description": "Form of the drawing."},
    "hook": {**OBJECT, "description": "What happens when a run has ended, as in on_complete."},
    "hook_index": {"type": "integer", "minimum": 0, "description": "Place of a hook in on_complete, from 0."},
    "highlight_state": {**TEXT, "description": "State to highlight."},
}


def operation_schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON schema of the operations of a kind."""
    operations = operations_of(kind)
    fields = {name for op in operations for name in FIELDS[op]}
    properties = {
        "op": {**TEXT, "enum": list(operations), "description": "What to do."},
        **{name: schema for name, schema in FIELD_SCHEMAS.items() if name in fields},
    }
    return {"type": "object", "properties": properties, "required": ["op"]}
