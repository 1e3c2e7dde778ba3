"""Principals and the table of their tokens.

The table holds only SHA-256 hashes. A presented token is hashed and compared with every row in constant time, without
leaving early, so neither time nor memory reveals anything about a token. Sources in this version: the shared token
(LOOMLOG_AUTH_TOKEN: an administrator of tenant `default`) and the `principals` block, whose tokens are in the
environment.

Fails closed: no token at all is an error unless LOOMLOG_OPEN_MODE=1 confirms it, and then only on a loopback address.
The reference switched to open mode whenever it found no shared token, even with declared principals.

Before: settings.py, model.py. After: services/application/authentication.py, for every request.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from loomlog.connectors.configuration.field_types import Scope
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings

SCOPES: frozenset[str] = frozenset(get_args(Scope))
ADMIN, TENANT, USER = "substrate:admin", "substrate:tenant", "substrate:user"
IMPLIED_SCOPES: Mapping[str, frozenset[str]] = {
    ADMIN: SCOPES,
    TENANT: SCOPES - {ADMIN, TENANT, USER},
    USER: frozenset({"runs:create", "runs:read"}),
    **dict.fromkeys(SCOPES - {ADMIN, TENANT, USER, "tenant:read"}, frozenset({"tenant:read"})),
}
"""Scopes that a scope includes in addition to itself."""
DEFAULT_TENANT = "default"
DEFAULT_SUBJECT = "default"
SUFFIX_LENGTH = 6
"""Characters of a token that logs may show, so that people can tell tokens apart."""
SUFFIX_MIN_TOKEN_LENGTH = 24
"""Characters of a token below which no suffix is shown: it would be a real part of the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Authenticated caller. `legacy` marks the shared token, whose requests may name a user_id of their own."""

    name: str
    tenant: str
    subject: str
    scopes: frozenset[str]
    legacy: bool = False
    token_suffix: str = ""
    expires_at_s: int | None = None
    """Unix time in seconds from which its token counts no more; None: it does not expire."""

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.scopes

    @property
    def is_isolated(self) -> bool:
        """Return whether it is confined to its own subject."""
        return USER in self.scopes and not self.scopes & {ADMIN, TENANT}

    @property
    def is_member(self) -> bool:
        """Return whether it is neither an operator nor isolated: narrower scopes, for the whole tenant."""
        return not self.scopes & {ADMIN, TENANT, USER}

    def allows(self, scope: str) -> bool:
        """Return whether its scopes, with those they include, cover `scope`. An unknown scope is a caller's bug."""
        assert scope in SCOPES, scope
        return scope in self.scopes or any(scope in IMPLIED_SCOPES.get(held, ()) for held in self.scopes)


OPEN_PRINCIPAL = Principal(
    name="open", tenant=DEFAULT_TENANT, subject=DEFAULT_SUBJECT, scopes=frozenset({ADMIN}), legacy=True
)
"""Principal of every request in open mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """Hashes and their principals. In open mode it is empty and every request has OPEN_PRINCIPAL."""

    rows: tuple[tuple[bytes, Principal], ...] = field(repr=False)
    open_mode: bool = False


def build_token_table(configuration: Configuration, settings: Settings, environ: Mapping[str, str]) -> TokenTable:
    """Return the table. Raises ConfigurationError for an empty or duplicate token, naming variables
    and never values.
    """
    problems: list[ConfigurationFinding] = []
    rows: list[tuple[bytes, Principal]] = []
    owner_of: dict[bytes, str] = {}
    if settings.auth_token:
        hashed = _hash_token(settings.auth_token)
        owner_of[hashed] = "LOOMLOG_AUTH_TOKEN"
        rows.append((hashed, _shared_principal(settings.auth_token)))
    for name, block in configuration.principals.items():
        token = environ.get(block.token_env, "").strip()
        hashed = _hash_token(token)
        if not token:
            message = f"principals.{name}: its token should be in {block.token_env}, which is not set or empty"
            problems.append(ConfigurationFinding(message=message))
        elif hashed in owner_of:
            message = f"{block.token_env} holds the same token as {owner_of[hashed]}; each principal needs its own"
            problems.append(ConfigurationFinding(message=f"principals.{name}: {message}"))
        else:
            owner_of[hashed] = block.token_env
            principal = Principal(
                name=name,
                tenant=block.tenant,
                subject=block.subject,
                scopes=frozenset(block.scopes),
                token_suffix=_token_suffix(token),
            )
            rows.append((hashed, principal))
    is_open = not rows and not configuration.issuers
    if is_open and not problems:
        problems += _check_open_mode(settings)
    if problems:
        raise ConfigurationError(problems)
    return TokenTable(rows=tuple(rows), open_mode=is_open)


def isolated_subjects(configuration: Configuration) -> frozenset[tuple[str, str]]:
    """Return tenant and subject of the principals that are confined to their own subject."""
    blocks = configuration.principals.values()
    return frozenset(
        (one.tenant, one.subject) for one in blocks if USER in one.scopes and not {ADMIN, TENANT} & set(one.scopes)
    )


def bearer_token(authorization: str | None) -> str:
    """Return the token of an Authorization header (`Bearer <token>`, the scheme in any case); empty without one."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() if scheme.casefold() == "bearer" else ""


def find_principal(table: TokenTable, token: str) -> Principal | None:
    """Return the principal of a bare token. Always compares with every row."""
    hashed = _hash_token(token)
    matched: Principal | None = None
    for known, principal in table.rows:
        if hmac.compare_digest(known, hashed):
            matched = principal
    return matched


def is_loopback_listen_addr(listen_addr: str) -> bool:
    """Return whether only this machine can reach the address. A name other than localhost may resolve to anything:
    False.
    """
    host = listen_addr.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shared_principal(token: str) -> Principal:
    return Principal(
        name="shared",
        tenant=DEFAULT_TENANT,
        subject=DEFAULT_SUBJECT,
        scopes=frozenset({ADMIN}),
        legacy=True,
        token_suffix=_token_suffix(token),
    )


def _check_open_mode(settings: Settings) -> list[ConfigurationFinding]:
    if not settings.open_mode:
        message = (
            "there is no token, so every request would be refused: set LOOMLOG_AUTH_TOKEN, or declare `principals` or "
            "`issuers`, or set LOOMLOG_OPEN_MODE=1 to serve everybody on this machine"
        )
        return [ConfigurationFinding(message=message)]
    public = [address for address in settings.listen_addrs if not is_loopback_listen_addr(address)]
    if public:
        message = (
            f"LOOMLOG_OPEN_MODE=1 would let everybody in through {public[0]}, which is no loopback address; "
            "set LOOMLOG_AUTH_TOKEN, or listen on 127.0.0.1"
        )
        return [ConfigurationFinding(message=message)]
    return []


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _token_suffix(token: str) -> str:
    return token[-SUFFIX_LENGTH:] if len(token) >= SUFFIX_MIN_TOKEN_LENGTH else ""
