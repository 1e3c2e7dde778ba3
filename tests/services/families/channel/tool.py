"""The tool of channels over operations in memory."""

from collections.abc import Callable
from typing import Any

from loomlog.services.families.channel.api import OPERATIONS, TOOL
from loomlog.services.families.channel.call_waits import ChannelWaits
from loomlog.services.families.channel.handlers import ChannelHandlers
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.runtime.run.wait_answers import WaitAnswers
from loomlog.services.runtime.tools.operation_tools import IsIsolated, OperationTool
from tests.services.entities import NOW_MS


class NoDeclarations:
    """Stands where channels are declared, which no agent does."""

    declarations: Any = None


def nobody(tenant: str, subject: str) -> bool:
    """Nobody is isolated."""
    return False


def channel_waits(operations: ChannelOperations) -> WaitAnswers:
    """Return what makes the results of calls that wait."""
    waits = ChannelWaits(operations, clock_ms=lambda: NOW_MS)
    return WaitAnswers(waits, {TOOL.name: channel_tool(operations)}, is_isolated=nobody)


def channel_tool(
    operations: ChannelOperations, *, is_isolated: IsIsolated = nobody, clock_ms: Callable[[], int] = lambda: NOW_MS
) -> OperationTool:
    declared: Any = NoDeclarations()
    handlers = ChannelHandlers(operations, declared, clock_ms=clock_ms).by_operation()
    return OperationTool(TOOL, OPERATIONS, handlers, is_isolated=is_isolated, clock_ms=clock_ms)
