"""Callers of operations over the rules of queues in memory, with a clock that moves and a cache that hears the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import to_builtins

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import CallRef, Envelope
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import replace
from loomlog.services.core.entity import entity_rules
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.core.operation_input import parse_input
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel import FAMILY
from loomlog.services.families.channel.api import OPERATIONS
from loomlog.services.families.channel.caller import ChannelCaller, Declaration, Origin, Queue
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelLimits, ChannelOperations
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.operation import RunAnswer
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.entities import NOW_MS, TOPIC, MemoryEntities

CHANNELS = (
    Declaration(name="plaza", scope="global"),
    Declaration(name="team", scope="tenant"),
    Declaration(name="inbox", scope="user", default_ttl_s=60, max_messages=3),
    Declaration(name="notes", scope="agent"),
    Declaration(name="work/in", scope="tenant"),
    Declaration(name="work/out", scope="tenant"),
    Declaration(name="beat", scope="global", publisher="system"),
    Declaration(name="_system/runtime-state", scope="global", publisher="system"),
)
ALL = tuple(one.name for one in CHANNELS)
DECLARED = {operation.tool.op: operation for operation in OPERATIONS if operation.tool is not None}
"""The operations of the tool, by op."""


class Declared:
    """Protocol Declarations: the same channels for every tenant."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        return next((one for one in CHANNELS if one.name == name), None)

    def list(self, tenant: str) -> Sequence[Declaration]:
        return CHANNELS


async def plaintext(value: Any, tenant: str) -> Any:
    return value


class Queues(MemoryEntities):
    """Queues in memory; `unread_rows`: the rows have read nothing yet."""

    unread_rows = False

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return None if self.unread_rows else await super().show(family, tenant, name, positions=positions)


class Installation:
    """Queues, whose owner is in this process as long as `entities.is_owner`."""

    def __init__(self, **limits: int) -> None:
        self.entities = Queues(FAMILY)
        self.cache = MessageCache(local_codec(), topic=TOPIC)
        self.entities.on_event = self._hear
        self.store = ChannelStore(
            self.entities, self.entities, self.cache, clock_ms=lambda: self.entities.now_ms, decrypt=plaintext
        )
        self.operations = ChannelOperations(
            Declared(), self.store, limits=ChannelLimits(**limits), clock_ms=lambda: self.entities.now_ms
        )
        self.numbers = 0

    def _hear(self, envelope: Envelope, event: Any) -> None:
        value = local_codec().encode_event(envelope, event)
        schema_id = int.from_bytes(value[1:5], "big")
        self.cache.read(1, RawEvent(self.entities.offset, schema_id, 1, envelope.seq, envelope.aggregate, value))

    def forget_messages(self) -> None:
        """As after a restart: what is read now comes from rows."""
        self.cache._messages.clear()
        self.cache.cached_bytes = 0

    def pass_time(self, ms: int, *queues: Queue) -> None:
        """Move the clock, and fire the timers of queues."""
        self.entities.now_ms += ms
        rules = entity_rules(FAMILY)
        for queue in queues:
            place = (queue.tenant, queue.aggregate)
            entity = self.entities.entities[place]
            for event in rules.decide(entity, TIMER_FIRED, At(at_ms=self.entities.now_ms)):
                entity = rules.evolve(entity, event, self.entities.now_ms)
                self.entities.offset += 1
                envelope = Envelope(
                    term=1,
                    seq=entity.seq,
                    aggregate=entity.id,
                    tenant=queue.tenant,
                    at_ms=self.entities.now_ms,
                    prev=bytes(16),
                    cause_id="timer",
                )
                self.entities.items.add(entity, event, envelope, partition=1, offset=self.entities.offset)
                self._hear(envelope, event)
            self.entities.entities[place] = entity

    def application(self, **more: Any) -> "Caller":
        """An application of the tenant acme."""
        caller = ChannelCaller(tenant="acme", origin=Origin.ADMINISTRATOR, subject="app", command_id="", issued_at_ms=0)
        return Caller(self, replace(caller, **more))

    def agent(self, run_id: str = "r_1", **more: Any) -> "Caller":
        """An agent of the user ann, which may use all channels."""
        agent = ChannelCaller(
            tenant="acme",
            origin=Origin.AGENT,
            subject="app",
            command_id="",
            issued_at_ms=0,
            user_id="ann",
            agent="helper",
            call=CallRef(run_id=run_id, turn=1, index=0),
            publish=ALL,
            subscribe=ALL,
        )
        return Caller(self, replace(agent, **more))


class Caller:
    """A caller, whose calls have ids of their own unless one is named."""

    def __init__(self, installation: Installation, caller: ChannelCaller) -> None:
        self.installation = installation
        self.caller = caller

    async def answer(self, op: str, *, command_id: str = "", attempt: int = 1, **fields: Any) -> RunAnswer[Any]:
        operations = self.installation.operations
        self.installation.numbers += 1
        caller = replace(
            self.caller,
            command_id=command_id
            or f"{self.caller.call.run_id if self.caller.call else 'q'}:1.{self.installation.numbers}",
            issued_at_ms=NOW_MS if attempt == 1 else 0,
        )
        if op == "purge":
            return await operations.purge(fields["channel"], caller)
        present = {name: value for name, value in fields.items() if value is not None}
        asked = parse_input(DECLARED[op].input, present, code=DECLARED[op].invalid_code)
        operation = operations.await_ if op == "await" else getattr(operations, op)
        answer: RunAnswer[Any] = await operation(asked, caller)
        return answer

    async def __call__(self, op: str, **fields: Any) -> Mapping[str, Any]:
        """The answer as agents see it."""
        answer = await self.answer(op, **fields)
        tool = DECLARED[op].tool if op in DECLARED else None
        value = answer.value if tool is None or tool.answer is None else tool.answer(answer.value)
        shown: Mapping[str, Any] = to_builtins(value)
        return shown

    async def values(self, op: str, channel: str, **fields: Any) -> list[Any]:
        """The values of the messages of an answer."""
        return [one["value"] for one in (await self(op, channel=channel, **fields))["messages"]]

    async def refused(self, op: str, **fields: Any) -> Refused:
        with pytest.raises(Refused) as caught:
            await self(op, **fields)
        assert str(caught.value)
        return caught.value
