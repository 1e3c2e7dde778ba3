"""Records of the namespace loom.pause.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class LiftPause(Record, frozen=True, kw_only=True):
    """Lifts a pause, named as it was set."""

    SCHEMA: ClassVar[str] = "loom.pause.commands.LiftPause"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty."""
    scope: str
    """How wide: agent, tenant or all."""
    tenant: str = ''
    """The tenant; empty for all, and for an agent of every tenant."""
    agent: str = ''
    """Name of the agent; empty unless the scope is agent."""


class SetPause(Record, frozen=True, kw_only=True):
    """Pauses an agent, a tenant or everything."""

    SCHEMA: ClassVar[str] = "loom.pause.commands.SetPause"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty."""
    scope: str
    """How wide: agent, tenant or all."""
    tenant: str = ''
    """The tenant; empty for all, and for an agent of every tenant."""
    agent: str = ''
    """Name of the agent; empty unless the scope is agent."""
    reason: str = ''
    """Why, as the one who asked said it."""
    switch: str = ''
    """Value of LOOMLOG_START_PAUSED that asked for it; each value counts once. Empty for anyone else."""


RECORDS = (
    LiftPause,
    SetPause,
)
Command = LiftPause | SetPause
