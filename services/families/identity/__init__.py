"""The family of identities: the tokens and users of every tenant, their quotas, and what is known of credentials.

Every process has all of it in memory, so that a caller is found without a round trip, and a token that is taken back
gives no access anywhere within a second (decision 70).

    state.py, decide.py   the rules; limits.py has the bounds
    directory.py          tokens and users of all aggregates, as callers are found in them; quotas.py: what they may
    api.py, handlers.py   the operations, and what carries them out; those on credentials and users beside them
    services.py           opens them in a process

Before: requests. After: services/application/authentication.py asks the directory for every request.
"""

from typing import Any

from loomlog.schemas.generated.identity_commands import (
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
from loomlog.services.core.families import (
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    inner_commands,
)
from loomlog.services.families.identity.api import OPERATIONS
from loomlog.services.families.identity.decide import decide
from loomlog.services.families.identity.state import (
    NAME,
    Identity,
    evolve,
    initial,
    shard_of,
    shard_of_credential,
    shard_of_token,
)
from loomlog.services.families.identity.user_api import USER_OPERATIONS


def _aggregate(command: Any) -> str:
    """Return the shard of a command."""
    tenant = command.envelope.tenant
    match command:
        case MintToken(token=token):
            return shard_of_token(tenant, token.user, token.name)
        case RotateToken() | RetireToken():
            return shard_of_token(tenant, command.user, command.name)
        case SetQuota():
            return shard_of("quota", command.scope, command.scope_id)
        case NoteCredential():
            return shard_of_credential(command.scope, command.scope_id, command.name)
        case NoteCredentialUses(uses=uses):
            return shard_of_credential(uses[0].scope, uses[0].scope_id, uses[0].name) if uses else ""
        case _:
            return shard_of("user", command.subject)


def _subject(command: Any) -> str | None:
    """Return the user whose name a command has."""
    return command.subject if isinstance(command, RegisterUser | ChangeUser) else None


_command = inner_commands(_aggregate)
FAMILY = Family(
    name=NAME,
    summary="Who has access: tokens and users of a tenant, their quotas, and the names of credentials.",
    rules=Rules(state=Identity, initial=initial, decide=decide, evolve=evolve, version=1),
    lifecycle=Lifecycle(
        # An old file would bring back what was taken away since.
        state_files=StateFiles.LEFT_OUT,
        erasure=Erasure.KEYS,
        audit=Audit.WHOLE,
        rebuild=Rebuild.EVENTS,
    ),
    commands=(
        _command(MintToken, "mint", "Make a token."),
        _command(RotateToken, "rotate", "Replace a token."),
        _command(RetireToken, "retire", "End a token."),
        _command(RegisterUser, "register", "Register a user."),
        _command(ChangeUser, "change", "Change a user."),
        _command(RemoveUser, "remove", "Remove a user and the tokens of the user."),
        _command(SetQuota, "quota", "Set the bounds of a tenant, a user or a token."),
        _command(NoteCredential, "credential", "Note that a value of a credential is stored or removed."),
        _command(NoteCredentialUses, "used", "Note what credentials were used for."),
    ),
    content_subject=_subject,
    reads=Reads.REPLICATED,
    operations=(*OPERATIONS, *USER_OPERATIONS),
    services="loomlog.services.families.identity.services",
)
