"""The driver of circuits: three runs each that hand a piece of work on over channels and memory. A process of its own.

    python -m tests.benchmarks.channels_circuit_client HOST:PORT FIRST COUNT AT_ONCE POLL_MS      one JSON line

Circuits cFIRST and on, at most AT_ONCE at a time, ten of them for each user. A circuit posts its researcher, its editor
and its evaluator one after the other, each when the stream of the one before has its first frame, and reads all three
streams to their ends. Its time runs from before the first post to the last end. With POLL_MS, each run that has not
ended is also asked for at that interval, as the driver of the reference does, and the circuit ends when such answers
say so.

A circuit is complete when its three runs have completed, its three keys exist, and the score in the last one is a
number. The keys are read after all circuits have ended.

Before: channels_circuits.py. After: the api.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.sse_client import Client, Frame, allow_streams

STAGES = ("researcher", "editor", "evaluator")
KEYS = ("research", "research-edited", "research-scored")
CIRCUITS_OF_USER = 10
CIRCUIT_TIMEOUT_S = 300.0
CHECKS_AT_ONCE = 16
KEY_WAIT_S = 30.0
"""Seconds until a key that was set can be read."""
KEY_POLL_S = 0.25
ENDED = ("completed", "failed", "cancelled")


@dataclass(slots=True)
class Stage:
    """A run of a circuit."""

    posted: asyncio.Event = field(default_factory=asyncio.Event)
    agent_id: str = ""
    end: str = ""
    """Type of the last frame; the status of an answer that is no stream."""
    problem: str = ""

    def see(self, frame: Frame) -> None:
        if not self.agent_id and b'"agent_id"' in frame.data:
            self.agent_id = str(json.loads(frame.data)["agent_id"])
        if frame.type in ("done", "error"):
            self.end = frame.type
            self.problem = frame.data.decode()[:300] if frame.type == "error" else ""
        self.posted.set()


@dataclass(slots=True, kw_only=True)
class Circuit:
    """What became of a circuit; times are seconds."""

    name: str
    user: str
    took_s: float = 0.0
    problem: str = ""


class Driver:
    """Sends circuits to an api."""

    def __init__(self, client: Client, *, at_once: int, poll_s: float) -> None:
        self._client = client
        self._places = asyncio.Semaphore(at_once)
        self._poll_s = poll_s

    async def run(self, number: int) -> Circuit:
        """Carry out a circuit."""
        circuit = Circuit(name=f"c{number}", user=f"user-{number // CIRCUITS_OF_USER}")
        async with self._places:
            began_s = time.perf_counter()
            try:
                async with asyncio.timeout(CIRCUIT_TIMEOUT_S):
                    circuit.problem = await self._carry_out(circuit)
            except (OSError, TimeoutError) as error:
                circuit.problem = f"{type(error).__name__}: {error}"
            circuit.took_s = time.perf_counter() - began_s
        return circuit

    async def _carry_out(self, circuit: Circuit) -> str:
        """Return the problem of the first run that did not complete; empty when there is none."""
        runs = {name: Stage() for name in STAGES}
        async with asyncio.TaskGroup() as group:
            for name, stage in runs.items():
                group.create_task(self._stream(circuit, name, stage))
                await stage.posted.wait()
            if self._poll_s:
                await self._poll({stage.agent_id for stage in runs.values() if stage.agent_id})
        return next((f"{name}: {one.end} {one.problem}" for name, one in runs.items() if one.end != "done"), "")

    async def _stream(self, circuit: Circuit, agent: str, stage: Stage) -> None:
        body = {"agent": agent, "user_id": circuit.user, "prompt": f"Your circuit_id is {circuit.name}."}
        message = self._client.message("POST", "/v1/runs", body)
        try:
            status, answer = await self._client.send(message, stage.see, timeout_s=None)
            if status != 200:
                stage.end, stage.problem = str(status), answer.decode()[:300]
        finally:
            stage.posted.set()

    async def _poll(self, agent_ids: set[str]) -> None:
        """Ask for runs until all have ended."""
        while agent_ids:
            for agent_id in sorted(agent_ids):
                status, body = await self._client.send(self._client.message("GET", f"/v1/agents/{agent_id}"))
                if status == 200 and json.loads(body)["status"] in ENDED:
                    agent_ids.discard(agent_id)
            if agent_ids:
                await asyncio.sleep(self._poll_s)

    async def check(self, circuit: Circuit) -> None:
        """Read the keys of a circuit that has completed."""
        for key in KEYS if not circuit.problem else ():
            value = await self._value(circuit, key)
            if value is None:
                circuit.problem = f"{circuit.name}-{key} does not exist"
            elif key == KEYS[-1] and not _is_score(value):
                circuit.problem = f"{circuit.name}-{key} has no score: {value!r}"

    async def _value(self, circuit: Circuit, key: str) -> Any:
        path = f"/v1/_memory/scopes/user/{circuit.user}/keys/{circuit.name}-{key}"
        until = time.monotonic() + KEY_WAIT_S
        while True:
            status, body = await self._client.send(self._client.message("GET", path))
            if status == 200:
                return json.loads(body)["entry"]["value"]
            if time.monotonic() > until:
                return None
            await asyncio.sleep(KEY_POLL_S)


def _is_score(value: Any) -> bool:
    fields = json.loads(value) if isinstance(value, str) else value
    return isinstance(fields, dict) and isinstance(fields.get("score"), int | float)


async def main(address: str, first: int, count: int, at_once: int, poll_s: float) -> None:
    allow_streams(len(STAGES) * min(at_once, count) * (2 if poll_s else 1))
    client = Client(address)
    driver = Driver(client, at_once=at_once, poll_s=poll_s)
    cpu_before_s, began_s = time.process_time(), time.perf_counter()
    circuits = await asyncio.gather(*(driver.run(number) for number in range(first, first + count)))
    seconds = time.perf_counter() - began_s
    client_cpu_s = time.process_time() - cpu_before_s
    checks = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def check(circuit: Circuit) -> None:
        async with checks:
            await driver.check(circuit)

    await asyncio.gather(*map(check, circuits))
    client.close()
    problems = [f"{circuit.name} {circuit.problem}" for circuit in circuits if circuit.problem]
    took_ms = sorted(circuit.took_s * 1000 for circuit in circuits)
    print(
        json.dumps(
            {
                "circuits": count,
                "complete": count - len(problems),
                "seconds": seconds,
                "circuits_per_s": count / seconds,
                "p50_ms": percentile(took_ms, 0.50),
                "p95_ms": percentile(took_ms, 0.95),
                "p99_ms": percentile(took_ms, 0.99),
                "max_ms": took_ms[-1],
                "client_cpu_s": client_cpu_s,
                "problems": problems[:5],
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    _, where, first_number, how_many, how_many_at_once, poll_ms = sys.argv
    uvloop.run(main(where, int(first_number), int(how_many), int(how_many_at_once), float(poll_ms) / 1000))
