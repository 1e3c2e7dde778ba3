"""Records of the namespace loom.identity.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import AccessToken, CredentialUse, TenantQuota
from loomlog.schemas.records import Record


class CredentialNoted(Record, frozen=True, kw_only=True):
    """A value of a credential is stored, or removed."""

    SCHEMA: ClassVar[str] = "loom.identity.events.CredentialNoted"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "name": self.name,
            "version": self.version,
            "reference": self.reference,
            "expires_at_ms": self.expires_at_ms,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            name=value["name"],
            version=value["version"],
            reference=value["reference"],
            expires_at_ms=value["expires_at_ms"],
            by=value["by"],
        )


class CredentialsUsed(Record, frozen=True, kw_only=True):
    """Credentials were used."""

    SCHEMA: ClassVar[str] = "loom.identity.events.CredentialsUsed"

    uses: tuple[CredentialUse, ...]
    """The uses."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "uses": [item.to_avro() for item in self.uses],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            uses=tuple(CredentialUse.from_avro(item) for item in value["uses"]),
        )


class QuotaSet(Record, frozen=True, kw_only=True):
    """The bounds of a tenant, a user or a token are set."""

    SCHEMA: ClassVar[str] = "loom.identity.events.QuotaSet"

    scope: str
    """tenant, user or key: what is bounded."""
    quota: TenantQuota
    """The bounds."""
    scope_id: str = ''
    """Subject of the user or id of the token; empty for the tenant."""
    by: str = ''
    """Subject of the principal that asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "quota": self.quota.to_avro(),
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            quota=TenantQuota.from_avro(value["quota"]),
            by=value["by"],
        )


class TokenMinted(Record, frozen=True, kw_only=True):
    """There is a token."""

    SCHEMA: ClassVar[str] = "loom.identity.events.TokenMinted"

    token: AccessToken
    """The token."""
    supersede_shared: bool = False
    """Whether the shared token ends with it."""
    by: str = ''
    """Subject of the principal that asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "token": self.token.to_avro(),
            "supersede_shared": self.supersede_shared,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            token=AccessToken.from_avro(value["token"]),
            supersede_shared=value["supersede_shared"],
            by=value["by"],
        )


class TokenRetired(Record, frozen=True, kw_only=True):
    """A token has ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.TokenRetired"

    def_id: str
    """Id of the token."""
    by: str = ''
    """Subject of the principal that asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            by=value["by"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "retired_at_ms": self.retired_at_ms,
            "token": self.token.to_avro(),
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            retired_at_ms=value["retired_at_ms"],
            token=AccessToken.from_avro(value["token"]),
            by=value["by"],
        )


class UserChanged(Record, frozen=True, kw_only=True):
    """A user is changed. The tokens of a user that is disabled have ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserChanged"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "display_name": self.display_name,
            "access_mode": self.access_mode,
            "status": self.status,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            subject=value["subject"],
            display_name=value["display_name"],
            access_mode=value["access_mode"],
            status=value["status"],
            by=value["by"],
        )


class UserRegistered(Record, frozen=True, kw_only=True):
    """A user is registered."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserRegistered"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "display_name": self.display_name,
            "access_mode": self.access_mode,
            "status": self.status,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            subject=value["subject"],
            display_name=value["display_name"],
            access_mode=value["access_mode"],
            status=value["status"],
            by=value["by"],
        )


class UserRemoved(Record, frozen=True, kw_only=True):
    """A user is removed, and all tokens of the user have ended."""

    SCHEMA: ClassVar[str] = "loom.identity.events.UserRemoved"

    subject: str
    """Subject of the user."""
    by: str = ''
    """Subject of the principal that asked."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            subject=value["subject"],
            by=value["by"],
        )


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
