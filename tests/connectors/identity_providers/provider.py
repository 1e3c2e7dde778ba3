"""An identity provider: its keys, which it may rotate, the tokens it signs, and the documents it publishes."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.errors import Transient
from loomlog.connectors.identity_providers.documents import DISCOVERY_PATH
from loomlog.connectors.identity_providers.providers import IdentityProviders
from loomlog.connectors.identity_providers.tokens import REGISTRY

ISSUER, AUDIENCE = "https://login.example.com", "loomlog"
KEYS: dict[str, list[Key]] = {
    "RS256": [RSAKey.generate_key(2048, private=True) for _ in range(2)],
    "ES256": [ECKey.generate_key("P-256", private=True) for _ in range(2)],
    "EdDSA": [OKPKey.generate_key("Ed25519", private=True) for _ in range(2)],
}
"""Two keys of each kind, made once: RSA takes a while."""


@dataclass(slots=True)
class Clock:
    """Seconds that a test moves."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


@dataclass(slots=True)
class Provider:
    """The fake provider. `reads` counts how often its keys were read."""

    issuer: str = ISSUER
    keys: dict[str, Key] = field(default_factory=lambda: {"one": KEYS["RS256"][0]})
    is_away: bool = False
    reads: int = 0
    documents: dict[str, Any] = field(default_factory=dict)

    async def fetch(self, url: str) -> Mapping[str, Any]:
        if self.is_away:
            raise Transient(f"{url} does not answer", kind="network")
        if url == self.issuer + DISCOVERY_PATH:
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **self.documents}
        assert url == f"{self.issuer}/keys"
        self.reads += 1
        return self.key_set()

    def key_set(self) -> dict[str, Any]:
        return {"keys": [{**key.as_dict(private=False), "kid": name, "use": "sig"} for name, key in self.keys.items()]}

    def rotate(self, algorithm: str = "RS256") -> None:
        """Replace the key by another one, under another id."""
        self.keys = {"two": KEYS[algorithm][1]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        given = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, **changes}
        return {name: value for name, value in given.items() if value is not None}

    def token(
        self, key_id: str = "", algorithm: str = "RS256", header: Mapping[str, Any] | None = None, **changes: Any
    ) -> str:
        """Return a signed token; a claim that is None is left out."""
        return self.sign(self.claims(**changes), key_id, algorithm, header)

    def sign(
        self, claims: Any, key_id: str = "", algorithm: str = "RS256", header: Mapping[str, Any] | None = None
    ) -> str:
        name = key_id or next(iter(self.keys))
        protected = {"alg": algorithm, "kid": name, "typ": "JWT", **(header or {})}
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        return jws.serialize_compact(protected, payload, self.keys[name], registry=REGISTRY)


def block(**changes: Any) -> IssuerBlock:
    """Return the block of the provider."""
    given = {"issuer": ISSUER, "audience": (AUDIENCE,), "tenant": "acme", "default_access": "tenant", **changes}
    return IssuerBlock(**given)


def providers_of(provider: Provider, clock: Clock | None = None, **changes: Any) -> IdentityProviders:
    """Return the providers with this one alone, called `company`."""
    return IdentityProviders({"company": block(**changes)}, provider.fetch, clock=clock or Clock())
