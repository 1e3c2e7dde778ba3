"""The proof that a request of a webhook carries: a signature of its body, or a token. Pure, and never raises.

    hmac     the header of the definition, else X-Loomcycle-Signature or X-Hub-Signature-256:
                 sha256=<hex>        GitHub and others
                 <hex>               Linear
                 t=<s>,v1=<hex>      Stripe: over "<t>.<body>", several v1 are allowed
             without such a header Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature (`v1,<base64>`)
    bearer   Authorization: Bearer <token>, or the header of the definition as it is
    none     nothing is checked

Each form is checked against every secret (secrets.py gives two during a rotation), in constant time for each.
Times may differ from ours by five minutes.

A proof says what it covered, and the id of a delivery is made of nothing else (`delivery_id`): an observer of one
signed request could otherwise send it again under any number of ids. Standard Webhooks sign webhook-id. Other forms
sign the body alone, whose hash is the id. A definition that names a delivery_id_header takes an id that no hmac covers:
some senders repeat equal bodies for different events, and only their operator knows (docs/SECURITY.md).

Before: receiving.py. After: the delivery is taken, or refused with 401,
and the owner of the webhook is told why (rejections.py).
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from loomlog.connectors.configuration.webhook_block import WebhookAuth
from loomlog.schemas.records import Value

TOLERANCE_S = 300
"""Seconds that the time of a signature may differ from ours (parity: reference surfaces 6.2)."""
DEFAULT_HEADERS = ("x-loomcycle-signature", "x-loomlog-signature", "x-hub-signature-256")
"""Headers that are looked for, in order, when the definition names none or one that is missing."""
STANDARD_ID, STANDARD_TIME, STANDARD_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
STANDARD_SECRET_PREFIX = "whsec_"
SIGNATURES_MAX = 16
"""Signatures of one header that are looked at."""
HEADER_CHARACTERS_MAX = 4_096
TIME_DIGITS_MAX = 15


class Covered(Value, frozen=True, kw_only=True):
    """What a request says about its identity."""

    body: bytes
    id: str = ""
    """The id that was signed with the body; empty in forms that sign none."""


class Proof(Covered, frozen=True, kw_only=True):
    """A checked proof, and what it covered. Only `check_proof` makes one."""


class Unproven(Value, frozen=True):
    """Why a request has no proof: for the owner of the webhook, never for the sender. It quotes nothing secret."""

    reason: str


def check_proof(
    auth: WebhookAuth, headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], *, now_s: int
) -> Proof | Unproven:
    """Return the proof that the definition asks for, or why it is missing. `headers` have names in lower case."""
    proven, problem = Proof(body=body), ""
    match auth.kind:
        case "none":
            pass
        case "bearer":
            problem = _token_problem(auth, headers, secrets)
        case "hmac" if _is_standard(auth, headers):
            proven = Proof(body=body, id=headers[STANDARD_ID].strip())
            problem = _standard_problem(headers, body, secrets, now_s)
        case "hmac":
            problem = _signature_problem(auth, headers, body, secrets, now_s)
    return Unproven(problem) if problem else proven


def delivery_id(auth: WebhookAuth, covered: Covered, headers: Mapping[str, str]) -> str:
    """Return the id of a delivery: the signed one, that of the header of the definition, else a hash of the body."""
    named = headers.get(auth.delivery_id_header.lower(), "").strip() if auth.delivery_id_header else ""
    return covered.id or named or "sha256:" + hashlib.sha256(covered.body).hexdigest()


def _token_problem(auth: WebhookAuth, headers: Mapping[str, str], secrets: Sequence[bytes]) -> str:
    name = auth.header.lower() or "authorization"
    value = headers.get(name, "")
    if not value.strip():
        return f"the header {name} is missing"
    if name == "authorization":
        scheme, _, value = value.partition(" ")
        if scheme.lower() != "bearer":
            return "the header authorization is not of the form: Bearer TOKEN"
    sent = value.strip().encode("utf-8", "replace")
    # Comparing hashes takes the same time whatever the lengths are.
    hashed = hashlib.sha256(sent).digest()
    matches = [hmac.compare_digest(hashed, hashlib.sha256(secret).digest()) for secret in secrets if secret]
    return "" if sent and any(matches) else f"the token in the header {name} differs from the secret"


def _signature_problem(
    auth: WebhookAuth, headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], now_s: int
) -> str:
    name, value = _header(auth, headers)
    value = value.strip()
    if not value:
        return f"the header {name} is missing"
    if len(value) > HEADER_CHARACTERS_MAX:
        return f"the header {name} is longer than {HEADER_CHARACTERS_MAX} characters"
    if value.lower().startswith("sha256="):
        return _digest_problem(name, body, [value[7:]], secrets)
    if "=" in value:
        return _timed_problem(name, value, body, secrets, now_s)
    return _digest_problem(name, body, [value], secrets)


def _is_standard(auth: WebhookAuth, headers: Mapping[str, str]) -> bool:
    """Return whether a request is signed as Standard Webhooks say, and in no form that goes before."""
    has_all = all(headers.get(name) for name in (STANDARD_ID, STANDARD_TIME, STANDARD_SIGNATURE))
    return has_all and not _header(auth, headers)[1]


def _header(auth: WebhookAuth, headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the value of the header with the signature; the value is empty when none has one."""
    names = (auth.header.lower(), *DEFAULT_HEADERS) if auth.header else DEFAULT_HEADERS
    present = (name for name in names if headers.get(name) and name != STANDARD_SIGNATURE)
    return next(((name, headers[name]) for name in present), (names[0], ""))


def _timed_problem(name: str, value: str, body: bytes, secrets: Sequence[bytes], now_s: int) -> str:
    pairs = [part.strip().partition("=") for part in value.split(",", SIGNATURES_MAX)]
    times = [text for part, _, text in pairs if part == "t"]
    signatures = [text for part, _, text in pairs if part == "v1"]
    if len(times) != 1:
        return f"the header {name} is not of the form: t=SECONDS,v1=HEX"
    return _clock_problem(times[0], now_s) or _digest_problem(
        name, times[0].encode() + b"." + body, signatures, secrets
    )


def _standard_problem(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], now_s: int) -> str:
    time, message_id = headers[STANDARD_TIME], headers[STANDARD_ID]
    signatures = headers[STANDARD_SIGNATURE]
    if len(signatures) > HEADER_CHARACTERS_MAX:
        return f"the header {STANDARD_SIGNATURE} is longer than {HEADER_CHARACTERS_MAX} characters"
    if problem := _clock_problem(time, now_s):
        return problem
    signed = f"{message_id}.{time}.".encode("utf-8", "replace") + body
    sent = [text for version, _, text in (one.partition(",") for one in signatures.split()) if version == "v1"]
    decoded = [raw for raw in map(_from_base64, sent[:SIGNATURES_MAX]) if raw is not None]
    if not decoded:
        return f"the header {STANDARD_SIGNATURE} has no signature of the form: v1,BASE64"
    if _matches_any([_digest(_standard_key(secret), signed) for secret in secrets if secret], decoded):
        return ""
    return _differs(STANDARD_SIGNATURE)


def _standard_key(secret: bytes) -> bytes:
    """Return the key of a secret: of `whsec_<base64>` the decoded bytes, of any other the secret itself."""
    prefix = STANDARD_SECRET_PREFIX.encode()
    if secret.startswith(prefix):
        raw = _from_base64(secret[len(prefix) :].decode("ascii", "replace"))
        return secret if raw is None else raw
    return secret


def _clock_problem(text: str, now_s: int) -> str:
    if not (text.isascii() and text.isdecimal() and len(text) <= TIME_DIGITS_MAX):
        return "the time of the signature is no number of seconds"
    away_s = int(text) - now_s
    if abs(away_s) <= TOLERANCE_S:
        return ""
    side = "ahead of" if away_s > 0 else "behind"
    return f"the time of the signature is {abs(away_s)} s {side} our clock; at most {TOLERANCE_S} s are allowed"


def _digest_problem(name: str, signed: bytes, signatures: Sequence[str], secrets: Sequence[bytes]) -> str:
    sent = [raw for raw in map(_from_hex, signatures) if raw is not None]
    if not sent:
        return f"the header {name} has no signature of 64 hexadecimal digits"
    return "" if _matches_any([_digest(secret, signed) for secret in secrets if secret], sent) else _differs(name)


def _differs(name: str) -> str:
    return f"the digest in the header {name} differs from that of the body: another secret, or another body was signed"


def _matches_any(expected: Sequence[bytes], sent: Sequence[bytes]) -> bool:
    """Whether any of the signatures is expected; all are compared, so the time does not tell which."""
    return any([hmac.compare_digest(one, other) for one in expected for other in sent])  # noqa: C419 - see above


def _digest(secret: bytes, signed: bytes) -> bytes:
    return hmac.digest(secret, signed, "sha256")


def _from_hex(text: str) -> bytes | None:
    text = text.strip()
    if len(text) != 64 or not text.isascii():
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError, ValueError):
        return None
