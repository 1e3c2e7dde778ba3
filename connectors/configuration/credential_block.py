"""The block `credential_stores`: where credentials may be kept outside of loomlog, and whose they may be.

A tenant's operators write references, so a store is limited to a part of it for each tenant: `{tenant}` in the prefix,
or a store of one tenant alone.

Before: the files. After: check.py; connectors/credentials/outside_stores.py.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import (
    EnvName,
    NonNegativeInt,
    OptionalUrl,
    TenantOrAll,
    WordList,
    configuration_block,
)
from loomlog.connectors.configuration.issuer_check import is_confidential_url
from loomlog.connectors.configuration.secret_block import ALL_TENANTS
from loomlog.connectors.configuration.tree import KeyPath

FILE, VAULT, AWS = "file", "vault", "aws"
ENVIRONMENT, INLINE, OAUTH, GITHUB_APP = "env", "inline", "oauth", "github_app"
RESERVED = (ENVIRONMENT, INLINE, OAUTH, GITHUB_APP)
"""Backends that every installation has."""
TENANT_PLACEHOLDER = "{tenant}"
CACHE_SECONDS, CACHE_SECONDS_MAX = 60, 3_600
"""How long a value is used without asking again: a value that was replaced in the store counts after this time."""
PART_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    FILE: ("directory",),
    VAULT: ("url",),
    AWS: ("region",),
}
"""What a store of each type needs."""
Text = Annotated[str, Field(max_length=1_000)]


@configuration_block
class CredentialStoreBlock:
    """Value of credential_stores.<name>: a store, and the tenants that may name values in it."""

    type: Literal["file", "vault", "aws"]
    tenants: Annotated[WordList[TenantOrAll], Field(min_length=1)]
    prefix: Text = ""
    cache_seconds: Annotated[NonNegativeInt, Field(le=CACHE_SECONDS_MAX)] = CACHE_SECONDS
    directory: Text = ""
    url: OptionalUrl = ""
    mount: Text = "secret"
    namespace: Text = ""
    token_env: EnvName = "VAULT_TOKEN"
    token_file: Text = ""
    region: Text = ""
    access_key_id_env: EnvName = "AWS_ACCESS_KEY_ID"
    secret_access_key_env: EnvName = "AWS_SECRET_ACCESS_KEY"
    session_token_env: EnvName = "AWS_SESSION_TOKEN"

    def serves(self, tenant: str) -> bool:
        """Whether a tenant may name values in it."""
        return ALL_TENANTS in self.tenants or tenant in self.tenants

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Keys of the block with the variables that hold secrets."""
        if self.type == VAULT and not self.token_file:
            return (("token_env", self.token_env),)
        if self.type == AWS:
            keys = ("access_key_id_env", "secret_access_key_env", "session_token_env")
            return tuple((key, getattr(self, key)) for key in keys)
        return ()


def iter_store_errors(stores: Mapping[str, CredentialStoreBlock]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake."""
    for name, block in stores.items():
        path: KeyPath = ("credential_stores", name)
        if name in RESERVED:
            yield path, f"{name} is the name of a backend that every installation has; choose another one"
        for key in PART_OF_TYPE[block.type]:
            if not getattr(block, key):
                yield (*path, key), f"a store of the type {block.type} needs it"
        if block.url and not is_confidential_url(block.url):
            yield (*path, "url"), "expected https://; http:// is for addresses of this machine alone"
        is_of_one = len(block.tenants) == 1 and ALL_TENANTS not in block.tenants
        if not is_of_one and TENANT_PLACEHOLDER not in block.prefix:
            text = f"expected {TENANT_PLACEHOLDER} in it, or one tenant: tenants could read each other's secrets"
            yield (*path, "prefix"), text
