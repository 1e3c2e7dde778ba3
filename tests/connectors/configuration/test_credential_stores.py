"""The block `credential_stores`: what its keys mean together."""

from typing import Any

import pytest

from loomlog.connectors.configuration.credential_block import CredentialStoreBlock, iter_store_errors

VAULT: dict[str, Any] = {"type": "vault", "url": "https://vault.example", "tenants": ("acme",)}


@pytest.mark.parametrize(
    ("name", "block", "path", "error"),
    [
        ("vault", {}, (), ""),
        ("vault", {"tenants": ("*",), "prefix": "apps/{tenant}"}, (), ""),
        ("vault", {"tenants": ("*",)}, ("prefix",), "expected {tenant} in it"),
        ("vault", {"tenants": ("acme", "globex")}, ("prefix",), "tenants could read each other's secrets"),
        ("vault", {"url": ""}, ("url",), "a store of the type vault needs it"),
        ("vault", {"url": "http://vault.example"}, ("url",), "expected https://"),
        ("vault", {"url": "http://127.0.0.1:8200"}, (), ""),
        ("files", {"type": "file"}, ("directory",), "needs it"),
        ("aws", {"type": "aws", "url": ""}, ("region",), "needs it"),
        ("env", {}, (), "choose another one"),
    ],
)
def test_mistakes(name: str, block: dict[str, Any], path: tuple[str, ...], error: str) -> None:
    found = list(iter_store_errors({name: CredentialStoreBlock(**{**VAULT, **block})}))
    if not error:
        assert found == []
        return
    ((where, text),) = found
    assert where == ("credential_stores", name, *path)
    assert error in text
