"""The family of hooks (decision 19): one aggregate of the whole installation, because hooks are called in one order.

Every process has it in memory. Its routes are those of services/api/hook_endpoints.py, which existing clients know, so
no transport makes any from the declaration.

Before: services/application/admin/hooks.py sends commands. After: services/runtime/tools/hooks.py calls the hooks of a
tool call.
"""

from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.families import (
    INSTALLATION,
    Audit,
    Command,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    aggregate_id,
)
from loomlog.services.families.hook.decide import decide
from loomlog.services.families.hook.state import HookTable, evolve

FAMILY = Family(
    name="hook",
    summary="The hooks of an installation: external programs that are called before and after tool calls.",
    rules=Rules(state=HookTable, initial=lambda aggregate: HookTable(), decide=decide, evolve=evolve, version=1),
    lifecycle=Lifecycle(
        state_files=StateFiles.EVENTS,
        erasure=Erasure.NOTHING,
        audit=Audit.WHOLE,
        rebuild=Rebuild.EVENTS,
    ),
    commands=(
        Command(
            record=RegisterHook,
            verb="register",
            summary="Register a hook, or replace the one of its name.",
            aggregate=lambda command: INSTALLATION,
            scope=TENANT,
            in_tool=False,
            in_transports=False,
        ),
        Command(
            record=RemoveHook,
            verb="remove",
            summary="Remove a hook.",
            aggregate=lambda command: INSTALLATION,
            scope=TENANT,
            in_tool=False,
            in_transports=False,
        ),
    ),
    reads=Reads.REPLICATED,
)
HOOKS = aggregate_id(FAMILY.name, "", INSTALLATION)
"""Id of the aggregate."""
