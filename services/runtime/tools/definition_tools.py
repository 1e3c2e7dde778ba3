"""The tools of agents that write definitions: AgentDef, SkillDef and the others, with the bodies of the HTTP routes.

A write carries the call's idempotency key as its command id, so however often the call is made, one version is made.

Before: services/runtime/main.py. After: services/families/definition/operations.py.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from loomlog.connectors.definitions import KINDS, Kind
from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.connectors.tools.skill_patterns import parse_patterns
from loomlog.services.families.definition.author import Author, RunDefinition
from loomlog.services.families.definition.operation_schema import operation_schema
from loomlog.services.families.definition.operations import READS, DefinitionOperations, Reply
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S, call_operation

OPERATION = "op"
IsIsolated = Callable[[str, str], bool]
"""Says of a tenant and a subject whether the subject is confined to what is its own."""


class DefinitionTool:
    """The tool of one kind (protocol Tool)."""

    side_effect_class = "state"
    timeout_s: float = TIMEOUT_S

    def __init__(
        self,
        kind: Kind,
        operations: DefinitionOperations,
        *,
        clock_ms: Callable[[], int],
        is_isolated: IsIsolated,
    ) -> None:
        self.name = kind.tool
        self._kind = kind
        self._operations = operations
        self._clock_ms = clock_ms
        self._is_isolated = is_isolated
        self.description = (
            f"Defines what other runs use: versions of a definition of the kind {kind.name}. op create makes one and "
            "promotes it; fork makes one from an earlier version; promote, rollback and retire decide which one new "
            "runs use; get and list read."
        )
        self.usage_hint = "create, fork and promote versions; runs under way keep theirs"
        self.input_schema: Mapping[str, Any] = {**operation_schema(kind), "additionalProperties": False}

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ if arguments.get(OPERATION) in READS else EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        author = author_of(context, issued_at_ms=self._clock_ms(), is_isolated=self._is_isolated)
        return await definition_result(
            self.name,
            context,
            lambda: self._operations.run(self._kind, arguments, author),
            is_read=arguments.get(OPERATION) in READS,
        )


def author_of(context: ToolContext, *, issued_at_ms: int, is_isolated: IsIsolated) -> Author:
    """Return the run of a call as an author."""
    patterns = parse_patterns(tuple(context.grants.get("skills") or ()))
    return Author(
        tenant=context.tenant,
        subject=context.user_id or context.subject,
        command_id=context.idempotency_key,
        # An earlier attempt issued it at a time that is lost: 0 makes the owner look it up.
        issued_at_ms=issued_at_ms if context.attempt == 1 else 0,
        agent_id=context.agent_id,
        agent=context.agent,
        run_id=context.run_id,
        root_run_id=context.root_run_id,
        definition=RunDefinition(
            def_id=context.agent_def_id,
            tools=context.tool_grants,
            hosts=context.allowed_hosts,
            has_narrowed_hosts=context.hosts_source == "caller",
            user_tier=context.user_tier,
            user_id=context.user_id,
        ),
        grants=context.grants,
        allows_skill=patterns.allows,
        operator_key_restricted=context.operator_key_restricted,
        is_isolated=any(is_isolated(context.tenant, one) for one in (context.user_id, context.subject)),
    )


async def definition_result(
    tool: str, context: ToolContext, ask: Callable[[], Awaitable[Reply]], *, is_read: bool
) -> ToolResult:
    """Return the result of an operation; refusals are errors that the model reads."""

    async def answer() -> ToolResult:
        reply = await ask()
        positions = (reply.position,) if reply.position else ()
        return ToolResult(text=orjson.dumps(reply.fields).decode(), positions=positions)

    return await call_operation(tool, answer, is_read=is_read, attempt=context.attempt)


def build_definition_tools(
    operations: DefinitionOperations,
    *,
    clock_ms: Callable[[], int],
    is_isolated: IsIsolated,
) -> dict[str, Tool]:
    """Return the tools of all versioned kinds by name."""
    return {
        kind.tool: DefinitionTool(kind, operations, clock_ms=clock_ms, is_isolated=is_isolated)
        for kind in KINDS.values()
    }
