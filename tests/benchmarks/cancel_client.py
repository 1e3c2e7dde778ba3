"""Cancels runs that wait for their model while other runs load the stack. One process.

    python -m tests.benchmarks.cancel_client HOST:PORT AGENT CANCELS EVERY_S LOAD_IN_FLIGHT LOAD_PAUSE_S

So many runs of AGENT, whose model does not answer for a long time, are started and followed; then one after the other
is cancelled every EVERY_S while LOAD_IN_FLIGHT workers run A3x2, each pausing LOAD_PAUSE_S between two of its runs.
Told in one JSON line: from the request to its reply, and from the request to the end frame on the run's own stream.
"""

import asyncio
import json
import sys
import time

import uvloop

from tests.benchmarks.sse_client import Client, Frame, allow_streams
from tests.benchmarks.stream_client import spread
from tests.benchmarks.workload import AGENT, PROMPT

SETTLE_S = 3.0
"""Of load before the first cancel."""
PATIENCE_S = 60.0


class Sleeper:
    """A run that waits, and its stream."""

    def __init__(self) -> None:
        self.agent_id = ""
        self.begun = asyncio.Event()
        self.ended_s = 0.0

    def see(self, frame: Frame) -> None:
        if frame.type == "agent":
            self.agent_id = str(json.loads(frame.data)["agent_id"])
        elif frame.type == "started":
            self.begun.set()
        elif frame.type == "done":
            self.ended_s = frame.at_s


async def main(address: str, agent: str, cancels: int, every_s: float, in_flight: int, pause_s: float) -> None:
    allow_streams(cancels + in_flight)
    client = Client(address)
    start = client.message("POST", "/v1/runs", {"agent": agent, "prompt": PROMPT})
    load = client.message("POST", "/v1/runs", {"agent": AGENT, "prompt": PROMPT})
    sleepers = [Sleeper() for _ in range(cancels)]
    streams = [asyncio.create_task(client.send(start, sleeper.see)) for sleeper in sleepers]
    async with asyncio.timeout(PATIENCE_S):
        for sleeper in sleepers:
            await sleeper.begun.wait()
    is_over = False
    ended = 0

    async def worker() -> None:
        nonlocal ended
        while not is_over:
            await client.send(load)
            ended += 1
            await asyncio.sleep(pause_s)

    workers = [asyncio.create_task(worker()) for _ in range(in_flight)]
    await asyncio.sleep(SETTLE_S)
    began_s, ended_before = time.time(), ended
    asked_s: list[float] = []
    replied: list[float] = []
    refused: list[str] = []

    async def cancel(sleeper: Sleeper) -> None:
        at_s = time.time()
        asked_s.append(at_s)
        status, body = await client.send(client.message("POST", f"/v1/agents/{sleeper.agent_id}/cancel"))
        replied.append(time.time() - at_s)
        if status != 200 or not json.loads(body)["cancelled"]:
            refused.append(f"{status} {body[:200]!r}")

    asking = []
    for sleeper in sleepers:
        asking.append(asyncio.create_task(cancel(sleeper)))
        await asyncio.sleep(every_s)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*asking, *streams)
    load_runs_per_s = (ended - ended_before) / (time.time() - began_s)
    is_over = True
    await asyncio.gather(*workers)
    print(
        json.dumps(
            {
                "cancels": cancels,
                "load_in_flight": in_flight,
                "load_runs_per_s": round(load_runs_per_s, 1),
                "errors": len(refused),
                "first_errors": refused[:3],
                "reply_ms": spread(replied),
                "end_ms": spread([one.ended_s - at_s for one, at_s in zip(sleepers, asked_s, strict=True)]),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    uvloop.run(
        main(
            sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:5]), int(sys.argv[5]), float(sys.argv[6])
        )
    )
