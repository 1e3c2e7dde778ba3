"""The runs of a campaign: half of them started by a microservice through the topic, half over HTTP; half of them take a
second or two, the others a tenth of that or ten times as long. One in ten uses the memory of the user that all of them
have (memory.py).

A closed loop of workers, each starting its next run when its last one is over, so that runs are under way whenever
something is struck, and a system that stands still gets no more than it can hold.

    topic   StartRun appended until the broker has acknowledged it, after an unknown outcome again. One in ten is sent
            once more when its run is over, as a nervous sender would, and some a whole round later; one in eight has a
            second run in its session; one in twelve is cancelled while it works
    http    POST /v1/runs with an Idempotency-Key, read to the frame `done`; after a broken connection or a 503 again
            with the same key, for as long as it takes

What was acknowledged is kept as a promise, to be held against the log. A run that does not end in RUN_TIMEOUT_S is let
go; the checker will say so.
Before: campaign.  After: witness.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count

import httpx

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import KafkaAppender
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.records import replace
from tests.chaos.evidence import COMMANDS, Promise
from tests.chaos.memory import USER_ID, prompt_of
from tests.chaos.stack import CALLER, PARTITIONS, REMEMBERER, SPRINTER, WORKER
from tests.chaos.witness import Witness

AGENTS = (WORKER, WORKER, WORKER, WORKER, REMEMBERER, SPRINTER, SPRINTER, SPRINTER, CALLER, CALLER)
"""By the last digit of half a run's number, so that both ways of starting runs start all of them."""
RUN_TIMEOUT_S = 90.0
"""A slow run takes fifteen seconds, the worst single fault some twenty, and another may follow it at once."""
HTTP_TIMEOUT_S = 15.0
"""Longest silence of the api: three quarters of its keep-alive."""
RETRY_S = 0.2
"""Pause of a client before it comes again."""
IN_FLIGHT = 24
"""Runs under way at once: five to ten runs a second."""
REPEAT_EVERY, CONTINUE_EVERY, CANCEL_EVERY = 10, 8, 12
CANCEL_AFTER_S = 0.7
"""In the middle of a run."""
LATE_REPEATS = 20
"""Orders of earlier rounds that are sent again in each round: their runs are long over, and checkpoints, owners and
snapshots have come and gone since."""
OLD_ORDERS_MAX = 1_000
"""Kept for that."""


class Load:
    """Starts runs. `promises` is what was acknowledged, `met` what its clients met on the way."""

    def __init__(
        self,
        appender: KafkaAppender,
        client: httpx.AsyncClient,
        witness: Witness,
        *,
        label: str,
        old: Sequence[StartRun] = (),
        run_timeout_s: float = RUN_TIMEOUT_S,
    ) -> None:
        """`old` are orders of earlier rounds, the latest last."""
        self.promises: list[Promise] = []
        self.met: Counter[str] = Counter()
        self.orders: list[StartRun] = [*old][-OLD_ORDERS_MAX:]
        """Those whose runs are over, for the next round's `old`."""
        self.started = 0
        self._old = random.Random(label).sample(self.orders, min(LATE_REPEATS, len(self.orders)))
        self._appender = appender
        self._client = client
        self._witness = witness
        self._label = label
        self.run_timeout_s = run_timeout_s
        self._codec = local_codec()
        self._moved = asyncio.Condition()

    async def run(self, runs: int, *, until: asyncio.Event, in_flight: int = IN_FLIGHT) -> None:
        """`runs` runs, and more until the event is set; until all have ended or were let go."""
        numbers = count()

        async def worker() -> None:
            for number in numbers:
                if number >= runs and until.is_set():
                    return
                await self._one(number)

        async with asyncio.TaskGroup() as workers:
            for _ in range(in_flight):
                workers.create_task(worker())
            for order in self._old:
                await self.reached(self.started + runs // (2 * LATE_REPEATS))
                await self._append(partition_key(order), order)

    async def reached(self, number: int) -> None:
        """Until that many runs were begun."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.started >= number)

    async def _one(self, number: int) -> None:
        async with self._moved:
            self.started += 1
            self._moved.notify_all()
        try:
            async with asyncio.timeout(self.run_timeout_s):
                if number % 2:
                    await self._over_http(number)
                else:
                    await self._through_the_topic(number)
        except TimeoutError:
            self.met[f"run not over in {self.run_timeout_s:g} s"] += 1

    # --- as a microservice -------------------------------------------------------------------------------------------

    async def _through_the_topic(self, number: int) -> None:
        token = fresh_token(time.time_ns() // 1_000_000, os.urandom(10))
        # Every other one leaves the run's id to the owner, unless somebody has to name the run later.
        named = number % 4 or number % CONTINUE_EVERY == 0 or number % CANCEL_EVERY == 0
        run_id = f"r_{token}" if named else ""
        start = StartRun(
            envelope=_envelope(token),
            agent=agent_of(number),
            prompt=self._prompt(number),
            run_id=run_id,
            user_id=USER_ID,
        )
        await self._append(token, start)
        if number % CANCEL_EVERY == 0:
            await asyncio.sleep(CANCEL_AFTER_S)
            cancel = CancelRun(envelope=_envelope(f"{token}-cancel"), run_id=run_id, reason="chaos")
            await self._append(token, cancel)
        await self._witness.ended(token)
        if run_id:
            self.orders.append(start)
        if number % REPEAT_EVERY == 0:
            await self._append(token, start)
        if number % CONTINUE_EVERY == 0:
            more = replace(start, envelope=_envelope(f"{token}-more"), run_id=f"{run_id}-more", session_id=f"s_{token}")
            await self._append(token, more)
            await self._witness.ended(f"{token}-more")

    async def _append(self, token: str, command: StartRun | CancelRun) -> None:
        """Until the broker has acknowledged it."""
        outgoing = ProducerRecord(key=token.encode(), value=self._codec.encode(command))
        partition = partition_of(token.encode(), PARTITIONS)
        while True:
            try:
                offset = await self._appender.append(COMMANDS, partition, [outgoing])
            except UnknownOutcome:
                self.met["topic: unknown outcome, sent again"] += 1
                await asyncio.sleep(RETRY_S)
                continue
            name = command.envelope.command_id
            at_s = time.monotonic()
            self.promises.append(Promise(sender="topic", name=name, partition=partition, offset=offset, at_s=at_s))
            return

    # --- over HTTP ---------------------------------------------------------------------------------------------------

    async def _over_http(self, number: int) -> None:
        await self.run_over_http(f"{self._label}-{number}", agent_of(number), self._prompt(number))

    def _prompt(self, number: int) -> str:
        return prompt_of(f"{self._label}-{number}") if agent_of(number) == REMEMBERER else f"run {number}"

    async def run_over_http(self, key: str, agent: str, prompt: str) -> str:
        """Start a run and read it to its end, however often that takes; its id."""
        while True:
            try:
                run_id = await self._post(key, agent, prompt)
            except httpx.TransportError as error:
                self.met[f"http: {type(error).__name__}, came again"] += 1
                run_id = ""
            if run_id:
                await self._witness.ended(run_id)
                return run_id
            await asyncio.sleep(RETRY_S)

    async def _post(self, key: str, agent: str, prompt: str) -> str:
        """The run's id once its stream was read to the end; empty when the client has to come again."""
        body = {"agent": agent, "prompt": prompt, "user_id": USER_ID}
        async with self._client.stream("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key}) as answer:
            if answer.status_code == 503:
                values = json.loads(await answer.aread())
                self.met[f"http: 503 {values['code']}, came again"] += 1
                if values["code"] == "run_pending":
                    self._promise(key, values["run_id"])
                return ""
            if answer.status_code != 200:
                text = (await answer.aread()).decode(errors="replace")
                raise AssertionError(f"POST /v1/runs with key {key}: {answer.status_code} {text[:500]}")
            return await self._read(answer, key)

    async def _read(self, answer: httpx.Response, key: str) -> str:
        event, run_id = "", ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif event == "agent" and line.startswith("data: "):
                run_id = str(json.loads(line.removeprefix("data: "))["run_id"])
                self._promise(key, run_id)
            elif event == "done":
                return run_id
        if run_id and self._witness.is_over(run_id):
            return run_id  # it failed, which is the checker's to judge
        self.met["http: stream ended early, came again"] += 1
        return ""

    def _promise(self, key: str, run_id: str) -> None:
        self.promises.append(Promise(sender="http", name=key, run_id=run_id, at_s=time.monotonic()))


def agent_of(number: int) -> str:
    """Whose run it is."""
    return AGENTS[number // 2 % len(AGENTS)]


def partition_key(order: StartRun) -> str:
    """Of an order that names its run: what follows the first mark."""
    return order.run_id.split("_", 1)[1]


def _envelope(command_id: str) -> CommandEnvelope:
    return CommandEnvelope(command_id=command_id, issued_at_ms=time.time_ns() // 1_000_000)
