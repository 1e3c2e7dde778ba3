"""Many clients that listen, few runs that do something: streams stay open, texts reach some runs. One process.

    python -m tests.benchmarks.listeners_client HOST:PORT AGENT STREAMS INPUTS_PER_S SECONDS FILE

So many interactive runs are started and park; their streams stay open. Then random ones of them are given a text, each
has one turn and parks again. FILE gets the frames that come meanwhile, as from stream_client.py.
"""

import asyncio
import json
import random
import sys
import time
from typing import IO

import uvloop

from tests.benchmarks.sse_client import Client, Frame, allow_streams
from tests.benchmarks.stream_client import spread
from tests.benchmarks.workload import PROMPT

OPENING = 64
"""Runs that are started at once until all are there."""
PATIENCE_S = 300.0
SETTLE_S = 5.0
SEED = 6


class Listener:
    """One stream."""

    def __init__(self) -> None:
        self.run_id = ""
        self.parked = asyncio.Event()
        self.places: list[tuple[int, float]] = []

    def see(self, frame: Frame) -> None:
        if frame.seq is not None:
            self.places.append((frame.seq, frame.at_s))
        elif not self.run_id and b'"run_id"' in frame.data:
            self.run_id = str(json.loads(frame.data)["run_id"])
        if frame.type == "awaiting_input":
            self.parked.set()


async def main(address: str, agent: str, streams: int, inputs_per_s: float, seconds: float, file: IO[str]) -> None:
    allow_streams(streams + OPENING)
    client = Client(address)
    start = client.message("POST", "/v1/runs?ids=1", {"agent": agent, "prompt": PROMPT, "interactive": True})
    listeners: list[Listener] = []
    open_streams: list[asyncio.Task[object]] = []
    turn = asyncio.Semaphore(OPENING)

    async def open_one() -> None:
        async with turn:
            listener = Listener()
            open_streams.append(asyncio.create_task(client.send(start, listener.see, timeout_s=None)))
            await listener.parked.wait()
            listeners.append(listener)

    began_s = time.time()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(open_one() for _ in range(streams)))
    opened_in_s = time.time() - began_s
    print(f"  {streams} streams are open after {opened_in_s:.0f} s", file=sys.stderr, flush=True)
    await asyncio.sleep(SETTLE_S)
    for listener in listeners:
        listener.places.clear()
    cpu_before_s, began_s = time.process_time(), time.time()
    replies: list[float] = []
    refused: list[str] = []

    async def tell(run_id: str) -> None:
        at_s = time.time()
        status, body = await client.send(client.message("POST", f"/v1/runs/{run_id}/input", {"text": "go on"}))
        replies.append(time.time() - at_s)
        if status != 200:
            refused.append(f"{status} {body[:200]!r}")

    asking: list[asyncio.Task[None]] = []
    chosen = random.Random(SEED)
    while (now := time.time()) < began_s + seconds:
        while len(asking) < (now - began_s) * inputs_per_s:
            asking.append(asyncio.create_task(tell(chosen.choice(listeners).run_id)))
        await asyncio.sleep(1 / inputs_per_s)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*asking)
    await asyncio.sleep(SETTLE_S)
    frames = 0
    for listener in listeners:
        frames += len(listener.places)
        file.writelines(f"{listener.run_id} {seq} {at_s * 1000:.1f}\n" for seq, at_s in listener.places)
    ended = sum(task.done() for task in open_streams)
    for task in open_streams:
        task.cancel()
    await asyncio.gather(*open_streams, return_exceptions=True)
    print(
        json.dumps(
            {
                "streams": streams,
                "opened_in_s": round(opened_in_s, 1),
                "ended_early": ended,
                "inputs": len(asking),
                "errors": len(refused),
                "first_errors": refused[:3],
                "frames": frames,
                "input_reply_ms": spread(replies),
                "client_cpu_s": time.process_time() - cpu_before_s,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    _, where, agent_name, count, rate, long, path = sys.argv
    with open(path, "w", encoding="ascii") as out:
        uvloop.run(main(where, agent_name, int(count), float(rate), float(long), out))
