"""What the sender of a command to an entity gets: the events that answer it, and where they are in the log.

Before: services/families/entity_handlers.py sends. After: services/stream/entities/client.py.
"""

from typing import Any, Protocol

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import command_identity
from loomlog.schemas.records import Value


class Answer(Value, frozen=True, kw_only=True):
    """The events of the decision on a command, all in the log; their last one is at that position.

    The last event is a CommandRefused when the command was refused, a CommandHadNoEffect when it changed nothing.
    """

    events: tuple[Any, ...]
    topic: str
    partition: int
    offset: int

    @property
    def position(self) -> str:
        """Return the position token: `<topic>/<partition>:<offset>`."""
        return f"{self.topic}/{self.partition}:{self.offset}"


async def read_answer(
    ranges: LogRanges,
    codec: Codec,
    topic: str,
    partition: int,
    *,
    aggregate: str,
    command_id: str,
    first: int,
    last: int,
) -> Answer:
    """Return the answer of a command that was handled, read from the log; `first` and `last` are the offsets of its
    events. Raises Transient; CommandInvalid when they are deleted; CommandReused when it had another body.
    """
    events: list[Any] = []
    async with await ranges.read(topic, partition, first, last + 1) as chunks:
        async for chunk in chunks:
            for record in chunk:
                decoded = codec.decode(record.value or b"")
                envelope = decoded.envelope
                if envelope is None or envelope.aggregate != aggregate:
                    continue
                if command_identity(envelope.cause_id) == command_identity(command_id):
                    require_same_body(command_id, envelope.cause_id)
                    events.append(decoded.record)
    if not events:
        raise CommandInvalid(
            f"{command_id[:120]!r} was carried out before, and its answer cannot be given again: the events up to "
            f"offset {last} of {topic}/{partition} are deleted"
        )
    return Answer(events=tuple(events), topic=topic, partition=partition, offset=last)


class CommandReused(Exception):
    """The id of a command was used for one with another body, which was carried out; this one was not."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f"the command {command_id[:120]} was carried out before, with another body")


def require_same_body(sent: str, handled: str) -> None:
    """Raise CommandReused for a command whose identity was handled under another id: with another body."""
    if sent != handled:
        raise CommandReused(sent)


class CommandUnanswered(Exception):
    """No owner has answered a command in time. It may still be carried out; sent again with its id, it is once."""


class CommandInvalid(Exception):
    """A command that no family takes, or that is for an aggregate that cannot be; the text says what is wrong."""


class EntityCommands(Protocol):
    """Sends commands to entities."""

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        """Return the answer to a command of a family, carried out once however often it is sent with its id.

        Raises CommandUnanswered after `wait_s`, CommandInvalid, CommandReused for a keyed command with another body
        than before, Transient when the log does not answer.
        """
        ...
