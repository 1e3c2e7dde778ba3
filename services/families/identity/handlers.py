"""The handlers of the operations on tokens, users and quotas.

The text of a token is drawn here, and only its hash goes on. A request that is repeated under its Idempotency-Key gets
the token of the first one without its text, which only the first answer had.

Before: services.py. After: the owner of the shard; directory.py in every process.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from loomlog.connectors.crypto.operator_tokens import PREFIX, Peppers, new_text
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.identity_commands import (
    ChangeUser,
    MintToken,
    RegisterUser,
    RemoveUser,
    RetireToken,
    RotateToken,
    SetQuota,
)
from loomlog.schemas.generated.identity_events import TokenMinted, TokenRotated
from loomlog.schemas.generated.values import AccessToken, CommandEnvelope, TenantQuota
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.access.scopes import ADMIN, SCOPES
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput, NoOutput
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.identity import api, limits
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.state import ACTIVE, TENANT_WIDE, Token, User, token_of
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.operation import Decrypt

TOKENS_ROUTE, USERS_ROUTE = "GET /v1/_operatortokendef/names", "GET /v1/_users"
WARNING = "Keep the text now: it is shown once and stored nowhere."
REPEATED = "The first answer to this request had the text, which is stored nowhere; rotate the token to get another."
QUOTA_CODE = "tenant_quota_exhausted"


class IdentityHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(
        self,
        commands: InstallationCommands,
        directory: Directory,
        *,
        decrypt: Decrypt,
        grace_s: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """`grace_s`: how long the text before a rotation gives access, where the request does not say."""
        self._commands = commands
        self._directory = directory
        self._decrypt = decrypt
        self._grace_s = grace_s
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.CREATE_TOKEN: self.create_token,
            api.ROTATE_TOKEN: self.rotate_token,
            api.RETIRE_TOKEN: self.retire_token,
            api.GET_TOKEN: self.get_token,
            api.LIST_TOKENS: self.list_tokens,
            api.TOKEN_NAMES: self.token_names,
            api.REGISTER_USER: self.register_user,
            api.CHANGE_USER: self.change_user,
            api.REMOVE_USER: self.remove_user,
            api.MINT_USER_TOKEN: self.mint_user_token,
            api.LIST_USER_TOKENS: self.list_user_tokens,
            api.REVOKE_USER_TOKEN: self.revoke_user_token,
            api.LIST_QUOTAS: self.list_quotas,
            api.SET_QUOTA: self.set_quota,
        }

    # --- tokens ------------------------------------------------------------------------------------------------------

    async def create_token(self, call: Call[api.TokenCreate]) -> Answer[api.TokenMade]:
        """Make a token, or take one whose text is chosen."""
        asked, peppers = call.input, self._require_peppers()
        unknown = [scope for scope in asked.scopes if scope not in SCOPES]
        if unknown:
            text = f"scopes: {unknown[0][:80]!r} is none of {', '.join(sorted(SCOPES))}"
            raise Refused("invalid_scope", text)
        if not limits.NAME.match(asked.tenant_id):
            raise Refused("bad_request", "tenant_id: expected 1 to 64 letters, digits, _ and -")
        text, def_id = asked.import_token or new_text(), _def_id(call)
        if asked.import_token and self._directory.token(def_id) is None and self._directory.has_text(text):
            raise Refused("name_taken", "import_token: another token has that text, in force or not; choose a new one")
        scopes = tuple(dict.fromkeys(asked.scopes))
        token = AccessToken(
            def_id=def_id,
            name=asked.name,
            tenant=asked.tenant_id,
            subject=asked.subject or f"tok-{asked.name}"[:64],
            scopes=scopes,
            hashed=peppers.hashed(text),
            suffix=_suffix_of(text, is_imported=bool(asked.import_token)),
            expires_at_ms=_time_ms(asked.expires_at),
            is_imported=bool(asked.import_token),
        )
        self._require_room(call, token)
        envelope = replace(call.envelope(), tenant="" if ADMIN in scopes else token.tenant)
        command = MintToken(envelope=envelope, token=token, supersede_shared=asked.supersede_shared)
        return await self._made(command, text)

    async def rotate_token(self, call: Call[api.TokenRotate]) -> Answer[api.TokenMade]:
        """Give a token a new text."""
        asked, peppers = call.input, self._require_peppers()
        new_id = _def_id(call)
        done = self._directory.token(new_id)
        if done is not None:  # a repetition: the name means the new token by now
            token = self._directory.token(done.rotated_from) or done
        else:
            token = self._named(asked.def_id, asked.name, asked.tenant_id)
        text, grace_s = new_text(), self._grace_s if asked.grace_seconds is None else asked.grace_seconds
        command = RotateToken(
            envelope=_envelope_of(call, token),
            name=token.name,
            user=token.user,
            def_id=token.def_id,
            new_def_id=new_id,
            hashed=peppers.hashed(text),
            suffix=_suffix_of(text, is_imported=False),
            grace_ms=grace_s * 1000,
            expires_at_ms=_time_ms(asked.expires_at),
        )
        return await self._made(command, text)

    async def _made(self, command: MintToken | RotateToken, text: str) -> Answer[api.TokenMade]:
        event, position = await self._minted(command)
        token = self._known(event)
        is_first = token.hashed == (command.token if isinstance(command, MintToken) else command).hashed
        ends = event.retired_at_ms if isinstance(event, TokenRotated) else 0
        row = self._row(token)
        fields = {name: getattr(row, name) for name in row.__struct_fields__}
        value = api.TokenMade(
            **fields,
            token=text if is_first else UNSET,
            prior_retires_at=_shown(ends),
            warning=WARNING if is_first else REPEATED,
        )
        return Answer(value=value, positions=(position,))

    async def _minted(self, command: MintToken | RotateToken) -> tuple[TokenMinted | TokenRotated, str]:
        answer = await self._commands.send(command, status_route=TOKENS_ROUTE)
        event = answer.events[-1]
        assert isinstance(event, TokenMinted | TokenRotated), event
        return event, answer.position

    def _known(self, event: TokenMinted | TokenRotated) -> Token:
        """Return the token of an event as it is read by now, or as the event makes it: its text must not be lost."""
        return self._directory.token(event.token.def_id) or token_of(event.token, self._clock_ms(), event.by)

    async def retire_token(self, call: Call[api.TokenRetire]) -> Answer[api.TokenRetiredAnswer]:
        """End a token at once."""
        asked = call.input
        if not asked.retired:
            raise Refused("bad_request", "retired: a token that has ended does not come back; create another one")
        token = self._named(asked.def_id, asked.name, asked.tenant_id)
        positions = await self._retire(call, token)
        return Answer(
            value=api.TokenRetiredAnswer(def_id=token.def_id, name=token.name, retired=True), positions=positions
        )

    async def _retire(self, call: Call[Any], token: Token) -> tuple[str, ...]:
        command = RetireToken(envelope=_envelope_of(call, token), name=token.name, user=token.user, def_id=token.def_id)
        answer = await self._commands.send(command, status_route=TOKENS_ROUTE)
        return (answer.position,)

    async def get_token(self, call: Call[api.TokenGet]) -> Answer[api.TokenRow]:
        """Return a token without its text."""
        return Answer(value=self._row(self._named(call.input.def_id, None, None)))

    async def list_tokens(self, call: Call[api.TokenList]) -> Answer[api.TokenVersions]:
        """Return the tokens of a name, the newest first."""
        name, tenant = call.input.name, call.input.tenant_id or ""
        tokens = await self._all_tokens(tenant)
        rows = [self._row(one) for one in _newest_first(tokens) if one.name == name]
        return Answer(value=api.TokenVersions(name=name, tokens=rows))

    async def token_names(self, call: Call[api.TokenNamesList]) -> Answer[api.TokenNames]:
        """Return the names of tokens, by tenant and name."""
        groups: dict[tuple[str, str], list[Token]] = {}
        for token in await self._all_tokens(call.input.tenant_id):
            groups.setdefault((token.tenant, token.name), []).append(token)
        names = []
        for (tenant, name), tokens in sorted(groups.items()):
            newest = _newest_first(tokens)
            live = [one for one in newest if self._directory.is_in_force(one.def_id)]
            row = api.TokenNamesRow(
                name=name,
                tenant_id=tenant,
                version_count=len(tokens),
                live_version_count=len(live),
                latest_version=len(tokens),
                last_updated=format_rfc3339(max(one.created_at_ms for one in tokens)),
                active_def_id=live[0].def_id if live else UNSET,
                active_retired=bool(live[0].retired_at_ms) if live else UNSET,
            )
            names.append(row)
        return Answer(value=api.TokenNames(names=names))

    async def _all_tokens(self, tenant: str) -> list[Token]:
        """Return the tokens of a tenant or of all; the loop goes on between parts of a long list."""
        listed: list[Token] = []
        for number, token in enumerate(list(self._directory.tokens(tenant))):
            listed.append(token)
            if number % 10_000 == 9_999:
                await asyncio.sleep(0)
        return listed

    def _named(self, def_id: str | None, name: str | None, tenant: str | None) -> Token:
        """Return the token of an id, or the newest one of a name. Raises Refused."""
        if def_id:
            token = self._directory.token(def_id)
            if token is None or (tenant and token.tenant != tenant):
                raise Refused("token_not_found", f"there is no token {def_id}")
            return token
        if not name:
            raise Refused("bad_request", "def_id or name: name the token")
        matching = [one for one in self._directory.tokens(tenant or "") if one.name == name]
        if not matching:
            raise Refused("token_not_found", f"there is no token {name}")
        if len({one.tenant for one in matching}) > 1:
            raise Refused("bad_request", f"tenant_id: several tenants have a token {name}; name one")
        newest = _newest_first(matching)
        return next((one for one in newest if not one.retired_at_ms), newest[0])

    def _require_peppers(self) -> Peppers:
        if self._directory.peppers is None:
            text = "set LOOMLOG_OPERATOR_TOKEN_PEPPER or LOOMLOG_SECRET_KEY in every process, and start again"
            raise Refused("minting_off", f"there is nothing to hash tokens with here: {text}")
        return self._directory.peppers

    def _require_room(self, call: Call[Any], token: AccessToken) -> None:
        """Raise Refused for one token more than the installation or the tenant may have."""
        if self._directory.token(token.def_id) is not None:
            return  # a repetition
        named = [one for one in self._directory.named(token.tenant, token.name) if not one.user]
        if any(self._directory.is_in_force(one.def_id) for one in named):
            raise Refused("name_taken", f"the token {token.name} is in force: rotate it, or retire it first")
        if len(self._directory) >= limits.TOKENS_MAX and self._directory.tokens_in_force() >= limits.TOKENS_MAX:
            raise Refused("too_many", f"there are {limits.TOKENS_MAX} tokens in force: retire some first")
        most = self._directory.quota(token.tenant, "tenant").tokens
        if 0 <= most <= self._directory.tokens_in_force(token.tenant):
            raise _exhausted(token.tenant, "tokens", most)

    def _row(self, token: Token) -> api.TokenRow:
        return copy_as(
            api.TokenRow,
            token,
            tenant_id=token.tenant,
            allowed_scopes=list(token.scopes),
            created_at=format_rfc3339(token.created_at_ms),
            retired=bool(token.retired_at_ms),
            active=self._directory.is_in_force(token.def_id),
            token_suffix=token.suffix or UNSET,
            rotated_from=token.rotated_from or UNSET,
            retired_at=_shown(token.retired_at_ms),
            expires_at=_shown(token.expires_at_ms),
            imported=token.is_imported or UNSET,
        )

    # --- users -------------------------------------------------------------------------------------------------------

    async def register_user(self, call: Call[api.UserRegister]) -> Answer[api.RegisteredUser]:
        """Register a user."""
        asked, tenant = call.input, call.caller.tenant
        users, most = self._directory.users(tenant), self._directory.quota(tenant, "tenant").users
        if asked.subject not in users and len(users) >= limits.USERS_MAX:
            raise Refused("too_many", f"the tenant has {limits.USERS_MAX} users: remove some first")
        if asked.subject not in users and 0 <= most <= len(users):
            raise _exhausted(tenant, "users", most)
        command = RegisterUser(
            envelope=call.envelope(),
            subject=asked.subject,
            display_name=asked.display_name or "",
            access_mode=asked.access_mode or TENANT_WIDE,
            status=asked.status or ACTIVE,
        )
        return await self._changed_user(command)

    async def change_user(self, call: Call[api.UserChange]) -> Answer[api.RegisteredUser]:
        """Change a user."""
        return await self._changed_user(copy_as(ChangeUser, call.input, envelope=call.envelope()))

    async def _changed_user(self, command: RegisterUser | ChangeUser) -> Answer[api.RegisteredUser]:
        tenant = command.envelope.tenant
        answer = await self._commands.send(command, status_route=USERS_ROUTE)
        user = self._directory.users(tenant).get(command.subject)
        if user is None:
            raise Refused("not_yet", f"the user {command.subject} is written and not read here yet; try again")
        return Answer(value=await self.shown_user(tenant, user), positions=(answer.position,))

    async def shown_user(self, tenant: str, user: User) -> api.RegisteredUser:
        """Return a registered user with the name in plaintext."""
        return copy_as(
            api.RegisteredUser,
            user,
            tenant_id=tenant,
            display_name=await self._decrypt(user.display_name, tenant),
            created_at=format_rfc3339(user.created_at_ms),
        )

    async def remove_user(self, call: Call[api.UserNamed]) -> Answer[NoOutput]:
        """Remove a user and the tokens of that user."""
        command = RemoveUser(envelope=call.envelope(), subject=call.input.subject)
        answer = await self._commands.send(command, status_route=USERS_ROUTE)
        return Answer(value=NoOutput(), positions=(answer.position,))

    async def mint_user_token(self, call: Call[api.UserTokenMint]) -> Answer[api.UserTokenMade]:
        """Make a token of a user."""
        asked, tenant, peppers = call.input, call.caller.tenant, self._require_peppers()
        def_id, text = _def_id(call), new_text()
        token = AccessToken(
            def_id=def_id,
            name=asked.name or f"{asked.subject[:40]}-{def_id[-12:]}",
            tenant=tenant,
            subject=asked.subject,
            user=asked.subject,
            hashed=peppers.hashed(text),
            suffix=_suffix_of(text, is_imported=False),
            expires_at_ms=_time_ms(asked.expires_at),
        )
        if asked.subject not in self._directory.users(tenant):
            raise Refused("user_not_found", f"there is no user {asked.subject[:80]}: register it first")
        self._require_room(call, token)
        event, position = await self._minted(MintToken(envelope=call.envelope(), token=token))
        made = self._known(event)
        is_first = made.hashed == token.hashed
        value = api.UserTokenMade(
            def_id=made.def_id,
            token=text if is_first else UNSET,
            token_suffix=made.suffix,
            name=made.name,
            scopes=list(made.scopes),
            created_at=format_rfc3339(made.created_at_ms),
            expires_at=_shown(made.expires_at_ms),
            warning=WARNING if is_first else REPEATED,
        )
        return Answer(value=value, positions=(position,))

    async def list_user_tokens(self, call: Call[api.UserNamed]) -> Answer[api.UserTokens]:
        """Return the tokens of a user, the newest first."""
        subject, tenant = call.input.subject, call.caller.tenant
        tokens = self._directory.tokens_of_user(tenant, subject)
        if subject not in self._directory.users(tenant):
            raise Refused("user_not_found", f"there is no user {subject[:80]}")
        rows = [
            api.UserTokenRow(
                def_id=one.def_id,
                name=one.name,
                scopes=list(one.scopes),
                created_at=format_rfc3339(one.created_at_ms),
                expires_at=_shown(one.expires_at_ms),
                retired_at=_shown(one.retired_at_ms),
                active=self._directory.is_in_force(one.def_id),
            )
            for one in _newest_first(tokens)
        ]
        return Answer(value=api.UserTokens(subject=subject, tokens=rows))

    async def revoke_user_token(self, call: Call[api.UserTokenNamed]) -> Answer[api.UserTokenRevoked]:
        """End a token of a user."""
        asked, tenant = call.input, call.caller.tenant
        token = self._directory.token(asked.def_id)
        if token is None or (token.tenant, token.user) != (tenant, asked.subject):
            raise Refused("token_not_found", f"{asked.subject[:80]} has no token {asked.def_id[:80]}")
        positions = await self._retire(call, token)
        ended = self._directory.token(asked.def_id) or token
        value = api.UserTokenRevoked(def_id=token.def_id, retired_at=format_rfc3339(ended.retired_at_ms))
        return Answer(value=value, positions=positions)

    # --- quotas ------------------------------------------------------------------------------------------------------

    async def list_quotas(self, call: Call[NoInput]) -> Answer[api.QuotaList]:
        """Return the quotas of a tenant."""
        tenant = call.caller.tenant
        rows = []
        for key, quota in sorted(self._directory.quotas(tenant).items()):
            scope, _, scope_id = key.partition("\n")
            rows.append(_quota_row(scope, scope_id, quota))
        return Answer(value=api.QuotaList(tenant_id=tenant, quotas=rows))

    async def set_quota(self, call: Call[api.QuotaPut]) -> Answer[api.QuotaRow]:
        """Set the bounds of a tenant, a user or a token."""
        asked = call.input
        bounds = {name: getattr(asked, name) for name in BOUNDS if getattr(asked, name) is not None}
        quota = TenantQuota(**bounds)
        command = SetQuota(envelope=call.envelope(), scope=asked.scope, scope_id=asked.scope_id, quota=quota)
        answer = await self._commands.send(command, status_route="GET /v1/_quotas")
        return Answer(value=_quota_row(asked.scope, asked.scope_id, quota), positions=(answer.position,))


BOUNDS = ("runs_at_once", "runs_per_minute", "calls_per_minute", "open_streams", "users", "tokens")
"""Fields of a quota that are enforced."""


def _quota_row(scope: str, scope_id: str, quota: TenantQuota) -> api.QuotaRow:
    bounds = {name: getattr(quota, name) for name in BOUNDS if getattr(quota, name) >= 0}
    return api.QuotaRow(scope=scope, scope_id=scope_id, **bounds)


def _exhausted(tenant: str, what: str, cap: int) -> Refused:
    text = f"the tenant {tenant} may have {cap} {what}: remove some, or ask an administrator for a higher quota"
    return Refused(QUOTA_CODE, text, details={"scope": "tenant", "what": what, "cap": cap})


def _def_id(call: Call[Any]) -> str:
    """Return the id of the token that a call makes, the same for every attempt."""
    return f"tok_{hashed_token('token', call.command_id)}"


def _envelope_of(call: Call[Any], token: Token) -> CommandEnvelope:
    """Return the envelope of a command for a token: those of administrators belong to the installation."""
    return replace(call.envelope(), tenant="" if ADMIN in token.scopes else token.tenant)


def _suffix_of(text: str, *, is_imported: bool) -> str:
    """Return the characters by which people tell tokens apart; none of a text that the operator has chosen."""
    return "" if is_imported else text.removeprefix(PREFIX)[: limits.SUFFIX_CHARACTERS_MAX]


def _time_ms(text: str | None) -> int:
    return parse_time_ms("expires_at", text) if text else 0


def _shown(at_ms: int) -> str | UnsetType:
    return format_rfc3339(at_ms) if at_ms else UNSET


def _newest_first(tokens: Sequence[Token]) -> list[Token]:
    return sorted(tokens, key=lambda one: one.created_at_ms)[::-1]
