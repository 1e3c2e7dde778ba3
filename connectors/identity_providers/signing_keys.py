"""The keys with which a provider signs, as a cache that survives the provider.

A token names its key. One that is unknown may be new, so it is a reason to read the provider's keys again, at most once
a minute: tokens are made up freely. What is known stays known while the provider does not answer. Keys that a provider
withdraws are gone at the next reading, which KEEP_S and use bring about; `generation` then changes, so that nothing
that was derived from them is used further.

Before: providers.py. After: documents.py, joserfc.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.identity_providers.documents import Document, Fetch, discover, endpoint_of

log = logging.getLogger(__name__)

REFETCH_S = 60.0
"""Seconds between two readings because of unknown keys, whatever tokens arrive."""
FIRST_RETRY_S = 5.0
"""Seconds between two attempts as long as no key is known at all, so that a start does not take a minute longer."""
KEEP_S = 600.0
"""Seconds after which a use of the keys has them read again, in the background."""
KEYS_MAX = 100
"""Keys of a provider; two to ten are usual."""
RSA_BITS_MIN = 2_048
"""RFC 7518 3.3."""
KEY_TYPES: Mapping[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {
    "RS256": RSAKey,
    "ES256": ECKey,
    "EdDSA": OKPKey,
}
"""The kind of key that each algorithm takes: a token cannot choose another one, nor a shared secret."""


class SigningKeys:
    """Keys of one provider. `clock` counts seconds and never jumps."""

    def __init__(self, name: str, block: IssuerBlock, fetch: Fetch, *, clock: Callable[[], float]) -> None:
        self.generation = 0
        """Changes whenever a key was added or withdrawn."""
        self._name = name
        self._block = block
        self._fetch = fetch
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._fetched_at: float | None = None
        self._next_attempt_at = clock()
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def are_known(self) -> bool:
        """Whether they were ever read."""
        return self._fetched_at is not None

    @property
    def retry_after_s(self) -> int:
        """Seconds until the provider is asked again."""
        return max(1, round(self._next_attempt_at - self._clock()))

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Return the key of a token; without an id, the only one of the algorithm's type."""
        keys = [key for key in self._keys if isinstance(key, KEY_TYPES[algorithm])]
        if key_id is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.kid == key_id), None)

    async def prepare(self, key_id: str | None, algorithm: str) -> None:
        """Read the keys again if the one of a token is not known, and it is time."""
        if self.find(key_id, algorithm) is not None:
            self._renew_in_background()
            return
        if self._clock() < self._next_attempt_at and not self._lock.locked():
            return
        async with self._lock:
            if self._clock() >= self._next_attempt_at:
                await self._read()

    async def close(self) -> None:
        """End what is being read."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})

    def _renew_in_background(self) -> None:
        is_busy = self._renewal is not None and not self._renewal.done()
        is_due = self._fetched_at is not None and self._clock() - self._fetched_at >= KEEP_S
        if is_due and not is_busy and self._clock() >= self._next_attempt_at:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        async with self._lock:
            await self._read()

    async def _read(self) -> None:
        """Read the keys; what is known stays if that fails."""
        self._next_attempt_at = self._clock() + (REFETCH_S if self.are_known else FIRST_RETRY_S)
        try:
            url = self._block.jwks_url or endpoint_of(await discover(self._fetch, self._block.issuer), "jwks_uri")
            keys = read_keys(await self._fetch(url))
        except ConnectorError as error:
            log.warning("the keys of issuers.%s could not be read: %s", self._name, error)
            return
        self._fetched_at = self._clock()
        self._next_attempt_at = self._fetched_at + REFETCH_S
        if [key.as_dict() for key in keys] != [key.as_dict() for key in self._keys]:
            self._keys = keys
            self.generation += 1
            log.info("issuers.%s has %d signing keys", self._name, len(keys))


def read_keys(document: Document) -> tuple[Key, ...]:
    """Return the keys of a JWK set that can verify a signature; others are left out. Raises Permanent."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise Permanent("the document of keys has no list `keys`", kind="invalid")
    if len(entries) > KEYS_MAX:
        raise Permanent(f"the document of keys has {len(entries)} of them, at most {KEYS_MAX} are read", kind="invalid")
    return tuple(key for key in map(_read_key, entries) if key is not None)


def _read_key(entry: Any) -> Key | None:
    """Return a public key; None for one of another purpose or form."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kind = next((kind for kind in KEY_TYPES.values() if kind.key_type == entry.get("kty")), None)
    if kind is None:
        return None
    try:
        key = kind.import_key({name: value for name, value in entry.items() if name not in PRIVATE_PARTS})
        if isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS_MIN:
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key


PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
"""Parts of a private key, which no provider publishes on purpose."""
