"""A command that is handed over in memory, in the place of a record of the commands topic.

Before: services/stream/entities/client.py has a command for a partition that is owned in this process; a timer of an
aggregate at rest is one too. After: command_intake.py takes it like a record.
"""

import asyncio

from msgspec import Struct

from loomlog.services.stream.entities.answers import Answer


class OwnerLost(Exception):
    """The partition was lost before the answer was in the log: ask again, with the same command id."""


class AskedRecord(Struct):
    """A command handed over in memory, in the place of a record of the commands topic (offset -1).

    `answer` is resolved when its events are in the log; None for the timer of an aggregate at rest.
    """

    key: bytes
    partition: int
    aggregate: str = ""
    answer: "asyncio.Future[Answer] | None" = None
    topic: str = ""
    offset: int = -1
    timestamp: int = 0
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def resolve(self, answer: Answer) -> None:
        """Report the answer."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Report that it cannot be carried out."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
