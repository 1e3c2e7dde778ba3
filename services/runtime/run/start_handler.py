"""Preparation of new runs for the core: starts, forks, imports.

Checks the partition, finds the session and the definition, recognises commands that were handled before; the core's own
refusals are decided there (core/run/lifecycle/start.py).

Before: command_handler.py with a command of its partition. After: the owner decides the command.
"""

import re

from loomlog.connectors.json_schema import SchemaRefused
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.generated.run_commands import ForkRun, ImportRun, StartRun
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, StartCommand
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.lifecycle.start import start_refusal
from loomlog.services.families.ports.prompts import PromptAdditions
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.definition_overrides import apply_overrides
from loomlog.services.runtime.run.history_handler import HistoryHandler
from loomlog.services.runtime.run.partition_check import check_partition
from loomlog.services.runtime.run.prompt_run import prompt_run, with_memory
from loomlog.services.runtime.run.run_directory import RunDirectory, own_handle, own_session
from loomlog.services.runtime.run.run_index import EndedRun
from loomlog.services.runtime.telemetry.tracing import read_traceparent
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Partition

MAX_COMMAND_BYTES = 620_000
"""Maximum bytes of a command: a larger StartRun would not fit one append together with its definition; big blocks
belong in the blob store.
"""
READ_WAIT_S = 5.0
"""Seconds to wait until the replicated families are read as far as the sender of a start has read them."""
KEY_PATTERN = re.compile(r"[A-Za-z0-9]{1,64}\Z")
"""Keys a producer may choose: the part of a run id between r_ and the dash."""
ERASED_REFUSAL = CommandRefusal(
    code="content_erased",
    message="the run's input was erased before the run began: start a new run with new input",
)


class StartHandler:
    """Prepares the new runs of one partition; built when the partition is taken over."""

    def __init__(self, context: RunContext, directory: RunDirectory, history: HistoryHandler, *, number: int) -> None:
        self._context = context
        self._directory = directory
        self._history = history
        self._number = number
        self._past = context.ended_runs
        self._budgets = budgets = context.budgets
        if budgets is not None:
            budgets.on_takeover()

    async def start(self, record: LogRecord, command: StartRun, partition: Partition) -> PendingDecision:
        """Prepare a start; with the exhausted hard limit of its user, if there is one. Raises Transient."""
        budgets, tenant = self._budgets, command.envelope.tenant
        exhausted = None
        if not self._knows(command):
            await continue_in_task()
            await self._read_to(command)
        if budgets is not None and budgets.may_be_limited(tenant, command.user_id):
            await continue_in_task()
            exhausted = await budgets.exhausted_limit(tenant, command.user_id)
        await self._context.load_definition(command.agent, tenant)
        resolved = self._resolve(command)
        await self._context.store_texts(resolved)
        prepared = await self._prepare_start(record, command, partition)
        order = prepared.command
        if exhausted is not None and order is not None:
            prepared.command = lambda: replace(order(), exhausted_limit=exhausted)
        memory = self._context.prompt_memory
        if memory is not None and isinstance(resolved, AgentDefinition) and memory.is_needed(resolved):
            await self._read_memory(memory, prepared, partition)
        return prepared

    async def _read_memory(self, memory: PromptAdditions, prepared: PendingDecision, partition: Partition) -> None:
        """Add the memory in its prompt to a start, unless it is a repeated or refused one. Raises ConnectorError."""
        aggregate, order = prepared.aggregate, prepared.command
        if aggregate is None or order is None or aggregate.id in partition.aggregates:
            return
        trial: StartCommand = order()
        if trial.definition is None or trial.command.seed or start_refusal(trial, aggregate.state.history) is not None:
            return
        await continue_in_task()
        read = await memory.read(prompt_run(trial, aggregate.id))
        prepared.command = lambda: with_memory(order(), trial.definition, read)

    def _knows(self, command: StartRun | ForkRun) -> bool:
        """Whether this process has read what the sender has. Raises ValueError for a position of another topic."""
        return self._context.replicas is None or self._context.replicas.has_read(command.after)

    async def _read_to(self, command: StartRun | ForkRun) -> None:
        """Read what the sender has. Raises Transient; the command is prepared again then."""
        if self._context.replicas is not None:
            await self._context.replicas.read_to(command.after, timeout_s=READ_WAIT_S)

    async def _prepare_start(self, record: LogRecord, command: StartRun, partition: Partition) -> PendingDecision:
        key = (record.key or b"").decode(errors="replace")
        run_id = command.run_id or derive_run_id(key, command.envelope.tenant, command.envelope.command_id)
        self._validate(record, run_id, related_id=command.session_id, related_kind="session")
        known = partition.aggregates.get(run_id)
        if known is not None:
            self._directory.note_issued(run_id, command)
            return PendingDecision(
                known,
                lambda: self._start_command(command, run_id, None, session_exists=True),
                command.envelope.command_id,
            )
        if run_id in self._directory.ended or run_id in self._directory.ending:
            return PendingDecision(None)
        ending = self._directory.ending_holder(command)
        if ending:
            # Clients may read its end in the log before its acknowledgement reaches us: this is not too early.
            ended = self._directory.end_event(ending)
            await continue_in_task()
            await ended.wait()
            return await self._prepare_start(record, command, partition)
        may_be_forgotten = self._directory.may_be_forgotten(command, self._context.clock_ms())
        if may_be_forgotten or (command.session_id and not self._directory.is_session_in_memory(command)):
            await continue_in_task()
            return await self._look_up(record, command, run_id, look_for_run=may_be_forgotten)
        return self._pending_start(record, command, run_id, self._directory.session_last_run(command))

    def _validate(self, record: LogRecord, run_id: str, *, related_id: str = "", related_kind: str = "") -> None:
        check_partition(record, run_id, self._context.partitions, related_id=related_id, related_kind=related_kind)
        if len(record.value or b"") > MAX_COMMAND_BYTES:
            raise ValueError(f"the command has {len(record.value or b'')} bytes, at most {MAX_COMMAND_BYTES}")

    async def _look_up(
        self, record: LogRecord, command: StartRun, run_id: str, *, look_for_run: bool
    ) -> PendingDecision:
        await self._directory.require_index()
        if look_for_run and await self._directory.index.find_run(run_id) is not None:
            return PendingDecision(None)
        last = self._directory.session_last_run(command)
        if command.session_id and last is None and not self._directory.is_session_live(command):
            last = await self._directory.index.last_run_of_session(command.session_id)
        if last is not None and last.tenant == command.envelope.tenant:
            await self._past.state(self._number, last.position)
        return self._pending_start(record, command, run_id, last)

    def _pending_start(
        self, record: LogRecord, command: StartRun, run_id: str, last: EndedRun | None
    ) -> PendingDecision:
        tenant = command.envelope.tenant
        self._directory.note_issued(run_id, command)
        if last is not None and last.tenant != tenant:
            last = None
        ended = self._past.cached(last.run_id) if last is not None else None
        history = build_conversation(ended) if ended is not None else None
        session_exists = not command.session_id or last is not None or self._directory.is_session_live(command)
        aggregate = Aggregate(
            id=run_id,
            state=self._context.family.lineage.with_history(run_id, history),
            key=record.key or b"",
            tenant=tenant,
        )
        trace = read_traceparent(record.headers) or self._context.tracing.run_traceparent(run_id)

        def order() -> StartCommand:
            return replace(
                self._start_command(command, run_id, last, session_exists=session_exists, traceparent=trace),
                previous_facts=getattr(ended, "facts", None),
            )

        return PendingDecision(aggregate, order, command.envelope.command_id)

    def _resolve(self, command: StartRun) -> AgentDefinition | CommandRefusal:
        """Return the definition that the run is pinned to, with its caller's overrides, or why it has none."""
        if self._context.encryption.is_erased(command):
            return ERASED_REFUSAL  # erased while it waited: the agent would get no input, and the erased user a new key
        resolved = self._context.definitions.resolve(
            command.agent,
            tenant=command.envelope.tenant,
            user_tier=command.options.user_tier,
            user_id=command.user_id,
            credentials=command.options.credentials,
            operator_key_restricted=command.options.operator_key_restricted,
            tools=command.tools,
        )
        if isinstance(resolved, CommandRefusal):
            return resolved
        try:
            return apply_overrides(resolved, command)
        except SchemaRefused as refused:
            return CommandRefusal(code="bad_request", message=f"output_schema: {refused}")

    def _start_command(
        self, command: StartRun, run_id: str, last: EndedRun | None, *, session_exists: bool, traceparent: str = ""
    ) -> StartCommand:
        tenant = command.envelope.tenant
        session = command.session_id or own_session(run_id)
        handle = command.agent_id or own_handle(run_id)
        resolved = self._resolve(command)
        definition = self._context.with_text_references(resolved) if isinstance(resolved, AgentDefinition) else None
        return StartCommand(
            at_ms=self._context.clock_ms(),
            command=command,
            session_id=session,
            agent_id=handle,
            definition=definition,
            definition_refusal=resolved if isinstance(resolved, CommandRefusal) else None,
            session_exists=session_exists,
            session_live_run=self._directory.session_holder(tenant, session),
            handle_live_run=self._directory.handle_holder(tenant, handle),
            continues=last.position if last is not None else None,
            traceparent=traceparent,
            pauses=self._context.pauses_for(tenant, command.agent),
        )

    async def fork(self, record: LogRecord, command: ForkRun, partition: Partition) -> PendingDecision:
        """Prepare a run that begins with the history of another up to some event."""
        key = (record.key or b"").decode(errors="replace")
        run_id = command.run_id or derive_run_id(key, command.envelope.tenant, command.envelope.command_id)
        self._validate(record, run_id, related_id=command.origin_run_id, related_kind="run")
        if run_id in partition.aggregates or run_id in self._directory.ended or run_id in self._directory.ending:
            return PendingDecision(None)
        await continue_in_task()
        if command.origin_run_id in self._directory.ending:
            await self._directory.end_event(command.origin_run_id).wait()
        if self._directory.may_be_forgotten(command, self._context.clock_ms()) and await self._directory.is_indexed(
            run_id
        ):
            return PendingDecision(None)
        await self._read_to(command)
        self._directory.note_issued(run_id, command)
        trace = read_traceparent(record.headers) or self._context.tracing.run_traceparent(run_id)
        return await self._history.fork(record, command, run_id, partition, traceparent=trace)

    async def import_run(self, record: LogRecord, command: ImportRun, partition: Partition) -> PendingDecision:
        """Prepare the next events of an imported run."""
        self._validate(record, command.run_id)
        known = partition.aggregates.get(command.run_id)
        if known is not None:
            is_theirs = known.tenant == command.envelope.tenant
            return self._history.import_next_part(command, known) if is_theirs else PendingDecision(None)
        if (
            command.run_id in self._directory.ended
            or command.run_id in self._directory.ending
            or command.first_seq != 1
        ):
            return PendingDecision(None)
        await continue_in_task()
        # A run that happened long ago may have been imported at any time since.
        if self._directory.forgotten_until and await self._directory.is_indexed(command.run_id):
            return PendingDecision(None)
        return await self._history.import_first_part(record, command, partition)


def derive_run_id(key: str, tenant: str, command_id: str) -> str:
    """Return the run id of a StartRun that has none: from the record's key and a hash of the command id."""
    if not KEY_PATTERN.match(key):
        raise ValueError(
            f"the record's key is {key!r}; expected 1 to 64 letters and digits, or a run_id in the command"
        )
    return f"r_{key}-{hashed_token('command', tenant, command_id)}"
