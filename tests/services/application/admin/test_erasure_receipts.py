"""Receipts of erasures: signed by a key of the installation, the same in every process."""

import base64
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.services.application.admin.erasure_receipts import ErasureReceipts, signed_bytes

FIELDS: dict[str, Any] = {
    "erasure_id": "e_1", "tenant": "acme", "subject": "ivy", "at": "2026-01-31T12:00:00.000Z", "by": "op",
    "reason": "asked", "complete": True, "deleted": {"keys": 1}, "positions": ["loom.subject.keys/0:1"],
}  # fmt: skip


def test_a_receipt_is_signed_by_the_same_key_in_every_process() -> None:
    receipt, same = [ErasureReceipts(SecretKey(keys=(b"k" * 32,))).receipt(**FIELDS) for _ in range(2)]
    assert receipt == same
    key = PublicKey(Ed25519PublicKey.from_public_bytes(base64.b64decode(receipt["public_key"])))
    signature = base64.b64decode(receipt["signature"])
    assert key.verify(signature, signed_bytes(receipt))
    assert not key.verify(signature, signed_bytes({**receipt, "complete": False}))


def test_a_receipt_without_a_secret_key_says_that_it_is_not_signed() -> None:
    receipt = ErasureReceipts(None).receipt(**FIELDS)
    assert (receipt["public_key"], receipt["signature"], receipt["erasure_id"]) == ("", "", "e_1")
