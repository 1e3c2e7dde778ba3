"""The family of hooks (decision 19): one aggregate of the whole installation, because hooks are called in one order.

Every process has it in memory.

    state.py, decide.py   the rules; answers.py has what a hook may say
    api.py, handlers.py   the operations, and what carries them out
    runner.py             calls the hooks of a tool call
    services.py           opens them in a process

Before: requests, and services/runtime/tools/tool_calls.py. After: connectors/http/signed_callbacks.py.
"""

from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.services.core.families import Rules, StateFiles, installation_aggregate, installation_family
from loomlog.services.families.hook.api import OPERATIONS
from loomlog.services.families.hook.decide import decide
from loomlog.services.families.hook.state import HookTable, evolve

FAMILY = installation_family(
    name="hook",
    summary="The hooks of an installation: external programs that are called before and after tool calls.",
    rules=Rules(state=HookTable, initial=lambda aggregate: HookTable(), decide=decide, evolve=evolve, version=1),
    state_files=StateFiles.EVENTS,
    commands={
        RegisterHook: ("register", "Register a hook, or replace the one of its name."),
        RemoveHook: ("remove", "Remove a hook."),
    },
    operations=OPERATIONS,
    is_of_starts=True,
    services="loomlog.services.families.hook.services",
)
HOOKS = installation_aggregate(FAMILY.name)
"""Id of the aggregate."""
