"""Records of the namespace loom.pause.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "tenant": self.tenant,
            "agent": self.agent,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            tenant=value["tenant"],
            agent=value["agent"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "tenant": self.tenant,
            "agent": self.agent,
            "reason": self.reason,
            "switch": self.switch,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            tenant=value["tenant"],
            agent=value["agent"],
            reason=value["reason"],
            switch=value["switch"],
        )


RECORDS = (
    LiftPause,
    SetPause,
)
Command = LiftPause | SetPause
