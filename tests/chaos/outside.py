"""The outside world of a campaign: a model that is slow and a server whose every effect leaves a line.

    python -m tests.chaos.outside PORT LEDGER

A process of its own that is never struck, so that it can testify. The model speaks chat completions and keeps no state:
its turn is told by the results after the last user text. It asks for calls of each effect class over HTTP:

    GET    read        leaves nothing
    PUT    idempotent  a line
    POST   unsafe      a line

A line is `idempotency_key run_id`, in the same file and form as the tool Ledger writes, and it is written in the middle
of the call and whatever becomes of its caller: a caller that dies finds some of its effects done and some not.

Before: rig starts it.  After: the ledger.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

METHODS_OF_TURNS = (("GET", "PUT"), ("POST",), ("PUT", "POST"))
"""The calls of each turn; after them the run is over."""
SHORTEST_TURN_S, LONGEST_TURN_S = 0.4, 1.6
SHORTEST_CALL_S, LONGEST_CALL_S = 0.5, 4.0
"""Longer than an owner's session, so that calls outlive their owner."""
PIECES = 4
"""A turn arrives in parts."""


def application(ledger: str, address: str) -> FastAPI:
    """The model under /v1, the effects under /effects."""
    app = FastAPI(openapi_url=None)
    running: set[asyncio.Task[None]] = set()

    @app.get("/ready")
    async def ready() -> str:
        return "yes"

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> StreamingResponse:
        body = await request.json()
        return StreamingResponse(frames(body, f"{address}/effects"), media_type="text/event-stream")

    @app.api_route("/effects/{name}", methods=["GET", "PUT", "POST"])
    async def take_effect(name: str, request: Request) -> JSONResponse:
        took_s = spread(f"{name} {request.method}", SHORTEST_CALL_S, LONGEST_CALL_S)
        key = request.headers.get("idempotency-key", "")
        # A task of its own: what was asked for happens, also when the one who asked is gone.
        task = asyncio.create_task(effect(ledger, key if request.method != "GET" else "", took_s / 2))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.shield(task)
        await asyncio.sleep(took_s / 2)
        return JSONResponse({"done": key})

    return app


async def effect(ledger: str, key: str, after_s: float) -> None:
    """The line of one call, after a while."""
    await asyncio.sleep(after_s)
    if key:
        line = f"{key} {key.rpartition(':')[0]}\n".encode()
        await asyncio.to_thread(append, ledger, line)


def append(ledger: str, line: bytes) -> None:
    """One line in one write, on the disk when this returns."""
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = os.write(descriptor, line)
        assert written == len(line), f"the ledger took {written} of {len(line)} bytes"
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def frames(body: dict[str, Any], effects_url: str) -> AsyncIterator[str]:
    """One turn as the frames of a stream."""
    turn = turn_of(body["messages"])
    methods = METHODS_OF_TURNS[turn] if turn < len(METHODS_OF_TURNS) else ()
    seed = json.dumps(body["messages"])
    took_s = spread(seed, SHORTEST_TURN_S, LONGEST_TURN_S)
    for number in range(PIECES):
        await asyncio.sleep(took_s / PIECES)
        yield frame({"content": f"turn {turn + 1} part {number + 1} "})
    for index, method in enumerate(methods):
        name = f"{hashlib.blake2b(seed.encode(), digest_size=8).hexdigest()}-{index}"
        text = json.dumps({"method": method, "url": f"{effects_url}/{name}"})
        call = {"index": index, "id": f"call_{name}", "type": "function"}
        yield frame({"tool_calls": [call | {"function": {"name": "HTTP", "arguments": text}}]})
    yield frame({}, finish_reason="tool_calls" if methods else "stop")
    usage = {"prompt_tokens": len(seed) // 4, "completion_tokens": 10 * PIECES}
    yield f"data: {json.dumps({'model': 'outside', 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def turn_of(messages: list[dict[str, Any]]) -> int:
    """How many turns of calls were answered since the last user text."""
    turn = 0
    for message in messages:
        if message["role"] == "user":
            turn = 0
        elif message["role"] == "assistant" and message.get("tool_calls"):
            turn += 1
    return turn


def frame(delta: dict[str, Any], finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return f"data: {json.dumps({'model': 'outside', 'choices': [choice]})}\n\n"


def spread(seed: str, shortest: float, longest: float) -> float:
    """A number between the two that depends on the seed alone."""
    digest = hashlib.blake2b(seed.encode(), digest_size=6).digest()
    return shortest + (longest - shortest) * int.from_bytes(digest, "big") / (1 << 48)


def main() -> None:
    port, ledger = int(sys.argv[1]), sys.argv[2]
    app = application(ledger, f"http://127.0.0.1:{port}")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
