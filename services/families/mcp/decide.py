"""Decisions about lists of tools: the same list again changes nothing, so that every process may report it.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the event in every process.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.mcp_commands import RecordListingFailure, RecordTools
from loomlog.schemas.generated.mcp_events import ListingFailed, ToolsListed
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import At
from loomlog.services.families.mcp.state import McpEvent, ServerTools

TOOLS_BYTES_MAX = 300_000
"""Bytes of a list: connectors/mcp/tool_list.py takes less."""
PROBLEMS_MAX = 50
TEXT_CHARACTERS_MAX = 2_000
"""Characters of an error, or of a problem."""

McpCommand = RecordTools | RecordListingFailure


def decide(state: ServerTools, command: McpCommand, at: At) -> Sequence[McpEvent | CommandRefused]:
    """Return the events that follow a command."""
    if isinstance(command, RecordListingFailure):
        if state.error == command.error and state.server:
            return []
        return [copy_as(ListingFailed, command, error=command.error[:TEXT_CHARACTERS_MAX])]
    if problem := _bounds_problem(command):
        return [CommandRefused(code="bad_request", message=problem)]
    if (state.def_id, state.digest, state.error) == (command.def_id, command.digest, ""):
        return []
    return [copy_as(ToolsListed, command)]


def _bounds_problem(command: RecordTools) -> str:
    if (size := len(command.tools.encode("utf-8", "replace"))) > TOOLS_BYTES_MAX:
        return f"tools has {size} bytes: expected at most {TOOLS_BYTES_MAX}"
    if len(command.problems) > PROBLEMS_MAX or any(len(one) > TEXT_CHARACTERS_MAX for one in command.problems):
        return f"problems: expected at most {PROBLEMS_MAX} of {TEXT_CHARACTERS_MAX} characters"
    return ""
