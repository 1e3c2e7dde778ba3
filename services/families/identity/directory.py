"""The tokens and users of all tenants, as this process has read them: callers are found here without a round trip.

A process that has not heard from the partitions for SILENCE_S may not know what was taken away meanwhile, so it answers
minted tokens with identity_unavailable. Principals of the files go on: what they may is in no event.

Before: services/stream/entities/replicas.py folds. After: services/application/authentication.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from loomlog.connectors.crypto.operator_tokens import PREFIX, Peppers
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.generated.values import TenantQuota
from loomlog.schemas.position import Position
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.families import aggregate_id, aggregate_key, installation_aggregate
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity.state import (
    ISOLATED,
    NAME,
    Credential,
    Identity,
    Token,
    User,
    entry_key,
    shard_of,
)
from loomlog.services.stream.entities.replicas import Replicas

SILENCE_S = 10.0
"""Seconds without an answer of the partitions after which minted tokens are not answered for."""
ASK_EVERY_S = 2.0
"""How often the ends of the partitions are asked for."""
CATCH_UP_S = 5.0
"""Seconds in which a process has read what is in the log now; it is milliseconds unless the log is away."""
RETRY_AFTER_S = 2
NO_QUOTA = TenantQuota()
NOTHING = Identity()
ADMINISTRATORS = installation_aggregate(NAME)
"""Id of the aggregate with the tokens of administrators."""
Subject = tuple[str, str]
"""Tenant and subject."""


class Directory:
    """Tokens by text and id, users, quotas and credentials by tenant (port CallerDirectory)."""

    def __init__(
        self,
        replicas: Replicas,
        peppers: Peppers | None,
        *,
        clock_ms: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`peppers` None: no text is found."""
        self.peppers = peppers
        self.is_shared_superseded = False
        """The shared token gives no access any more."""
        self._replicas = replicas
        self._clock_ms = clock_ms
        self._now_s = now_s
        self._heard_at_s = now_s()
        self._shards: dict[str, Identity] = {}
        self._by_hash: dict[bytes, Token] = {}
        self._by_id: dict[str, Token] = {}
        self._users: dict[str, dict[str, User]] = {}
        self._isolated: dict[str, set[str]] = {}
        """Subjects of isolated tokens that belong to no user, by tenant: what they have made stays theirs."""
        self._quotas: dict[str, dict[str, TenantQuota]] = {}
        self._credentials: dict[str, dict[str, Credential]] = {}
        self._credential_offsets: dict[str, dict[int, int]] = {}
        """By tenant: offset of the last change of credentials that was read in each partition."""
        replicas.on_fold(NAME, self._fold)

    # --- callers -----------------------------------------------------------------------------------------------------

    def find_caller(self, text: str) -> Caller | None:
        """See services/families/ports/callers.py."""
        token = self.find(text)
        return None if token is None else caller_of(token)

    def find(self, text: str) -> Token | None:
        """Return the token in force with a text; None when there is none. Raises Refused(identity_unavailable)."""
        if self.peppers is None:
            return None
        for hashed in self.peppers.all_hashes(text):
            token = self._by_hash.get(hashed)
            if token is not None:
                self._require_news()
                return token if token.is_in_force(self._clock_ms()) else None
        if text.startswith(PREFIX):
            self._require_news()
        return None

    def _require_news(self) -> None:
        silent_s = self._now_s() - self._heard_at_s
        if silent_s > SILENCE_S:
            text = f"the log has not answered for {silent_s:.0f} s, and the token may have been taken back; try again"
            raise Refused("identity_unavailable", text, retry_after_s=RETRY_AFTER_S)

    def is_in_force(self, def_id: str) -> bool:
        """Whether a token gives access."""
        token = self._by_id.get(def_id)
        return token is not None and token.is_in_force(self._clock_ms())

    def is_isolated(self, tenant: str, subject: str) -> bool:
        """Whether a subject is that of a user, or of a token, confined to its own data."""
        user = self._users.get(tenant, {}).get(subject)
        return (user is not None and user.access_mode == ISOLATED) or subject in self._isolated.get(tenant, ())

    # --- what there is -----------------------------------------------------------------------------------------------

    def token(self, def_id: str) -> Token | None:
        return self._by_id.get(def_id)

    def __len__(self) -> int:
        """Number of tokens, in force or not."""
        return len(self._by_id)

    def named(self, tenant: str, name: str) -> list[Token]:
        """Return the tokens of a name that belong to no user, of administrators and others."""
        shards = (aggregate_id(NAME, tenant, shard_of("token", name)), ADMINISTRATORS)
        states = [self._shards.get(one, NOTHING) for one in shards]
        return [one for state in states for one in state.tokens_of("", name) if one.tenant == tenant]

    def tokens_of_user(self, tenant: str, subject: str) -> list[Token]:
        """Return the tokens of a user, in the order in which they were made."""
        return self._shards.get(aggregate_id(NAME, tenant, shard_of("user", subject)), NOTHING).tokens_of(subject)

    def has_text(self, text: str) -> bool:
        """Whether a token, in force or not, has that text."""
        return self.peppers is not None and any(one in self._by_hash for one in self.peppers.all_hashes(text))

    def tokens(self, tenant: str = "") -> Iterator[Token]:
        """Yield the tokens of a tenant, or of all of them."""
        return (one for one in self._by_id.values() if not tenant or one.tenant == tenant)

    def tokens_in_force(self, tenant: str = "") -> int:
        """Return the number of tokens in force."""
        now_ms = self._clock_ms()
        return sum(one.is_in_force(now_ms) for one in self.tokens(tenant))

    def users(self, tenant: str) -> Mapping[str, User]:
        """Return the registered users of a tenant by subject."""
        return self._users.get(tenant, {})

    def quota(self, tenant: str, scope: str, scope_id: str = "") -> TenantQuota:
        """Return the bounds of a tenant, a user or a token."""
        return self._quotas.get(tenant, {}).get(entry_key(scope, scope_id), NO_QUOTA)

    def quotas(self, tenant: str) -> Mapping[str, TenantQuota]:
        """Return all bounds of a tenant, by `entry_key` of their scope and id."""
        return self._quotas.get(tenant, {})

    def credentials(self, tenant: str) -> Mapping[str, Credential]:
        """Return what is known of the credentials of a tenant, by `entry_key` of scope, id and name."""
        return self._credentials.get(tenant, {})

    def credential_positions(self, tenant: str) -> tuple[str, ...]:
        """Return what the owner of a run must have read so that it knows the credentials that are known here."""
        offsets = self._credential_offsets.get(tenant, {})
        return tuple(
            str(Position(topic=self._replicas.topic, partition=partition, offset=offset))
            for partition, offset in offsets.items()
        )

    def tenants(self) -> set[str]:
        """Return the tenants that have tokens, users, quotas or credentials."""
        of_entries = {one for table in (self._users, self._quotas, self._credentials) for one in table if table[one]}
        return of_entries | {one.tenant for one in self._by_id.values()}

    # --- reading -----------------------------------------------------------------------------------------------------

    async def catch_up(self, tenant: str, shards: Iterable[Sequence[str]]) -> None:
        """Read all that is in the log now about what is decided in these shards (`shard_of`). Raises Transient."""
        names = {aggregate_id(NAME, tenant, shard_of(*parts)) for parts in shards}
        for partition in {partition_of(aggregate_key(name), self._replicas.partitions) for name in names}:
            await self._replicas.caught_up(partition, timeout_s=CATCH_UP_S)

    async def listen(self, end_offsets: Callable[[], Awaitable[Mapping[int, int]]]) -> None:
        """Ask for the ends of the partitions until cancelled, and note when everything up to them was read."""
        while True:
            asked_at_s = self._now_s()
            try:
                ends = await end_offsets()
            except ConnectorError:
                ends = {}
            missing = 0
            for partition, end in ends.items():
                missing += await self._replicas.wait(partition, end - 1, timeout_s=ASK_EVERY_S) if end else 0
            if ends and not missing:
                self._heard_at_s = asked_at_s
            await asyncio.sleep(ASK_EVERY_S)

    def _fold(self, aggregate: str) -> None:
        state: Identity = self._replicas.state(aggregate)
        before = self._shards.get(aggregate, NOTHING)
        self._shards[aggregate] = state
        for def_id, token in before.tokens.items():
            if def_id not in state.tokens:
                self._by_hash.pop(bytes.fromhex(token.hashed), None)
                self._by_id.pop(def_id, None)
        for def_id, token in state.tokens.items():
            if before.tokens.get(def_id) is not token:
                self._by_hash[bytes.fromhex(token.hashed)] = self._by_id[def_id] = token
                if not token.user and token.is_isolated:
                    self._isolated.setdefault(token.tenant, set()).add(token.subject)
        self.is_shared_superseded |= state.is_shared_superseded
        tables: tuple[tuple[dict[str, dict[str, Any]], Mapping[str, Any], Mapping[str, Any]], ...] = (
            (self._users, before.users, state.users),
            (self._quotas, before.quotas, state.quotas),
            (self._credentials, before.credentials, state.credentials),
        )
        for table, old, new in tables:
            _replace_entries(table, state.tenant, old, new)
        if state.credentials is not before.credentials and _versions(state) != _versions(before):
            changed, offsets = self._replicas.position(aggregate), self._credential_offsets.setdefault(state.tenant, {})
            position = Position.parse(changed)
            offsets[position.partition] = max(position.offset, offsets.get(position.partition, 0))


def caller_of(token: Token) -> Caller:
    """Return the caller that a token is."""
    scopes = frozenset(token.scopes)
    return Caller(name=token.name, tenant=token.tenant, subject=token.subject, scopes=scopes, token_id=token.def_id)


def _versions(state: Identity) -> dict[str, int]:
    """Return the versions of credentials: a note of their use decides nothing about runs."""
    return {key: one.version for key, one in state.credentials.items()}


def _replace_entries(
    table: dict[str, dict[str, Any]], tenant: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    if old is new:
        return
    entries = table.setdefault(tenant, {})
    for key in old.keys() - new.keys():
        del entries[key]
    entries.update(new)
