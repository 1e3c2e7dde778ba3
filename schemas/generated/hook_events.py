"""Records of the namespace loom.hook.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.records import Record


class HookRegistered(Record, frozen=True, kw_only=True):
    """A hook is registered. The same tenant, owner and name again takes the place of the earlier one."""

    SCHEMA: ClassVar[str] = "loom.hook.events.HookRegistered"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "hook_id", "tenant", "owner", "name", "phase", "agents", "tools", "callback_url", "fail_mode", "timeout_ms",
        "by",
    )

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


class HookRemoved(Record, frozen=True, kw_only=True):
    """A hook is removed."""

    SCHEMA: ClassVar[str] = "loom.hook.events.HookRemoved"

    hook_id: str
    """Id of the registration."""
    by: str = ''
    """Who asked."""


RECORDS = (
    HookRegistered,
    HookRemoved,
)
Event = HookRegistered | HookRemoved
