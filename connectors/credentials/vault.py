"""A secret of HashiCorp Vault's key-value engine, version 2: the newest version of a path.

The token is that of the installation; a file, which Vault's agent keeps new, is read for each request.

Before: outside_stores.py. After: json_requests.py.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from loomlog.connectors.configuration.credential_block import CredentialStoreBlock
from loomlog.connectors.credentials.json_requests import JsonRequests, refusal
from loomlog.connectors.errors import Permanent

OK = 200
MEANINGS = {
    403: "Vault refuses it: the token of the installation may not read the path",
    404: "Vault has no such secret",
}


async def read_vault(requests: JsonRequests, block: CredentialStoreBlock, token: str, path: str) -> Mapping[str, Any]:
    """Return the fields of a secret. Raises Permanent and Transient."""
    headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
    if block.namespace:
        headers["X-Vault-Namespace"] = block.namespace
    url = f"{block.url.rstrip('/')}/v1/{quote(block.mount.strip('/'))}/data/{quote(path)}"
    answer = await requests.send("GET", url, headers=headers)
    if answer.status == OK:
        outer = answer.fields.get("data")
        fields = outer.get("data") if isinstance(outer, dict) else None
        if isinstance(fields, dict):
            return fields
        raise Permanent("the answer is not that of a key-value engine, version 2", kind="invalid")
    raise refusal(MEANINGS.get(answer.status, "Vault did not give it"), answer.status)
