"""Client of the budget family: appends commands and waits for their replies. One per process.

Commands that arrive during an append go with the next one (group commit), so a hundred calls that start together cost
two appends and not a hundred. A command is idempotent by its content, so one whose append has an unknown outcome is
sent again.

Before: the runtime (models/budget_reservation.py) and the command layer (services/application/admin/budget_limits.py).
After: the owner of the budget partition.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.budget_commands import Command
from loomlog.schemas.generated.budget_events import Event
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.budget.family import KEY, PARTITION
from loomlog.services.families.budget.replica import BudgetReplica
from loomlog.services.stream.family import Topics

log = logging.getLogger(__name__)

RETRY_S = 0.2
"""Seconds before an append of unknown outcome is repeated."""
BATCH_MAX = 500
"""Largest number of commands in one append; some 150 KB."""
QUEUE_MAX = 20_000
"""Commands that may wait for the log. More mean that the broker is away; further callers fail at once."""


class BudgetClientBusy(Exception):
    """The queue of commands that wait for the log is full."""


class BudgetClient:
    """Client of the budget family; `name` identifies this process, `fresh_token` makes command ids."""

    def __init__(
        self,
        board: BudgetReplica,
        appender: LogAppender,
        codec: Codec,
        topics: Topics,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        name: str,
    ) -> None:
        self.board = board
        self._appender = appender
        self._codec = codec
        self._topic = topics.commands
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._name = name
        self._queue: list[tuple[ProducerRecord, asyncio.Future[None] | None]] = []
        self._ready = asyncio.Event()

    def envelope(self, tenant: str, subject: str = "") -> CommandEnvelope:
        """Return the envelope of a new command."""
        return CommandEnvelope(
            command_id=f"b_{self._fresh_token()}",
            tenant=tenant,
            subject=subject or self._name,
            issued_at_ms=self._clock_ms(),
        )

    async def run(self) -> None:
        """Append commands until cancelled."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._queue:
                batch, self._queue = self._queue[:BATCH_MAX], self._queue[BATCH_MAX:]
                await self._append([outgoing for outgoing, _ in batch])
                for _, durable in batch:
                    if durable is not None and not durable.done():
                        durable.set_result(None)

    async def _append(self, records: Sequence[ProducerRecord]) -> None:
        while True:
            try:
                await self._appender.append(self._topic, PARTITION, records)
            except UnknownOutcome as error:
                log.warning("%d commands for the books are sent again: %s", len(records), error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    def publish(self, command: Command) -> None:
        """Queue a command without waiting. It is dropped when the queue is full: reservations also end by timeout."""
        if len(self._queue) < QUEUE_MAX:
            self._put(command, None)
        else:
            log.error("a %s is dropped: %d wait for the log", type(command).__name__, len(self._queue))

    async def send(self, command: Command) -> None:
        """Append a command and wait until it is in the log. Raises BudgetClientBusy."""
        if len(self._queue) >= QUEUE_MAX:
            raise BudgetClientBusy(f"{len(self._queue)} commands for the books wait for the log")
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(command, durable)
        await durable

    async def request(self, command: Command, *, wait_s: float) -> tuple[Event, int] | None:
        """Return the event that answers the command, and its offset; None on timeout. Raises BudgetClientBusy."""
        command_id = command.envelope.command_id
        answer = self.board.reply_to(command_id)
        try:
            async with asyncio.timeout(wait_s):
                await self.send(command)
                return await answer
        except TimeoutError:
            return None
        finally:
            self.board.forget(command_id)

    def _put(self, command: Command, durable: "asyncio.Future[None] | None") -> None:
        self._queue.append((ProducerRecord(key=KEY, value=self._codec.encode(command)), durable))
        self._ready.set()
