"""Signed webhooks for calls that wait for approval: the address of the rule gets a request (Standard Webhooks), and one
more for each group that is asked when the time of the one before is over.

The request is a callback (services/families/callback), which tries for a day and keeps its result. It is named by the
id of the approval and the group, so that a takeover that tells again tells once. The body has what approvers need to
find the call, and no arguments: those are read with the operations of approvals, by those who may.

    {"type": "approval.pending", "data": {"approval_id", "run_id", "agent", "tool", "rule", "reason", "group", ...}}

Before: command_handler.py reports decisions that are in the log. After: the owner of the callback.
"""

import asyncio
import logging
from collections.abc import Callable

import orjson

from loomlog.connectors.process.logs import about
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.callback_commands import RequestCallback
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.runtime.run.run_end_actions import ask_once
from loomlog.services.stream.entities.answers import EntityCommands

log = logging.getLogger(__name__)

PENDING_MAX = 10_000
"""Notices that wait; further ones are left out, and the log says so: the inbox has every call."""
RETRY_S, TRIES = 2.0, 30
"""How often the owner of the callback is asked: for about a minute."""


class ApprovalNotices:
    """See the module. `run` must be running as a task of its own."""

    def __init__(self, commands: EntityCommands, *, clock_ms: Callable[[], int]) -> None:
        self._commands = commands
        self._clock_ms = clock_ms
        self._queue: asyncio.Queue[tuple[str, RunFacts, AskedApproval, bool]] = asyncio.Queue(PENDING_MAX)

    def on_asked(self, tenant: str, facts: RunFacts, asked: AskedApproval, is_repeated: bool) -> None:
        """Tell the address of the rule, if it has one, about a call that waits and is in the log."""
        if not asked.verdict.notify_url:
            return
        try:
            self._queue.put_nowait((tenant, facts, asked, is_repeated))
        except asyncio.QueueFull:
            log.error("the webhook of the approval %s is left out: %d wait already", asked.interrupt_id, PENDING_MAX)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._send(*await self._queue.get())
            self._queue.task_done()

    async def drain(self) -> None:
        """Wait until all that was told is sent or given up."""
        await self._queue.join()

    async def _send(self, tenant: str, facts: RunFacts, asked: AskedApproval, is_repeated: bool) -> None:
        command = self._request(tenant, facts, asked, is_repeated)
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(RETRY_S)
            try:
                await ask_once(self._commands, command)
            except Refused as refused:
                log.warning("the webhook of the approval %s is refused: %s", asked.interrupt_id, refused)
                return
            except Unavailable as error:
                log.info("the webhook of the approval %s waits: %s", asked.interrupt_id, error)
            else:
                return
        log.error("the webhook of the approval %s is left out", asked.interrupt_id, extra=about(facts.run_id, tenant))

    def _request(self, tenant: str, facts: RunFacts, asked: AskedApproval, is_repeated: bool) -> RequestCallback:
        verdict, group = asked.verdict, asked.verdict.groups[asked.group]
        body = {
            "type": "approval.pending",
            "timestamp": format_rfc3339(self._clock_ms()),
            "data": {
                "approval_id": asked.interrupt_id,
                "run_id": facts.run_id,
                "agent": facts.definition.name,
                "tool": asked.tool,
                "rule": verdict.rule,
                "reason": verdict.reason,
                "arguments_sha256": asked.arguments_sha256,
                "group": asked.group,
                "approvals": group.approvals,
                "within_s": group.within_ms // 1000,
            },
        }
        return RequestCallback(
            envelope=CommandEnvelope(
                command_id=f"{asked.interrupt_id}:{asked.group or 'pending'}",
                tenant=tenant,
                subject=facts.user_id or facts.subject,
                issued_at_ms=0 if is_repeated else self._clock_ms(),
            ),
            run_id=asked.interrupt_id,
            hook=asked.group,
            url=verdict.notify_url,
            body=orjson.dumps(body).decode(),
            secret_env=verdict.notify_secret_env,
        )
