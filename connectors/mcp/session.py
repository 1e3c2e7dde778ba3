"""A session with a server: the era is negotiated, then its tools are listed and called.

The handshake is tried first: every server before 2026-07-28 needs it, and some answer nothing else. A server that
does not know it, or not its revisions, is asked in the stateless way.

Before: session_pool.py. After: peer.py.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import orjson

from loomlog.connectors.errors import Permanent
from loomlog.connectors.mcp.call_result import INPUT_REQUIRED, to_tool_result
from loomlog.connectors.mcp.calls_in_flight import HELD_KEY, HELD_MAX_S, HELD_PER_SESSION_MAX, CallInFlight, HeldCalls
from loomlog.connectors.mcp.elicitation import (
    QUESTIONS_MAX,
    ask_for_input,
    ask_to_visit,
    build_question,
    input_params,
    next_question,
    was_not_visited,
)
from loomlog.connectors.mcp.frames import (
    CAPABILITIES,
    CLIENT,
    HANDSHAKE_REVISIONS,
    NO_SUCH_METHOD,
    STATELESS_REVISION,
    UNSUPPORTED_REVISION,
    VISIT_REQUIRED,
    Incoming,
    ServerRefused,
)
from loomlog.connectors.mcp.peer import (
    CALL_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    LIST_TIMEOUT_S,
    Connection,
    IncomingMessages,
)
from loomlog.connectors.mcp.tool_list import PAGES_MAX, ToolList, build_tool_list
from loomlog.connectors.protocols import GivenAnswer, ToolResult
from loomlog.schemas.records import replace

NOT_VISITED = "nothing was done: the server needs the user to visit an address first, which was not done"
ENTRIES_MAX = 2_000
"""Tools of all pages that are looked at, of which `tools` of the configuration may choose some."""


class Session:
    """An open session. `name` is the server's, for messages and the names of its tools."""

    def __init__(
        self, name: str, connection: Connection, incoming: IncomingMessages, held: HeldCalls | None = None
    ) -> None:
        """`held`: where calls wait while their servers ask a person; None: such questions are cancelled."""
        self.name = name
        self._held = held
        self.in_flight = 0
        self._connection = connection
        self._incoming = incoming

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def revision(self) -> str:
        """Negotiated revision of the protocol."""
        return self._connection.revision

    async def open(self) -> None:
        """Negotiate the era. Raises Transient and Permanent."""
        try:
            await self._shake_hands()
        except ServerRefused as refused:
            if refused.code not in (NO_SUCH_METHOD, UNSUPPORTED_REVISION):
                raise
            await self._discover()

    async def list_tools(self, chosen: Sequence[str] = ()) -> ToolList:
        """Return the usable tools; `chosen`: these alone. Raises Transient and Permanent."""
        entries: list[object] = []
        cursor: object = None
        for _ in range(PAGES_MAX):
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._connection.request("tools/list", params, timeout_s=LIST_TIMEOUT_S)
            tools = page.get("tools")
            if not isinstance(tools, list):
                raise Permanent(f"{self.name} answered tools/list without tools", kind="invalid")
            entries += tools
            if len(entries) > ENTRIES_MAX:
                raise Permanent(f"{self.name} lists more than {ENTRIES_MAX} tools", kind="invalid")
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return build_tool_list(self.name, entries, chosen)
        raise Permanent(f"{self.name} lists its tools on more than {PAGES_MAX} pages", kind="invalid")

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        key: str = "",
        answers: Sequence[GivenAnswer] = (),
        ask_ms: int = 0,
    ) -> ToolResult:
        """Return the result of a call, or what its server asks a person first. Raises Transient and Permanent.

        `key` is the same for all attempts of a call. `answers`: to what the server has asked so far. `ask_ms`: how
        long a person may be asked, milliseconds; 0: not at all.
        """
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if was_not_visited(answers):
            return ToolResult(text=NOT_VISITED, is_error=True)
        if answers:
            if (further := next_question(self.name, answers, ask_ms)) is not None:
                return ToolResult(text="", asking=further)
            params |= input_params(answers)
        if key:
            params["_meta"] = {"loomlog/idempotencyKey": key}
        if ask_ms and self._held is not None and self.revision != STATELESS_REVISION:
            return await self._call_with_questions(self._held, params, timeout_s, ask_ms, answers)
        self.in_flight += 1
        try:
            answer = await self._connection.request("tools/call", params, timeout_s=timeout_s)
        except ServerRefused as refused:
            return self._refusal(refused, answers, ask_ms)
        finally:
            self.in_flight -= 1
        if ask_ms and answer.get("resultType") == INPUT_REQUIRED:
            return ToolResult(text="", asking=ask_for_input(self.name, answer, answers, ask_ms))
        return self._result(answer)

    def _refusal(self, refused: ServerRefused, answers: Sequence[GivenAnswer], ask_ms: int) -> ToolResult:
        """Return what became of a call that the server refused, or the address that a person visits first."""
        if ask_ms and refused.code == VISIT_REQUIRED:
            question = ask_to_visit(self.name, refused.data, answers, ask_ms)
            if question is not None:
                return ToolResult(text="", asking=question)
        return ToolResult(text=str(refused), is_error=True)

    async def _call_with_questions(
        self,
        held: HeldCalls,
        params: Mapping[str, Any],
        timeout_s: float,
        ask_ms: int,
        answers: Sequence[GivenAnswer],
    ) -> ToolResult:
        """Return the result of a call in whose middle the server may ask, or its question, for which it is held."""
        call = CallInFlight(
            lambda: self._connection.request("tools/call", params, timeout_s=HELD_MAX_S),
            self._connection.answer,
            timeout_s,
        )
        self.in_flight += 1
        self._incoming.calls.add(call)

        def ended() -> None:
            self.in_flight -= 1
            self._incoming.calls.discard(call)

        call.on_end(ended)
        questions = 0

        async def advance(step: Awaitable[dict[str, Any] | Incoming]) -> ToolResult:
            nonlocal questions
            try:
                answer = await step
                while isinstance(answer, Incoming):
                    questions += 1
                    try:
                        asking = sum(one.is_asking for one in self._incoming.calls)
                        if questions > QUESTIONS_MAX or asking > HELD_PER_SESSION_MAX:
                            raise Permanent("too many questions", kind="invalid")
                        state = orjson.dumps({HELD_KEY: call.token}).decode()
                        question = build_question(self.name, answer.params, timeout_ms=ask_ms, state=state, held=True)
                    except Permanent:
                        if questions > 2 * QUESTIONS_MAX:
                            await call.stop()
                            raise
                        answer = await call.resume({"action": "cancel"})  # people cannot be asked that
                        continue
                    held.hold(call, lambda response: advance(call.resume(response)), ask_ms / 1_000)
                    return ToolResult(text="", asking=question)
            except ServerRefused as refused:
                return self._refusal(refused, answers, ask_ms)
            return self._result(answer)

        return await advance(call.advance())

    def _result(self, answer: Mapping[str, Any]) -> ToolResult:
        result = to_tool_result(answer)
        questions = self._incoming.take_questions()
        if not questions:
            return result
        asked = "the server asked the user, and was told that no person can answer now: " + "; ".join(questions)
        return replace(result, text=f"{result.text}\n{asked}")

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _shake_hands(self) -> None:
        offered = {"protocolVersion": HANDSHAKE_REVISIONS[0], "capabilities": CAPABILITIES, "clientInfo": CLIENT}
        result = await self._connection.request("initialize", offered, timeout_s=HANDSHAKE_TIMEOUT_S)
        revision = result.get("protocolVersion")
        if revision not in HANDSHAKE_REVISIONS:
            raise Permanent(
                f"{self.name} speaks revision {str(revision)[:40]}; expected one of {', '.join(HANDSHAKE_REVISIONS)}",
                kind="unsupported",
            )
        self._connection.revision = str(revision)
        await self._connection.notify("notifications/initialized", {})

    async def _discover(self) -> None:
        self._connection.revision = STATELESS_REVISION
        result = await self._connection.request("server/discover", {}, timeout_s=HANDSHAKE_TIMEOUT_S)
        versions = result.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS_REVISION not in versions:
            raise Permanent(f"{self.name} does not speak revision {STATELESS_REVISION}", kind="unsupported")
