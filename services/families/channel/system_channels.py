"""What the runtime publishes to the channels of the system.

    _system/interrupts/pending     a question of a run waits for a person, or its approval for the next group of
                                   people; scope user of the run's user
    _system/interrupts/resolved    it waits no more
    _system/runtime-state          a pause that is wider than a run was set or lifted
    _system/provider-events        a provider or a model became available, or is not any more
    channels with a period         a beat: at most one for each period

Each has a command id that follows from what happened, so it is published once however many processes say so. After a
takeover the questions since the last snapshot of the partition are published again, under the same ids. The others are
not: what happens to providers while the owner of partition 0 is taken over is told by the next change only.

Before: services/runtime/run/command_handler.py reports questions, the replicas the pauses. After: operations.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Protocol

from loomlog.connectors.configuration.channel_block import (
    INTERRUPTS_PENDING,
    INTERRUPTS_RESOLVED,
    PROVIDER_EVENTS,
    RUNTIME_STATE,
)
from loomlog.connectors.errors import ConnectorError
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet
from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Value
from loomlog.services.core.availability import RATE_LIMITED, RECOVERED, STALLED, AvailabilityTable
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.interrupts.questions import QUESTION, Question
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import (
    AGENT,
    GLOBAL,
    SHARED_TENANT,
    USER,
    ChannelCaller,
    Declaration,
    Origin,
)

log = logging.getLogger(__name__)

DISTRIBUTION = "loomlog"
SYSTEM_MARK = "_system"
SUBJECT = "loomlog"
TICK_S = 1.0
"""Interval at which beats and providers are looked at."""
WORKERS = 8
"""Messages published at the same time; those of one run in their order."""
PENDING_MAX = 10_000
"""Messages of a worker that wait; further ones are left out, and the log says so."""
RETRY_S, TRIES = 2.0, 30
"""How often a message is tried while its queue has no owner: for a minute."""


class Publisher(Protocol):
    """The part of ChannelOperations that this needs."""

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> Any:
        """Publish a message. Raises Refused, Unavailable."""
        ...


class SystemDeclarations(Protocol):
    """The part of ChannelDeclarations that this needs."""

    def find(self, tenant: str, name: str) -> Declaration | None: ...
    def with_period(self) -> Sequence[Declaration]: ...


class SystemMessage(Value, frozen=True, kw_only=True):
    """A message that is to be published."""

    channel: str
    value: Mapping[str, Any]
    """Its texts may be encrypted."""
    command_id: str
    tenant: str = SHARED_TENANT
    user_id: str = ""
    agent: str = ""
    is_repeated: bool = False
    """An earlier process may have published it."""


class SystemChannels:
    """See the module. `run` must be running as a task of its own."""

    def __init__(
        self,
        publisher: Publisher,
        declarations: SystemDeclarations,
        *,
        codec: Codec,
        decrypt: Callable[[Any, str], Awaitable[Any]],
        availability: Callable[[], AvailabilityTable],
        is_active: Callable[[], bool],
        clock_ms: Callable[[], int],
        version: str = "",
        retry_s: float = RETRY_S,
    ) -> None:
        """`is_active`: whether this process owns partition 0, and so publishes beats and what happens to providers."""
        self._publisher = publisher
        self._declarations = declarations
        self._codec = codec
        self._decrypt = decrypt
        self._availability = availability
        self._is_active = is_active
        self._clock_ms = clock_ms
        self._version = version or installed_version()
        self._retry_s = retry_s
        self._started_ms = clock_ms()
        self._beaten: dict[str, int] = {}
        """Last period of each channel for which this process has published."""
        self._known = availability()
        self._queues: tuple[asyncio.Queue[SystemMessage], ...] = tuple(
            asyncio.Queue(PENDING_MAX) for _ in range(WORKERS)
        )

    # --- what happens ------------------------------------------------------------------------------------------------

    def on_question(
        self, tenant: str, facts: RunFacts, event: InterruptionOpened | InterruptionClosed, is_repeated: bool
    ) -> None:
        """Publish what became of a question; it is in the log."""
        if isinstance(event, InterruptionOpened):
            self._add_interrupt(tenant, facts, "pending", _shown_question(event, facts), is_repeated)
            return
        closed = [one.kind for one in facts.closed_questions if one.interrupt_id == event.interrupt_id]
        shown = {
            "interrupt_id": event.interrupt_id,
            "run_id": facts.run_id,
            "kind": closed[0] if closed else QUESTION,
            "status": event.status,
            "answer": event.answer,
            "resolved_by": event.resolved_by,
        }
        self._add_interrupt(tenant, facts, "resolved", shown, is_repeated)

    def on_asked(self, tenant: str, facts: RunFacts, asked: AskedApproval, is_repeated: bool) -> None:
        """Publish that the next group is asked about a call; the first one has the question."""
        if asked.group:
            shown = {**_shown_question(asked.question, facts), "group": asked.group}
            self._add_interrupt(tenant, facts, f"group {asked.group}", shown, is_repeated)

    def _add_interrupt(
        self, tenant: str, facts: RunFacts, what: str, shown: Mapping[str, Any], is_repeated: bool
    ) -> None:
        self._add(
            SystemMessage(
                channel=INTERRUPTS_RESOLVED if what == "resolved" else INTERRUPTS_PENDING,
                value=shown,
                command_id=hashed_token("system-channel", facts.run_id, shown["interrupt_id"], what),
                tenant=tenant,
                user_id=facts.user_id,
                agent=facts.definition.name,
                is_repeated=is_repeated,
            )
        )

    def on_pause_event(self, partition: int, raw: RawEvent) -> None:
        """Publish a pause that was set or lifted, or its end; every process reads it, and the first one counts."""
        decoded = self._codec.decode(raw.value)
        event, envelope = decoded.record, decoded.envelope
        if not isinstance(event, PauseSet | PauseLifted):
            return
        shown = {
            "state": "paused" if isinstance(event, PauseSet) else "running",
            "scope": event.scope,
            "tenant": event.tenant,
            "agent": event.agent,
            "by": event.by,
            "reason": event.reason if isinstance(event, PauseSet) else "",
            "ts": format_rfc3339(envelope.at_ms if envelope is not None else self._clock_ms()),
        }
        command_id = hashed_token("system-channel", raw.aggregate, str(raw.seq))
        self._add(SystemMessage(channel=RUNTIME_STATE, value=shown, command_id=command_id, is_repeated=True))

    # --- work --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(self._work(queue), name=f"channels of the system {number}")
            while True:
                self.look()
                await asyncio.sleep(TICK_S)

    def look(self) -> None:
        """Note the beats that are due, and what has happened to providers since the last look."""
        before, self._known = self._known, self._availability()
        if not self._is_active():
            self._beaten.clear()
            return
        now_ms = self._clock_ms()
        for shown in availability_changes(before, self._known):
            command_id = hashed_token("system-channel", PROVIDER_EVENTS, *map(str, shown.values()), str(now_ms))
            self._add(
                SystemMessage(
                    channel=PROVIDER_EVENTS, value={**shown, "ts": format_rfc3339(now_ms)}, command_id=command_id
                )
            )
        for declared in self._declarations.with_period():
            self._beat(declared, now_ms)

    def _beat(self, declared: Declaration, now_ms: int) -> None:
        number = now_ms // (1000 * declared.period_s)
        if number <= self._beaten.get(declared.name, -1):
            return  # also while a clock has gone back
        is_first = declared.name not in self._beaten
        self._beaten[declared.name] = number
        shown = {
            "ts": format_rfc3339(now_ms),
            "version": self._version,
            "uptime_s": max(0, now_ms - self._started_ms) // 1000,
        }
        command_id = hashed_token("system-channel", declared.name, str(declared.period_s), str(number))
        self._add(SystemMessage(channel=declared.name, value=shown, command_id=command_id, is_repeated=is_first))

    def _add(self, message: SystemMessage) -> None:
        declared = self._declarations.find(message.tenant, message.channel)
        if declared is None or not _has_queue(declared, message):
            return
        key = message.user_id or message.channel
        try:
            self._queues[hash((message.tenant, key)) % WORKERS].put_nowait(message)
        except asyncio.QueueFull:
            log.error("%s: a message is left out, because %d wait already", message.channel, PENDING_MAX)

    async def _work(self, queue: "asyncio.Queue[SystemMessage]") -> None:
        while True:
            await self._publish(await queue.get())

    async def _publish(self, message: SystemMessage) -> None:
        caller = ChannelCaller(
            tenant=message.tenant,
            origin=Origin.SYSTEM,
            subject=SUBJECT,
            command_id=message.command_id,
            issued_at_ms=0 if message.is_repeated else self._clock_ms(),
            user_id=message.user_id,
            agent=message.agent,
            publisher=SYSTEM_MARK,
        )
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(self._retry_s)
            try:
                value = await self._decrypt(message.value, message.tenant)
                await self._publisher.publish(ChannelPublish(channel=message.channel, value=value), caller)
                return
            except (Unavailable, ConnectorError) as error:
                log.info("%s is not published yet: %s", message.channel, error)
            except Refused as refused:
                log.warning("%s refuses a message of the system: %s", message.channel, refused)
                return
        log.error("%s: a message is left out after %d attempts", message.channel, TRIES)


def installed_version() -> str:
    """Return the version of this program; 0 when it is not installed as a package."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0"


def _shown_question(question: InterruptionOpened | Question, facts: RunFacts) -> dict[str, Any]:
    return {
        "interrupt_id": question.interrupt_id,
        "run_id": facts.run_id,
        "kind": question.kind,
        "agent": facts.definition.name,
        "question": question.question,
        "options": list(question.options),
        "context": question.context,
        "priority": question.priority,
        "expires_at": format_rfc3339(question.expires_at_ms),
    }


def availability_changes(before: AvailabilityTable, after: AvailabilityTable) -> Iterator[dict[str, Any]]:
    """Yield what has happened to providers and models between two states of the table."""
    if before is after:
        return
    for name, status in after.providers.items():
        known = before.providers.get(name)
        if known is None or known.reachable != status.reachable:
            if known is None and status.reachable:
                continue  # the first probe of a provider that answers
            event = "reachable" if status.reachable else "unreachable"
            yield {"provider": name, "model": "", "event": event, "reason": status.error}
    for provider, model in before.statuses.keys() | after.statuses.keys():
        old, new = before.status(provider, model), after.status(provider, model)
        shown = {"provider": provider, "model": model, "reason": new.reason or old.reason}
        if new.is_stalled and not old.is_stalled:
            yield {**shown, "event": STALLED}
        if new.limited_until_ms > old.limited_until_ms:
            yield {**shown, "event": RATE_LIMITED}
        if old.is_stalled and not new.is_stalled:
            yield {**shown, "event": RECOVERED}


def _has_queue(declared: Declaration, message: SystemMessage) -> bool:
    """Whether the message belongs to a queue: what has no user cannot be told to one."""
    if declared.scope == GLOBAL:
        return True
    if not message.tenant:
        return False
    return bool(message.user_id if declared.scope == USER else message.agent if declared.scope == AGENT else True)
