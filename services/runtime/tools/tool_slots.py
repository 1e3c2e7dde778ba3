"""Slots of tool calls: how many this process makes at a time, and how many of them work in the threads of the file
tools; shared by tenants and users.

A call that waits is an intent in the log and not begun, so a planned stop gives it back like any other. Without these
a user with hundreds of calls fills the queue of the threads, and a short read of another tenant waits for all of them.

Before: tool_calls.py. After: the call.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from loomlog.connectors.tools.thread_pool import WORKERS
from loomlog.services.core.shares import Holder, ShareLimits
from loomlog.services.stream.shared_slots import SharedSlots

DEFAULT_CALLS = 128
TURN_WAIT_S = 600.0
"""Longest wait for a turn; then the model is told, which can call again."""


class ToolCallSlots:
    """The slots of one process; `calls` is the setting TOOL_CALLS_PER_PROCESS."""

    def __init__(self, calls: int = DEFAULT_CALLS) -> None:
        self.calls = SharedSlots("tool calls", ShareLimits.in_turn(calls))
        self.threads = SharedSlots("threads of the file tools", ShareLimits.in_turn(WORKERS))

    @asynccontextmanager
    async def turn(self, tool: Any, tenant: str, user_id: str) -> AsyncIterator[None]:
        """Wait for the turn of a call. Raises ShareExhausted."""
        holder = Holder(tenant=tenant, principal=user_id)
        with await self.calls.acquire(holder, wait_s=TURN_WAIT_S):
            if not getattr(tool, "works_in_threads", False):
                yield
                return
            with await self.threads.acquire(holder, wait_s=TURN_WAIT_S):
                yield
