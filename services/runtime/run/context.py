"""Collaborators that the run partitions of one process share.

Before: services/runtime/run_host.py makes it. After: command_handler.py and its parts, one of each for each partition.
"""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from loomlog.schemas.generated.values import AgentDefinition, BlobRef
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.families.pause.state import PauseTable
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, Credentials
from loomlog.services.runtime.models.budget_reservation import StartBudgets
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.prompt_memory import PromptMemory
from loomlog.services.runtime.run.run_index import RunIndex
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.telemetry.tracing import NO_TRACING, Tracing
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.lookups import continue_in_task

READ_WAIT_S = 10.0
"""Seconds to wait for what a parent has written of definitions."""


def ignore_end(tenant: str, facts: RunFacts) -> None:
    """Do nothing at the end of a run."""


class ReplicaPositions(Protocol):
    """The part of Replicas (services/stream/entities/replicas.py) that the start of a run needs."""

    topic: str

    def has_read(self, positions: Iterable[str]) -> bool: ...
    async def read_to(self, positions: Iterable[str], *, timeout_s: float) -> None: ...


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
    pauses: Callable[[], PauseTable] | None = None
    encryption: ContentEncryption = PLAINTEXT
    interruption_answers: InterruptionAnswers | None = None
    read_partial_output: PartialOutputReader | None = None
    budgets: StartBudgets | None = None
    replicas: ReplicaPositions | None = None
    admission_queue: AdmissionQueue | None = None
    credentials: Credentials = NO_CREDENTIALS
    definition_texts: DefinitionTexts | None = None
    prompt_memory: PromptMemory | None = None
    on_run_ended: Callable[[str, RunFacts], None] = ignore_end
    """Called with the tenant and the facts of each run whose end is in the log."""

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
