"""Memory over HTTP: PUT of keys, or GET of keys that are there. A process of its own.

    python -m tests.benchmarks.memory_http_client HOST:PORT IN_FLIGHT WARM_UP_S SECONDS      marks, then one JSON line

BENCH_OPERATION is put or get. The keys are a thousand, of sixteen users, with 200 bytes each.
"""

import asyncio
import json
import os
import sys
from itertools import count

import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.sse_client import Client

KEYS, USERS = 1_000, 16
VALUE = {"text": "x" * 180}


class MemoryClient:
    """Puts and gets keys."""

    def __init__(self, address: str) -> None:
        self._client = Client(address)
        self._numbers = count()

    async def put(self) -> None:
        """Set the next key."""
        await self._send("PUT", {"value": VALUE})

    async def get(self) -> None:
        """Read the next key."""
        await self._send("GET")

    async def fill(self) -> None:
        """Set every key once."""
        for _ in range(0, KEYS, USERS):
            await asyncio.gather(*(self.put() for _ in range(USERS)))

    async def _send(self, method: str, body: object = None) -> None:
        number = next(self._numbers) % KEYS
        path = f"/v1/_memory/scopes/user/user-{number % USERS}/keys/key-{number}"
        status, answer = await self._client.send(self._client.message(method, path, body))
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {answer[:200]!r}")


async def main(address: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    client = MemoryClient(address)
    await client.fill()
    one = client.put if os.environ["BENCH_OPERATION"] == "put" else client.get
    measured = await measure(one, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
