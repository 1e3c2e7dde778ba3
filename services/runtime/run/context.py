"""Collaborators that the run partitions of one process share.

Before: services/runtime/run_host.py makes it. After: command_handler.py and its parts, one of each for each partition.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, QueueRef, ToolCall
from loomlog.services.core.run.commands import CommandRefusal, ToolCompleted
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import AwaitingTools, Wait
from loomlog.services.families.ports.call_budgets import RunBudgets
from loomlog.services.families.ports.prompts import PromptAdditions
from loomlog.services.families.ports.wide_pauses import HoldingPauses
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, Credentials
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.run.run_index import RunIndex
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.telemetry.tracing import NO_TRACING, Tracing
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.lookups import continue_in_task

Interruption = InterruptionOpened | InterruptionClosed
READ_WAIT_S = 10.0
"""Seconds to wait for what a parent has written of definitions."""


def ignore_end(tenant: str, facts: RunFacts) -> None:
    """Do nothing at the end of a run."""


def ignore_lease(queue: QueueRef, lease_id: str, taken: int) -> None:
    """Do nothing about a lease: its queue asks again."""


class WaitResults(Protocol):
    """Makes results of calls that wait for channels (wait_answers.py)."""

    async def result(
        self, report: ReportWait, call: ToolCall, wait: Wait, facts: RunFacts, tenant: str, *, satisfied: bool
    ) -> ToolResult:
        """Return the result that completes the call; masking, encryption and blobs follow.

        `report` is the one that completes it: it has the lease and the positions of a subscribe, or `is_expired`.
        `call` has its arguments in plaintext. `wait.counts` includes the report. `satisfied`: messages are there, as
        many as the call needs. `tenant` is that of the run. A report may come before the wait is in the log: then
        `wait.until_ms` is 0, its only queue is that of the report, and its mode is empty unless there is a lease.

        The result names the lease, with `taken`, in `leases`: what it does not name goes back to the queue. It is asked
        again after a crash. Raises ConnectorError when it cannot be read now; the report is then tried again.
        """
        ...


class ReplicaPositions(Protocol):
    """The part of Replicas (services/stream/entities/replicas.py) that the start of a run needs."""

    topic: str

    def has_read(self, positions: Iterable[str]) -> bool: ...
    async def read_to(self, positions: Iterable[str], *, timeout_s: float) -> None: ...


MakeResult = Callable[[ToolCall, RunFacts], Awaitable[ToolResult]]
"""Makes the result of a call, from it and the facts of its run in plaintext."""
CompleteCall = Callable[[CallTool, AwaitingTools, str, MakeResult], Awaitable[ToolCompleted]]
"""Completes a call that waited: ToolCalls.complete (services/runtime/tools/tool_calls.py)."""
PartialOutputReader = Callable[[str, int, int], Coroutine[Any, Any, tuple[str, BlobRef | None]]]
"""Text of a model call under way in this process, by run, turn and attempt (models/partial_output.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Shared by all partitions. None for a part: the feature is off."""

    family: RunFamily
    partitions: int
    definitions: DefinitionResolver
    index: RunIndex
    ended_runs: EndedAggregates
    run_summaries: RunSummaries
    clock_ms: Callable[[], int]
    tracing: Tracing = NO_TRACING
    pauses: Callable[[], HoldingPauses] | None = None
    encryption: ContentEncryption = PLAINTEXT
    interruption_answers: InterruptionAnswers | None = None
    read_partial_output: PartialOutputReader | None = None
    budgets: RunBudgets | None = None
    replicas: ReplicaPositions | None = None
    admission_queue: AdmissionQueue | None = None
    credentials: Credentials = NO_CREDENTIALS
    definition_texts: DefinitionTexts | None = None
    prompt_memory: PromptAdditions | None = None
    wait_results: WaitResults | None = None
    complete_call: CompleteCall | None = None
    """None, as of wait_results: reports of queues are ignored."""
    release_lease: Callable[[QueueRef, str, int], None] = ignore_lease
    """Tells a queue how many messages of a lease were taken, from the first on; the others are visible again. Called
    when that is in the log, more than once for the same lease. Returns at once; what is lost, the queue asks for again.
    """
    end_actions: RunEndActions | None = None
    on_run_ended: Callable[[str, RunFacts], None] = ignore_end
    """Called with the tenant and the facts of each run whose end is in the log."""
    on_interruption: Sequence[Callable[[str, RunFacts, Interruption, bool], None]] = ()
    """Called with a question that was opened or closed and is in the log; true: again, after a takeover."""
    on_approval: Sequence[Callable[[str, RunFacts, AskedApproval, bool], None]] = ()
    """The same, with a call about which a group of people is asked."""

    async def load_definition(
        self, agent: str, tenant: str, *, def_id: str = "", positions: tuple[str, ...] = ()
    ) -> bool:
        """Read what the agent means at `positions` or later, and its content; whether that took any time.

        Raises ConnectorError.
        """
        replicas, has_waited = self.replicas, False
        own = positions if replicas is None else tuple(p for p in positions if p.startswith(f"{replicas.topic}/"))
        if replicas is not None and not replicas.has_read(own):
            await continue_in_task()
            await replicas.read_to(own, timeout_s=READ_WAIT_S)
            has_waited = True
        if not self.definitions.is_loaded(agent, tenant=tenant, def_id=def_id):
            await continue_in_task()
            await self.definitions.load(agent, tenant=tenant, def_id=def_id)
            has_waited = True
        return has_waited

    async def store_texts(self, definition: AgentDefinition | CommandRefusal) -> bool:
        """Store the long texts of a definition, unless this process has done so; whether that took any time.

        Raises ConnectorError.
        """
        if self.definition_texts is None or not isinstance(definition, AgentDefinition):
            return False
        texts = self.definition_texts.unstored(definition)
        if texts:
            await continue_in_task()
            await self.definition_texts.store(texts)
        return bool(texts)

    def with_text_references(self, definition: AgentDefinition) -> AgentDefinition:
        """Return the definition as the events of a run have it: its stored long texts by reference."""
        return definition if self.definition_texts is None else self.definition_texts.with_references(definition)

    def pauses_for(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """Pauses wider than a run that hold runs of that tenant and agent now."""
        return self.pauses().pauses_for(tenant, agent) if self.pauses is not None else ()
