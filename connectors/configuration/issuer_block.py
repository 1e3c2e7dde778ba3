"""The block `issuers`: identity providers whose tokens are accepted, and what their claims mean here.

A claim is named by its key, or by a path with dots into nested objects (`realm_access.roles`). What a token may do
follows from its groups, by the access that this file gives each, and from its scopes; a provider gives the scope
`substrate:admin` only through a group that this file names.

Before: the files. After: check.py; connectors/identity_providers.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import (
    EnvName,
    OptionalUrl,
    PositiveInt,
    Tenant,
    Url,
    WordList,
    configuration_block,
)

Algorithm = Literal["RS256", "ES256", "EdDSA"]
AccessMode = Literal["administrator", "operator", "tenant", "isolated"]
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
TEXT_LENGTH = 1_000
GROUPS_MAX = 1_000
"""Groups of a provider that are named here; a person of a large company is in hundreds, and a few matter."""
SESSION_MINUTES, SESSION_MINUTES_MAX = 480, 7 * 24 * 60
"""How long a person stays signed in to the page: a working day, at most a week."""
Text = Annotated[str, Field(max_length=TEXT_LENGTH)]
NonEmptyText = Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH)]


@configuration_block
class IssuerBlock:
    """Value of issuers.<name>: an identity provider. Without `jwks_url` its keys are found by discovery."""

    issuer: Url
    audience: Annotated[WordList[NonEmptyText], Field(min_length=1)]
    jwks_url: OptionalUrl = ""
    algorithms: Annotated[WordList[Algorithm], Field(min_length=1)] = ALGORITHMS
    tenant: Tenant | None = None
    tenant_claim: Text = ""
    tenants: WordList[Tenant] = ()
    subject_claim: NonEmptyText = "sub"
    scopes_claim: Text = ""
    groups_claim: NonEmptyText = "groups"
    groups: Annotated[Mapping[NonEmptyText, AccessMode], Field(max_length=GROUPS_MAX)] = field(default_factory=dict)
    default_access: AccessMode | None = None
    title: Text = ""
    client_id: Text = ""
    client_secret_env: EnvName | None = None
    device_client_id: Text = ""
    login_scopes: WordList[NonEmptyText] = ("openid", "profile", "email")
    session_minutes: Annotated[PositiveInt, Field(le=SESSION_MINUTES_MAX)] = SESSION_MINUTES
