"""Receipts of erasures: what was erased, signed, so that it can be shown when the rows are gone.

The key is derived from LOOMLOG_SECRET_KEY, so every api of an installation signs with the same one. It is not the
auditor's, which no api has.

Before: erasure_json.py. After: connectors/crypto/signatures.py.
"""

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.crypto.signatures import derived_signing_key
from loomlog.services.application.answers.erasure import ErasureReceipt

PURPOSE = "erasure receipts"
SIGNATURE = "signature"


class ErasureReceipts:
    """Signs receipts. `secret` None: they have no signature."""

    def __init__(self, secret: SecretKey | None) -> None:
        self._key = None if secret is None else derived_signing_key(secret, PURPOSE)

    def receipt(self, **fields: Any) -> ErasureReceipt:
        """Return a receipt with these fields."""
        public_key = "" if self._key is None else base64.b64encode(self._key.public.raw).decode()
        signed = {**fields, "public_key": public_key}
        signature = "" if self._key is None else base64.b64encode(self._key.sign(signed_bytes(signed))).decode()
        receipt: ErasureReceipt = {**signed, SIGNATURE: signature}  # type: ignore[typeddict-item]  # erasure_json.py has all fields
        return receipt


def signed_bytes(receipt: Mapping[str, Any]) -> bytes:
    """Return what the signature of a receipt is of."""
    return orjson.dumps({name: receipt[name] for name in receipt if name != SIGNATURE}, option=orjson.OPT_SORT_KEYS)
