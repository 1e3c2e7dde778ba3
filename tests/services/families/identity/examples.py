"""Commands of the identity family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.identity_commands import (
    ChangeUser,
    MintToken,
    NoteCredential,
    RegisterUser,
    RemoveUser,
    RetireToken,
    RotateToken,
    SetQuota,
)
from loomlog.schemas.generated.values import AccessToken, CommandEnvelope, TenantQuota


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A token and a user with one: made, refused, replaced, ended; a quota, and a credential that is set twice."""

    def mint(name: str, number: int, *, user: str = "") -> MintToken:
        token = AccessToken(
            def_id=f"tok_{number}",
            name=name,
            tenant=envelope.tenant,
            subject=user or "ci",
            user=user,
            scopes=("runs:create",),
            hashed=f"{number:064x}",
        )
        return MintToken(envelope=envelope, token=token)

    return [
        mint("ci", 1),
        mint("ci", 2),
        RotateToken(envelope=envelope, name="ci", def_id="tok_1", new_def_id="tok_3", hashed=f"{3:064x}", grace_ms=60),
        RetireToken(envelope=envelope, name="ci", def_id="tok_3"),
        RegisterUser(envelope=envelope, subject="ada", display_name="Ada", access_mode="tenant", status="active"),
        mint("ada-1", 4, user="ada"),
        ChangeUser(envelope=envelope, subject="ada", access_mode="isolated"),
        ChangeUser(envelope=envelope, subject="ada", status="disabled"),
        RemoveUser(envelope=envelope, subject="ada"),
        RemoveUser(envelope=envelope, subject="ada"),
        RegisterUser(envelope=envelope, subject="ada", display_name="Ada", access_mode="tenant", status="active"),
        SetQuota(envelope=envelope, scope="tenant", quota=TenantQuota(users=3)),
        NoteCredential(envelope=envelope, scope="tenant", name="github", version=1),
        NoteCredential(envelope=envelope, scope="tenant", name="github", version=2),
        NoteCredential(envelope=envelope, scope="tenant", name="github", version=0),
    ]
