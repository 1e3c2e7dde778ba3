"""Records of the namespace loom.identity.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import AccessToken, CredentialUse, TenantQuota
from loomlog.schemas.records import Record


class CredentialNoted(Record, frozen=True, kw_only=True):
    """A value of a credential is stored, or removed."""

    SCHEMA: ClassVar[str] = "loom.identity.events.CredentialNoted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "name", "version", "reference", "expires_at_ms", "by",
    )

    scope: str
    """tenant, user or agent."""
    name: str
    """Name of the credential."""
    version: int
    """Number of this value, from 1; 0: the credential is removed."""
    scope_id: str = ''
    """Subject of the user or name of the agent; empty for the tenant."""
    reference: str = ''
    """Where the value is, outside of loomlog; empty: it is stored here."""
    expires_at_ms: int = 0
    """When it should be replaced, UTC milliseconds; 0: never."""
    by: str = ''
    """Subject of the principal that asked."""


class CredentialsUsed(Record, frozen=True, kw_only=True):
    """Credentials were used."""

    SCHEMA: ClassVar[str] = "loom.identity.events.CredentialsUsed"

    uses: tuple[CredentialUse, ...]
    """The uses."""


class QuotaSet(Record, frozen=True, kw_only=True):
    """The bounds of a tenant, a user or a token are set."""

    SCHEMA: ClassVar[str] = "loom.identity.events.QuotaSet"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "quota", "by",
    )

    scope: str
    """tenant, user or key: what is bounded."""
    quota: TenantQuota
    """The bounds."""
    scope_id: str = ''
    """Subject of the user or id of the token; empty for the tenant."""
    by: str = ''
    """Subject of the principal that asked."""


class TokenMinted(Record, frozen=True, kw_only=True):
    """There is a token."""

    SCHEMA: ClassVar[str] = "loom.identity.events.TokenMinted"

    token: AccessToken
    """The token."""
    supersede_shared: bool = False
    """Whether the shared token ends with it."""
    by: str = ''
    """Subject of the principal that asked."""


class TokenRetired(Record, frozen=True, kw_only=True):
    """A token has ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.TokenRetired"

    def_id: str
    """Id of the token."""
    by: str = ''
    """Subject of the principal that asked."""


class TokenRotated(Record, frozen=True, kw_only=True):
    """A token is replaced by a new one."""

    SCHEMA: ClassVar[str] = "loom.identity.events.TokenRotated"

    def_id: str
    """Id of the token that is replaced."""
    retired_at_ms: int
    """When it ends, UTC milliseconds."""
    token: AccessToken
    """The new token."""
    by: str = ''
    """Subject of the principal that asked."""


class UserChanged(Record, frozen=True, kw_only=True):
    """A user is changed. The tokens of a user that is disabled have ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserChanged"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "subject", "display_name", "access_mode", "status", "by",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"display_name": "text"}

    subject: str
    """Subject of the user."""
    access_mode: str
    """tenant, or isolated: confined to its own subject."""
    status: str
    """active or disabled."""
    display_name: str = ''
    """Name for people."""
    by: str = ''
    """Subject of the principal that asked."""


class UserRegistered(Record, frozen=True, kw_only=True):
    """A user is registered."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserRegistered"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "subject", "display_name", "access_mode", "status", "by",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"display_name": "text"}

    subject: str
    """Subject of the user."""
    access_mode: str
    """tenant, or isolated: confined to its own subject."""
    status: str
    """active or disabled."""
    display_name: str = ''
    """Name for people."""
    by: str = ''
    """Subject of the principal that asked."""


class UserRemoved(Record, frozen=True, kw_only=True):
    """A user is removed, and all tokens of the user have ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserRemoved"

    subject: str
    """Subject of the user."""
    by: str = ''
    """Subject of the principal that asked."""


RECORDS = (
    CredentialNoted,
    CredentialsUsed,
    QuotaSet,
    TokenMinted,
    TokenRetired,
    TokenRotated,
    UserChanged,
    UserRegistered,
    UserRemoved,
)
Event = CredentialNoted | CredentialsUsed | QuotaSet | TokenMinted | TokenRetired | TokenRotated | UserChanged | UserRegistered | UserRemoved
