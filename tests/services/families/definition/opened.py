"""The family of definitions, opened as a process does it, and its operations called as authors call them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from loomlog.connectors.protocols import ToolContext
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.operations import Answer, AnyOperation, Call, OperationCaller, Origin
from loomlog.services.families.definition.api import OPERATIONS, TOOLS
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.services import DefinitionOptions, open_family
from loomlog.services.families.opening import FamilyContext
from loomlog.services.families.operation import plaintext
from loomlog.services.families.ports.run_sources import RunSources
from loomlog.services.runtime.tools.operation_tools import IsIsolated, OperationTool, build_operation_tools
from tests.services.entities import NOW_MS


async def find_no_run(tenant: str, run_id: str) -> None:
    return None


class Opened:
    """The family over replicas and entities of a test."""

    def __init__(
        self,
        replicas: Any,
        commands: Any,
        reads: Any,
        *,
        find_run: Any = find_no_run,
        ranges: Any = None,
        **options: Any,
    ) -> None:
        self.context = FamilyContext(
            parts=cast(Any, SimpleNamespace(replicas=replicas)),
            commands=commands,
            reads=reads,
            codec=cast(Any, None),
            blobs=MemoryBlobs(),
            decrypt=options.pop("decrypt", plaintext),
            clock_ms=lambda: NOW_MS,
        )
        sources = RunSources(find=find_run, ranges=ranges, events_topic="loom.run.events")
        self.context.provide(sources, DefinitionOptions(**options))
        self.handlers = open_family(self.context).handlers

    def get(self, kind: type[Any]) -> Any:
        return self.context.get(kind)

    async def ask(self, tool: str, op: str, author: Author, **fields: Any) -> Answer[Any]:
        """Return the answer to an operation of a tool; a null counts as absent."""
        return await self.carry_out(operation_of(tool, op), author, **fields)

    async def carry_out(self, operation: AnyOperation, author: Author, **fields: Any) -> Answer[Any]:
        return await self.handlers[operation](call_of(operation, author, fields))

    def tools(self, is_isolated: IsIsolated = lambda tenant, subject: False) -> dict[str, OperationTool]:
        return build_operation_tools(TOOLS, OPERATIONS, self.handlers, is_isolated=is_isolated, clock_ms=lambda: NOW_MS)


def operation_of(tool: str, op: str) -> AnyOperation:
    """The operation of a tool."""
    return next(one for one in OPERATIONS if one.tool is not None and (one.tool.tool, one.tool.op) == (tool, op))


def fields_of(answer: Answer[Any]) -> Mapping[str, Any]:
    """The answer as JSON has it."""
    fields: Mapping[str, Any] = msgspec.to_builtins(answer.value)
    return fields


def call_of(operation: AnyOperation, author: Author, fields: Mapping[str, Any]) -> Call[Any]:
    """The call whose author this is."""
    given = {name: value for name, value in fields.items() if value is not None}
    is_run = author.grants is not None
    return Call(
        input=parse_operation(operation, given),
        caller=OperationCaller(
            tenant=author.tenant,
            subject=author.subject,
            origin=Origin.AGENT if is_run else Origin.REQUEST,
            name=author.agent_id.removeprefix("a_http-"),
            user_id=author.subject if is_run else "",
            run=_run_of(author) if is_run else None,
            is_admin=author.is_admin,
            is_isolated=author.is_isolated,
            operator_key_restricted=author.operator_key_restricted,
        ),
        command_id=author.command_id,
        issued_at_ms=author.issued_at_ms,
    )


def _run_of(author: Author) -> ToolContext:
    return ToolContext(
        run_id=author.run_id,
        root_run_id=author.root_run_id,
        session_id="s_1",
        agent_id=author.agent_id,
        agent=author.agent,
        tenant=author.tenant,
        subject=author.subject,
        user_id=author.subject,
        user_tier="",
        provider="p",
        model="m",
        tools=(),
        grants=author.grants or {},
        operator_key_restricted=author.operator_key_restricted,
    )
