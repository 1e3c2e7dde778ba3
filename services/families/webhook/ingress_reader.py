"""Reads loom.ingress as a member of a consumer group: asks the owner of each delivery, and commits what was answered.

A record may be read twice, and what it asks for happens once: its command id follows from the record, and the id of a
delivery is known to its webhook. A record that cannot be read, or goes nowhere, becomes a dead letter with the reason.
While an owner, the log or a store is away, the records wait, and apis go on accepting.

    webhook, delivery spawn     ReceiveDelivery; the outbox of the webhook starts the run
    webhook, delivery channel   ReceiveDelivery; then the message is published, and a refusal is told to the webhook.
                                Their ids follow from the record, so a reader that dies in between does no harm
    channel (CloudEvents)       the message is published

All records of a poll are asked about at once, in the order of the log.

Before: connectors/kafka/group_reader.py. After: services/stream/entities/client.py.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.protocols import LogRecord
from loomlog.connectors.retries import until_answered
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import NoteRunEnded, ReceiveDelivery, RejectDelivery, SubmitDelivery
from loomlog.schemas.generated.webhook_events import EventReceived
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.channel.access import require_publisher
from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import ChannelCaller, Origin
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.decide import CHANNEL
from loomlog.services.families.webhook.definition import WebhookDefinition, WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.delivery_builder import Delivery, DeliveryBuilder, DeliveryRefused
from loomlog.services.families.webhook.ingress_records import Unreadable, read_record
from loomlog.services.families.webhook.messages import PUBLISH_STEP, REFUSED_STEP
from loomlog.services.families.webhook.state import REFUSED
from loomlog.services.families.webhook.verdicts import REJECTED_PUBLISH
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

log = logging.getLogger(__name__)

POLL_S = 1.0
POLL_RECORDS_MAX = 500
BODIES_MAX = 64
"""Deliveries whose bodies are in memory at once, at most 1 MiB each."""
ASK_WAIT_S = 10.0
READ_WAIT_S = 5.0
"""How long a delivery waits until the definition that its api used has been read here."""
BATCHES_MAX = 8
"""Polls whose records are on their way to their owners."""
COMMIT_EVERY_S = 0.2
"""Shortest time between two commits: under load there are hundreds of polls a second, and what is not committed is only
read again.
"""
RETRY_S, RETRY_MAX_S = 0.2, 5.0
"""Pause before a delivery is tried again, doubled each time up to the second."""


class GroupReader(Protocol):
    """Protocol of loomlog.connectors.kafka.group_reader.KafkaGroupReader. Raises Transient."""

    async def poll(self, *, timeout_s: float, max_records: int) -> Mapping[int, Sequence[LogRecord]]: ...
    async def commit(self, offsets: Mapping[int, int]) -> None: ...


class ChannelPublisher(Protocol):
    """Protocol of loomlog.services.families.channel.operations.ChannelOperations. Raises Refused,
    Unavailable.
    """

    @property
    def declarations(self) -> Any: ...
    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> Any: ...


class Unroutable(Exception):
    """A record that goes nowhere; the text says why."""


class IngressReader:
    """Reads until cancelled."""

    def __init__(
        self,
        group: GroupReader,
        codec: Codec,
        commands: EntityCommands,
        *,
        definitions: WebhookDefinitions,
        builder: DeliveryBuilder,
        rows: DeliveryRows,
        replicas: Replicas,
        channels: ChannelPublisher,
        dead_letters: DeadLetters,
        clock_ms: Callable[[], int],
    ) -> None:
        self.taken = 0
        """Deliveries that owners have answered."""
        self._group = group
        self._codec = codec
        self._commands = commands
        self._definitions = definitions
        self._builder = builder
        self._rows = rows
        self._replicas = replicas
        self._channels = channels
        self._dead_letters = dead_letters
        self._clock_ms = clock_ms
        self._bodies = asyncio.Semaphore(BODIES_MAX)
        self._answered: dict[int, int] = {}
        """Offsets to commit, by partition."""
        self._has_answered = asyncio.Event()

    async def run(self) -> None:
        """Read, ask, commit, until cancelled. What is read next waits for no answers to what was read before."""
        places = asyncio.Semaphore(BATCHES_MAX)
        poll = partial(self._group.poll, timeout_s=POLL_S, max_records=POLL_RECORDS_MAX)
        before: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._commit())
            while True:
                await places.acquire()
                polled = await until_answered(poll, "loom.ingress")
                if polled:
                    before = tasks.create_task(self._carry_out(polled, before))
                    before.add_done_callback(lambda _: places.release())
                else:
                    places.release()

    async def _carry_out(self, polled: Mapping[int, Sequence[LogRecord]], before: "asyncio.Task[None] | None") -> None:
        """Let be committed what was read once all of it is answered, and what was read before it."""
        await asyncio.gather(*(self._handle(record) for records in polled.values() for record in records))
        if before is not None:
            await asyncio.wait([before])
        self._answered |= {number: records[-1].offset + 1 for number, records in polled.items() if records}
        self._has_answered.set()

    async def _commit(self) -> None:
        """Commit what is answered, until cancelled."""
        while True:
            await self._has_answered.wait()
            self._has_answered.clear()
            offsets, self._answered = self._answered, {}
            try:
                await self._group.commit(offsets)
            except Transient as error:  # the next commit includes it; without one, all of it is read again
                log.warning("loom.ingress is not committed: %s", error)
                self._answered = offsets | self._answered
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _handle(self, record: LogRecord) -> None:
        """Carry out a record, however long what it needs is away."""
        pause_s = RETRY_S
        while True:
            try:
                async with self._bodies:
                    await self._take(record)
                return
            except (Unreadable, Unroutable) as error:
                kind = "undecodable" if isinstance(error, Unreadable) else "unroutable"
                await self._park(record, kind, str(error))
                return
            except (ConnectorError, CommandUnanswered, Unavailable, PositionNotRead) as error:
                place = f"{record.topic}/{record.partition}:{record.offset}"
                log.warning("%s waits: %s", place, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _park(self, record: LogRecord, kind: str, error: str) -> None:
        parked = asyncio.Event()
        self._dead_letters.park(record, kind=kind, error=error, parked=parked.set)
        await parked.wait()

    async def _take(self, record: LogRecord) -> None:
        submitted = read_record(record, self._codec)
        position = str(Position(topic=record.topic, partition=record.partition, offset=record.offset))
        if submitted.name:
            await self._deliver(submitted, position)
        elif submitted.channel:
            await self._publish_event(submitted)
        else:
            raise Unroutable("it names neither a webhook nor a channel")

    # --- webhooks ----------------------------------------------------------------------------------------------------

    async def _deliver(self, submitted: SubmitDelivery, position: str) -> None:
        definition = await self._find(submitted)
        if definition is None:
            tenant = submitted.envelope.tenant
            raise Unroutable(f"there is no webhook {submitted.name[:80]!r} of the tenant {tenant[:64]!r}")
        try:
            delivery = await self._build(definition, submitted, position)
            if delivery.command.delivery == CHANNEL:
                self._check_channel(definition)
        except DeliveryRefused as refused:
            await self._reject(definition, submitted, refused)
            return
        command = await self._with_earlier(delivery.command)
        event = (await self._ask(command)).events[-1]
        self.taken += 1
        if isinstance(event, CommandRefused):
            raise Unroutable(f"{event.code}: {event.message}")
        if isinstance(event, EventReceived) and delivery.value:
            await self._publish(definition, delivery, event)

    async def _build(self, definition: WebhookDefinition, submitted: SubmitDelivery, position: str) -> Delivery:
        try:
            return await self._builder.build(definition, submitted, position)
        except Permanent as error:  # its blob is gone, or its content was erased
            raise Unroutable(f"its body cannot be read: {error}") from error

    async def _find(self, submitted: SubmitDelivery) -> WebhookDefinition | None:
        """Return the definition, once this process has read what the api had. It must be of the tenant of the record:
        an api writes that of the webhook once its proof is checked, other producers their own.
        """
        if submitted.positions:
            try:
                await self._replicas.read_to(submitted.positions, timeout_s=READ_WAIT_S)
            except ValueError as error:
                raise Unroutable(f"positions: {error}") from error
        tenant = submitted.envelope.tenant
        return await self._definitions.find_owned(tenant, submitted.name, address=submitted.address)

    async def _with_earlier(self, command: ReceiveDelivery) -> ReceiveDelivery:
        if command.replay_of:
            return command
        row = await self._rows.find_taken(command.envelope.tenant, command.name, command.delivery_id)
        return command if row is None else replace(command, is_known=True, earlier_run_id=row.run_id)

    def _check_channel(self, definition: WebhookDefinition) -> None:
        channel = definition.webhook.channel
        declared = self._channels.declarations.find(definition.tenant, channel)
        if declared is None:
            raise DeliveryRefused(REJECTED_PUBLISH, f"there is no channel {channel[:80]!r}")
        try:
            require_publisher(declared, Origin.DELIVERY)
        except Refused as refused:
            raise DeliveryRefused(REJECTED_PUBLISH, str(refused)) from refused

    async def _reject(self, definition: WebhookDefinition, submitted: SubmitDelivery, refused: DeliveryRefused) -> None:
        envelope = submitted.envelope
        command = RejectDelivery(
            envelope=CommandEnvelope(
                command_id=envelope.command_id, tenant=definition.tenant, issued_at_ms=envelope.issued_at_ms
            ),
            name=definition.name,
            delivery_id=submitted.delivery_id,
            verdict=refused.verdict,
            detail=str(refused),
            received_at_ms=submitted.received_at_ms,
        )
        await self._ask(command)

    async def _publish(self, definition: WebhookDefinition, delivery: Delivery, event: EventReceived) -> None:
        """Publish the body of a delivery that was taken, or tell the webhook why it cannot be."""
        command = delivery.command
        caller = self._caller(command.envelope, Origin.DELIVERY, f"webhook:{definition.name}", command.user_id)
        message = ChannelPublish(channel=command.channel, value=parse_body(delivery.value), scope_id=command.user_id)
        try:
            await self._channels.publish(message, caller)
        except Refused as refused:
            note = NoteRunEnded(
                envelope=replace(command.envelope, command_id=command.envelope.command_id + REFUSED_STEP),
                name=definition.name,
                delivery_id=event.delivery_id,
                status=REFUSED,
                code=refused.code,
                message=str(refused),
            )
            await self._ask(note)

    async def _ask(self, command: Any) -> Answer:
        try:
            return await self._commands.ask(command, wait_s=ASK_WAIT_S)
        except CommandInvalid as error:
            raise Unroutable(str(error)) from error

    # --- channels ----------------------------------------------------------------------------------------------------

    async def _publish_event(self, submitted: SubmitDelivery) -> None:
        """Publish what was sent to a channel; it happens once for the record."""
        try:
            value = parse_body(await self._builder.body_text(submitted))
        except (BodyInvalid, Permanent) as error:
            raise Unroutable(f"its data cannot be read: {error}") from error
        message = ChannelPublish(channel=submitted.channel, value=value, scope_id=submitted.scope_id)
        try:
            caller = self._caller(submitted.envelope, Origin.EVENT, submitted.by or "_ingress", "")
            await self._channels.publish(message, caller)
        except Refused as refused:
            raise Unroutable(f"{refused.code}: {refused}") from refused
        self.taken += 1

    def _caller(self, envelope: CommandEnvelope, origin: Origin, publisher: str, user_id: str) -> ChannelCaller:
        return ChannelCaller(
            tenant=envelope.tenant,
            origin=origin,
            subject=publisher,
            command_id=envelope.command_id + PUBLISH_STEP,
            issued_at_ms=envelope.issued_at_ms,
            user_id=user_id,
            publisher=publisher,
        )
