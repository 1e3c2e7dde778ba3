"""What the end of a run leads to: its hooks, and the report to the schedule or webhook that started it.

    end in the log --> pending --> NoteRunEnded to options.trigger, then the hooks of options.on_complete in order
                          |
                          +--> the partition snapshot is not made past a pending end

An action has an id of its own, `<run>:end:<n>` and `<run>:ended`, and is carried out once however often it is asked
for. So an owner that dies between the end and its actions loses nothing: the next one finds the end in the tail of the
log and asks again. Of a tail with more ended runs than a fold remembers (fold.py ENDED_KEPT) the oldest are not seen.

What is refused, such as a channel that is not declared, is logged, counted and not tried again. What does not answer is
tried until it does.

Before: command_handler.py reports ends. After: end_hooks.py carries hooks out.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.process.logs import about
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_events import RunFailed, RunRefused
from loomlog.schemas.generated.values import CommandEnvelope, RunPosition
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.families import Family
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.state import Ended
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import BrokenHistory, Fold
from loomlog.services.stream.partition.partition import Aggregate

log = logging.getLogger(__name__)

TOGETHER = 16
"""Ends under way at once."""
RETRY_S = 2.0
"""Seconds before an end is tried again whose actions had no answer."""
ASK_WAIT_S = 10.0
MESSAGE_CHARACTERS_MAX = 300
"""Characters of an error that a trigger is told."""
REFUSED = "refused"
OUTCOMES = ("done", "refused", "unavailable")
"""How an action ends; an unavailable one is tried again."""
MARKS = (b'"kind"', b"schedule:", b"webhook:")
"""What the first event of every run with actions has: the JSON of a hook, or the family of its trigger."""


class EndHooks(Protocol):
    """Carries hooks out (end_hooks.py)."""

    async def carry_out(self, text: str, end: "RunEnd", state: Ended, number: int) -> bool:
        """Carry out hook `number`; False when it is not for such an end.

        Raises Refused when it cannot be carried out, now or later; Unavailable when it can be asked for again.
        """
        ...


NoteCommand = Callable[..., Any]
"""NoteRunEnded of a family: takes envelope, name, run_id, status, code and message."""


class RunEnd(Struct, frozen=True, kw_only=True):
    """The end of a run whose actions may not be done. Without `state` and `refused` they are read from the log."""

    tenant: str
    partition: int
    run_id: str
    first_offset: int
    last_offset: int
    ended_at_ms: int
    """Time of its last event, UTC milliseconds: the time of the commands, however late they are given."""
    code: str = ""
    """Code of a failure."""
    state: Ended | None = None
    refused: RunRefused | None = None
    is_unseen: bool = False
    """Whether its first event has to be looked at."""
    done: set[str] = field(default_factory=set)
    """Actions that are done."""

    @property
    def position(self) -> RunPosition:
        return RunPosition(run_id=self.run_id, first_offset=self.first_offset, last_offset=self.last_offset)


def run_end_commands(families: Iterable[Family[Any, Any, Any]]) -> Mapping[str, type[Any]]:
    """Return the families whose aggregates start runs, each with the command that tells one of an end."""
    return {family.name: family.note_run_end for family in families if family.note_run_end is not None}


class RunEndActions:
    """See the module; protocol EndActions of context.py."""

    def __init__(
        self,
        commands: EntityCommands,
        hooks: EndHooks,
        ended_runs: EndedAggregates,
        codec: Codec,
        *,
        triggers: Mapping[str, NoteCommand],
    ) -> None:
        """`triggers` by family."""
        self.counts: Counter[str] = Counter()
        """Actions by their outcome."""
        self._commands = commands
        self._hooks = hooks
        self._ended_runs = ended_runs
        self._codec = codec
        self._triggers = triggers
        self._pending: dict[int, dict[str, RunEnd]] = {}
        self._queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    # --- ends --------------------------------------------------------------------------------------------------------

    def on_ended(self, end: RunEnd) -> None:
        """Schedule the actions of an end that is in the log."""
        if _has_actions(end):
            self._add(end)

    def on_takeover(self, partition: int, fold: Fold) -> None:
        """Schedule those of the ends in the tail of the log, which the former owner may not have done."""
        self._pending.setdefault(partition, {})
        for run_id, (first, last) in fold.over.items():
            if first.seq == 1 and not _has_marks(first.value):
                continue
            first_offset = first.offset if first.seq == 1 else fold.first_offsets.get(run_id, -1)
            if first_offset >= 0:
                self._add(self._end_of(run_id, partition, first_offset, last, is_unseen=first.seq != 1))

    def is_done_below(self, partition: int, offset: int) -> bool:
        """Whether no end below the offset has actions that may not be done; never of a partition of others."""
        pending = self._pending.get(partition)
        return pending is not None and all(end.last_offset >= offset for end in pending.values())

    def pending_count(self) -> int:
        return sum(map(len, self._pending.values()))

    def release(self, partition: int) -> None:
        """The partition is not owned here any more: its next owner does what is left."""
        self._pending.pop(partition, None)

    def _end_of(self, run_id: str, partition: int, first_offset: int, last: RawEvent, *, is_unseen: bool) -> RunEnd:
        decoded = self._codec.decode(last.value)
        assert decoded.envelope is not None, "events have an envelope"
        return RunEnd(
            tenant=decoded.envelope.tenant,
            partition=partition,
            run_id=run_id,
            first_offset=first_offset,
            last_offset=last.offset,
            ended_at_ms=decoded.envelope.at_ms,
            code=decoded.record.code if isinstance(decoded.record, RunFailed) else "",
            is_unseen=is_unseen,
        )

    def _add(self, end: RunEnd) -> None:
        self._pending.setdefault(end.partition, {})[end.run_id] = end
        self._queue.put_nowait((end.partition, end.run_id))

    # --- actions -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out actions until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TOGETHER):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            partition, run_id = await self._queue.get()
            end = self._pending.get(partition, {}).get(run_id)
            if end is None:
                continue  # released, or done by another task
            if await self.carry_out(end):
                self._forget(end)
            else:
                asyncio.get_running_loop().call_later(RETRY_S, self._queue.put_nowait, (partition, run_id))

    def _forget(self, end: RunEnd) -> None:
        pending = self._pending.get(end.partition, {})
        if pending.get(end.run_id) is end:
            del pending[end.run_id]

    async def carry_out(self, end: RunEnd) -> bool:
        """Carry out the actions that are not done; whether none is left."""
        try:
            loaded = await self._load(end)
        except (BrokenHistory, Permanent, Undecodable) as error:
            log.error(
                "the actions at the end of %s are lost, because it cannot be read: %s",
                end.run_id,
                error,
                extra=about(end.run_id, end.tenant),
            )
            return True
        except ConnectorError as error:
            log.warning("the actions at the end of %s wait: %s", end.run_id, error, extra=about(end.run_id, end.tenant))
            return False
        if loaded is None:
            return True
        is_done = await self._attempt(end, "ended", self._tell_trigger(end, loaded))
        if isinstance(loaded, Ended):
            for number, text in enumerate(loaded.facts.options.on_complete):
                hook = self._hooks.carry_out(text, end, loaded, number)
                is_done = await self._attempt(end, f"end:{number}", hook) and is_done
        return is_done

    async def _attempt(self, end: RunEnd, name: str, action: Any) -> bool:
        """Await an action unless it is done; whether it is done now, or never will be."""
        if name in end.done:
            action.close()
            return True
        try:
            if await action:
                self.counts["done"] += 1
        except Refused as refused:
            self.counts["refused"] += 1
            log.warning("%s:%s is not carried out: %s", end.run_id, name, refused, extra=about(end.run_id, end.tenant))
        except Unavailable as error:
            self.counts["unavailable"] += 1
            log.warning("%s:%s waits: %s", end.run_id, name, error, extra=about(end.run_id, end.tenant))
            return False
        end.done.add(name)
        return True

    async def _load(self, end: RunEnd) -> Ended | RunRefused | None:
        """Return the end as it is in the log; None for one without actions. Raises ConnectorError, BrokenHistory."""
        if end.state is not None or end.refused is not None:
            return end.state or end.refused
        if end.is_unseen or end.first_offset == end.last_offset:
            value = await self._ended_runs.read_value(end.partition, end.first_offset)
            if value is None or not _has_marks(value):
                return None
            if end.first_offset == end.last_offset:
                record = self._codec.decode(value).record
                return record if isinstance(record, RunRefused) and record.trigger else None
        state = await self._ended_runs.state(end.partition, end.position)
        return state if isinstance(state, Ended) and not is_importing(state) else None

    async def _tell_trigger(self, end: RunEnd, loaded: Ended | RunRefused) -> bool:
        """Tell the aggregate that started the run; False when there is none."""
        trigger = loaded.facts.options.trigger if isinstance(loaded, Ended) else loaded.trigger
        if not trigger:
            return False
        family, _, place = trigger.partition(":")
        tenant, separator, name = place.partition("/")
        note = self._triggers.get(family)
        if note is None or not separator:
            raise Refused("not_found", f"{trigger[:80]!r} is no schedule and no webhook")
        status, code, message = _outcome(end, loaded)
        command_id = f"{end.run_id}:ended"
        command = note(
            envelope=CommandEnvelope(
                command_id=command_id, tenant=tenant, subject=command_id, issued_at_ms=end.ended_at_ms
            ),
            name=name,
            run_id=end.run_id,
            status=status,
            code=code,
            message=message[:MESSAGE_CHARACTERS_MAX],
        )
        await ask_once(self._commands, command)
        return True


def end_of_decision(aggregate: Aggregate, events: Sequence[Any], partition: int, at_ms: int) -> RunEnd:
    """Return the end of a run that has just become durable with these events."""
    last = events[-1]
    return RunEnd(
        tenant=aggregate.tenant,
        partition=partition,
        run_id=aggregate.id,
        first_offset=aggregate.first_offset,
        last_offset=aggregate.last_offset,
        ended_at_ms=at_ms,
        code=last.code if isinstance(last, RunFailed) else "",
        state=aggregate.state if isinstance(aggregate.state, Ended) else None,
        refused=last if isinstance(last, RunRefused) else None,
    )


async def ask_once(commands: EntityCommands, command: Any) -> Sequence[Any]:
    """Return the events of a command. Raises Refused, Unavailable."""
    try:
        answer = await commands.ask(command, wait_s=ASK_WAIT_S)
    except CommandInvalid as error:
        raise Refused("bad_request", str(error)) from error
    except (CommandUnanswered, ConnectorError) as error:
        raise Unavailable(str(error)) from error
    for event in answer.events:
        if isinstance(event, CommandRefused):
            raise Refused(event.code, f"{event.code}: {event.message}")
    return answer.events


def _has_marks(value: bytes) -> bool:
    return any(mark in value for mark in MARKS)


def _has_actions(end: RunEnd) -> bool:
    if end.state is None:
        return end.refused is not None and bool(end.refused.trigger)
    options = end.state.facts.options
    return bool(options.on_complete or options.trigger) and not is_importing(end.state)


def _outcome(end: RunEnd, loaded: Ended | RunRefused) -> tuple[str, str, str]:
    """Return status, code and message of an end."""
    if isinstance(loaded, RunRefused):
        return REFUSED, loaded.code, loaded.message
    return loaded.status, end.code, loaded.reason
