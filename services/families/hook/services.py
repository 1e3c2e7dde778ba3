"""Hooks in a process: opened once.

Before: services/families/opening.py. After: handlers.py.
"""

from dataclasses import dataclass, field

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.services.families.hook.handlers import HookHandlers
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, FamilyServices


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """What a process says of hooks. `installation_key` None: callbacks are not signed."""

    installation_key: SecretKey | None = field(default=None, repr=False)


def open_family(context: FamilyContext) -> FamilyServices:
    """Open hooks."""
    commands = context.provided.get(InstallationCommands) or InstallationCommands(
        context.commands, context.parts.replicas
    )
    handlers = HookHandlers(commands, installation_key=context.options(HookOptions).installation_key)
    return FamilyServices(handlers=handlers.by_operation())
