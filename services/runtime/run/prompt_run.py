"""The run whose prompt is filled before it starts, and its order with what was read.

Before: start_handler.py, child_runs.py, history_handler.py. After: services/families/ports/prompts.py.
"""

from collections.abc import Sequence
from typing import TypeVar

from loomlog.schemas.generated.values import AgentDefinition, MemoryContext, Segment
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, ForkCommand, StartCommand
from loomlog.services.core.run.conversation.prompt import effective_segments
from loomlog.services.families.ports.prompts import PromptRun

Command = TypeVar("Command", StartCommand, ForkCommand)


def prompt_run(order: StartCommand, run_id: str, positions: tuple[str, ...] = ()) -> PromptRun:
    """Return the run of a start that has a definition; its reads include these positions too."""
    command, definition, earlier = order.command, order.definition, order.previous_facts
    assert definition is not None
    return PromptRun(
        run_id=run_id,
        root_run_id=run_id if order.parent is None else order.parent.root_run_id,
        session_id=order.session_id,
        tenant=command.envelope.tenant,
        subject=command.envelope.subject,
        user_id=command.user_id,
        definition=definition,
        request=user_texts(effective_segments(command.segments, command.prompt)),
        run_timeout_s=command.options.run_timeout_s or definition.run_timeout_s,
        positions=(*command.after, *(() if earlier is None else earlier.positions), *positions),
    )


def user_texts(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Return the texts of the user in a request."""
    return tuple(content.text for segment in segments if segment.role == "user" for content in segment.content)


def with_memory(
    command: Command, definition: AgentDefinition | None, read: MemoryContext | CommandRefusal | None
) -> Command:
    """Return the command with the memory that was read for that definition, which may have changed meanwhile."""
    if command.definition is None or definition is None:
        return command
    if isinstance(read, CommandRefusal):
        return replace(command, definition=None, definition_refusal=read)
    return replace(command, definition=definition, memory_context=read)
