"""Claims to a principal: the tenant, the subject and the scopes, as the block of the provider has it.

Before: tokens.py. After: connectors/configuration/principals.py has what a principal is.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from loomlog.connectors.configuration.field_types import SUBJECT_PATTERN, TENANT_PATTERN
from loomlog.connectors.configuration.issuer_block import AccessMode, IssuerBlock
from loomlog.connectors.configuration.principals import ADMIN, SCOPES, TENANT, USER, Principal
from loomlog.connectors.identity_providers.tokens import Claims, TokenRefused

EMAIL = "email"
SUBJECT_LENGTH_MAX = 1_000
"""Characters of a subject claim before it is shortened; OpenID Connect allows 255."""
SCOPES_OF_ACCESS: Mapping[AccessMode, frozenset[str]] = {
    "administrator": frozenset({ADMIN}),
    "operator": frozenset({TENANT}),
    "tenant": frozenset({"runs:create", "runs:read", "channel:publish", "channel:read"}),
    "isolated": frozenset({USER}),
}
"""Scopes of each access, the highest first (reference surfaces 1.8)."""
ENCODED = re.compile(r".+\.[0-9a-f]{16}", re.ASCII)
"""A subject that was encoded, or looks like one."""


def principal_of(name: str, block: IssuerBlock, claims: Claims, *, expires_at_s: int) -> Principal:
    """Return the principal that checked claims name. Raises TokenRefused without a subject, a tenant or a scope."""
    subject = _subject(block, claims)
    return Principal(
        name=f"{name}/{subject}",
        tenant=_tenant(block, claims),
        subject=subject,
        scopes=_scopes(block, claims),
        expires_at_s=expires_at_s,
    )


def relevant_claims(block: IssuerBlock, claims: Claims) -> dict[str, Any]:
    """Return the claims from which the same principal follows, and no others, under the keys of the block."""
    kept = {
        block.tenant_claim: find_claim(claims, block.tenant_claim),
        block.subject_claim: find_claim(claims, block.subject_claim),
        block.scopes_claim: [scope for scope in _words(claims, block.scopes_claim) if scope in SCOPES],
        block.groups_claim: [group for group in _words(claims, block.groups_claim) if group in block.groups],
        "email_verified": claims.get("email_verified"),
    }
    return {key: value for key, value in kept.items() if key and value is not None}


def find_claim(claims: Claims, path: str) -> Any:
    """Return a claim by its key, or by a path with dots into nested ones; None when there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def encode_subject(text: str) -> str:
    """Return a subject with the characters that are allowed, different for different texts.

    Some providers have others in it, such as `auth0|5f7c`: they are replaced, and a part of the text's hash is added.
    """
    if SUBJECT_PATTERN.fullmatch(text) and not ENCODED.fullmatch(text):
        return text
    readable = re.sub(r"[^A-Za-z0-9_.@-]", "_", text, flags=re.ASCII)[:100]
    return f"{readable}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _tenant(block: IssuerBlock, claims: Claims) -> str:
    if block.tenant is not None:
        return block.tenant
    tenant = find_claim(claims, block.tenant_claim)
    if not isinstance(tenant, str) or not TENANT_PATTERN.fullmatch(tenant):
        raise TokenRefused(f"its claim {block.tenant_claim} is not the name of a tenant")
    if block.tenants and tenant not in block.tenants:
        raise TokenRefused("its tenant is not one of `tenants`")
    return tenant


def _subject(block: IssuerBlock, claims: Claims) -> str:
    subject = find_claim(claims, block.subject_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LENGTH_MAX:
        raise TokenRefused(f"its claim {block.subject_claim} is not a text of at most {SUBJECT_LENGTH_MAX} characters")
    # At some providers people enter any address themselves.
    if block.subject_claim == EMAIL and claims.get("email_verified") is not True:
        raise TokenRefused("its email is not verified")
    return encode_subject(subject)


def _scopes(block: IssuerBlock, claims: Claims) -> frozenset[str]:
    scopes = {scope for scope in _words(claims, block.scopes_claim) if scope in SCOPES} - {ADMIN}
    held = {block.groups[group] for group in _words(claims, block.groups_claim) if group in block.groups}
    access = next((mode for mode in SCOPES_OF_ACCESS if mode in held), block.default_access)
    if access is not None:
        scopes |= SCOPES_OF_ACCESS[access]
    if not scopes:
        raise TokenRefused("nothing gives it a scope: it is in none of `groups`, and there is no `default_access`")
    return frozenset(scopes)


def _words(claims: Claims, path: str) -> Iterator[str]:
    """Yield the texts of a claim that is a list, or a text with spaces between."""
    value = find_claim(claims, path) if path else None
    words = value.split() if isinstance(value, str) else value
    yield from (word for word in words if isinstance(word, str)) if isinstance(words, list) else ()
