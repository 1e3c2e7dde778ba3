"""What is added to the system prompt of a run, read before the run starts.

Before: services/runtime/run/prompt_run.py. After: services/families/memory/prompt_memory.py.
"""

from typing import Protocol

from loomlog.schemas.generated.values import AgentDefinition, BlobRef, MemoryContext
from loomlog.schemas.records import Value
from loomlog.services.core.run.commands import CommandRefusal


class PromptRun(Value, frozen=True, kw_only=True):
    """The run whose prompt is filled."""

    run_id: str
    root_run_id: str
    session_id: str
    tenant: str
    subject: str
    user_id: str
    definition: AgentDefinition
    request: tuple[str, ...] = ()
    """Texts of the request, as in the log."""
    run_timeout_s: int = 0
    """0: the start waits as long as it takes."""
    positions: tuple[str, ...] = ()
    """Position tokens that the reads include."""


class PromptAdditions(Protocol):
    """Reads what is added to prompts."""

    def is_needed(self, definition: AgentDefinition) -> bool:
        """Return whether `read` may have something for runs with this definition."""
        ...

    async def read(self, run: PromptRun) -> MemoryContext | CommandRefusal | None:
        """Return what is added, or why the run cannot start; None: nothing. Raises ConnectorError."""
        ...


class DefinitionTextReader(Protocol):
    """Reads the long texts of definitions (services/runtime/content/definition_texts.py)."""

    async def load(self, ref: BlobRef) -> str:
        """Return a text as it is stored. Raises ConnectorError."""
        ...
