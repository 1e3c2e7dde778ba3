"""The tools of agents that are made of operations: `op` names one, the rest are its fields.

A write carries the call's idempotency key as its command id, which is the same for every attempt of the call: however
often the call is made, the operation is carried out once and its answer is the same. So its effect class is idempotent.
The positions of what it wrote go into the run's facts, and reads of later calls wait for them.

Providers refuse alternatives at the top of a schema (connectors/models/tool_schema.py), so the fields of all operations
are properties of one object, each with the names of its operations, and the call itself is checked strictly. A null
that no field requires is no mistake: several providers send every argument.

Before: services/runtime/effects.py. After: the handlers of a family.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.services.core.operation_input import (
    OP,
    field_schemas,
    find_operation,
    parse_operation,
    required_fields,
    unknown_field,
    without_null,
)
from loomlog.services.core.operations import (
    AnyOperation,
    Call,
    Effect,
    Handlers,
    OperationCaller,
    Origin,
    Tool,
    ToolOperation,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.core.tool_schemas import merged_fields
from loomlog.services.families.operation import RunAnswer
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S, call_operation, refused_result

IsIsolated = Callable[[str, str], bool]
"""Says of a tenant and a subject whether the subject is confined to what is its own."""


class ParsedCall(NamedTuple):
    """What a call asks for."""

    operation: AnyOperation
    of: ToolOperation
    input: Any


class OperationTool:
    """Protocol Tool over the operations that name it."""

    side_effect_class = "state"
    timeout_s: float = TIMEOUT_S

    def __init__(
        self,
        tool: Tool,
        operations: Iterable[AnyOperation],
        handlers: Handlers,
        *,
        is_isolated: IsIsolated,
        clock_ms: Callable[[], int],
    ) -> None:
        self.name = tool.name
        self.usage_hint = tool.usage_hint
        self.is_ordered = tool.is_ordered
        self._unknown_op_code = tool.unknown_op_code
        self._handlers = handlers
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms
        self._operations = {
            operation.tool.op: (operation, operation.tool)
            for operation in operations
            if operation.tool is not None and operation.tool.tool == tool.name
        }
        self.operations: Mapping[str, str] = {op: one.summary for op, (one, _) in self._operations.items()}
        """What each operation does."""
        self._fields = {op: tool_fields(operation, of) for op, (operation, of) in self._operations.items()}
        self._required = {op: required_fields(operation.input) for op, (operation, _) in self._operations.items()}
        self._names = {OP}.union(*self._fields.values())
        self.description = tool.description
        self.input_schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                OP: {"type": "string", "enum": list(self._operations), "description": "What to do."},
                **merged_fields(self._fields),
            },
            "required": [OP],
            "additionalProperties": False,
        }

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        row = self._operations.get(str(arguments.get(OP)))
        if row is None:
            return EffectClass.PURE  # refused
        return EffectClass.READ if row[0].effect is Effect.READ else EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            operation, of, asked = self.parse(arguments)
            call = Call(
                input=asked,
                caller=self._caller(context),
                command_id=context.idempotency_key,
                # An earlier attempt issued it at a time that is lost: 0 makes the owner look it up.
                issued_at_ms=self._clock_ms() if context.attempt == 1 else 0,
            )
        except Refused as refused:
            return refused_result(self.name, refused)

        async def ask() -> ToolResult:
            return to_tool_result(await self._handlers[operation](call), of)

        is_read = operation.effect is Effect.READ
        return await call_operation(self.name, ask, is_read=is_read, attempt=context.attempt)

    def parse(self, arguments: Mapping[str, Any]) -> ParsedCall:
        """Return what a call asks for. Raises Refused.

        Fields of the tool's other operations are left out: several providers send every property of the schema.
        """
        named = {op: operation for op, (operation, _) in self._operations.items()}
        operation = find_operation(arguments.get(OP), named, code=self._unknown_op_code)
        op = arguments[OP]
        of = self._operations[op][1]
        known, required = self._fields[op], self._required[op]
        if unknown := sorted(set(arguments) - self._names):
            code = operation.unknown_code or operation.invalid_code
            raise Refused(code, f"{op}: {unknown_field(unknown[0], tuple(known))}")
        fields = {
            name: value
            for name, value in arguments.items()
            if name in known and (value is not None or name in required)
        }
        return ParsedCall(operation, of, parse_operation(operation, fields))

    def _caller(self, context: ToolContext) -> OperationCaller:
        turn, _, index = context.idempotency_key.rpartition(":")[2].partition(".")
        return OperationCaller(
            tenant=context.tenant,
            subject=context.subject,
            origin=Origin.AGENT,
            user_id=context.user_id,
            run=context,
            turn=int(turn) if turn.isdigit() else 0,
            call=int(index) if index.isdigit() else 0,
            is_isolated=self._is_isolated(context.tenant, context.subject),
            is_for_isolated=self._is_isolated(context.tenant, context.user_id),
            positions=context.positions,
        )


def to_tool_result(answer: Any, of: ToolOperation) -> ToolResult:
    """Return the answer of an operation as the runtime takes it."""
    in_run = answer if isinstance(answer, RunAnswer) else None
    if in_run is not None and in_run.waiting is not None:
        return ToolResult(text="", waiting=in_run.waiting)
    value = answer.value if of.answer is None else of.answer(answer.value)
    return ToolResult(
        text=msgspec.json.encode(value).decode(),
        positions=answer.positions,
        channels=() if in_run is None else in_run.channels,
        leases=() if in_run is None else in_run.leases,
    )


def build_operation_tools(
    tools: Iterable[Tool],
    operations: Sequence[AnyOperation],
    handlers: Handlers,
    *,
    is_isolated: IsIsolated,
    clock_ms: Callable[[], int],
) -> dict[str, OperationTool]:
    """Return the tools by name."""
    return {
        tool.name: OperationTool(tool, operations, handlers, is_isolated=is_isolated, clock_ms=clock_ms)
        for tool in tools
    }


def tool_fields(operation: AnyOperation, of: ToolOperation) -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of the fields that an agent can give, by name."""
    required = required_fields(operation.input)
    return {
        name: schema if name in required else without_null(schema)
        for name, schema in field_schemas(operation.input).items()
        if name not in of.without
    }
