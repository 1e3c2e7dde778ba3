"""Registering hooks: external programs of a tenant that are called for its tool calls (reference surfaces 8.1).

The owner of the hooks decides them in one order (services/families/hook), and every runtime reads them. Registering
the same owner and name again replaces it under a new id. A hook registered with the shared token belongs to no tenant
and receives the calls of all, as existing clients expect.

The secret that signs callbacks is derived from the installation's key and the hook's name, so it is in no log and no
table; the response to the registration contains it.

Before: a transport. After: installation_commands.py; every runtime calls the hooks that were registered.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import callback_secrets
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import parse_web_url
from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.services.application.admin.installation_commands import InstallationCommands
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.runs.requests import AGENT_NAME
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.refusals import Refused
from loomlog.services.families.hook import HOOKS
from loomlog.services.families.hook.state import EVERY_TENANT, Hook, HookTable

LIST_ROUTE = "GET /v1/hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """A registration as requested; `timeout_ms` 0 means the default."""

    owner: str
    name: str
    phase: str
    callback_url: str
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    fail_mode: str = "open"
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredHook:
    """A registered hook. `signing_secret` is empty when this installation does not sign callbacks."""

    hook_id: str
    position: str
    signing_secret: str


class HookRegistry:
    """The use cases. All methods raise Refused."""

    def __init__(
        self,
        commands: InstallationCommands,
        *,
        fresh_token: Callable[[], str],
        installation_key: SecretKey | None = None,
    ) -> None:
        self._commands = commands
        self._fresh_token = fresh_token
        self._installation_key = installation_key

    async def register(self, caller: Caller, request: HookRequest) -> RegisteredHook:
        """Register a hook for the caller's tenant, in effect from the next tool call on. Raises
        invalid_registration.
        """
        require_scope(caller, TENANT)
        _check_names(request)
        tenant = _tenant_of(caller)
        hook_id = f"hook_{self._fresh_token()}"
        command = RegisterHook(
            envelope=self._commands.envelope(caller),
            hook_id=hook_id,
            tenant=tenant,
            owner=request.owner,
            name=request.name,
            phase=request.phase,
            agents=request.agents,
            tools=request.tools,
            callback_url=request.callback_url,
            fail_mode=request.fail_mode,
            timeout_ms=request.timeout_ms,
        )
        answer = await self._commands.send(command, status_route=LIST_ROUTE)
        secrets = callback_secrets(self._installation_key, tenant, request.owner, request.name)
        return RegisteredHook(hook_id=hook_id, position=answer.position, signing_secret=secrets[0] if secrets else "")

    def list_hooks(self, caller: Caller) -> tuple[Hook, ...]:
        """Return the caller's hooks, for an administrator all, in the order in which they are called."""
        require_scope(caller, TENANT)
        table: HookTable = self._commands.state(HOOKS)
        return tuple(hook for hook in table.entries if caller.is_admin or hook.tenant == caller.tenant)

    async def remove(self, caller: Caller, hook_id: str) -> str:
        """Remove a hook; returns the position of the event. Raises not_found, also for hooks of other tenants."""
        require_scope(caller, TENANT)
        command = RemoveHook(
            envelope=self._commands.envelope(caller),
            hook_id=hook_id,
            of_tenant=None if caller.is_admin else caller.tenant,
        )
        return (await self._commands.send(command, status_route=LIST_ROUTE)).position


def _tenant_of(caller: Caller) -> str:
    return EVERY_TENANT if caller.legacy or caller.open_mode else caller.tenant


def _check_names(request: HookRequest) -> None:
    """Check what only this edge knows: how agents are named and what the web client can call; the owner of the hooks
    checks the rest. Raises Refused(invalid_registration).
    """
    for agent in request.agents:
        if not AGENT_NAME.match(agent):
            raise _invalid(f"agents: {agent[:60]!r} is no name of an agent")
    try:
        parse_web_url(request.callback_url)
    except ToolCallRefused as reason:
        raise _invalid(f"callback_url: {reason}") from reason


def _invalid(message: str) -> Refused:
    return Refused("invalid_registration", message)
