"""The Memory tool of agents: one `op` and its fields, for entries, search, SQL and consolidation.

A write carries the call's idempotency key as its command id, so however often the call is made, it has its effect once.
Calls of one turn take effect in the order in which the model made them.

Before: services/runtime/memory_setup.py. After: services/families/memory/operations.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import structs

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.generated.values import AgentDefinition, CoreBlock
from loomlog.services.families.memory.author import Author, Grants
from loomlog.services.families.memory.operations import OP_HELP, READS, MemoryOperations, input_schema
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S, call_operation

NAME = "Memory"
OPERATION = "op"


class MemoryTool:
    """Protocol Tool."""

    name = NAME
    side_effect_class = "state"
    usage_hint = "what is set is there in later runs"
    timeout_s: float = TIMEOUT_S
    is_ordered = True
    """Calls of one turn are made one after the other (call_order.py)."""
    description = f"Memory that outlives the run, in the scopes that the agent may use: agent, user, tenant. {OP_HELP}"
    input_schema: Mapping[str, Any] = {**input_schema(), "additionalProperties": False}

    def __init__(
        self,
        operations: MemoryOperations,
        *,
        is_isolated: Callable[[str, str], bool] = lambda tenant, subject: False,
        clock_ms: Callable[[], int],
    ) -> None:
        """`is_isolated` tells whether a subject of a tenant is confined to its own memory."""
        self._operations = operations
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ if arguments.get(OPERATION) in READS else EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        author = self._author(context)

        async def ask() -> ToolResult:
            reply = await self._operations.run(arguments, author)
            return ToolResult(text=orjson.dumps(reply.fields).decode(), positions=reply.positions)

        is_read = arguments.get(OPERATION) in READS
        return await call_operation(NAME, ask, is_read=is_read, attempt=context.attempt)

    def _author(self, context: ToolContext) -> Author:
        turn, _, call = context.idempotency_key.rpartition(":")[2].partition(".")
        return Author(
            tenant=context.tenant,
            subject=context.subject,
            command_id=context.idempotency_key,
            # An earlier attempt issued it at a time that is lost: 0 makes the owner look it up.
            issued_at_ms=self._clock_ms() if context.attempt == 1 else 0,
            user_id=context.user_id,
            agent=context.agent,
            run_id=context.run_id,
            root_run_id=context.root_run_id,
            session_id=context.session_id,
            turn=int(turn) if turn.isdigit() else 0,
            call=int(call) if call.isdigit() else 0,
            grants=grants_of(context.grants, is_of_file=not context.agent_def_id),
            is_isolated=self._is_isolated(context.tenant, context.subject),
            positions=context.positions,
        )


def grants_of_run(definition: AgentDefinition) -> Grants:
    """Return what the definition that a run is pinned to allows."""
    fields = {} if definition.grants is None else structs.asdict(definition.grants)
    return grants_of(fields, is_of_file=definition.pin is None)


def grants_of(fields: Mapping[str, Any], *, is_of_file: bool) -> Grants:
    """Return what the fields of values.AgentGrants allow. `is_of_file`: a configuration file says so."""
    return Grants(
        memory_scopes=tuple(fields.get("memory_scopes") or ()),
        sql_scopes=tuple(fields.get("sql_scopes") or ()),
        memory_quota_bytes=fields.get("memory_quota_bytes") or 0,
        sql_quota_bytes=fields.get("sql_quota_bytes") or 0,
        memory_backend=fields.get("memory_backend") or "",
        memory_consolidation=bool(fields.get("memory_consolidation")),
        core_blocks=tuple(_block(one) for one in fields.get("core_blocks") or ()),
        is_of_file=is_of_file,
    )


def _block(block: CoreBlock | Mapping[str, Any]) -> Mapping[str, Any]:
    return structs.asdict(block) if isinstance(block, CoreBlock) else block
