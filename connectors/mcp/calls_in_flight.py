"""Calls of sessions while their servers ask a person: a call is held open here, and goes on with the answer.

Only in the era with sessions, whose servers ask in the middle of a call. The run waits in the log; what is held is lost
with this process, and the outcome of the call is unknown then.

Before: session.py. After: peer.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import orjson

from loomlog.connectors.errors import Transient
from loomlog.connectors.mcp.frames import Incoming, encode_answer
from loomlog.connectors.protocols import GivenAnswer, ToolResult

HELD_MAX_S = 24 * 3_600.0
"""Seconds that a call is held in all."""
HELD_PER_SESSION_MAX = 32
"""Calls of a session that are held at a time: half of those that it carries, so that others go on."""
HELD_KEY = "held"
"""Key of the token in the state of a question."""
HELD_GRACE_S = 60.0
"""Seconds after the time of a question within which its answer comes."""
CALL: "ContextVar[CallInFlight | None]" = ContextVar("call", default=None)
"""The call within whose task a message is read; none where one task reads the messages of all calls."""


class CallInFlight:
    """A request to a server, which may ask once at a time. `answer` sends a message to the server."""

    def __init__(
        self,
        request: Callable[[], Awaitable[dict[str, Any]]],
        answer: Callable[[bytes], Awaitable[None]],
        timeout_s: float,
    ) -> None:
        self.token = uuid4().hex
        self._answer = answer
        self._timeout_s = timeout_s
        self._asked: asyncio.Future[Incoming] = asyncio.get_running_loop().create_future()
        self._question: Incoming | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(request))

    def take(self, question: Incoming) -> bool:
        """Take a question of the server; False while another one waits, or the call is over."""
        if self._asked.done() or self._question is not None or self._task.done():
            return False
        self._asked.set_result(question)
        return True

    async def advance(self) -> dict[str, Any] | Incoming:
        """Return the result, or what the server asks before. Raises what the request raises; the call is then over."""
        try:
            either: set[asyncio.Future[Any]] = {self._task, self._asked}
            await asyncio.wait(either, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                return self._task.result()
            if self._asked.done():
                self._question = self._asked.result()
                return self._question
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        await self.stop()
        raise Transient(f"the server did not answer within {self._timeout_s:g} s", kind="timeout")

    async def resume(self, response: Mapping[str, Any]) -> dict[str, Any] | Incoming:
        """Answer the question and go on. Raises as `advance`."""
        question, self._question = self._question, None
        assert question is not None, "nothing is asked"
        assert question.id is not None, "a notification asks nothing"
        self._asked = asyncio.get_running_loop().create_future()
        if not self._task.done():
            await self._answer(encode_answer(question.id, response))
        return await self.advance()

    @property
    def is_asking(self) -> bool:
        """Whether its question waits for an answer."""
        return self._question is not None

    def on_end(self, ended: Callable[[], None]) -> None:
        """Have a function called when the request is over."""
        self._task.add_done_callback(lambda _: ended())

    async def stop(self) -> None:
        """Give the call up."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, request: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        CALL.set(self)
        return await request()


GoOn = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
"""Goes on with a call that is held, from what its server is answered. Raises Transient and Permanent."""


class HeldCalls:
    """The calls of this process whose questions wait for a person."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[CallInFlight, GoOn, asyncio.TimerHandle]] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def hold(self, call: CallInFlight, go_on: GoOn, wait_s: float) -> None:
        """Keep a call until its answer comes, or the time is over."""
        timer = asyncio.get_running_loop().call_later(wait_s + HELD_GRACE_S, self._drop, call.token)
        self._calls[call.token] = (call, go_on, timer)

    def take(self, answer: GivenAnswer) -> GoOn | None:
        """Return what goes on with the call that an answer is for; None: it is lost with its process, or was given up.

        It is held no longer then.
        """
        try:
            token = orjson.loads(answer.call_state)[HELD_KEY]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        _, go_on, timer = self._calls.pop(token, (None, None, None))
        if timer is not None:
            timer.cancel()
        return go_on

    async def close(self) -> None:
        """Give up all calls."""
        for token in list(self._calls):
            self._drop(token)
        await asyncio.gather(*self._stopping, return_exceptions=True)

    def _drop(self, token: str) -> None:
        call, _, timer = self._calls.pop(token)
        timer.cancel()
        task = asyncio.get_running_loop().create_task(call.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
