"""A secret of AWS Secrets Manager: its current version, by one request of the HTTP API.

Before: outside_stores.py. After: aws_signature.py, json_requests.py.
"""

import base64
import binascii
import time
from collections.abc import Callable

import orjson

from loomlog.connectors.configuration.credential_block import CredentialStoreBlock
from loomlog.connectors.credentials.aws_signature import AwsKeys, signed_headers
from loomlog.connectors.credentials.json_requests import JsonAnswer, JsonRequests, refusal
from loomlog.connectors.errors import Permanent, Transient

OK = 200
SERVICE = "secretsmanager"
TARGET = "secretsmanager.GetSecretValue"
BUSY = frozenset({"ThrottlingException", "TooManyRequestsException", "InternalServiceError", "RequestTimeout"})
MEANINGS = {
    "ResourceNotFoundException": ("not_found", "AWS has no such secret"),
    "AccessDeniedException": ("forbidden", "AWS refuses it: the keys of the installation may not read it"),
    "InvalidSignatureException": ("unauthorised", "AWS refuses the signature: the secret key or the clock is wrong"),
    "UnrecognizedClientException": ("unauthorised", "AWS does not know the access key"),
    "ExpiredTokenException": ("unauthorised", "the session of the access key has ended"),
    "DecryptionFailure": ("forbidden", "AWS cannot decrypt it with its KMS key"),
}


def endpoint(block: CredentialStoreBlock) -> str:
    """Return the address of the service: that of the region, or the one that the file names."""
    suffix = ".amazonaws.com.cn" if block.region.startswith("cn-") else ".amazonaws.com"
    return block.url or f"https://{SERVICE}.{block.region}{suffix}/"


async def read_aws(
    requests: JsonRequests,
    block: CredentialStoreBlock,
    keys: AwsKeys,
    secret_id: str,
    *,
    now_s: Callable[[], float] = time.time,
) -> str:
    """Return the text of a secret. Raises Permanent and Transient."""
    url, body = endpoint(block), orjson.dumps({"SecretId": secret_id})
    headers = signed_headers(
        "POST",
        url,
        {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": TARGET},
        body,
        keys=keys,
        region=block.region,
        service=SERVICE,
        at=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s())),
    )
    answer = await requests.send("POST", url, headers=headers, body=body)
    if answer.status != OK:
        raise _error(answer)
    text, binary = answer.fields.get("SecretString"), answer.fields.get("SecretBinary")
    if isinstance(text, str):
        return text
    try:
        return base64.b64decode(str(binary), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Permanent("the secret is not text", kind="invalid") from error


def _error(answer: JsonAnswer) -> Permanent | Transient:
    code = str(answer.fields.get("__type", "")).rpartition("#")[2]
    if code in BUSY:
        return Transient(f"AWS is busy ({code})", kind="unavailable", status=answer.status)
    if code in MEANINGS:
        kind, text = MEANINGS[code]
        return Permanent(text, kind=kind, status=answer.status)
    return refusal("AWS did not give it", answer.status)
