"""The stores of a process by the names that references have: who may read what, and values that were read lately.

    env:GITHUB_TOKEN            a variable that the block `secrets` gives the tenant with the use `credential`
    vault:team/github#token     a path in the store `vault` of the block `credential_stores`, and a field of it

A value is used for the seconds that the store's block says; then it is read again, once for all that wait for it. A
store that is away is an error and not yesterday's value: it may have been taken back meanwhile.

Before: services/families/identity/credentials.py. After: secret_files.py, vault.py, aws_secrets.py.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from loomlog.connectors.configuration.credential_block import (
    AWS,
    ENVIRONMENT,
    FILE,
    TENANT_PLACEHOLDER,
    CredentialStoreBlock,
)
from loomlog.connectors.configuration.secret_block import ALL_TENANTS
from loomlog.connectors.configuration.secret_registry import NO_SECRETS, Purpose, SecretRefused, SecretRegistry
from loomlog.connectors.credentials.aws_secrets import endpoint, read_aws
from loomlog.connectors.credentials.aws_signature import AwsKeys
from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.credentials.secret_files import FILE_BYTES_MAX, read_secret_file
from loomlog.connectors.credentials.vault import read_vault
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.single_flight import SingleFlight

_PART = "[A-Za-z0-9_.@+=-]+"
LOCATOR = re.compile(rf"(?P<path>{_PART}(?:/{_PART})*)(?:#(?P<field>[A-Za-z0-9_.-]{{1,128}}))?\Z", re.ASCII)
LOCATOR_CHARACTERS_MAX = 512
VALUE_BYTES_MAX = FILE_BYTES_MAX
CACHED_MAX = 10_000
"""Values that are kept; the oldest are dropped and read again."""
VALUE_FIELD = "value"
"""Field of a secret with several that is meant where a reference names none."""
Place = tuple[str, str, str]
"""Tenant, backend and locator."""


class OutsideStores:
    """The stores. `now_s` counts seconds and never jumps."""

    def __init__(
        self,
        blocks: Mapping[str, CredentialStoreBlock] | None = None,
        secrets: SecretRegistry = NO_SECRETS,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._blocks = blocks or {}
        self._secrets = secrets
        self._now_s = now_s
        hosts = (urlsplit(endpoint(one) if one.type == AWS else one.url).hostname for one in self._blocks.values())
        # The operator's file names the hosts, so their addresses may be private.
        self._requests = JsonRequests(private_hosts=[host for host in hosts if host])
        self._cache: OrderedDict[Place, tuple[float, str]] = OrderedDict()
        self._reading: SingleFlight[Place, str] = SingleFlight()

    def require(self, tenant: str, backend: str, locator: str) -> None:
        """Raise Permanent with what is wrong with a reference, whether there is a value or not."""
        if backend == ENVIRONMENT:
            try:
                self._secrets.require(locator, Purpose.CREDENTIAL, tenant=tenant)
            except SecretRefused as error:
                raise Permanent(str(error), kind="forbidden") from error
            return
        block = self._blocks.get(backend)
        if block is None or not block.serves(tenant):
            known = [ENVIRONMENT, *sorted(name for name, one in self._blocks.items() if one.serves(tenant))]
            text = (
                f"there is no store {backend[:64]!r} for the tenant {tenant[:64]}: expected one of {', '.join(known)}"
            )
            raise Permanent(text, kind="not_found")
        _parse(locator)

    async def read(self, tenant: str, backend: str, locator: str) -> str:
        """Return the value of a reference. Raises Permanent and Transient, which name the reference."""
        place = (tenant, backend, locator)
        known = self._cache.get(place)
        if known is not None and self._now_s() < known[0]:
            return known[1]
        return await self._reading.do(place, lambda: self._read(place))

    async def _read(self, place: Place) -> str:
        tenant, backend, locator = place
        self._cache.pop(place, None)
        try:
            self.require(tenant, backend, locator)
            value = await self._read_store(tenant, backend, locator)
            if not value or len(value.encode("utf-8", "surrogatepass")) > VALUE_BYTES_MAX:
                raise Permanent(f"expected a text of 1 to {VALUE_BYTES_MAX} bytes", kind="invalid")
        except ConnectorError as error:
            error.args = (f"{backend}:{locator}: {error}",)
            raise
        if backend != ENVIRONMENT:
            self._cache[place] = (self._now_s() + self._blocks[backend].cache_seconds, value)
            if len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)
        return value

    async def _read_store(self, tenant: str, backend: str, locator: str) -> str:
        if backend == ENVIRONMENT:
            try:
                return self._secrets.resolve(locator, Purpose.CREDENTIAL, tenant=tenant)
            except SecretRefused as error:
                raise Permanent(str(error), kind="not_found") from error
        block = self._blocks[backend]
        path, field = _parse(locator)
        prefix = block.prefix.replace(TENANT_PLACEHOLDER, tenant)
        if block.type == FILE:
            return _field_of_text(await read_secret_file(block.directory, prefix, path), field)
        # A prefix ends with a whole part: the secrets of `acme` do not begin those of `acme-two`.
        path = "/".join(filter(None, (prefix.rstrip("/"), path)))
        if block.type == AWS:
            return _field_of_text(await read_aws(self._requests, block, self._aws_keys(block), path), field)
        return _field_of(await read_vault(self._requests, block, await self._vault_token(block), path), field)

    async def _vault_token(self, block: CredentialStoreBlock) -> str:
        if not block.token_file:
            return self._variable(block.token_env)
        folder, _, name = block.token_file.rpartition("/")
        return (await read_secret_file(folder or "/", "", name)).strip()

    def _aws_keys(self, block: CredentialStoreBlock) -> AwsKeys:
        return AwsKeys(
            access_key_id=self._variable(block.access_key_id_env),
            secret_access_key=self._variable(block.secret_access_key_env),
            session_token=self._variable(block.session_token_env, is_needed=False),
        )

    def _variable(self, name: str, *, is_needed: bool = True) -> str:
        try:
            return self._secrets.resolve(name, Purpose.CREDENTIAL_STORE, tenant=ALL_TENANTS).strip()
        except SecretRefused as error:
            if is_needed:
                raise Permanent(str(error), kind="unauthorised") from error
            return ""


NO_STORES = OutsideStores()


def _parse(locator: str) -> tuple[str, str]:
    """Return path and field of a locator. Raises Permanent."""
    match = LOCATOR.match(locator) if len(locator) <= LOCATOR_CHARACTERS_MAX else None
    if match is None or not {".", ".."}.isdisjoint(match["path"].split("/")):
        text = "expected path/to/secret or path/to/secret#field, of letters, digits, _ . @ + = and -"
        raise Permanent(text, kind="invalid")
    return match["path"], match["field"] or ""


def _field_of_text(text: str, field: str) -> str:
    """Return a text, or a field of the JSON object that it is. Raises Permanent."""
    if not field:
        return text
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Permanent("the secret has no fields: it is not a JSON object", kind="invalid") from error
    return _field_of(fields if isinstance(fields, dict) else {}, field)


def _field_of(fields: Mapping[str, Any], field: str) -> str:
    """Return a field: the one that is named, the only one, or VALUE_FIELD. Raises Permanent."""
    if not field:
        field = next(iter(fields)) if len(fields) == 1 else VALUE_FIELD
    value = fields.get(field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise Permanent(f"the secret has no text in the field {field[:128]}; name one with #field", kind="not_found")
    return value
