"""A call under way: what its client is told meanwhile, and what it has already answered.

Handlers of operations do not know the transport, so the call is in the context of the task that carries it out. A call
without a listener has nothing to say.

Before: endpoint.py. After: operations.py.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from loomlog.services.api.mcp.messages import Message, RequestId, notification
from loomlog.services.api.mcp.questions import Question, elicitation, request_id

RunEvent = Mapping[str, Any]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
STEPS = frozenset({"tool_call", "tool_result", "usage"})
"""Frames of a run that count as progress."""


async def send_nothing(message: Mapping[str, Any]) -> None:
    """Drop a message."""


@dataclass(slots=True, kw_only=True)
class CallUnderWay:
    """What a call's client wants to hear, and what is known of its run."""

    send: Send = send_nothing
    has_run_events: bool = False
    progress_token: RequestId | None = None
    asks_user: bool = False
    """Questions are put to the client's user while the call waits."""
    returns_questions: bool = False
    """An open question ends the call; the client repeats it with the answer."""
    resumed_run: str = ""
    """Run that an earlier attempt of the call has started; empty: none."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Answers to questions of that run, by their ids."""
    run_id: str = ""
    open_questions: dict[str, Question] = field(default_factory=dict)
    steps: int = 0

    async def tell(self, run_id: str, agent_id: str, event: RunEvent) -> None:
        """Tell the client an event of the run."""
        kind = event["type"]
        if self.has_run_events:
            params = {"run_id": run_id, "agent_id": agent_id, "event": event}
            await self.send(notification("notifications/loomcycle/run_event", params))
        if self.progress_token is not None and kind in STEPS:
            self.steps += 1
            progress = {"progressToken": self.progress_token, "progress": self.steps, "message": kind}
            await self.send(notification("notifications/progress", progress))
        if kind == "interruption_pending":
            await self._ask(run_id, event["interruption"])
        elif kind == "interruption_resolved":
            self.open_questions.pop(event["interruption"]["interrupt_id"], None)

    async def _ask(self, run_id: str, asked: Mapping[str, Any]) -> None:
        question = Question(
            asked["interrupt_id"],
            asked["question"],
            tuple(asked.get("options", ())),
            asked.get("context", ""),
            asked["kind"],
        )
        self.open_questions[question.id] = question
        if self.asks_user:
            await self.send({"jsonrpc": "2.0", "id": request_id(run_id, question.id), **elicitation(question)})

    @property
    def is_stopped_by_question(self) -> bool:
        return self.returns_questions and bool(self.open_questions)


current_call: ContextVar[CallUnderWay | None] = ContextVar("current_call", default=None)


def progress_token(message: Message) -> RequestId | None:
    """Return the token under which a client wants to hear of progress."""
    token = message.meta.get("progressToken")
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None
