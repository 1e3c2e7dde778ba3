"""Schedules and webhooks in the simulation: what starts runs from outside, and what their ends lead to.

Schedules are armed, armed otherwise, fired by hand and disarmed, while owners die and the clocks of their processes are
set back by an hour or forward by a day. In half of the seeds each process compares its clock with the broker's, as the
product does, and decides nothing while they differ; in the others the rules alone have to stand it.

Deliveries come to two apis, which append them to loom.ingress more than once; every runtime reads it in a group whose
members lose their places. Runs publish a message at their end.

Before: world.py, in the seeds with triggers. After: entities.py; trigger_ledger.py checks what is in the log.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from loomlog.connectors.configuration.secret_registry import SecretRegistry
from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.kafka.group import POLL_S
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.schedule_commands import ArmSchedule, DisarmSchedule, RunScheduleNow
from loomlog.schemas.generated.values import CommandEnvelope, ContentBlock, ScheduledRun, ScheduleSpec, Segment
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.core.run.react import CallModel
from loomlog.services.families.channel import FAMILY as CHANNEL
from loomlog.services.families.channel.caller import Declaration
from loomlog.services.families.channel.limits import VALUE_BYTES_DEFAULT
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.channel.run_messages import RunMessages
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.schedule import FAMILY as SCHEDULE
from loomlog.services.families.webhook import FAMILY as WEBHOOK
from loomlog.services.families.webhook.definition import WebhookDefinition
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.delivery_builder import DeliveryBuilder
from loomlog.services.families.webhook.ingress_reader import IngressReader
from loomlog.services.runtime.clock import CheckedClock
from loomlog.services.runtime.content.encryption import PLAINTEXT
from loomlog.services.runtime.run.end_hooks import RunEndHooks
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.run_end_actions import RunEndActions, run_end_commands
from loomlog.services.runtime.run_host import StandbyEdges
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from tests.services.memory_items import MemoryItems
from tests.services.stream.script import answer
from tests.simulation.broker import Wire
from tests.simulation.channels import ANSWER_S, ChannelReads
from tests.simulation.entities import ORDERS_UNTIL, EntityHost, EntityLoad, plan_acts
from tests.simulation.faults import CALM_S, MOST_FUSE, Act, Faults
from tests.simulation.log import TOPICS, Record, SimulatedLog
from tests.simulation.membership import Membership
from tests.simulation.trigger_ledger import Delivery, ScheduleOrder, TriggerLedger

TRIGGER_SHARE = 0.75
"""Of the seeds with no other entities: those with schedules and webhooks."""
TENANT, AGENT_NAME = "t", "helper"
MOST_SCHEDULES, MOST_DELIVERIES = 2, 5
OVERLAPS = ("skip", "skip", "queue_one", "cancel", "allow")
LAST_S = CALM_S + 6.0
"""When schedules are disarmed: what has become due while faults happened is decided, and so are some instants more."""
MOST_JUMPS = 4
CHECKED_SHARE = 0.5
"""Of these seeds: those in which processes compare their clocks with the broker's."""
BROKER_CLOCK_S = 0.002
"""A measurement; no fault meets it, so that the same faults happen in seeds of both kinds."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
INGRESS = "loom.ingress"
SESSION_S = 1.0
"""A member that has not polled for so long loses its place to the next one that does."""
LOOK_S = 0.3
ISSUES, FEED, DONE = "issues", "feed", "done"
"""A webhook that starts runs, one that publishes to the channel of its name, and the channel of ends."""
HOOK = json.dumps({"kind": "channel.publish", "channel": DONE, "payload": "{{run.status}}"})
GO = (Segment(role="user", content=(ContentBlock(type="trusted-text", text="go"),)),)
BLOCKS = {
    ISSUES: WebhookBlock(agent=AGENT_NAME, auth=WebhookAuth(kind="none"), payload_mapping={"goal": "$.goal"}),
    FEED: WebhookBlock(delivery="channel", channel=FEED, auth=WebhookAuth(kind="none")),
}


def triggers_of(faults: Faults) -> "Triggers | None":
    """The schedules and deliveries of a seed, if it has any."""
    random = Random(f"{faults.seed}/triggers")
    if random.random() >= TRIGGER_SHARE:
        return None
    orders: list[ScheduleOrder] = []
    for number in range(random.randint(1, MOST_SCHEDULES)):
        orders += _schedule(random, f"nightly{number}", faults.without)
    deliveries = [_delivery(random, number) for number in range(random.randint(0, MOST_DELIVERIES))]
    plan_acts(faults, random, "triggers")
    for number in range(random.randint(0, MOST_JUMPS)):
        act = Act(
            name=f"triggers jump {number}",
            kind="entities: jump",
            at_s=random.uniform(0.0, CALM_S),
            place=random.random(),
            amount=random.random(),
            fuse=random.randrange(1, MOST_FUSE),
        )
        if act.name not in faults.without:
            faults.acts.append(act)
    is_checked = Random(f"{faults.seed}/clocks").random() < CHECKED_SHARE
    return Triggers(orders, [one for one in deliveries if one.name not in faults.without], is_checked=is_checked)


def _schedule(random: Random, name: str, without: frozenset[str]) -> Sequence[ScheduleOrder]:
    """Return what happens to a schedule, in its order; without its first order, nothing."""
    arm_s = random.uniform(0.0, CALM_S * ORDERS_UNTIL / 3)
    changes: list[tuple[float, str, Callable[..., Any]]] = [(arm_s, "arm", _armed(random, name, 1))]
    if random.random() < 0.7:
        changes.append((random.uniform(arm_s, CALM_S), "arm again", _armed(random, name, 2)))
    if random.random() < 0.4:
        now = partial(RunScheduleNow, name=name, def_id="")
        changes.append((random.uniform(arm_s + 1.0, CALM_S + 1.0), "now", now))
    changes.append((LAST_S, "disarm", partial(DisarmSchedule, name=name, revision=9, reason="retired")))
    orders = [
        ScheduleOrder(
            name=f"{what} {name}",
            id=f"o_{name}_{what.replace(' ', '_')}",
            at_s=at_s,
            by_topic=what == "disarm" or random.random() < 0.5,
            make=make,
        )
        for at_s, what, make in changes
    ]
    if orders[0].name in without:
        return []
    return [order for order in orders if order.name not in without or order is orders[-1]]


def _armed(random: Random, name: str, revision: int) -> Callable[..., ArmSchedule]:
    spec = ScheduleSpec(
        times=f"@every {random.randint(1, 2)}s",
        overlap=random.choice(OVERLAPS),
        catch_up_max=random.choice((0, 1, 1, 2, 3)),
    )
    run = ScheduledRun(agent=AGENT_NAME, segments=GO, on_complete=(HOOK,))
    def_id = random.choice(("def_1", f"def_{revision}"))
    return partial(ArmSchedule, name=name, def_id=def_id, revision=revision, spec=spec, run=run)


def _delivery(random: Random, number: int) -> Delivery:
    return Delivery(
        name=f"delivery {number}",
        webhook=random.choice((ISSUES, FEED)),
        id=f"d{number}",
        at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL),
        commands=tuple(f"api{api}.d{number}" for api in range(random.randint(1, 2))),
    )


class Declared:
    """The channels of every process (protocol Declarations)."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        return Declaration(name=name, scope="tenant")

    def list(self, tenant: str) -> Sequence[Declaration]:
        return [Declaration(name=name, scope="tenant") for name in (FEED, DONE)]


class Triggers(EntityLoad):
    """The schedules and webhooks of a seed."""

    ledger: TriggerLedger

    def __init__(
        self, orders: Sequence[ScheduleOrder], deliveries: Sequence[Delivery], *, is_checked: bool = False
    ) -> None:
        super().__init__(SCHEDULE, orders, WEBHOOK, CHANNEL)
        self.deliveries = deliveries
        self.is_checked = is_checked
        self.joined: Callable[[str, bool], None] = lambda name, is_member: None
        """Tells the group that a process, by its name, is a member or not."""
        self.jumps: dict[str, int] = {}
        """How far the clock of a process is off, by its name."""
        self.committed: dict[int, int] = {}
        """Offsets of loom.ingress that a member has committed."""
        self.holders: dict[int, tuple[str, float]] = {}
        """Members that read its partitions, and when they did so last."""

    def open(self, log: SimulatedLog, partitions: int, seed: int, complain: Callable[[str, str], None]) -> None:
        super().open(log, partitions, seed, complain)
        self.log = log
        self._random = Random(f"{seed}/apis")

    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> TriggerLedger:
        return TriggerLedger(self.orders, self.deliveries, complain, is_checked=self.is_checked)

    def host(self, wire: Wire, edges: StandbyEdges, clock_ms: Callable[[], int]) -> "TriggerHost":
        name = wire.process.name

        def read_clock_ms() -> int:
            return clock_ms() + self.jumps.get(name, 0)

        async def read_broker_time() -> int:
            await asyncio.sleep(BROKER_CLOCK_S)
            return self.log.clock_ms()

        if not self.is_checked:
            return TriggerHost(wire, self, edges, read_clock_ms)
        clock = CheckedClock(read_broker_time, read_clock_ms=read_clock_ms, monotonic_s=wire.loop.time)
        return TriggerHost(wire, self, edges, clock.now_ms, clock)

    def command(self, order: ScheduleOrder) -> Any:
        envelope = CommandEnvelope(command_id=order.id, tenant=TENANT, issued_at_ms=order.issued_at_ms)
        return order.make(envelope=envelope)

    def jump(self, name: str, amount: float) -> None:
        """Set the clock of a process back by an hour, or forward by a day."""
        self.jumps[name] = -HOUR_MS if amount < 0.5 else DAY_MS

    def calm(self) -> None:
        super().calm()
        self.jumps.clear()

    # --- two apis ----------------------------------------------------------------------------------------------------

    async def client(self, wire: Wire, clock_ms: Callable[[], int]) -> None:
        """Append every delivery at its time, by each api that gets it; and change schedules by the topic."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().client(wire, clock_ms))
            for delivery in self.deliveries:
                group.create_task(self._post(delivery, wire, clock_ms))

    async def _post(self, delivery: Delivery, wire: Wire, clock_ms: Callable[[], int]) -> None:
        await asyncio.sleep(delivery.at_s)
        async with asyncio.TaskGroup() as group:
            for command_id in delivery.commands:
                group.create_task(self._submit(delivery, command_id, wire, clock_ms()))
        self.ledger.unsent -= 1

    async def _submit(self, delivery: Delivery, command_id: str, wire: Wire, at_ms: int) -> None:
        submitted = SubmitDelivery(
            envelope=CommandEnvelope(command_id=command_id, tenant=TENANT, issued_at_ms=at_ms),
            name=delivery.webhook,
            address=TENANT,
            delivery_id=delivery.id,
            received_at_ms=at_ms,
            body=json.dumps({"goal": delivery.name}),
        )
        record = ProducerRecord(key=delivery.id.encode(), value=local_codec().encode(submitted))
        partition = self._random.randrange(self.partitions)
        while True:
            try:
                await wire.append(INGRESS, partition, [record])
                return
            except UnknownOutcome:
                continue  # again: the command's id makes that safe

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self, hosts: Sequence[EntityHost]) -> str:
        for number in range(self.partitions):
            end = len(self.log.records(INGRESS, number))
            if self.committed.get(number, 0) < end:
                return f"{INGRESS}/{number} is read to {self.committed.get(number, 0)} of {end}"
        return super().open_ends(hosts)

    def compare(self, hosts: Sequence[EntityHost]) -> None:
        self.compare_rows(self.log)


class TriggerHost(EntityHost):
    """The schedules and webhooks of one runtime process, its reader of loom.ingress, and the ends of its runs."""

    def __init__(
        self,
        wire: Wire,
        load: Triggers,
        edges: StandbyEdges,
        clock_ms: Callable[[], int],
        clock: CheckedClock | None = None,
    ) -> None:
        super().__init__(wire, load, edges, clock_ms)
        codec, client = local_codec(), self.parts.client
        self._ledger = load.ledger
        self._joined = partial(load.joined, wire.process.name)
        self._clock = clock
        cache = MessageCache(codec, topic=self.parts.replicas.topic)
        self.parts.replicas.on_event(CHANNEL.name, cache.read)
        reads = TriggerReads(self, wire, load)
        store = ChannelStore(client, reads, cache, clock_ms=clock_ms, decrypt=_plain, wait_s=ANSWER_S)
        channels = ChannelOperations(Declared(), store, clock_ms=clock_ms)
        ended_runs = EndedAggregates(RunFamily(), codec, wire, TOPICS.events)
        hooks = RunEndHooks(
            client,
            RunMessages(channels, lambda tenant, subject: False),
            NoEntries(),
            MemoryBlobs(),
            NoTools(),
            clock_ms=clock_ms,
        )
        self._actions = RunEndActions(client, hooks, ended_runs, codec, triggers=run_end_commands((SCHEDULE, WEBHOOK)))
        self._letters = DeadLetters(
            codec, wire, topic=TOPICS.dead_letters, service=wire.process.name, clock_ms=clock_ms
        )
        builder = DeliveryBuilder(
            blobs=MemoryBlobs(),
            encryption=PLAINTEXT,
            secrets=SecretRegistry((), {}),
            channel_value_bytes=VALUE_BYTES_DEFAULT,
            credentials=None,
            secret=None,
            stored=CredentialReader(Directory(self.parts.replicas, None, clock_ms=clock_ms), None),
        )
        self._reader = IngressReader(
            IngressGroup(wire, load),
            codec,
            client,
            definitions=cast(Any, Defined()),
            builder=builder,
            rows=DeliveryRows(reads),
            replicas=self.parts.replicas,
            channels=channels,
            dead_letters=self._letters,
            clock_ms=clock_ms,
        )

    def run_context(self) -> Mapping[str, Any]:
        return {"end_actions": self._actions}

    async def outside(self, effect: Any, state: Any) -> Any:
        """Return the only answer of the runs that are started here; their ids have words of other runs by chance."""
        if not self._ledger.is_known(effect.run_id):
            return None
        assert isinstance(effect, CallModel), effect
        return answer(effect, 1, self._clock_ms())

    async def _follow_clock(self, clock: CheckedClock, membership: Membership) -> None:
        """Be a member while the clock is believed."""
        while True:
            if clock.is_believed != membership.may_own:
                membership.allow(clock.is_believed)
                self._joined(clock.is_believed)
            await asyncio.sleep(POLL_S)

    async def beside(self, host: Host, work: Awaitable[None]) -> None:
        async with asyncio.TaskGroup() as group:
            if self._clock is not None:
                await self._clock.measure()
            tasks = [
                *(
                    ()
                    if self._clock is None
                    else (
                        group.create_task(self._clock.run()),
                        group.create_task(self._follow_clock(self._clock, cast(Membership, host._membership))),
                    )
                ),
                group.create_task(self._actions.run()),
                group.create_task(self._letters.run()),
                group.create_task(self._reader.run()),
            ]
            await super().beside(host, work)
            for task in tasks:
                task.cancel()


async def _plain(value: Any, tenant: str) -> Any:
    return value


class NoEntries:
    """Protocol EntryWriter, of which no hook makes use."""

    async def set_entry(self, *arguments: Any, **agent: str) -> None:
        raise AssertionError(f"no hook writes memory: {arguments}")


class NoTools:
    """Protocol ToolCaller, of which no hook makes use."""

    async def call(self, *arguments: Any) -> Any:
        raise AssertionError(f"no hook calls a tool: {arguments}")


class Defined:
    """The webhooks of every process (protocol WebhookDefinitions)."""

    async def find(self, tenant: str, name: str) -> WebhookDefinition | None:
        return WebhookDefinition(tenant=tenant, name=name, def_id="def_1", is_of_file=False, block=BLOCKS[name])

    async def find_owned(self, tenant: str, name: str, *, address: str) -> WebhookDefinition | None:
        return await self.find(tenant, name)


class TriggerReads(ChannelReads):
    """The reads of a process, with the newest items too."""

    async def newest_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Any,
        keys: Any,
        *,
        lag_max: int = 0,
        positions: Sequence[str] = (),
        **bounds: Any,
    ) -> Mapping[str, ItemRow]:
        await self._wait_for_rows(family, tenant, positions, lag_max=lag_max)
        await self._wired.reach()
        items = MemoryItems(self._families.by_name[family].declaration)
        rows = [row for row in self._items.values() if row.family == family]
        items.rows = {(row.tenant, row.kind, row.id): row for row in rows}
        return items.newest(tenant, kind, by, keys, **bounds)


class IngressGroup:
    """A member of the group that reads loom.ingress (protocol GroupReader)."""

    def __init__(self, wire: Wire, load: Triggers) -> None:
        self._wire = wire
        self._load = load
        self._next: dict[int, int] = {}

    async def poll(self, *, timeout_s: float, max_records: int) -> Mapping[int, Sequence[Record]]:
        wire, loop = self._wire, self._wire.loop
        fate, amount = wire.fates.draw("poll")
        if fate in ("crash", "pause"):
            wire.strike(fate, amount)
        until_s = loop.time() + timeout_s
        while True:
            await asyncio.sleep(wire.fates.latency_s())
            if fate == "unavailable":
                raise Transient(f"{INGRESS}: the broker does not answer", kind="unavailable")
            polled = self._take(max_records)
            if polled or loop.time() >= until_s:
                return polled
            await asyncio.sleep(LOOK_S)

    def _take(self, max_records: int) -> dict[int, Sequence[Record]]:
        load, name, now_s = self._load, self._wire.process.name, self._wire.loop.time()
        polled: dict[int, Sequence[Record]] = {}
        for number in range(load.partitions):
            holder, seen_s = load.holders.get(number, ("", 0.0))
            if holder not in ("", name) and now_s - seen_s < SESSION_S:
                continue
            if holder != name:
                self._next[number] = load.committed.get(number, 0)
            load.holders[number] = (name, now_s)
            at = self._next[number]
            if records := load.log.records(INGRESS, number)[at : at + max_records]:
                polled[number] = records
                self._next[number] = at + len(records)
        return polled

    async def commit(self, offsets: Mapping[int, int]) -> None:
        await self._wire.round_trip(f"commit of {INGRESS}")
        for number, offset in offsets.items():
            if self._load.holders[number][0] != self._wire.process.name:
                raise Transient(f"{INGRESS}/{number} has another reader", kind="unavailable")
            self._load.committed[number] = max(offset, self._load.committed.get(number, 0))
