"""Signatures of requests to AWS (Signature Version 4). Pure.

Not chosen: botocore, 100 MB of models of all services for one request. The vectors that AWS publishes are the tests.

Before: aws_secrets.py. After: the standard library.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import parse_qsl, quote, urlsplit

from loomlog.schemas.records import Secretive

ALGORITHM = "AWS4-HMAC-SHA256"
UNRESERVED = "-_.~"


class AwsKeys(Secretive, frozen=True, kw_only=True):
    """Keys of an account; those of a session have a token."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"secret_access_key", "session_token"})

    access_key_id: str
    secret_access_key: str
    session_token: str = ""


def signed_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    keys: AwsKeys,
    region: str,
    service: str,
    at: str,
) -> dict[str, str]:
    """Return the headers to send. `at`: UTC as 20150830T123600Z."""
    parts = urlsplit(url)
    named = {**{name.lower(): " ".join(value.split()) for name, value in headers.items()}, "host": parts.netloc}
    named["x-amz-date"] = at
    if keys.session_token:
        named["x-amz-security-token"] = keys.session_token
    names = ";".join(sorted(named))
    query = sorted((_quoted(name), _quoted(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    request = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/" + UNRESERVED),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{named[name]}" for name in sorted(named)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    text = "\n".join((ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = ("AWS4" + keys.secret_access_key).encode()
    for part in (at[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{ALGORITHM} Credential={keys.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    sent = {name: value for name, value in named.items() if name != "host"}
    return {**sent, "authorization": authorization}


def _quoted(text: str) -> str:
    return quote(text, safe=UNRESERVED)
