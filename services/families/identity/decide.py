"""Decisions about tokens, users, quotas and credentials: what is refused, and the events of what is not.

The last token of an administrator is not ended: with the shared token gone too, no other one could be made.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the event in every process.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.entity_events import CommandRefused
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
from loomlog.schemas.generated.identity_events import (
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
from loomlog.schemas.generated.values import AccessToken, TenantQuota
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.access.scopes import ADMIN, SCOPES
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import At
from loomlog.services.families.identity import limits
from loomlog.services.families.identity.state import (
    ACTIVE,
    CREDENTIAL_SCOPES,
    QUOTA_SCOPES,
    SCOPES_OF_MODE,
    STATUSES,
    Identity,
    IdentityEvent,
    Token,
    entry_key,
    evolve,
)

STATES = StateCodec(Identity)
IdentityCommand = (
    MintToken
    | RotateToken
    | RetireToken
    | RegisterUser
    | ChangeUser
    | RemoveUser
    | SetQuota
    | NoteCredential
    | NoteCredentialUses
)
TOKEN_NOT_FOUND, USER_NOT_FOUND = "token_not_found", "user_not_found"
Decided = IdentityEvent | CommandRefused


def decide(state: Identity, command: IdentityCommand, at: At) -> Sequence[Decided]:
    """Return the events that follow a command."""
    events = _decide(state, command, at)
    shrinks = isinstance(command, RetireToken | RemoveUser)
    for event in events:
        if isinstance(event, CommandRefused) or shrinks:
            continue
        size = len(STATES.encode(evolve(state, event, at.at_ms)))
        if size > limits.STATE_BYTES_MAX:
            text = f"this part of the tenant would have {size} bytes of {limits.STATE_BYTES_MAX}: remove users or names"
            return [_refused("state_too_large", text)]
    return events


def _decide(state: Identity, command: IdentityCommand, at: At) -> Sequence[Decided]:
    match command:
        case MintToken():
            return [_mint(state, command, at)]
        case RotateToken():
            return [_rotate(state, command, at)]
        case RetireToken():
            return _retire(state, command, at)
        case RegisterUser():
            return [_register(state, command, at)]
        case ChangeUser():
            return _change(state, command, at)
        case RemoveUser(subject=subject):
            known = subject in state.users
            return [UserRemoved(subject=subject, by=at.caller) if known else _no_user(subject)]
        case SetQuota():
            return _set_quota(state, command, at)
        case NoteCredential():
            return _note_credential(state, command, at)
        case NoteCredentialUses():
            return _note_uses(state, command)
        case _:
            assert_never(command)


def _refused(code: str, message: str) -> CommandRefused:
    return CommandRefused(code=code, message=message)


# --- tokens ----------------------------------------------------------------------------------------------------------


def _mint(state: Identity, command: MintToken, at: At) -> Decided:
    token = command.token
    if problem := _token_problem(state, token, at) or _text_problem(state, token.hashed, token.def_id, token.suffix):
        return _refused("bad_request", problem)
    if command.supersede_shared and ADMIN not in token.scopes:
        text = f"supersede_shared: only a token with {ADMIN} takes the place of the shared token"
        return _refused("bad_request", text)
    of_name = [one for one in state.tokens.values() if (one.tenant, one.name) == (token.tenant, token.name)]
    if any(one.is_in_force(at.at_ms) for one in of_name):
        return _refused("name_taken", f"the token {token.name} is in force: rotate it, or retire it first")
    if token.user:
        user = state.users.get(token.user)
        if user is None:
            return _no_user(token.user)
        if user.status != ACTIVE:
            return _refused("user_disabled", f"the user {token.user} is disabled: set the status active first")
        token = replace(token, scopes=SCOPES_OF_MODE[user.access_mode])
        if len(_in_force(state, at, user=token.user)) >= limits.TOKENS_PER_USER_MAX:
            text = f"{token.user} has {limits.TOKENS_PER_USER_MAX} tokens in force: revoke one first"
            return _refused("too_many", text)
    elif not state.tenant and len(_in_force(state, at)) >= limits.ADMINISTRATORS_MAX:
        return _refused("too_many", f"there are {limits.ADMINISTRATORS_MAX} administrators: retire one first")
    return TokenMinted(token=token, supersede_shared=command.supersede_shared, by=at.caller)


def _token_problem(state: Identity, token: AccessToken, at: At) -> str:
    for field, text in (("name", token.name), ("tenant_id", token.tenant), ("subject", token.subject)):
        if not limits.NAME.match(text):
            return f"{field}: expected 1 to 64 letters, digits, _ and -"
    if token.user and token.user != token.subject:
        return "subject: the token of a user has that user as its subject"
    if state.tenant and token.tenant != state.tenant:
        return f"tenant_id is {token.tenant}: expected {state.tenant}"
    if not token.user and (not token.scopes or len(token.scopes) > limits.SCOPES_MAX):
        return f"scopes: expected 1 to {limits.SCOPES_MAX} of {', '.join(sorted(SCOPES))}"
    for scope in token.scopes:
        if scope not in SCOPES:
            return f"scopes: {scope[:80]!r} is none of {', '.join(sorted(SCOPES))}"
    if (ADMIN in token.scopes) is bool(state.tenant):
        return f"scopes: tokens with {ADMIN} belong to the installation, and no others do"
    return _expiry_problem(token.expires_at_ms, at)


def _expiry_problem(expires_at_ms: int, at: At) -> str:
    if expires_at_ms and not at.at_ms < expires_at_ms <= limits.TIME_MAX_MS:
        return "expires_at: expected a time in the future, at most the year 9999"
    return ""


def _text_problem(state: Identity, hashed: str, def_id: str, suffix: str) -> str:
    if not limits.HASH.match(hashed):
        return "hashed: expected 64 hexadecimal digits"
    if len(suffix) > limits.SUFFIX_CHARACTERS_MAX or not suffix.isprintable():
        return f"suffix: expected at most {limits.SUFFIX_CHARACTERS_MAX} characters"
    if not limits.DEF_ID.match(def_id) or def_id in state.tokens:
        return "def_id: expected a new id of 1 to 80 letters, digits, _ and -"
    if any(one.hashed == hashed for one in state.tokens.values()):
        return "the text is that of another token: choose a new one"
    return ""


def _in_force(state: Identity, at: At, *, user: str = "") -> list[Token]:
    tokens = state.tokens_of(user) if user else state.tokens.values()
    return [one for one in tokens if one.is_in_force(at.at_ms)]


def _find(state: Identity, command: RotateToken | RetireToken) -> Token | None:
    token = state.tokens.get(command.def_id)
    return token if token is not None and (token.name, token.user) == (command.name, command.user) else None


def _no_token(def_id: str) -> CommandRefused:
    return _refused(TOKEN_NOT_FOUND, f"there is no token {def_id[:80]}")


def _rotate(state: Identity, command: RotateToken, at: At) -> Decided:
    token = _find(state, command)
    if token is None:
        return _no_token(command.def_id)
    if token.retired_at_ms or not token.is_in_force(at.at_ms):
        return _refused("retired", f"the token {token.name} has ended or is replaced already: create a new one")
    if not 0 <= command.grace_ms <= limits.GRACE_MS_MAX:
        return _refused("bad_request", f"grace_seconds: expected 0 to {limits.GRACE_MS_MAX // 1000}")
    problem = _expiry_problem(command.expires_at_ms, at)
    problem = problem or _text_problem(state, command.hashed, command.new_def_id, command.suffix)
    if problem:
        return _refused("bad_request", problem)
    new = AccessToken(
        def_id=command.new_def_id,
        name=token.name,
        tenant=token.tenant,
        subject=token.subject,
        user=token.user,
        scopes=token.scopes,
        hashed=command.hashed,
        suffix=command.suffix,
        expires_at_ms=command.expires_at_ms,
    )
    ends_at_ms = min(at.at_ms + command.grace_ms, token.expires_at_ms or limits.TIME_MAX_MS)
    return TokenRotated(def_id=token.def_id, retired_at_ms=ends_at_ms, token=new, by=at.caller)


def _retire(state: Identity, command: RetireToken, at: At) -> Sequence[Decided]:
    token = _find(state, command)
    if token is None:
        return [_no_token(command.def_id)]
    if not token.is_in_force(at.at_ms):
        return ()
    lasting = [one for one in _in_force(state, at) if not one.retired_at_ms and ADMIN in one.scopes]
    if ADMIN in token.scopes and not any(one.def_id != token.def_id for one in lasting):
        text = f"{token.name} is the last token of an administrator: create another one first"
        return [_refused("last_administrator", text)]
    return [TokenRetired(def_id=token.def_id, by=at.caller)]


# --- users -----------------------------------------------------------------------------------------------------------


def _no_user(subject: str) -> CommandRefused:
    return _refused(USER_NOT_FOUND, f"there is no user {subject[:80]}")


def _user_problem(subject: str, display_name: str, access_mode: str, status: str) -> CommandRefused | None:
    if not limits.NAME.match(subject):
        return _refused("missing_subject", "subject: expected 1 to 64 letters, digits, _ and -")
    if access_mode not in SCOPES_OF_MODE:
        return _refused("invalid_access_mode", f"access_mode is {access_mode[:60]!r}: expected tenant or isolated")
    if status not in STATUSES:
        return _refused("invalid_status", f"status is {status[:60]!r}: expected active or disabled")
    if len(display_name.encode("utf-8", "surrogatepass")) > limits.DISPLAY_NAME_BYTES_MAX:
        return _refused("bad_request", f"display_name: at most {limits.DISPLAY_NAME_CHARACTERS_MAX} characters")
    return None


def _register(state: Identity, command: RegisterUser, at: At) -> Decided:
    problem = _user_problem(command.subject, command.display_name, command.access_mode, command.status)
    if problem is not None:
        return problem
    if command.subject in state.users:
        return _refused("user_exists", f"the user {command.subject} is registered already: change it")
    return copy_as(UserRegistered, command, by=at.caller)


def _change(state: Identity, command: ChangeUser, at: At) -> Sequence[Decided]:
    user = state.users.get(command.subject)
    if user is None:
        return [_no_user(command.subject)]
    display_name = user.display_name if command.display_name is None else command.display_name
    access_mode = user.access_mode if command.access_mode is None else command.access_mode
    status = user.status if command.status is None else command.status
    problem = _user_problem(user.subject, display_name, access_mode, status)
    if problem is not None:
        return [problem]
    if (display_name, access_mode, status) == (user.display_name, user.access_mode, user.status):
        return ()
    return [
        UserChanged(
            subject=user.subject, display_name=display_name, access_mode=access_mode, status=status, by=at.caller
        )
    ]


# --- quotas and credentials ------------------------------------------------------------------------------------------


def _entry_problem(scope: str, scope_id: str, scopes: Sequence[str]) -> str:
    if scope not in scopes:
        return f"scope is {scope[:60]!r}: expected {', '.join(scopes)}"
    if scope == "tenant" and scope_id:
        return "scope_id: the tenant has none"
    if scope != "tenant" and not (0 < len(scope_id) <= 128 and scope_id.isprintable()):
        return f"scope_id: name the {scope}, with at most 128 characters"
    return ""


def _set_quota(state: Identity, command: SetQuota, at: At) -> Sequence[Decided]:
    quota, key = command.quota, entry_key(command.scope, command.scope_id)
    problem = _entry_problem(command.scope, command.scope_id, QUOTA_SCOPES)
    for name in quota.__struct_fields__:
        if not -1 <= getattr(quota, name) <= limits.QUOTA_MAX:
            problem = problem or f"{name}: expected 0 to {limits.QUOTA_MAX}, or -1 for no bound"
    if not problem and key not in state.quotas and len(state.quotas) >= limits.QUOTAS_MAX:
        problem = "there are too many quotas: remove one first"
    if problem:
        return [_refused("bad_request", problem)]
    if state.quotas.get(key, TenantQuota()) == quota:
        return ()
    return [QuotaSet(scope=command.scope, scope_id=command.scope_id, quota=quota, by=at.caller)]


def _note_credential(state: Identity, command: NoteCredential, at: At) -> Sequence[Decided]:
    problem = _entry_problem(command.scope, command.scope_id, CREDENTIAL_SCOPES)
    if not problem and not limits.NAME.match(command.name):
        problem = "name: expected 1 to 64 letters, digits, _ and -"
    if not problem and len(command.reference.encode("utf-8", "surrogatepass")) > limits.REFERENCE_BYTES_MAX:
        problem = f"reference: at most {limits.REFERENCE_BYTES_MAX} bytes"
    if not problem and not 0 <= command.expires_at_ms <= limits.TIME_MAX_MS:
        problem = "expires_at: expected a time until the year 9999"
    if problem or command.version < 0:
        return [_refused("bad_request", problem or "version: expected 0 or more")]
    before = state.credentials.get(entry_key(command.scope, command.scope_id, command.name))
    if command.replaces and (before is None or before.version != command.replaces):
        return [_refused("revision_conflict", f"{command.name} has not the version {command.replaces} any more")]
    if before is None and not command.version:
        return ()
    if before is not None and 0 < command.version <= before.version:
        return [_refused("revision_conflict", f"{command.name} has version {before.version} already: set it again")]
    return [copy_as(CredentialNoted, command, by=at.caller)]


def _note_uses(state: Identity, command: NoteCredentialUses) -> Sequence[Decided]:
    """Return the uses of credentials that are there; one may be removed after it was used."""
    if len(command.uses) > limits.USES_MAX:
        return [_refused("bad_request", f"uses: {len(command.uses)}, at most {limits.USES_MAX}")]
    for use in command.uses:
        texts = (use.purpose, use.agent, use.user, use.run_id)
        if not use.purpose or use.count < 1 or any(len(text) > limits.USE_CHARACTERS_MAX for text in texts):
            text = (
                f"uses: expected a purpose, a count from 1, and texts of at most {limits.USE_CHARACTERS_MAX} characters"
            )
            return [_refused("bad_request", text)]
    known = [use for use in command.uses if entry_key(use.scope, use.scope_id, use.name) in state.credentials]
    return [CredentialsUsed(uses=tuple(known))] if known else ()
