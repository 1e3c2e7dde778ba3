"""Calls of tools that are operations of families: asked again until there is an answer, and what the model is told.

A read model, an owner or Postgres that is away for some seconds is no reason for a model to change its plan, so an
operation that is unavailable is asked again for as long as its tool may run. That is safe for writes: every repetition
carries the command id of the call. The model sees an error only past that time, and one whose effect is unknown says
so.

Before: operation_tools.py. After: the operations of services/families.
"""

import asyncio
from collections.abc import Awaitable, Callable

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import ToolResult
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.services.core.refusals import Refused, Unavailable

TIMEOUT_S = 60.0
"""Seconds of a call: enough for another process to take over the partition of a dead owner."""
ANSWER_S = 55.0
"""Seconds in which an operation is asked again; within TIMEOUT_S, so that the result can still tell the last reason."""
PAUSE_S, PAUSE_MAX_S = 0.1, 1.0
"""Seconds between two tries: the first pause, and where doubling it ends."""

Ask = Callable[[], Awaitable[ToolResult]]


async def call_operation(
    tool: str,
    ask: Ask,
    *,
    is_read: bool,
    attempt: int,
) -> ToolResult:
    """Return the result of an operation; `ask` raises the refusals and failures of families, each time it is called.

    `attempt` is that of the call: an earlier one of a write may have been carried out.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + ANSWER_S, PAUSE_S
    may_be_done = attempt > 1
    reason = "the time is over"
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                return await ask()
        except Refused as refused:
            return refused_result(tool, refused)
        except Unavailable as error:
            may_be_done, reason = may_be_done or error.is_unknown, str(error)
            if isinstance(error.__cause__, Permanent):
                break
        except (TimeoutError, Transient) as error:
            may_be_done, reason = True, str(error) or reason
        if loop.time() + pause >= deadline:
            break
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_S)
    is_unknown = may_be_done and not is_read
    return ToolResult(text=f"{tool} has no answer: {reason}", is_error=True, is_unknown=is_unknown)


def refused_result(tool: str, refused: Refused) -> ToolResult:
    """Return the result of a call that was refused."""
    code = refused.details.get("refusal", refused.code)  # the family's own says more
    return error_result(ToolCallRefused(f"{tool} was refused ({code}): {refused}"))
