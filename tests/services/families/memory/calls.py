"""Calls of agents to the tool Memory, by author: the strict parser of the tool, then the handlers of its families."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs, to_builtins

from loomlog.services.core.operations import Answer, Call, Handlers, OperationCaller, Origin
from loomlog.services.families.consolidation.handlers import ConsolidationHandlers
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.database.handlers import DatabaseHandlers
from loomlog.services.families.database.services import DatabaseOptions, DatabaseServices
from loomlog.services.families.memory.api import TOOL
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.backends import Backends
from loomlog.services.families.memory.entry_operations import EntryOperations
from loomlog.services.families.memory.handlers import MemoryHandlers
from loomlog.services.families.registry import all_operations
from loomlog.services.runtime.tools.operation_tools import IsIsolated, OperationTool, ParsedCall
from tests.services.families.channel.tool import nobody

Clock = Callable[[], int]
METHODS = {
    "sql_query": "query",
    "sql_exec": "exec",
    "sql_begin": "begin",
    "sql_commit": "commit",
    "sql_rollback": "roll_back",
    "cursor_get": "get_cursor",
    "cursor_lease": "lease",
    "cursor_advance": "advance",
    "cursor_release": "release",
}
"""Methods of parts by op, where they are called otherwise."""
WITHOUT_FIELDS = frozenset({"sql_begin", "sql_commit", "sql_rollback", "cursor_get"})
NOTHING: Any = None
"""Stands for what no call of a test reaches."""


class AgentRun:
    """The run of an author (protocol CallingRun)."""

    agent_id = "a_1"
    tool_grants = allowed_hosts = ()
    hosts_source = user_tier = ""
    operator_key_restricted = False

    def __init__(self, author: Author) -> None:
        grants = author.grants
        assert grants is not None
        self.run_id, self.root_run_id, self.session_id = author.run_id, author.root_run_id, author.session_id
        self.agent = author.agent
        self.agent_def_id = "" if grants.is_of_file else "d_1"
        self.grants: Mapping[str, Any] = structs.asdict(grants)


def parse_call(op: str, fields: Mapping[str, Any]) -> ParsedCall:
    """Return what a call asks for. Raises Refused."""
    return OperationTool(TOOL, all_operations(), {}, is_isolated=nobody, clock_ms=int).parse({"op": op, **fields})


def call_of(asked: Any, author: Author) -> Call[Any]:
    """Return the call of an author: of an agent, or with no grants of a request."""
    caller = OperationCaller(
        tenant=author.tenant,
        subject=author.subject,
        origin=Origin.REQUEST if author.grants is None else Origin.AGENT,
        user_id=author.user_id,
        run=None if author.grants is None else AgentRun(author),
        turn=author.turn,
        call=author.call,
        is_isolated=author.is_isolated,
        positions=author.positions,
    )
    return Call(input=asked, caller=caller, command_id=author.command_id, issued_at_ms=author.issued_at_ms)


async def on_part(part: Any, op: str, fields: Mapping[str, Any], author: Author, scope: Scope) -> Answer[Any]:
    """Return the answer of the operations of one part, in any scope, with its value as JSON."""
    asked, method = parse_call(op, fields).input, getattr(part, METHODS.get(op, op))
    answer = await (method(author, scope) if op in WITHOUT_FIELDS else method(asked, author, scope))
    return Answer(value=to_builtins(answer.value), positions=answer.positions)


async def carry_out(handlers: Handlers, op: str, fields: Mapping[str, Any], author: Author) -> Answer[Any]:
    """Return the answer of a call with its value as JSON. Raises Refused, Unavailable."""
    parsed = parse_call(op, fields)
    answer = await handlers[parsed.operation](call_of(parsed.input, author))
    return Answer(value=to_builtins(answer.value), positions=answer.positions)


def memory_tool(entries: EntryOperations, *, is_isolated: IsIsolated = nobody, clock_ms: Clock) -> OperationTool:
    """Return the tool of an installation with entries alone."""
    handlers = memory_handlers(entries)
    return OperationTool(TOOL, all_operations(), handlers, is_isolated=is_isolated, clock_ms=clock_ms)


def memory_handlers(entries: EntryOperations, backends: Backends | None = None) -> Handlers:
    """Return the handlers of an installation with entries alone: SQL memory is off."""
    backends = backends or Backends(entries, NOTHING, NOTHING, secrets=NOTHING)
    consolidation = ConsolidationOperations(NOTHING, NOTHING, NOTHING, NOTHING, clock_ms=int)
    databases = DatabaseServices(DatabaseOptions(), NOTHING, is_for_agents=False)
    return {
        **MemoryHandlers(entries, backends, find_run=NOTHING).by_operation(),
        **DatabaseHandlers(databases.open, require_local=backends.require_local).by_operation(),
        **ConsolidationHandlers(consolidation, require_local=backends.require_local).by_operation(),
    }
