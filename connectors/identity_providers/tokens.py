"""A JSON Web Token: from its text, which anybody may have written, to claims that were checked.

    read_token     the parts, within bounds; nothing of it is proven yet, it only says which provider and key to ask
    check_token    the signature, then issuer, audience and times

An algorithm belongs to a kind of key (signing_keys.py), so that a token cannot have itself checked with another one.
Addresses and keys in a header (jku, jwk, x5u) are ignored. No message has a part of a token.

Before: providers.py. After: joserfc.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from joserfc import jws
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import Key
from joserfc.jws import CompactSignature, JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from loomlog.connectors.configuration.issuer_block import ALGORITHMS

TOKEN_BYTES_MAX = 16 * 1024
"""Bytes of a token; those of a person in hundreds of groups have some 10 KB, and servers refuse longer headers."""
CLAIMS_MAX = 1_000
"""Claims of a token; ten to fifty are usual."""
LEEWAY_S = 60
"""Seconds by which the clocks of a provider and of this process may differ."""
SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
"""Values of the header `typ`: an access or an ID token (RFC 9068), and nothing else that a provider signs."""
Claims = Mapping[str, Any]


class TokenRefused(Exception):
    """A token is not valid; the text says why, for the log alone, without any part of the token."""


class _Registry(JWSRegistry):
    """The algorithms of the configuration, and no others."""

    max_header_length = 4_096

    def get_alg(self, name: str) -> Any:
        # Not the library's: it warns at each EdDSA, whose name is older than RFC 9864 and what providers send.
        assert name in ALGORITHMS, name
        return self.algorithms[name]


REGISTRY = _Registry(strict_check_header=False)  # unknown headers are ignored, as RFC 7515 4 has it


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedToken:
    """The parts of a token of which nothing is proven."""

    signature: CompactSignature
    algorithm: str
    key_id: str | None
    claims: Claims

    @property
    def issuer(self) -> str:
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else ""


def is_token(text: str) -> bool:
    """Return whether a text has the shape of a signed JWT."""
    return len(text) <= TOKEN_BYTES_MAX and SHAPE.fullmatch(text) is not None


def read_token(text: str) -> UncheckedToken:
    """Return the parts of a token. Raises TokenRefused."""
    if not is_token(text):
        raise TokenRefused("it has not the form of a token, or more than 16 KiB")
    try:
        signature = jws.extract_compact(text.encode(), registry=REGISTRY)
        claims = orjson.loads(signature.payload)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise TokenRefused("it cannot be read") from error
    header = signature.headers()
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise TokenRefused("its algorithm is not accepted")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise TokenRefused("it is a token of another kind")
    if not isinstance(claims, dict) or len(claims) > CLAIMS_MAX:
        raise TokenRefused(f"its claims are not an object of at most {CLAIMS_MAX}")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("its key id is not a text")
    return UncheckedToken(signature=signature, algorithm=algorithm, key_id=key_id, claims=claims)


def check_token(token: UncheckedToken, key: Key, *, issuer: str, audience: Sequence[str], now_s: int) -> None:
    """Check a token with the key that it names. Raises TokenRefused."""
    registry = JWTClaimsRegistry(
        now=now_s,
        leeway=LEEWAY_S,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "values": list(audience)},
        exp={"essential": True},
    )
    try:
        is_signed = jws.validate_compact(token.signature, key, registry=REGISTRY)
    except (JoseError, ValueError, TypeError) as error:
        raise TokenRefused("its signature cannot be checked with the provider's key") from error
    if not is_signed:
        raise TokenRefused("its signature is wrong")
    try:
        registry.validate(dict(token.claims))
    except ExpiredTokenError as error:
        raise TokenRefused("it has expired") from error
    except MissingClaimError as error:
        raise TokenRefused("one of the claims iss, aud and exp is missing") from error
    except InvalidClaimError as error:
        raise TokenRefused(f"its claim {error.claim} is of another value than expected") from error
