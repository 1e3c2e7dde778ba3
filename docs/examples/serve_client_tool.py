"""A program on a person's machine that carries out tool calls of that person's agents, over a WebSocket.

In the top folder of a clone:

    pip install websockets
    python docs/examples/serve_client_tool.py --url http://127.0.0.1:8787 --notes notes.txt

It offers the tool `add_note`. An agent may use it when its configuration grants it:

    agents:
      secretary:
        tools: ["client:add_note"]     # the model sees client__add_note

Only runs that were started with the same token (the same principal) see the tool, and only while this runs.

Four things make such a client right:
  1. each call is carried out once and answered with its call_id. A call is handed out at most once: when the connection
     breaks before the answer, the agent is told that the outcome is unknown, and the call does not come again;
  2. the input was written by a model: it is checked, and whatever cannot be undone is for the person to confirm;
  3. a call takes less time than its deadline_ms (UTC); after it the answer is ignored;
  4. after a break it connects again and says hello again, with a pause that grows.

LOOMLOG_TOKEN holds the token; without it none is sent. Needs nothing of loomlog.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

SUBPROTOCOL = "loomcycle.client-tools.v1"
TOOLS = [
    {
        "name": "add_note",
        "description": "Adds a line to the person's notes and says how many lines there are.",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }
]


def add_note(notes: Path, arguments: Any) -> str:
    """What the tool does. Raises ValueError for input that makes no sense."""
    text = arguments.get("text") if isinstance(arguments, dict) else None
    if not isinstance(text, str) or "\n" in text:
        raise ValueError("expected text, one line")
    with notes.open("a") as file:
        file.write(text + "\n")
    return f"there are {len(notes.read_text().splitlines())} notes now"


async def serve(socket: ClientConnection, notes: Path) -> None:
    """One connection, until it ends."""
    await socket.send(json.dumps({"type": "hello", "client": "serve_client_tool.py", "tools": TOOLS}))
    async for message in socket:
        frame = json.loads(message)
        if frame["type"] == "hello_ok":
            print(f"serving: {', '.join(frame['accepted'])}", flush=True)
        elif frame["type"] == "invoke":
            await socket.send(json.dumps({"type": "result", "call_id": frame["call_id"], **answer(frame, notes)}))
        elif frame["type"] == "error":
            print(f"error: {frame['message']}", flush=True)


def answer(frame: dict[str, Any], notes: Path) -> dict[str, Any]:
    """The result of a call; a failure is a result too."""
    try:
        output = add_note(notes, frame["input"])
    except (ValueError, OSError) as error:
        print(f"failed: {frame['call_id']}: {error}", flush=True)
        return {"ok": False, "error": str(error)}
    print(f"done: {frame['call_id']}: {output}", flush=True)
    return {"ok": True, "output": output}


async def run(url: str, notes: Path) -> None:
    """Until it is stopped; connects again when the connection breaks."""
    token = os.environ.get("LOOMLOG_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else None
    where = "ws" + url.rstrip("/").removeprefix("http") + "/v1/client-tools"
    async for socket in connect(where, subprotocols=[SUBPROTOCOL], additional_headers=headers):  # type: ignore[list-item]
        try:
            await serve(socket, notes)
        except ConnectionClosed as error:
            print(f"connection lost: {error}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--url", default="http://127.0.0.1:8787")
    parser.add_argument("--notes", type=Path, default=Path("notes.txt"))
    options = parser.parse_args()
    try:
        asyncio.run(run(options.url, options.notes))
    except InvalidStatus as error:
        print(f"refused: {error.response.body.decode() if error.response.body else error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
