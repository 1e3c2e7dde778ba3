"""Which definition answers under the address of a webhook, and to which tenant its runs belong.

    /v1/_webhooks/{name}            webhooks of the files, and shared ones
    /v1/_webhooks/{tenant}/{name}   those of the tenant; then those of the files, and shared ones, as above

A webhook of a tenant belongs to that tenant. One of the files belongs to its `tenant_id`, else to `default`, under
whichever address it is reached, because a sender must not choose a tenant; so does a shared one. A disabled one and one
that there is not look equal.

Before: services/application/webhooks.py, services/runtime/ingress/reader.py. After: signatures.py, mapping.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.configuration.webhook_block import WebhookBlock
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Value
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.definition.table import FILE, SHARED, TENANT, DefinitionTable, Resolved
from loomlog.services.families.webhook.limits import BODY_BYTES
from loomlog.services.families.webhook.state import FAMILY_NAME

KIND = KINDS[FAMILY_NAME]
DEFAULT_TENANT = "default"


class WebhookDefinition(Value, frozen=True, kw_only=True):
    """A webhook that takes requests."""

    tenant: str
    """Tenant that its runs and its deliveries belong to."""
    name: str
    def_id: str
    block: Any
    """WebhookBlock; not compared."""

    @property
    def webhook(self) -> WebhookBlock:
        block: WebhookBlock = self.block
        return block

    @property
    def aggregate(self) -> str:
        return aggregate_id(FAMILY_NAME, self.tenant, self.name)

    @property
    def body_bytes(self) -> int:
        """Largest body."""
        return min(self.webhook.body_size_limit_bytes or BODY_BYTES, BODY_BYTES)


class WebhookDefinitions:
    """The webhooks of a process. `files`: those of the configuration by name, with what only files may say."""

    def __init__(self, table: DefinitionTable, files: Mapping[str, WebhookBlock]) -> None:
        self._table = table
        self._files = files

    async def find(self, tenant: str, name: str) -> WebhookDefinition | None:
        """Return the webhook of an address; `tenant` empty: an address without one. None also for a disabled one.

        Raises ConnectorError, PositionNotRead.
        """
        resolved = self._table.resolve(KIND.name, tenant or SHARED, name)
        if resolved is None:
            return None
        block = await self._block(resolved)
        if block.enabled is False:
            return None
        owner = tenant if resolved.source == TENANT else block.tenant_id or DEFAULT_TENANT
        return WebhookDefinition(tenant=owner, name=name, def_id=resolved.def_id, block=block)

    def positions(self, tenant: str, name: str, *, now_ms: int) -> Sequence[str]:
        """Return what a process must have read to find what this one finds."""
        lines = (self._table.line(KIND.name, owner, name) for owner in dict.fromkeys((tenant, SHARED)))
        tokens = (self._table.positions(line, now_ms=now_ms) for line in lines if line is not None)
        return [token for group in tokens for token in group]

    async def _block(self, resolved: Resolved) -> WebhookBlock:
        if resolved.source == FILE and resolved.name in self._files:
            return self._files[resolved.name]
        try:
            block: WebhookBlock = KIND.block_of(await self._table.load(resolved))
        except DefinitionProblem as problem:
            raise Permanent(f"the webhook {resolved.name} cannot be read: {problem}", kind="invalid") from problem
        return block
