"""Records of the namespace loom.identity.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import AccessToken, CommandEnvelope, CredentialUse, TenantQuota
from loomlog.schemas.records import Record


class ChangeUser(Record, frozen=True, kw_only=True):
    """Changes a user. A user that is disabled loses all tokens."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.ChangeUser"
    CONTENT: ClassVar[Mapping[str, str]] = {"display_name": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    subject: str
    """Subject of the user."""
    display_name: str | None = None
    """Name for people; null: as it is."""
    access_mode: str | None = None
    """tenant or isolated; null: as it is."""
    status: str | None = None
    """active or disabled; null: as it is."""


class MintToken(Record, frozen=True, kw_only=True):
    """Makes a token, or takes one whose text the operator has chosen."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.MintToken"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    token: AccessToken
    """The token."""
    supersede_shared: bool = False
    """Whether the shared token ends with it."""


class NoteCredential(Record, frozen=True, kw_only=True):
    """Notes that a value of a credential is stored, or removed. The value itself is never in the log."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.NoteCredential"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "name", "version", "reference", "expires_at_ms", "replaces",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
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
    replaces: int = 0
    """Version that must be the current one; 0: whichever is."""


class NoteCredentialUses(Record, frozen=True, kw_only=True):
    """Note uses of credentials of one shard."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.NoteCredentialUses"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    uses: tuple[CredentialUse, ...]
    """The uses."""


class RegisterUser(Record, frozen=True, kw_only=True):
    """Registers a user."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.RegisterUser"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "subject", "display_name", "access_mode", "status",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"display_name": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    subject: str
    """Subject of the user."""
    access_mode: str
    """tenant, or isolated: confined to its own subject."""
    status: str
    """active or disabled."""
    display_name: str = ''
    """Name for people."""


class RemoveUser(Record, frozen=True, kw_only=True):
    """Removes a user with all tokens."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.RemoveUser"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    subject: str
    """Subject of the user."""


class RetireToken(Record, frozen=True, kw_only=True):
    """Ends a token at once."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.RetireToken"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "user", "def_id",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    name: str
    """Name of the token."""
    def_id: str
    """Id of the token."""
    user: str = ''
    """Registered user whose token it is; empty for a token of no user."""


class RotateToken(Record, frozen=True, kw_only=True):
    """Replaces a token by one with another text and all else alike."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.RotateToken"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "user", "def_id", "new_def_id", "hashed", "suffix", "grace_ms", "expires_at_ms",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    name: str
    """Name of the token."""
    def_id: str
    """Id of the token that is replaced."""
    new_def_id: str
    """Id of the new token."""
    hashed: str
    """HMAC-SHA256 of the new text under the pepper, hexadecimal."""
    user: str = ''
    """Registered user whose token it is; empty for a token of no user."""
    suffix: str = ''
    """First characters of the new text behind its prefix."""
    grace_ms: int = 0
    """How long the old text still gives access, milliseconds."""
    expires_at_ms: int = 0
    """When the new token ends by itself, UTC milliseconds; 0: never."""


class SetQuota(Record, frozen=True, kw_only=True):
    """Sets the bounds of a tenant, a user or a token."""

    SCHEMA: ClassVar[str] = "loom.identity.commands.SetQuota"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "quota",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for tokens of administrators."""
    scope: str
    """tenant, user or key: what is bounded."""
    quota: TenantQuota
    """The bounds; without any the entry is removed."""
    scope_id: str = ''
    """Subject of the user or id of the token; empty for the tenant."""


RECORDS = (
    ChangeUser,
    MintToken,
    NoteCredential,
    NoteCredentialUses,
    RegisterUser,
    RemoveUser,
    RetireToken,
    RotateToken,
    SetQuota,
)
Command = ChangeUser | MintToken | NoteCredential | NoteCredentialUses | RegisterUser | RemoveUser | RetireToken | RotateToken | SetQuota
