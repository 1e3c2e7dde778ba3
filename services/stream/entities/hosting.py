"""Entities in a process: replicas and a client in every one, and in a runtime the hosts of the topic sets.

The one place that says how the parts are put together; the runtime, the application layer, tests, benchmarks and the
simulation pass their edges and get the same.

Before: services/runtime/entity_hosting.py, services/application/bootstrap.py. After: services/stream/host.py.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import Record, replace
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import ENTITY_SET, TIMER_FIRED, Family, aggregate_key
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.client import EntityClient
from loomlog.services.stream.entities.cold import ColdRows
from loomlog.services.stream.entities.families import Deliver, EntityFamilies, FamilySet
from loomlog.services.stream.entities.handler import EntityCommandHandler, EntityContext
from loomlog.services.stream.entities.outbox import Outbox
from loomlog.services.stream.entities.replicas import Replicas
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.assignment import RequestHandover
from loomlog.services.stream.ownership.drain import DRAIN_S
from loomlog.services.stream.ownership.inbox import Asked
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail, Standby
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.topic_set import TopicSetHost

log = logging.getLogger(__name__)

HOT_AGGREGATES_MAX = 50_000
"""Aggregates that stay in memory although nothing happens in them, in all partitions of a process together."""
HOT_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of their states."""
TIMERS_EVERY_S = 2.0
"""Interval at which the timers of resting aggregates are read ahead."""
TIMERS_AHEAD_MS = 10_000
TIMERS_READ_MAX = 20_000
"""Timers of a partition read at once, so that all schedules of one minute fire together; the rest are read when these
have fired. A timer is about 100 bytes.
"""
CLOCK_CHECK_S = 1.0
"""How often is looked whether the clock was set forward: timers that were not due soon are due then."""
DELIVERY_WAIT_S = 10.0
"""How long a delivery waits for its answer before it is tried again."""
LOCAL_READ_S = 1.0
"""How long a read waits for an append before it asks the rows instead."""
PutCredentials = Callable[[str, Any, Mapping[str, str]], Awaitable[Any]]
"""Takes tenant, StartRun and where the values are by the name of the credential, and stores the values. Returns None,
or a command that is sent instead of the start, when there is no value. Raises Transient.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityParts:
    """What every process with entities has for the families of a topic set, and through `beside` for those of others.

    `client` takes the commands of all of them.
    """

    family: EntityFamilies
    replicas: Replicas
    client: EntityClient
    topics: Topics
    rows: ColdRows | None
    beside: "tuple[EntityParts, ...]" = ()

    @property
    def each(self) -> "tuple[EntityParts, ...]":
        """The parts of every topic set of the process."""
        return (self, *self.beside)

    def of(self, aggregate: str) -> "EntityParts":
        """Return the parts of the topic set of an aggregate, by its full id, or by `<family>:`. Raises UnknownFamily,
        and names the families of this set then.
        """
        name = aggregate.partition(":")[0]
        for parts in self.beside:
            if name in parts.family.families.by_name:
                return parts
        self.family.families.of(aggregate)
        return self


def build_entity_parts(
    declarations: Iterable[Family[Any, Any, Any]],
    codec: Codec,
    *,
    appender: LogAppender,
    ranges: LogRanges,
    partitions: int,
    topics: Topics,
    rows: ColdRows | None,
    name: str = ENTITY_SET,
) -> EntityParts:
    """Build replicas that have read nothing yet, and a client: for one topic set, `name`."""
    families = FamilySet(declarations)
    family = EntityFamilies(families, name)
    reading = EntityCheckpoints(
        families, codec, appender=appender, ranges=ranges, topic=topics.snapshots, events_topic=topics.events
    )
    replicas = Replicas(
        family, codec, events_topic=topics.events, partitions=partitions, checkpoints=reading, ranges=ranges
    )
    client = EntityClient(
        families,
        codec,
        appender=appender,
        ranges=ranges,
        commands_topic=topics.commands,
        replicas=replicas,
        rows=rows,
    )
    return EntityParts(family=family, replicas=replicas, client=client, topics=topics, rows=rows)


def join_parts(first: EntityParts, *others: EntityParts) -> EntityParts:
    """Return the first parts with the others beside them; the client of each gets the commands of all families."""
    every = (first, *others)
    for parts in every:
        parts.client.beside = [one.client for one in every if one is not parts]
    return dataclasses.replace(first, beside=others)


class HostedEntities:
    """The partitions of a topic set in a runtime: for its host, with outbox and timers of resting aggregates."""

    def __init__(
        self,
        parts: EntityParts,
        codec: Codec,
        *,
        appender: LogAppender,
        ranges: LogRanges,
        commands: PausableTail,
        dead_letters: DeadLetters,
        rows: ColdRows,
        run_topics: Topics,
        clock_ms: Callable[[], int],
        name: str,
        liveness_address: str = "",
        encrypt: Callable[[Any, Any], Awaitable[Any]] | None = None,
        make_standby: Callable[[HostContext], Standby | Spare] | None = None,
        request_handover: RequestHandover | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        self.parts = parts
        parts.client.encrypt = encrypt
        self.outbox = Outbox(self._deliver, self._spawn)
        self.receivers: dict[str, Callable[[Any, str], None]] = {}
        """Take what aggregates send that is no command, by the name in `Send.to`, with the tenant; they return at once.
        What such a receiver loses with its process the timer of the aggregate sends again.
        """
        self.put_credentials: PutCredentials | None = None
        self._read_ahead: dict[tuple[int, int], frozenset[tuple[str, int]]] = {}
        """Timers that were set, by partition and term."""
        self._rows = rows
        self._appender = appender
        self._codec = codec
        self._clock_ms = clock_ms
        self._run_commands = run_topics.commands
        self.handlers = EntityContext(
            parts.family,
            codec,
            ranges=ranges,
            events_topic=parts.topics.events,
            partitions=parts.replicas.partitions,
            rows=rows,
            outbox=self.outbox,
            clock_ms=clock_ms,
            encrypt=encrypt,
        )
        checkpoints = EntityCheckpoints(
            parts.family.families,
            codec,
            appender=appender,
            ranges=ranges,
            topic=parts.topics.snapshots,
            events_topic=parts.topics.events,
            projected_below=rows.next_offset,
            delivered_below=self.outbox.delivered_below,
            on_written=self._let_rest,
        )
        context = HostContext(
            family=parts.family,
            codec=codec,
            topics=parts.topics,
            appender=appender,
            ranges=ranges,
            snapshots=checkpoints,
            dead_letters=dead_letters,
            effect_runner=EffectRunner(parts.family, run=_no_call, done=lambda *result: False, clock_ms=clock_ms),
            make_handler=lambda folded, number, term: EntityCommandHandler(self.handlers, folded, number=number),
            clock_ms=clock_ms,
            name=name,
            liveness_address=liveness_address,
        )
        self.topic_set = TopicSetHost(
            context,
            commands=commands,
            standby=None if make_standby is None else make_standby(context),
            request_handover=request_handover,
            drain_s=drain_s,
        )

    def attach(self, host: Host) -> None:
        """Hand commands of this process to the owners of this host."""
        self.parts.client.ask_owner = lambda partition, asked: host.ask(self.parts.family.name, partition, asked)
        self.parts.client.local_entity = self.local_entity

    def owned_terms(self) -> dict[int, int]:
        """Return the partitions that are owned here now, and the term in each."""
        owners = self.topic_set.owners.items()
        return {number: owner.partition.term for number, owner in owners if owner.partition is not None}

    async def local_entity(self, number: int, name: str, after: int) -> Entity[Any] | None:
        """Return a hot aggregate once what was decided in it is in the log (client.LocalEntity)."""
        owner = self.topic_set.owners.get(number)
        partition = None if owner is None else owner.partition
        aggregate = None if partition is None else partition.aggregates.get(name)
        if partition is None or aggregate is None:
            return None
        entity: Entity[Any] = aggregate.state
        if not partition.is_idle and name in partition.undecided_aggregates():
            reached: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            partition.on_durable(lambda offset: None if reached.done() else reached.set_result(offset))
            try:
                async with asyncio.timeout(LOCAL_READ_S):
                    await reached
            except TimeoutError:
                return None
        return entity if partition.next_offset > after and not aggregate.pending_events else None

    # --- aggregates at rest ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the timers of resting aggregates ahead, until cancelled."""
        loop = asyncio.get_running_loop()
        read_s, read_ms = loop.time(), self._clock_ms()
        while True:
            await asyncio.sleep(min(CLOCK_CHECK_S, TIMERS_EVERY_S))
            passed_s = loop.time() - read_s
            is_set_forward = self._clock_ms() - read_ms > passed_s * 1000 + TIMERS_AHEAD_MS / 2
            if passed_s < TIMERS_EVERY_S and not is_set_forward:
                continue
            read_s, read_ms = loop.time(), self._clock_ms()
            # Together: they become one statement (rows.py).
            await asyncio.gather(*map(self.read_ahead, list(self.topic_set.owners.values())))

    async def read_ahead(self, owner: PartitionOwner) -> None:
        """Load what a takeover has left, and set the timers that are due soon."""
        handler, partition = owner.handler, owner.partition
        if not isinstance(handler, EntityCommandHandler) or partition is None:
            return
        for name in handler.untouched():
            owner.deliver(
                Asked(AskedRecord(key=aggregate_key(name), partition=owner.number, aggregate=name), TIMER_FIRED)
            )
        try:
            due = await self._rows.due_timers(owner.number, self._clock_ms() + TIMERS_AHEAD_MS, TIMERS_READ_MAX)
        except ConnectorError as error:  # also without the tables, which the projector makes
            log.warning("the timers of resting aggregates wait: %s", error)
            return
        now_ms, place = self._clock_ms(), (owner.number, partition.term)
        known = self._read_ahead.get(place, frozenset())
        for name, at_ms in due:
            # One that is due and was set already has fired in vain, for example while the rows could not be read.
            if name not in partition.aggregates and (at_ms <= now_ms or (name, at_ms) not in known):
                self.topic_set.timers.set(at_ms, owner.number, name)
        self._read_ahead = {one: timers for one, timers in self._read_ahead.items() if one[0] != owner.number}
        self._read_ahead[place] = frozenset(due)

    def _let_rest(self, number: int, below: int) -> None:
        owner = self.topic_set.owners.get(number)
        if owner is None or owner.partition is None or not isinstance(owner.handler, EntityCommandHandler):
            return
        share = max(1, len(self.topic_set.owners))
        owner.handler.evict(owner.partition, below, keep=HOT_AGGREGATES_MAX // share, keep_bytes=HOT_BYTES_MAX // share)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        group = self.topic_set.context.effect_runner.group
        assert group is not None, "entities are hosted inside the host's task group"
        return group.create_task(work)

    # --- the outbox --------------------------------------------------------------------------------------------------

    async def _deliver(self, delivery: Deliver, tenant: str) -> None:
        sent: Any = delivery.send.command
        if not isinstance(delivery.send.command, Record):
            if (receiver := self.receivers.get(delivery.send.to)) is not None:
                receiver(sent, tenant)
            return
        envelope = CommandEnvelope(
            command_id=delivery.id, tenant=tenant, subject=delivery.id.rpartition(":")[0], issued_at_ms=delivery.at_ms
        )
        if delivery.send.to == "run":
            # Its subject is the aggregate, whatever event sends it: a run's content is encrypted for its subject.
            envelope = replace(envelope, subject=delivery.id.rsplit(":", 2)[0])
            instead: Any = None
            if delivery.send.credentials_env and self.put_credentials is not None:
                instead = await self.put_credentials(tenant, sent, delivery.send.credentials_env)
            if instead is None:
                await self._send_to_run(replace(sent, envelope=envelope))
                return
            sent = instead
        command = replace(sent, envelope=envelope)
        try:
            await self.parts.client.ask(command, wait_s=DELIVERY_WAIT_S)
        except CommandUnanswered as error:
            raise Transient(str(error), kind="unavailable") from error
        except CommandInvalid as error:
            log.error("the command %s cannot be carried out and is dropped: %s", delivery.id, error)

    async def _send_to_run(self, command: Any) -> None:
        """Append a command of loom.run.commands; its run id has the partition."""
        run_id = command.run_id or command.session_id
        key = partition_key(run_id).encode()
        record = ProducerRecord(key=key, value=self._codec.encode(command))
        await self._appender.append(self._run_commands, partition_of(key, self.parts.replicas.partitions), [record])


async def _no_call(effect: Any, state: Any, tenant: str) -> Any:
    raise AssertionError("entities have no calls")
