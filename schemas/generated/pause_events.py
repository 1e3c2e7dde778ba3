"""Records of the namespace loom.pause.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.records import Record


class PauseLifted(Record, frozen=True, kw_only=True):
    """A pause is lifted."""

    SCHEMA: ClassVar[str] = "loom.pause.events.PauseLifted"

    scope: str
    """How wide: agent, tenant or all."""
    tenant: str = ''
    """The tenant; empty for all, and for an agent of every tenant."""
    agent: str = ''
    """Name of the agent; empty unless the scope is agent."""
    by: str = ''
    """Who asked."""


class PauseSet(Record, frozen=True, kw_only=True):
    """An agent, a tenant or everything is paused."""

    SCHEMA: ClassVar[str] = "loom.pause.events.PauseSet"

    scope: str
    """How wide: agent, tenant or all."""
    tenant: str = ''
    """The tenant; empty for all, and for an agent of every tenant."""
    agent: str = ''
    """Name of the agent; empty unless the scope is agent."""
    reason: str = ''
    """Why, as the one who asked said it."""
    by: str = ''
    """Who asked."""
    switch: str = ''
    """Value of LOOMLOG_START_PAUSED that asked for it; each value counts once. Empty for anyone else."""


class SwitchUsed(Record, frozen=True, kw_only=True):
    """A value of the start-paused switch counts as used; everything was paused already."""

    SCHEMA: ClassVar[str] = "loom.pause.events.SwitchUsed"

    switch: str
    """The value of LOOMLOG_START_PAUSED."""


RECORDS = (
    PauseLifted,
    PauseSet,
    SwitchUsed,
)
Event = PauseLifted | PauseSet | SwitchUsed
