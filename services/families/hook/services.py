"""Hooks in a process: opened once. Only a runtime calls them.

Before: services/families/opening.py. After: handlers.py, runner.py.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from loomlog.connectors.configuration.driver_options import installation_key
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.services.families.hook import HOOKS
from loomlog.services.families.hook.handlers import HookHandlers
from loomlog.services.families.hook.runner import HookRunner
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions
from loomlog.services.families.ports.tool_hooks import ToolHooks


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """What a process says of hooks. `secret` None: callbacks are not signed."""

    secret: SecretKey | None = field(default=None, repr=False)
    private_hosts: tuple[str, ...] = ()
    """Hosts with private addresses that may be called."""
    permitted_owners: Collection[str] = ()
    """Owners whose hooks may add hosts to a call."""


def read_options(loaded: ProcessConfiguration) -> HookOptions:
    """Return the options of a process. Raises Permanent for a secret key that is none."""
    settings, block = loaded.settings, loaded.configuration.hooks
    return HookOptions(
        secret=installation_key(settings),
        private_hosts=settings.http_private_host_allowlist,
        permitted_owners=(*settings.hooks_permit_host_widen_owners, *block.permit_host_widen.owners),
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open hooks."""
    options, replicas = context.options(HookOptions), context.parts.replicas
    commands = context.find(InstallationCommands) or InstallationCommands(context.commands, replicas)
    handlers = HookHandlers(commands, secret=options.secret).by_operation()
    if context.find(OwnedPartitions) is None:
        return FamilyServices(handlers=handlers)
    callbacks = CallbackClient(private_hosts=options.private_hosts)
    runner = HookRunner(
        lambda: replicas.state(HOOKS),
        callbacks,
        clock_ms=context.clock_ms,
        permitted_owners=options.permitted_owners,
        secret=options.secret,
    )
    context.provide_as(ToolHooks, runner)
    return FamilyServices(handlers=handlers, close=callbacks.close)
