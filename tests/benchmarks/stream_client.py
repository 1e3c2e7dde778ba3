"""Runs whose streams are looked at closely: when the first text came, how long the longest silence was. One process.

    python -m tests.benchmarks.stream_client HOST:PORT AGENT IN_FLIGHT WARM_UP_S SECONDS [FILE]

The workers begin one after the other during the first half of the warm-up, so that runs which all take the same time do
not begin together for ever; without a warm-up all begin at once, and everything counts.

One JSON line on stdout. FILE gets a line for each frame that has a place in the log: run id, seq, milliseconds at which
it was here; from that and the log follows the time from the event to the client (event_to_client.py).
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import IO

import uvloop

from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.sse_client import Client, Frame, allow_streams
from tests.benchmarks.workload import PROMPT


@dataclass(slots=True)
class Watch:
    """What is seen of one run. Times are seconds of time.time()."""

    began_s: float
    last_s: float
    first_text_s: float = 0.0
    longest_silence_s: float = 0.0
    run_id: str = ""
    end: str = ""
    places: list[tuple[int, float]] = field(default_factory=list)

    def see(self, frame: Frame) -> None:
        if frame.at_s - self.last_s > self.longest_silence_s:
            self.longest_silence_s = frame.at_s - self.last_s
        self.last_s = frame.at_s
        if frame.seq is not None:
            self.places.append((frame.seq, frame.at_s))
        if not self.first_text_s and frame.type == "text":
            self.first_text_s = frame.at_s
        elif not self.run_id and b'"run_id"' in frame.data:
            self.run_id = str(json.loads(frame.data)["run_id"])
        elif frame.type in ("done", "error"):
            self.end = frame.type


async def main(
    address: str, agent: str, in_flight: int, warm_up_s: float, seconds: float, file: IO[str] | None
) -> None:
    allow_streams(in_flight)
    client = Client(address)
    message = client.message("POST", "/v1/runs?ids=1", {"agent": agent, "prompt": PROMPT})
    watched: list[Watch] = []
    errors: list[str] = []
    cpu_before_s, began_s = time.process_time(), time.time()
    counting_from, until = began_s + warm_up_s, began_s + warm_up_s + seconds

    async def worker(number: int) -> None:
        await asyncio.sleep(warm_up_s / 2 * number / in_flight)
        while (now := time.time()) < until:
            watch = Watch(now, now)
            try:
                status, body = await client.send(message, watch.see)
            except (OSError, TimeoutError) as error:
                errors.append(f"{type(error).__name__}: {error}")
                continue
            if watch.end != "done":
                errors.append(f"{status} {watch.end} {body[:200]!r}")
            elif now >= counting_from:
                watched.append(watch)

    await asyncio.gather(*map(worker, range(in_flight)))
    if file is not None:
        for watch in watched:
            file.writelines(f"{watch.run_id} {seq} {at_s * 1000:.1f}\n" for seq, at_s in watch.places)
    ended = [watch for watch in watched if watch.last_s <= until]
    print(
        json.dumps(
            {
                "agent": agent,
                "in_flight": in_flight,
                "runs": len(watched),
                "all_ended_in_s": round(max((watch.last_s for watch in watched), default=began_s) - began_s, 2),
                "runs_per_s": len(ended) / seconds,
                "errors": len(errors),
                "first_errors": errors[:3],
                "first_text_ms": spread([watch.first_text_s - watch.began_s for watch in watched]),
                "end_ms": spread([watch.last_s - watch.began_s for watch in watched]),
                "longest_silence_ms": spread([watch.longest_silence_s for watch in watched]),
                "client_cpu_s": time.process_time() - cpu_before_s,
            }
        ),
        flush=True,
    )


def spread(seconds: list[float]) -> dict[str, float]:
    """Milliseconds: p50, p99, max."""
    ordered = sorted(one * 1000 for one in seconds)
    result = {"p50": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99), "max": percentile(ordered, 1.0)}
    return {name: round(value, 2) for name, value in result.items()}


if __name__ == "__main__":
    _, where, agent_name, count, warm, long, *files = sys.argv
    with open(files[0] if files else "/dev/null", "w", encoding="ascii") as out:
        uvloop.run(main(where, agent_name, int(count), float(warm), float(long), out if files else None))
