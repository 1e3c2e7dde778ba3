"""A session with a server: the era is negotiated, then its tools are listed and called.

The handshake is tried first: every server before 2026-07-28 needs it, and some answer nothing else. A server that
does not know it, or not its revisions, is asked in the stateless way.

Before: session_pool.py. After: peer.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.errors import Permanent
from loomlog.connectors.mcp.call_result import to_tool_result
from loomlog.connectors.mcp.frames import (
    CAPABILITIES,
    CLIENT,
    HANDSHAKE_REVISIONS,
    NO_SUCH_METHOD,
    STATELESS_REVISION,
    UNSUPPORTED_REVISION,
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
from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.records import replace

ENTRIES_MAX = 2_000
"""Tools of all pages that are looked at, of which `tools` of the configuration may choose some."""


class Session:
    """An open session. `name` is the server's, for messages and the names of its tools."""

    def __init__(self, name: str, connection: Connection, incoming: IncomingMessages) -> None:
        self.name = name
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
        self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float = CALL_TIMEOUT_S, key: str = ""
    ) -> ToolResult:
        """Return the result of a call. `key` is the same for all attempts of a call. Raises Transient and Permanent."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if key:
            params["_meta"] = {"loomlog/idempotencyKey": key}
        self.in_flight += 1
        try:
            result = to_tool_result(await self._connection.request("tools/call", params, timeout_s=timeout_s))
        except ServerRefused as refused:
            return ToolResult(text=str(refused), is_error=True)
        finally:
            self.in_flight -= 1
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
