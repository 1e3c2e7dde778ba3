"""Results of calls that wait, from what the family of their operation answers.

Before: services/runtime/process.py; wait_reports.py asks. After: services/families/ports/call_waits.py.
"""

from collections.abc import Mapping

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import ToolCall
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Wait
from loomlog.services.families.ports.call_waits import CallWaits, EndedWait
from loomlog.services.runtime.tools.operation_calls import refused_result
from loomlog.services.runtime.tools.operation_tools import IsIsolated, OperationTool, to_tool_result
from loomlog.services.runtime.tools.tool_calls import parse_arguments


class WaitAnswers:
    """Protocol WaitResults."""

    def __init__(self, waits: CallWaits, tools: Mapping[str, OperationTool], *, is_isolated: IsIsolated) -> None:
        self._waits = waits
        self._tools = tools
        self._is_isolated = is_isolated

    async def result(
        self, report: ReportWait, call: ToolCall, wait: Wait, facts: RunFacts, tenant: str, *, satisfied: bool
    ) -> ToolResult:
        """Return the result of the call. Raises Transient while it cannot be read."""
        try:
            operation, of, asked = self._tools[call.name].parse(parse_arguments(call.input))
            ended = EndedWait(
                operation=operation,
                asked=asked,
                report=report,
                wait=wait,
                facts=facts,
                tenant=tenant,
                satisfied=satisfied,
                is_isolated=self._is_isolated(tenant, facts.subject),
            )
            return to_tool_result(await self._waits.answer(ended), of)
        except Refused as refused:
            return refused_result(call.name, refused)
        except Unavailable as error:
            raise Transient(str(error), kind="unavailable") from error
