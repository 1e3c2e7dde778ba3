"""Records of the namespace loom.hook.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class RegisterHook(Record, frozen=True, kw_only=True):
    """Registers a hook. The same tenant, owner and name again takes the place of the earlier one."""

    SCHEMA: ClassVar[str] = "loom.hook.commands.RegisterHook"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "hook_id", "tenant", "owner", "name", "phase", "agents", "tools", "callback_url", "fail_mode",
        "timeout_ms",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty."""
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


class RemoveHook(Record, frozen=True, kw_only=True):
    """Removes a hook."""

    SCHEMA: ClassVar[str] = "loom.hook.commands.RemoveHook"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty."""
    hook_id: str
    """Id of the registration."""
    of_tenant: str | None = None
    """Tenant that the hook must belong to; null: any, for an administrator."""


RECORDS = (
    RegisterHook,
    RemoveHook,
)
Command = RegisterHook | RemoveHook
