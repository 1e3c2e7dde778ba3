"""Registering hooks: external programs of a tenant that are called for its tool calls (reference surfaces 8.1).

A registration is a record of loom.hook.events; it is accepted once acknowledged there, and every runtime reads it.
Registering the same owner and name again replaces it under a new id. A hook registered with the shared token belongs to
no tenant and receives the calls of all, as existing clients expect.

The secret that signs callbacks is derived from the installation's key and the hook's name, so it is in no log and no
table; the response to the registration contains it.

Before: a transport. After: services/stream/global_tables/hooks.py in every runtime.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import callback_secrets
from loomlog.connectors.protocols import LogAppender
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import parse_web_url
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import HookRegistered, HookRemoved
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import RequestRefused
from loomlog.services.application.runs.requests import AGENT_NAME
from loomlog.services.application.table_publisher import TablePublisher
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.hooks import (
    EVERY_TENANT,
    FAIL_MODES,
    HOOKS_PER_TENANT_MAX,
    NAMES_MAX,
    PHASES,
    TIMEOUT_MS_MAX,
)
from loomlog.services.stream.global_tables.hooks import HookGlobalTable

LIST_ROUTE = "GET /v1/hooks"
URL_CHARACTERS_MAX = 2_000


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

    hook: HookRegistered
    position: str
    signing_secret: str


class HookRegistry:
    """The use cases. All methods raise RequestRefused."""

    def __init__(
        self,
        global_table: HookGlobalTable,
        appender: LogAppender,
        codec: Codec,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        installation_key: SecretKey | None = None,
    ) -> None:
        self._global_table = global_table
        self._publisher = TablePublisher(global_table, appender, codec)
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._installation_key = installation_key

    async def register(self, caller: Caller, request: HookRequest) -> RegisteredHook:
        """Register a hook for the caller's tenant, in effect from the next tool call on. Raises
        invalid_registration.
        """
        require_scope(caller, TENANT)
        _check_request(request)
        tenant = _tenant_of(caller)
        table = self._global_table.table
        is_new = (tenant, request.owner, request.name) not in table.entries
        if is_new and len(table.hooks_for_tenant(tenant)) >= HOOKS_PER_TENANT_MAX:
            raise _invalid(f"there are {HOOKS_PER_TENANT_MAX} hooks already; remove one first")
        hook = HookRegistered(
            hook_id=f"hook_{self._fresh_token()}",
            tenant=tenant,
            owner=request.owner,
            name=request.name,
            phase=request.phase,
            agents=request.agents,
            tools=request.tools,
            callback_url=request.callback_url,
            fail_mode=request.fail_mode,
            timeout_ms=request.timeout_ms,
            by=caller.subject,
            at_ms=self._clock_ms(),
            command_id=f"c_{self._fresh_token()}",
        )
        position = await self._publisher.publish_and_wait(hook, status_route=LIST_ROUTE)
        secrets = callback_secrets(self._installation_key, tenant, request.owner, request.name)
        return RegisteredHook(hook=hook, position=position, signing_secret=secrets[0] if secrets else "")

    def list_hooks(self, caller: Caller) -> tuple[HookRegistered, ...]:
        """Return the caller's hooks, for an administrator all, in the order in which they are called."""
        require_scope(caller, TENANT)
        return tuple(hook for hook in self._global_table.table.entries.values() if _may_see(caller, hook))

    async def remove(self, caller: Caller, hook_id: str) -> str:
        """Remove a hook; returns the position of the record. Raises not_found, also for hooks of other tenants."""
        require_scope(caller, TENANT)
        hook = self._global_table.table.find(hook_id)
        if hook is None or not _may_see(caller, hook):
            raise RequestRefused("not_found", f"there is no hook {hook_id[:80]}")
        removed = HookRemoved(
            hook_id=hook_id, by=caller.subject, at_ms=self._clock_ms(), command_id=f"c_{self._fresh_token()}"
        )
        return await self._publisher.publish_and_wait(removed, status_route=LIST_ROUTE)


def _tenant_of(caller: Caller) -> str:
    return EVERY_TENANT if caller.legacy or caller.open_mode else caller.tenant


def _may_see(caller: Caller, hook: HookRegistered) -> bool:
    return caller.is_admin or hook.tenant == caller.tenant


def _check_request(request: HookRequest) -> None:
    for field, name in (("owner", request.owner), ("name", request.name)):
        if not name or len(name.encode()) > limits.NAME_BYTES_MAX or not name.isprintable():
            raise _invalid(f"{field}: expected 1 to {limits.NAME_BYTES_MAX} bytes of printable characters")
    if request.phase not in PHASES:
        raise _invalid(f"phase is {request.phase[:60]!r}: expected pre or post")
    if request.fail_mode not in FAIL_MODES:
        raise _invalid(f"fail_mode is {request.fail_mode[:60]!r}: expected open or closed")
    if not 0 <= request.timeout_ms <= TIMEOUT_MS_MAX:
        raise _invalid(f"timeout_ms is {request.timeout_ms}: expected 1 to {TIMEOUT_MS_MAX}, or 0 for the default")
    for field, names in (("agents", request.agents), ("tools", request.tools)):
        if len(names) > NAMES_MAX:
            raise _invalid(f"{field}: {len(names)} entries, at most {NAMES_MAX}")
    for agent in request.agents:
        if not AGENT_NAME.match(agent):
            raise _invalid(f"agents: {agent[:60]!r} is no name of an agent")
    for tool in request.tools:
        bare = tool.removesuffix("*")
        if not tool or len(tool.encode()) > limits.NAME_BYTES_MAX or not tool.isprintable() or "*" in bare:
            raise _invalid(f"tools: {tool[:60]!r}: expected a name, or the beginning of one and a star")
    if len(request.callback_url) > URL_CHARACTERS_MAX:
        raise _invalid(f"callback_url: at most {URL_CHARACTERS_MAX} characters")
    try:
        parse_web_url(request.callback_url)
    except ToolCallRefused as reason:
        raise _invalid(f"callback_url: {reason}") from reason


def _invalid(message: str) -> RequestRefused:
    return RequestRefused("invalid_registration", message)
