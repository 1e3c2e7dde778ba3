"""Records of the namespace loom.hook.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.records import Record


class HookRegistered(Record, frozen=True, kw_only=True):
    """A hook is registered. The same tenant, owner and name again takes the place of the earlier one."""

    SCHEMA: ClassVar[str] = "loom.hook.events.HookRegistered"

    hook_id: str
    """Id of this registration."""
    tenant: str
    """Tenant whose calls it sees; empty: those of every tenant."""
    owner: str
    """Who registered it, as it calls itself."""
    name: str
    """Its name under that owner."""
    phase: str
    """pre or post: before a tool call or after it."""
    callback_url: str
    """Where it is asked, http or https."""
    agents: tuple[str, ...] = ()
    """Agents whose calls it sees; empty: all."""
    tools: tuple[str, ...] = ()
    """Tools it sees, exact or with a star at the end; empty: all."""
    fail_mode: str = 'open'
    """open or closed: what happens when it gives no usable answer."""
    timeout_ms: int = 0
    """Longest wait for its answer, milliseconds; 0: the default."""
    by: str = ''
    """Who asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "hook_id": self.hook_id,
            "tenant": self.tenant,
            "owner": self.owner,
            "name": self.name,
            "phase": self.phase,
            "agents": self.agents,
            "tools": self.tools,
            "callback_url": self.callback_url,
            "fail_mode": self.fail_mode,
            "timeout_ms": self.timeout_ms,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            hook_id=value["hook_id"],
            tenant=value["tenant"],
            owner=value["owner"],
            name=value["name"],
            phase=value["phase"],
            agents=tuple(value["agents"]),
            tools=tuple(value["tools"]),
            callback_url=value["callback_url"],
            fail_mode=value["fail_mode"],
            timeout_ms=value["timeout_ms"],
            by=value["by"],
        )


class HookRemoved(Record, frozen=True, kw_only=True):
    """A hook is removed."""

    SCHEMA: ClassVar[str] = "loom.hook.events.HookRemoved"

    hook_id: str
    """Id of the registration."""
    by: str = ''
    """Who asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "hook_id": self.hook_id,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            hook_id=value["hook_id"],
            by=value["by"],
        )


RECORDS = (
    HookRegistered,
    HookRemoved,
)
Event = HookRegistered | HookRemoved
