"""The handlers of the operations on hooks.

The secret that signs callbacks is derived from the installation's key and the hook's name, so it is in no log and no
table; the answer to the registration contains it.

Before: services.py. After: the owner of the hooks; every runtime calls those that were registered.
"""

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import callback_secrets
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import parse_web_url
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import copy_as
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.limits import AGENT_NAME
from loomlog.services.families.hook import HOOKS, api
from loomlog.services.families.hook.state import EVERY_TENANT, Hook, HookTable
from loomlog.services.families.installation import InstallationCommands, installation_envelope

LIST_ROUTE = "GET /v1/hooks"


class HookHandlers:
    """One method for each operation. All raise Refused."""

    def __init__(self, commands: InstallationCommands, *, secret: SecretKey | None) -> None:
        """`secret` None: callbacks are not signed."""
        self._commands = commands
        self._secret = secret

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.REGISTER: self.register, api.LIST: self.list, api.REMOVE: self.remove}

    async def register(self, call: Call[api.HookRegister]) -> Answer[api.HookCreated]:
        """Register a hook, in effect from the next tool call on."""
        asked = call.input
        _check_names(asked)
        tenant = EVERY_TENANT if call.caller.acts_for_all else call.caller.tenant
        hook_id = f"hook_{hashed_token('hook', call.command_id)}"
        command = RegisterHook(
            envelope=installation_envelope(call),
            hook_id=hook_id,
            tenant=tenant,
            owner=asked.owner,
            name=asked.name,
            phase=asked.phase,
            agents=tuple(asked.agents or ()),
            tools=tuple(asked.tools or ()),
            callback_url=asked.callback_url,
            fail_mode=asked.fail_mode or "open",
            timeout_ms=asked.timeout_ms or 0,
        )
        answer = await self._commands.send(command, status_route=LIST_ROUTE)
        secrets = callback_secrets(self._secret, tenant, asked.owner, asked.name)
        created = api.HookCreated(id=hook_id, signing_secret=secrets[0] if secrets else None)
        return Answer(value=created, positions=(answer.position,))

    async def list(self, call: Call[NoInput]) -> Answer[api.HookList]:
        """Return the caller's hooks, for an administrator all, in the order in which they are called."""
        table: HookTable = self._commands.state(HOOKS)
        caller = call.caller
        hooks = [_shown(hook) for hook in table.entries if caller.is_admin or hook.tenant == caller.tenant]
        return Answer(value=api.HookList(hooks=hooks))

    async def remove(self, call: Call[api.HookRemove]) -> Answer[api.HookRemoved]:
        """Remove a hook; one of another tenant is not found."""
        command = RemoveHook(
            envelope=installation_envelope(call),
            hook_id=call.input.hook_id,
            of_tenant=None if call.caller.is_admin else call.caller.tenant,
        )
        answer = await self._commands.send(command, status_route=LIST_ROUTE)
        return Answer(value=api.HookRemoved(deleted=call.input.hook_id), positions=(answer.position,))


def _check_names(asked: api.HookRegister) -> None:
    """Check what only this edge knows: how agents are named and what the web client can call; the owner of the hooks
    checks the rest.
    """
    for agent in asked.agents or ():
        if not AGENT_NAME.match(agent):
            raise Refused("invalid_registration", f"agents: {agent[:60]!r} is no name of an agent")
    try:
        parse_web_url(asked.callback_url)
    except ToolCallRefused as reason:
        raise Refused("invalid_registration", f"callback_url: {reason}") from reason


def _shown(hook: Hook) -> api.Hook:
    return copy_as(api.Hook, hook, id=hook.hook_id, tenant_id=hook.tenant, registered_at=format_rfc3339(hook.at_ms))
