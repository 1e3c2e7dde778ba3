"""The family of MCP servers: which tools each of them lists, as events (decision 67).

An aggregate is one server of one tenant. Every process has all of them in memory, so a turn shows tools without asking
anybody. What a server is, its definition or its block in a file says.

    state.py, decide.py   the rules
    servers.py            servers as they resolve, their sessions, and asking them for their tools
    tools.py              their tools as runs have them
    discovery.py          asks the servers of files, in one runtime
    api.py, handlers.py   the operations
    services.py           opens all of it in a process

Before: services/application/dispatch.py; services/runtime/tools/toolset.py. After: connectors/mcp.
"""

from loomlog.schemas.generated.mcp_commands import RecordListingFailure, RecordTools
from loomlog.services.core.families import (
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    inner_commands,
)
from loomlog.services.families.mcp.api import OPERATIONS
from loomlog.services.families.mcp.decide import decide
from loomlog.services.families.mcp.state import NAME, VERSION, ServerTools, evolve

_command = inner_commands(lambda command: command.server)

FAMILY = Family(
    name=NAME,
    summary="The tools that an MCP server lists.",
    rules=Rules(
        state=ServerTools, initial=lambda aggregate: ServerTools(), decide=decide, evolve=evolve, version=VERSION
    ),
    lifecycle=Lifecycle(
        state_files=StateFiles.EVENTS, erasure=Erasure.NOTHING, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
    ),
    commands=(
        _command(RecordTools, "record", "Record the tools that a server lists."),
        _command(RecordListingFailure, "fail", "Record that a server did not list its tools."),
    ),
    reads=Reads.REPLICATED,
    operations=OPERATIONS,
    services="loomlog.services.families.mcp.services",
)
