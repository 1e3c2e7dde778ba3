"""Which definition answers under the address of a webhook, and to which tenant its runs belong.

    /v1/_webhooks/{name}            webhooks of the files, and shared ones
    /v1/_webhooks/{tenant}/{name}   those of the tenant; then those of the files, and shared ones, as above

A webhook of a tenant belongs to that tenant. One of the files belongs to its `tenant_id`, else to `default`, under
whichever address it is reached, because a sender must not choose a tenant; so does a shared one. A disabled one and one
that there is not look equal.

An address is not a right: its webhook may belong to another tenant than the one that asks. So `find_addressed` returns
what can be shown and checked, and a delivery needs a WebhookDefinition, for which there are two ways:

    AddressedWebhook.proven    a request whose proof was checked (signatures.py)
    find_owned                 a sender that was authenticated as the tenant that the webhook belongs to

Before: receiving.py, ingress_reader.py. After: signatures.py, mapping.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.configuration.webhook_block import WebhookBlock
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Value, copy_as
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.definition.table import FILE, SHARED, TENANT, DefinitionTable, Resolved
from loomlog.services.families.webhook.limits import BODY_BYTES
from loomlog.services.families.webhook.signatures import Proof
from loomlog.services.families.webhook.state import FAMILY_NAME

KIND = KINDS[FAMILY_NAME]
DEFAULT_TENANT = "default"


class AddressedWebhook(Value, frozen=True, kw_only=True):
    """The webhook of an address. It takes nothing: the one who names an address may be of another tenant."""

    tenant: str
    """Tenant that its runs and its deliveries belong to."""
    name: str
    def_id: str
    is_of_file: bool
    """The operator of the installation has written it."""
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

    def proven(self, proof: Proof) -> "WebhookDefinition":
        """Return the webhook for a request with a proof."""
        assert isinstance(proof, Proof), "check_proof has returned it"
        return self._definition()

    def owned_by(self, tenant: str) -> "WebhookDefinition | None":
        """Return the webhook for deliveries of a tenant; None when it belongs to another."""
        return self._definition() if self.tenant == tenant else None

    def _definition(self) -> "WebhookDefinition":
        return copy_as(WebhookDefinition, self)


class WebhookDefinition(AddressedWebhook, frozen=True, kw_only=True):
    """A webhook that takes a delivery: its proof was checked, or it comes from the webhook's own tenant."""


class WebhookDefinitions:
    """The webhooks of a process. `files`: those of the configuration by name, with what only files may say."""

    def __init__(self, table: DefinitionTable, files: Mapping[str, WebhookBlock]) -> None:
        self._table = table
        self._files = files

    async def find_owned(self, tenant: str, name: str, *, address: str) -> WebhookDefinition | None:
        """Return the webhook of an address for deliveries of a tenant; None also when it belongs to another tenant.

        Raises ConnectorError, PositionNotRead.
        """
        addressed = await self.find_addressed(address, name)
        return None if addressed is None else addressed.owned_by(tenant)

    async def find_addressed(self, address: str, name: str) -> AddressedWebhook | None:
        """Return the webhook of an address; `address` empty: one without a tenant. None also for a disabled one.

        Raises ConnectorError, PositionNotRead.
        """
        resolved = self._table.resolve(KIND.name, address or SHARED, name)
        if resolved is None:
            return None
        block = await self._block(resolved)
        if block.enabled is False:
            return None
        owner = address if resolved.source == TENANT else block.tenant_id or DEFAULT_TENANT
        return AddressedWebhook(
            tenant=owner, name=name, def_id=resolved.def_id, is_of_file=resolved.source == FILE, block=block
        )

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
