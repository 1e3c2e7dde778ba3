"""Preparation of runs that begin with another run's history in the same partition: forks, and imports of runs.

The command handler has checked that the command is new and in the right partition; here the history is read back from
the log. Memory has only the current state, and the offsets in an import belong to another log, so neither is used: runs
are found by id, and what is read is checked against seq, hash chain and digest.

Before: command_handler.py. After: services/core/run/lifecycle/fork.py, lifecycle/event_import.py.
"""

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import ForkRun, ImportRun
from loomlog.schemas.generated.run_events import Event, RunStarted
from loomlog.schemas.generated.values import AgentDefinition, ForkPoint, MemoryContext, RunPosition
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ApplyWidePauses, CommandRefusal, ForkCommand, ForkOrigin, ImportCommand
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.conversation.prompt import effective_segments
from loomlog.services.core.run.lifecycle.fork import conversation_origin, fork_user_id, is_foreign_event
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.families.ports.prompts import PromptRun
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.fork_definition import has_same_prompt, resolve_fork_definition, version_in
from loomlog.services.runtime.run.prompt_run import user_texts, with_memory
from loomlog.services.runtime.run.run_directory import RunDirectory
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.ended_aggregates import Prefix
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.partition import Aggregate, Partition


class HistoryHandler:
    """Prepares forks and imports of one partition."""

    def __init__(self, context: RunContext, directory: RunDirectory, *, number: int) -> None:
        self._context = context
        self._directory = directory
        self._number = number
        self._encryption = context.encryption
        self._past = context.ended_runs
        self._clock_ms = context.clock_ms

    async def fork(
        self, record: LogRecord, command: ForkRun, run_id: str, partition: Partition, *, traceparent: str
    ) -> PendingDecision:
        """Prepare a fork. Raises Transient."""
        origin: ForkOrigin | None = None
        unreadable: CommandRefusal | None = None
        position = await self._directory.position_of(command.origin_run_id, command.envelope.tenant, partition)
        if position is not None:
            try:
                prefix = await self._past.prefix(self._number, position, command.at_seq)
            except BrokenHistory as error:
                unreadable = CommandRefusal(
                    code="run_quarantined", message=f"{command.origin_run_id} is not whole: {error}"
                )
            else:
                if prefix is not None and prefix.point is not None and isinstance(prefix.started, RunStarted):
                    origin = ForkOrigin(started=prefix.started, state=prefix.aggregate.state, point=prefix.point)
        history = None if origin is None else build_conversation(origin.state)
        stored = command
        if origin is not None:
            stored = await self._encrypt(command, fork_user_id(command, origin.started))
            agent = stored.agent or origin.started.definition.name
            await self._context.load_definition(agent, stored.envelope.tenant, def_id=version_in(stored))
            if version_in(stored):
                await self._context.load_definition(agent, stored.envelope.tenant)  # for the rules in force now
            await self._context.store_texts(self._resolve(stored, origin))
        fork = self._fork_command(stored, run_id, origin, unreadable, traceparent)
        read = await self._memory(fork, run_id)

        def order() -> ForkCommand:
            return with_memory(self._fork_command(stored, run_id, origin, unreadable, traceparent), *read)

        aggregate = self._new_aggregate(record, run_id, command.envelope.tenant, history)
        return PendingDecision(aggregate, order, command.envelope.command_id)

    async def _memory(
        self, fork: ForkCommand, run_id: str
    ) -> tuple[AgentDefinition | None, MemoryContext | CommandRefusal | None]:
        """Return the definition with the memory in its prompt: that of the origin while the prompt is the same."""
        command, definition, origin = fork.command, fork.definition, fork.origin
        memory = self._context.prompt_memory
        if definition is None or origin is None or command.seed:
            return definition, None
        started = origin.started
        if not is_foreign_event(started) and has_same_prompt(definition, started.definition):
            return definition, started.memory_context
        if memory is None or not memory.is_needed(definition):
            return definition, None
        facts = getattr(origin.state, "facts", None)
        run = PromptRun(
            run_id=run_id,
            root_run_id=run_id,
            session_id=fork.session_id,
            tenant=command.envelope.tenant,
            subject=command.envelope.subject,
            user_id=fork_user_id(command, started),
            definition=definition,
            request=user_texts(effective_segments(command.segments, command.prompt)),
            run_timeout_s=started.options.run_timeout_s,
            positions=(*command.after, *(() if facts is None else facts.positions)),
        )
        return definition, await memory.read(run)

    async def _encrypt(self, command: ForkRun, subject: str) -> ForkRun:
        encrypted = await self._encryption.encrypt_command(command, subject)
        assert isinstance(encrypted, ForkRun)
        return encrypted

    def _resolve(self, command: ForkRun, origin: ForkOrigin) -> AgentDefinition | CommandRefusal:
        return resolve_fork_definition(
            command, origin.started, self._context.definitions, tenant=command.envelope.tenant
        )

    def _fork_command(
        self,
        command: ForkRun,
        run_id: str,
        origin: ForkOrigin | None,
        origin_refusal: CommandRefusal | None,
        traceparent: str,
    ) -> ForkCommand:
        tenant = command.envelope.tenant
        handle = command.agent_id or f"a_{run_id[2:]}"
        resolved: AgentDefinition | CommandRefusal | None = None
        if origin is not None:
            resolved = self._resolve(command, origin)
        return ForkCommand(
            at_ms=self._clock_ms(),
            command=command,
            session_id=f"s_{run_id[2:]}",
            agent_id=handle,
            origin=origin,
            definition=self._context.with_text_references(resolved) if isinstance(resolved, AgentDefinition) else None,
            origin_refusal=origin_refusal,
            definition_refusal=resolved if isinstance(resolved, CommandRefusal) else None,
            handle_live_run=self._directory.handle_holder(tenant, handle),
            traceparent=traceparent,
            pauses=self._context.pauses_for(tenant, resolved.name) if isinstance(resolved, AgentDefinition) else (),
        )

    async def import_first_part(self, record: LogRecord, command: ImportRun, partition: Partition) -> PendingDecision:
        """Prepare the first part of an import. Raises ValueError or BrokenHistory when the run it continues is not
        complete here: the command then becomes a dead letter, and the run can still be imported after that one.
        """
        events, times = decode_import(command)
        first = events[0] if events else None
        history: tuple[Message, ...] | None = None
        if isinstance(first, RunStarted) and (there := conversation_origin(first)) is not None:
            prefix = await self._find_origin(there, command.envelope.tenant, partition)
            first, history = _relocate_origin(first, prefix), build_conversation(prefix.aggregate.state)
            events = (first, *events[1:])
        aggregate = self._new_aggregate(record, command.run_id, command.envelope.tenant, history)
        return self._prepare_import(command, aggregate, events, times)

    def import_next_part(self, command: ImportRun, aggregate: Aggregate) -> PendingDecision:
        """Prepare a further part of an import that has begun here. Raises Undecodable."""
        events, times = decode_import(command)
        return self._prepare_import(command, aggregate, events, times)

    async def _find_origin(self, origin: RunPosition | ForkPoint, tenant: str, partition: Partition) -> Prefix:
        """Return the history of the run with that id here, up to its end or to the event it was forked at."""
        position = await self._directory.position_of(origin.run_id, tenant, partition)
        if position is not None:
            if not isinstance(origin, ForkPoint):
                return Prefix(await self._past.load(self._number, position), None, None)
            prefix = await self._past.prefix(self._number, position, origin.seq)
            if prefix is not None:
                return prefix
        raise ValueError(f"the run continues {origin.run_id}, which must be imported before it")

    def _prepare_import(
        self, command: ImportRun, aggregate: Aggregate, events: tuple[Event, ...], times: tuple[int, ...]
    ) -> PendingDecision:
        def order() -> ImportCommand:
            occupied, pauses = self._restore_conflicts(command, aggregate, events) if command.continues else ("", ())
            return ImportCommand(
                at_ms=self._clock_ms(),
                command=command,
                events=events,
                times=times,
                next_seq=aggregate.seq + 1,
                wide_pauses=ApplyWidePauses(at_ms=self._clock_ms(), pauses=pauses, by=command.envelope.subject),
                conflicting_run_id=occupied,
            )

        return PendingDecision(aggregate, order, command.envelope.command_id)

    def _restore_conflicts(
        self, command: ImportRun, aggregate: Aggregate, events: tuple[Event, ...]
    ) -> tuple[str, tuple[Pause, ...]]:
        """Return the live run that has its session or handle here, and the pauses that apply here in addition to its
        own.
        """
        tenant = command.envelope.tenant
        begun = getattr(aggregate.state, "facts", None) or next(iter(events), None)
        if not isinstance(begun, RunFacts | RunStarted):
            return "", ()  # the command is refused: a run begins with RunStarted
        occupied = self._directory.session_holder(tenant, begun.session_id) or self._directory.handle_holder(
            tenant, begun.agent_id
        )
        return occupied, self._context.pauses_for(tenant, begun.definition.name)

    def _new_aggregate(
        self, record: LogRecord, run_id: str, tenant: str, history: tuple[Message, ...] | None
    ) -> Aggregate:
        return Aggregate(
            id=run_id,
            state=self._context.family.lineage.with_history(run_id, history),
            key=record.key or b"",
            tenant=tenant,
        )


def decode_import(command: ImportRun) -> tuple[tuple[Event, ...], tuple[int, ...]]:
    """Return the events of a part and the times when they were decided. Raises Undecodable."""
    decoded = [local_codec().decode(value) for value in command.events]
    events = tuple(one.record for one in decoded)
    return events, tuple(one.envelope.at_ms for one in decoded if one.envelope is not None)


def _relocate_origin(first: RunStarted, prefix: Prefix) -> RunStarted:
    """Return the first event with the position that the run it continues has in this log."""
    if prefix.point is not None:
        return replace(first, forked_from=prefix.point)
    earlier = prefix.aggregate
    place = RunPosition(run_id=earlier.id, first_offset=earlier.first_offset, last_offset=earlier.last_offset)
    return replace(first, continues=place)
