"""Cancels runs that wait for their model while other runs load the stack. One process.

    python -m tests.benchmarks.cancel_client HOST:PORT AGENT CANCELS EVERY_S LOAD_PER_S LOAD_IN_FLIGHT

So many runs of AGENT, whose model does not answer for a long time, are started and followed; then one after the other
is cancelled every EVERY_S beside runs of A3x2: LOAD_PER_S of them begun each second whether or not others have ended,
at most LOAD_IN_FLIGHT at a time; or, with LOAD_PER_S 0, always LOAD_IN_FLIGHT of them, which is all the machine can do.
Told in one JSON line: from the request to its reply, from the request to the end frame on the run's own stream, and
how busy the machine was meanwhile, since a queue for its processors is in all of these times.
"""

import asyncio
import json
import sys
import time

import psutil
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


async def main(address: str, agent: str, cancels: int, every_s: float, per_s: float, in_flight: int) -> None:
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
    took_s: list[float] = []
    room = asyncio.Semaphore(in_flight)

    async def run() -> None:
        at_s = time.time()
        await client.send(load)
        took_s.append(time.time() - at_s)
        room.release()

    async def begin_runs() -> None:
        due_s = time.time()
        async with asyncio.TaskGroup() as group:
            while not is_over:
                if per_s:
                    due_s += 1 / per_s
                    await asyncio.sleep(max(0.0, due_s - time.time()))
                await room.acquire()
                group.create_task(run())

    loading = asyncio.create_task(begin_runs())
    await asyncio.sleep(SETTLE_S)
    began_s = time.time()
    took_s.clear()
    psutil.cpu_percent()
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
    busy_percent = psutil.cpu_percent()
    load_runs_per_s = len(took_s) / (time.time() - began_s)
    load_ms = spread(took_s)
    is_over = True
    await loading
    print(
        json.dumps(
            {
                "cancels": cancels,
                "load_in_flight": in_flight,
                "load_wanted_per_s": per_s,
                "load_runs_per_s": round(load_runs_per_s, 1),
                "load_ms": load_ms,
                "machine_busy_percent": busy_percent,
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
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
    )
