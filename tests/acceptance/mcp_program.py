"""A program on the official client of MCP, run in an environment of its own: python mcp_program.py URL MODE

It prints what it got as JSON. MODE is that of the client: `legacy` for the handshake, or a revision without sessions.
"""

import asyncio
import json
import sys
from typing import Any

from mcp import Client
from mcp_types import ElicitResult

QUESTION = [{"tool": "Interruption", "input": {"op": "ask", "question": "Shall I?"}}]


async def main(url: str, mode: Any) -> None:
    asked: list[str] = []
    progress: list[float] = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "yes"})

    async def tell(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with Client(url, mode=mode, elicitation_callback=answer) as client:
        tools = await client.list_tools()
        talk = await client.call_tool("spawn_run", {"agent": "talker", "prompt": "hi"}, progress_callback=tell)
        question = {"agent": "puppet", "prompt": json.dumps(QUESTION)}
        answered = await client.call_tool("spawn_run", question)
        failed = await client.call_tool("spawn_run", {"agent": "nobody-knows-it", "prompt": "hi"})
        result = {
            "revision": client.protocol_version,
            "tools": [tool.name for tool in tools.tools],
            "talk": talk.structured_content,
            "answered": answered.structured_content,
            "is_error": failed.is_error,
            "asked": asked,
            "progress": progress,
        }
    print(json.dumps(result))


asyncio.run(main(sys.argv[1], sys.argv[2]))
