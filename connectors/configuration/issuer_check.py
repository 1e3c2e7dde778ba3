"""Checks of the block `issuers`: what its keys mean together, and with the environment.

Before: issuer_block.py. After: check.py.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.configuration.tree import KeyPath


def iter_issuer_errors(issuers: Mapping[str, IssuerBlock]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake."""
    holders: dict[str, str] = {}
    for name, block in issuers.items():
        path: KeyPath = ("issuers", name)
        for key, url in (("issuer", block.issuer), ("jwks_url", block.jwks_url)):
            if url and not is_confidential_url(url):
                yield (*path, key), "expected https://; http:// is for addresses of this machine alone"
        if block.issuer in holders:
            yield (*path, "issuer"), f"{block.issuer} is the provider of {holders[block.issuer]} already; name it once"
        holders.setdefault(block.issuer, name)
        if (block.tenant is None) == (not block.tenant_claim):
            yield path, "expected either tenant, for everybody, or tenant_claim, and not both"
        if block.tenants and not block.tenant_claim:
            yield (*path, "tenants"), "these are the values of tenant_claim, which is not set"
        if not block.groups and block.default_access is None and not block.scopes_claim:
            yield path, "nothing says what its people may do: set groups, default_access or scopes_claim"
        if block.client_secret_env and not block.client_id:
            yield (*path, "client_secret_env"), "there is no client_id, whose secret it would be"


def iter_issuer_warnings(issuers: Mapping[str, IssuerBlock]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of what is probably a mistake: two providers that may name one person."""
    seen: list[tuple[str, IssuerBlock]] = []
    for name, block in issuers.items():
        for other, earlier in seen:
            if _tenants(block) & _tenants(earlier) or not (_tenants(block) and _tenants(earlier)):
                yield (
                    ("issuers", name),
                    f"its tenant may be one of {other}'s: who has the same subject at both is one person here",
                )
        seen.append((name, block))


def read_client_secrets(
    issuers: Mapping[str, IssuerBlock], environ: Mapping[str, str], *, has_key: bool
) -> Mapping[str, str]:
    """Return the secrets of the page's clients by the name of the provider. Raises ConfigurationError for a variable
    that is not set, and without the installation's key, which seals sign-ins.
    """
    problems: list[ConfigurationFinding] = []
    secrets: dict[str, str] = {}
    for name, block in issuers.items():
        if block.client_id and not has_key:
            message = f"issuers.{name}: sign-in to the page needs LOOMLOG_SECRET_KEY, which seals its cookies"
            problems.append(ConfigurationFinding(message=message))
        if variable := block.client_secret_env:
            secrets[name] = environ.get(variable, "").strip()
            if not secrets[name]:
                message = f"issuers.{name}: its client secret should be in {variable}, which is not set or empty"
                problems.append(ConfigurationFinding(message=message))
    if problems:
        raise ConfigurationError(problems)
    return secrets


def is_confidential_url(url: str) -> bool:
    """Return whether what is read from an address cannot be changed on the way: by https, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tenants(block: IssuerBlock) -> frozenset[str]:
    """Return the tenants that a provider may name; empty = any."""
    return frozenset((block.tenant,)) if block.tenant is not None else frozenset(block.tenants)
