"""The tools of MCP: rows of the table of operations, some of them together as one tool with an `op`.

A tool is offered to a caller who may call it, or one of its operations: others are hidden, and refused when called all
the same, by the access that the declarations name (services/application/dispatch.py).

Fields of a scope default to the caller's own, because a person in an editor is a user and not an operator: the scope
`user` means the subject of the token, the scope `agent` the pseudo-agent of MCP.

Before: server.py. After: dispatch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.services.core.access.decide import Caller, may_call
from loomlog.services.core.operation_input import field_schemas, input_schema, required_fields, without_null
from loomlog.services.core.operations import AnyOperation, Effect, McpTool
from loomlog.services.core.tool_schemas import merged_fields

OPERATION = "op"
AGENT = "mcp-operator"
"""Agent whose scope is meant where a tool names the scope `agent` and no agent (parity: reference surfaces 3.2)."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a call asks for."""

    operation: AnyOperation
    fields: Mapping[str, Any]
    row: McpTool


class McpTools:
    """The tools by name."""

    def __init__(self, operations: Iterable[AnyOperation], descriptions: Mapping[str, str]) -> None:
        """`descriptions`: of the tools that are made of several operations, by name."""
        self._rows: dict[str, list[tuple[AnyOperation, McpTool]]] = {}
        for operation in operations:
            for row in mcp_rows(operation):
                self._rows.setdefault(row.tool, []).append((operation, row))
        self._shown = {name: _describe(name, rows, descriptions.get(name, "")) for name, rows in self._rows.items()}

    def list(self, caller: Caller) -> Sequence[Mapping[str, Any]]:
        """Return the tools that a caller may call, by name."""
        return [
            self._shown[name]
            for name, rows in sorted(self._rows.items())
            if any(may_call(caller, operation.access) for operation, _ in rows)
        ]

    def find(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Target | None:
        """Return what a call asks for; None when there is no such tool. Raises LookupError for an unknown `op`."""
        rows = self._rows.get(name)
        if rows is None:
            return None
        (operation, row), fields = rows[0], dict(arguments)
        if row.op:
            op = fields.pop(OPERATION, next((one.op for _, one in rows if one.is_default), None))
            by_op = {one.op: (declared, one) for declared, one in rows}
            if op not in by_op:
                raise LookupError(f"op: expected one of {', '.join(by_op)}, not {str(op)[:60]!r}")
            operation, row = by_op[op]
        named = {other: field for field, other in row.names.items()}
        known = _fields_of(operation, row)
        present = {
            named.get(key, key): value
            for key, value in fields.items()
            if value is not None or named.get(key, key) in required_fields(operation.input)
        }
        if row.has_own_tenant:
            present = {"tenant": caller.tenant, **present}
        return Target(operation, {**_own_scope(known, present, caller), **row.fixed}, row)


def mcp_rows(operation: AnyOperation) -> Sequence[McpTool]:
    """Return the tools that an operation is, or is part of: that of agents is one, with its name in lower case."""
    of = operation.tool
    if of is None or any(row.tool == of.tool.lower() for row in operation.mcp):
        return operation.mcp
    return (*operation.mcp, McpTool(tool=of.tool.lower(), op=of.op, without=("user_id",), answer=of.answer))


def _own_scope(known: Mapping[str, Any], fields: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """Return the fields with the id of the caller's own scope, where the operation takes one and none is named."""
    if "scope" in known and "scope_id" in known and not fields.get("scope_id"):
        own = {"user": caller.subject, "agent": AGENT}.get(str(fields.get("scope", "")))
        return fields | ({"scope_id": own} if own else {})
    return fields


def _fields_of(operation: AnyOperation, row: McpTool) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the fields that the tool takes, by their names in the tool."""
    hidden, required = {*row.without, *row.fixed}, required_fields(operation.input)
    return {
        row.names.get(name, name): schema if name in required else without_null(schema)
        for name, schema in field_schemas(operation.input).items()
        if name not in hidden
    }


def _describe(name: str, rows: Sequence[tuple[AnyOperation, McpTool]], description: str) -> dict[str, Any]:
    operation, row = rows[0]
    effects = {one.effect for one, _ in rows}
    if row.op:
        fields = {one.op: _fields_of(declared, one) for declared, one in rows}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                OPERATION: {"type": "string", "enum": list(fields), "description": "What to do."},
                **merged_fields(fields),
            },
            **({} if any(one.is_default for _, one in rows) else {"required": [OPERATION]}),
        }
    else:
        whole = input_schema(operation.input)
        required = [row.names.get(one, one) for one in whole.get("required", ()) if one not in row.fixed]
        schema = {
            **{word: value for word, value in whole.items() if word in ("$defs", "anyOf")},
            "type": "object",
            "properties": _fields_of(operation, row),
            **({"required": required} if required else {}),
        }
    return {
        "name": name,
        "description": description or operation.summary,
        "inputSchema": schema,
        "annotations": {
            "readOnlyHint": effects == {Effect.READ},
            "idempotentHint": True,
            "destructiveHint": effects != {Effect.READ} and name.startswith(("delete", "erasure", "unregister")),
        },
    }
