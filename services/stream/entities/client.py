"""Sends commands to entities and returns their answers: in memory where the partition is owned here, otherwise by the
commands topic.

In memory a command costs one append, the one with its events; no command record is written, because its sender's own
log has the intent (a tool call) or its sender repeats it (a request). By the topic it is answered when this process has
read its events. Either way the command id makes it happen once: an owner recognises it, and a process that lost the
answer asks the index of handled commands.

Commands for one partition that arrive during an append go with the next one (group commit).

Before: services/families/entity_handlers.py, the outbox. After: handler.py of the partition's owner.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from loomlog.connectors.errors import ConnectorError, Transient, UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.connectors.retries import until_answered
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import command_identity
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, read_answer
from loomlog.services.stream.entities.cold import ColdRows
from loomlog.services.stream.entities.families import FamilySet, is_repair
from loomlog.services.stream.entities.handler import target_of
from loomlog.services.stream.entities.replicas import Replicas
from loomlog.services.stream.ownership.inbox import Asked
from loomlog.services.stream.partition.asked import AskedRecord, OwnerLost
from loomlog.services.stream.snapshots.snapshots import batch_records

log = logging.getLogger(__name__)

LOOK_UP_EVERY_S = 0.5
"""How often the index is asked for a command that is not answered: its events may have been read before it was sent."""
RETRY_S = 0.05
"""Pause before a command is sent again whose partition was lost meanwhile."""
BATCH_COMMANDS_MAX = 500
COMMAND_BYTES_MAX = 600_000
"""Largest encoded command: it must fit one record, and its events one append."""

WRITTEN_MAX = 1_000
"""Aggregates, and tenants of families, whose last write is remembered; a read that follows its write is at most seconds
later.
"""

AskOwner = Callable[[int, Asked], bool]
"""Hands a command to the owner of an entity partition; False if this process does not own it now."""
LocalEntity = Callable[[int, str, int], Awaitable[Entity[Any] | None]]
"""Takes a partition, the full id of an aggregate and an offset; returns the aggregate as this process has it in memory
as its owner, once it is in the log up to its last event, and the partition beyond the offset; None otherwise.
"""


async def _not_owned(partition: int, aggregate: str, after: int) -> None:
    return None


class EntityClient:
    """Protocol loomlog.services.stream.entities.answers.EntityCommands."""

    def __init__(
        self,
        families: FamilySet,
        codec: Codec,
        *,
        appender: LogAppender,
        ranges: LogRanges,
        commands_topic: str,
        replicas: Replicas,
        rows: ColdRows | None = None,
    ) -> None:
        """`rows` has the index of handled commands; without, a lost answer cannot be given again."""
        self.ask_owner: AskOwner = lambda partition, asked: False
        self.local_entity: LocalEntity = _not_owned
        self.beside: Sequence[EntityClient] = ()
        """Clients of the further topic sets of the process, which get the commands of their families."""
        self.encrypt: Callable[[Any, Any], Awaitable[Any]] | None = None
        """Encrypts the content of a command for the topic, as EntityContext takes it; None: it stays in clear."""
        self._families = families
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._topic = commands_topic
        self._replicas = replicas
        self._rows = rows
        self._queues: dict[int, list[tuple[ProducerRecord, asyncio.Future[None]]]] = {}
        self._sending: set[int] = set()
        self._written: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Partition and offset of the last event that this process has caused, by aggregate."""
        self._written_of_tenants: OrderedDict[str, dict[int, int]] = OrderedDict()
        """Offset of the last such event in each partition, by the beginning of the ids of a tenant's aggregates."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        """Return the answer of a command. Raises CommandUnanswered after `wait_s`, CommandInvalid, CommandReused,
        Transient.
        """
        if not self._families.takes(command):
            for other in self.beside:
                if other.takes(command):
                    return await other.ask(command, wait_s=wait_s)
        name = target_of(self._families, command)
        partition = partition_of(aggregate_key(name), self._replicas.partitions)
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    try:
                        answer = await self._ask_once(partition, name, command)
                        self._note(name, answer)
                        return answer
                    except OwnerLost:
                        await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise CommandUnanswered(
                f"{type(command).__name__} for {name[:120]} was not answered within {wait_s:g} s; it may still be "
                "carried out, and sent again with its id it is carried out once"
            ) from None

    async def tell(self, command: Any) -> None:
        """Append a command without waiting for its answer; returns when it is in the log, where its owner reads it once
        there is one. Raises CommandInvalid, Transient.
        """
        name = target_of(self._families, command)
        if self.encrypt is not None:
            command = await self.encrypt(self._families.of(name).declaration, command)
        await self.send(partition_of(aggregate_key(name), self._replicas.partitions), aggregate_key(name), command)

    def takes(self, command: Any) -> bool:
        """Whether a command is of a family of this client's own topic set."""
        return self._families.takes(command)

    def _note(self, name: str, answer: Answer) -> None:
        self._written[name] = (answer.partition, answer.offset)
        self._written.move_to_end(name)
        if len(self._written) > WRITTEN_MAX:
            self._written.popitem(last=False)
        prefix = name[: name.index("/") + 1]
        offsets = self._written_of_tenants.setdefault(prefix, {})
        offsets[answer.partition] = max(answer.offset, offsets.get(answer.partition, -1))
        self._written_of_tenants.move_to_end(prefix)
        if len(self._written_of_tenants) > WRITTEN_MAX:
            self._written_of_tenants.popitem(last=False)

    def last_offset(self, aggregate: str) -> int:
        """Return the offset of the last event that this process has caused in an aggregate; -1 when it has not."""
        return self._written.get(aggregate, (0, -1))[1]

    def last_offsets(self, family: str, tenant: str) -> dict[int, int]:
        """Return the same for all aggregates of a tenant, by partition."""
        return dict(self._written_of_tenants.get(aggregate_id(family, tenant, ""), ()))

    async def _ask_once(self, partition: int, name: str, command: Any) -> Answer:
        key = aggregate_key(name)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked = Asked(AskedRecord(key=key, partition=partition, answer=answer), command)
        if self.ask_owner(partition, asked):
            return await answer
        return await self._ask_by_topic(partition, name, command)

    async def _ask_by_topic(self, partition: int, name: str, command: Any) -> Answer:
        command_id = command.envelope.command_id
        if self.encrypt is not None and not is_repair(command):
            command = await self.encrypt(self._families.of(name).declaration, command)
        answer = self._replicas.expect(name, command_id)
        try:
            await self.send(partition, aggregate_key(name), command)
            while True:
                done, _ = await asyncio.wait({answer}, timeout=LOOK_UP_EVERY_S)
                if done:
                    return answer.result()
                earlier = await self._find_answer(partition, name, command_id)
                if earlier is not None:
                    return earlier
        finally:
            self._replicas.forget(name, command_id, answer)

    async def _find_answer(self, partition: int, name: str, command_id: str) -> Answer | None:
        """Return the answer of a command that was handled before, if the index has it."""
        if self._rows is None:
            return None
        try:
            _, handled = await self._rows.find_command(partition, name, command_identity(command_id))
            if handled is None:
                return None
            return await read_answer(
                self._ranges,
                self._codec,
                self._replicas.topic,
                partition,
                aggregate=name,
                command_id=command_id,
                first=handled.first_offset,
                last=handled.last_offset,
            )
        except ConnectorError:
            return None  # the next look may succeed

    # --- the topic ---------------------------------------------------------------------------------------------------

    async def send(self, partition: int, key: bytes, command: Any) -> None:
        """Append a command to its topic; returns when it is in the log."""
        value = self._codec.encode(command)
        if len(value) > COMMAND_BYTES_MAX:
            raise CommandInvalid(f"a {type(command).__name__} has {len(value)} bytes, at most {COMMAND_BYTES_MAX}")
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(partition, []).append((ProducerRecord(key=key, value=value), durable))
        if partition not in self._sending:
            self._sending.add(partition)
            task = asyncio.get_running_loop().create_task(self._drain(partition))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await durable

    def close(self) -> None:
        """Send nothing more; what is on its way has an unknown outcome."""
        for task in self._tasks:
            task.cancel()

    async def _drain(self, partition: int) -> None:
        queue = self._queues[partition]
        try:
            while queue:
                batch, queue[:] = queue[:BATCH_COMMANDS_MAX], queue[BATCH_COMMANDS_MAX:]
                try:
                    await self._append(partition, [record for record, _ in batch])
                except BaseException as error:
                    for _, durable in batch:
                        if not durable.done():
                            durable.set_exception(Transient(f"the command was not sent: {error}", kind="unavailable"))
                            durable.exception()  # its sender may have left
                    raise
                for _, durable in batch:
                    if not durable.done():
                        durable.set_result(None)
        finally:
            self._sending.discard(partition)

    async def _append(self, partition: int, records: list[ProducerRecord]) -> None:
        for batch in batch_records(records):
            await until_answered(
                partial(self._appender.append, self._topic, partition, batch),
                f"a command for {self._topic}/{partition}",
                failures=(UnknownOutcome,),
                retry_s=RETRY_S,
            )
