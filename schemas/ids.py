"""Ids, and how a partition key is derived from them.

Every id of a run family is `<letter>_<token>` or `<letter>_<token>-<suffix>`: r_ a run, s_ a session, a_ a handle. The
token is the partition key: all runs of a session, and every child of a run, share it, so they share a partition and
finding a run's partition needs no look-up. The first run of a session has the bare token.

A fresh token is 48 bits of milliseconds and 80 random bits in base32 (sortable by time, 26 characters). A token made
from an idempotency key or a chosen handle is a hash, so that two equal requests reach one partition, where one owner
decides both.
"""

import hashlib
import re
import secrets

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base32 in lower case: no i, l, o, u."""
TOKEN_CHARACTERS = 26
RANDOM_BYTES = 10
ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
"""Format of an id chosen by a caller (runtime parity: 1 to 128 of letters, digits, dash, underscore)."""


def base32(value: int) -> str:
    """Return a 128-bit number as 26 characters."""
    return "".join(ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def fresh_token(at_ms: int, random_bytes: bytes = b"") -> str:
    """Return a token made from the time in milliseconds and at least 10 random bytes; without them it draws some."""
    drawn = random_bytes or secrets.token_bytes(RANDOM_BYTES)
    return base32((at_ms & (1 << 48) - 1) << 80 | int.from_bytes(drawn[:RANDOM_BYTES], "big"))


def hashed_token(*parts: str) -> str:
    """Return the token of a chosen name; parts are length-prefixed, so that no two lists collide."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return base32(int.from_bytes(digest.digest()[:16], "big"))


BODY_MARK = re.compile(r"-body-[0-9a-hjkmnp-tv-z]{26}")
"""What the id of a command has at its end, or within an id made from it, when its request had an Idempotency-Key."""


def with_body(identity: str, body_digest: str) -> str:
    """Return the id of the command of a keyed request, from what is the same for every body and the digest of this
    one.
    """
    return f"{identity}-body-{hashed_token('body', body_digest)}"


def command_identity(command_id: str) -> str:
    """Return what two commands of one Idempotency-Key have in common, whatever their bodies."""
    return BODY_MARK.sub("", command_id)


def partition_key(any_id: str) -> str:
    """Return the partition key of a run, session or generated handle; any other text is returned unchanged."""
    if len(any_id) > 2 and any_id[1] == "_" and any_id[0] in "rsa":
        return any_id[2:].partition("-")[0]
    return any_id


def event_id(aggregate: str, seq: int) -> str:
    """Return the deterministic id of an event (CloudEvents ce_id): a UUID version 5 over aggregate and seq."""
    hashed = _NAMESPACE_HASH.copy()
    hashed.update(f"{aggregate}:{seq}".encode())
    text = hashed.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


EVENT_NAMESPACE = bytes.fromhex("6ba7b8119dad11d180b400c04fd430c8")
"""The URL namespace of RFC 9562; any well-known namespace would do."""
_NAMESPACE_HASH = hashlib.sha1(EVENT_NAMESPACE, usedforsecurity=False)
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def child_run_id(parent: str, turn: int, index: int, number: int) -> str:
    """Return the run id of child `number` of a call of `parent`: deterministic, in the partition of its parent."""
    return f"r_{partition_key(parent)}-{hashed_token('child', parent, str(turn), str(index), str(number))}"
