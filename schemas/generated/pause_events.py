"""Records of the namespace loom.pause.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "tenant": self.tenant,
            "agent": self.agent,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            tenant=value["tenant"],
            agent=value["agent"],
            by=value["by"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "tenant": self.tenant,
            "agent": self.agent,
            "reason": self.reason,
            "by": self.by,
            "switch": self.switch,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            tenant=value["tenant"],
            agent=value["agent"],
            reason=value["reason"],
            by=value["by"],
            switch=value["switch"],
        )


class SwitchUsed(Record, frozen=True, kw_only=True):
    """A value of the start-paused switch counts as used; everything was paused already."""

    SCHEMA: ClassVar[str] = "loom.pause.events.SwitchUsed"

    switch: str
    """The value of LOOMLOG_START_PAUSED."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "switch": self.switch,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            switch=value["switch"],
        )


RECORDS = (
    PauseLifted,
    PauseSet,
    SwitchUsed,
)
Event = PauseLifted | PauseSet | SwitchUsed
