"""Signed HTTP callbacks to third-party programs: one signed POST, one response, over kept connections.

For addresses that tenants register themselves, so everything about them is bounded and not trusted: each connection
goes to an address that was checked when it was dialled (tools/checked_network.py), redirects are not followed, request
and response have a size limit, the exchange has a timeout. No proxy of the environment is used.

The body is signed with a secret that both sides have:

    X-Loomlog-Signature: t=<unix seconds>,v1=<hex>      HMAC-SHA256 over "<t>." and the body; a second v1 while the
                                                        installation's key is rotated: one of them has to match
    X-Loomcycle-Signature: <hex>                        HMAC-SHA256 over the body alone, for receivers that know that

The receiver compares in constant time, and refuses a `t` that is more than some minutes away. Callbacks at the end of a
run have the headers of Standard Webhooks instead (`standard_headers`).

Before: services/families/hook/runner.py, services/families/callback/posts.py. After: httpcore.
"""

import asyncio
import base64
import binascii
import hmac
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

import httpcore
import httpx

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.connection_pool import ConnectionPools
from loomlog.connectors.tools.checked_network import CheckedNetwork, Resolver, resolve_with_system
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import USER_AGENT, parse_web_url

REQUEST_BYTES = 8 * 1024 * 1024
"""Bytes of a request. A tool result may have 4 Mi characters; what is longer as JSON is not sent."""
RESPONSE_BYTES = 1024 * 1024
"""Bytes of a hook's response, as in the reference."""
CONNECTIONS = 100
"""Concurrent connections; further requests wait, each for at most its timeout."""
KEEPALIVE_CONNECTIONS = 20
"""Connections that stay open after their response."""
SIGNING_PURPOSE = "callbacks"
"""The purpose under which signing secrets are derived."""
KEEPALIVE_EXPIRY_S = 4.0
"""Seconds an idle connection is kept; below the 5 s after which common servers close one, so that we close it first."""


NO_CONTENT = 204
SECRET_PREFIX = "whsec_"
"""What a secret of Standard Webhooks begins with; base64 of the key follows."""


AnswerT = TypeVar("AnswerT")


class CallbackClient:
    """HTTP client that keeps connections until `close`. `private_hosts` may be private addresses; the rest is for
    tests.
    """

    def __init__(
        self,
        *,
        private_hosts: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolver = resolve_with_system,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._network = CheckedNetwork(private_hosts=private_hosts, resolve=resolve, network=network)
        self._pools = ConnectionPools(self._create_pool)
        self._slots = asyncio.Semaphore(CONNECTIONS)

    def _create_pool(self, number: int) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            network_backend=self._network,
            max_connections=1,
            max_keepalive_connections=1 if number < KEEPALIVE_CONNECTIONS else 0,
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
            http1=True,
            http2=False,
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes | None:
        """Return the response, at most RESPONSE_BYTES; None for 204. Raises Transient or Permanent."""
        return await self._post(url, body, headers, _read_response, timeout_s)

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
        """Return the status of a response whose body is of no interest, 200 to 299. Raises Transient or Permanent."""
        return await self._post(url, body, headers, _read_status, timeout_s)

    async def _post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        read: Callable[..., Awaitable[AnswerT]],
        timeout_s: float,
    ) -> AnswerT:
        if len(body) > REQUEST_BYTES:
            raise Permanent(f"the request has {len(body)} bytes, at most {REQUEST_BYTES} are sent", kind="invalid")
        try:
            target = parse_web_url(url)
            async with asyncio.timeout(timeout_s):
                return await self._exchange(target, body, headers, read)
        except ToolCallRefused as reason:
            raise Permanent(str(reason), kind="refused") from reason
        except TimeoutError as error:
            raise Transient(f"no answer within {timeout_s:g} s", kind="timeout") from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            # Without the driver's message: it may name an internal address.
            raise Transient(f"the connection broke off ({type(error).__name__})", kind="network") from error

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        await self._pools.aclose()

    async def _exchange(
        self, url: httpx.URL, body: bytes, headers: Mapping[str, str], read: Callable[..., Awaitable[AnswerT]]
    ) -> AnswerT:
        sent = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        raw_headers = [(name.encode("ascii"), value.encode("ascii", "replace")) for name, value in sent.items()]
        async with self._slots:
            number, pool = self._pools.acquire()
            is_sound = False
            try:
                answer = await read(pool, target, raw_headers, body)
                is_sound = True
                return answer
            finally:
                self._pools.release(number, is_reusable=is_sound)


async def _read_response(
    pool: httpcore.AsyncConnectionPool, target: httpcore.URL, headers: list[tuple[bytes, bytes]], body: bytes
) -> bytes | None:
    async with pool.stream("POST", target, headers=headers, content=body) as response:
        if not 200 <= response.status < 300:
            raise _status_error(response.status)
        encoding = next((value for key, value in response.headers if key.lower() == b"content-encoding"), b"")
        if encoding.strip().lower() not in (b"", b"identity"):
            raise Permanent("the answer is packed although that was not asked for", kind="invalid")
        answer = bytearray()
        async for chunk in response.aiter_stream():
            answer += chunk
            if len(answer) > RESPONSE_BYTES:
                raise Permanent(f"the answer is longer than {RESPONSE_BYTES} bytes", kind="invalid")
        return None if response.status == NO_CONTENT else bytes(answer)


async def _read_status(
    pool: httpcore.AsyncConnectionPool, target: httpcore.URL, headers: list[tuple[bytes, bytes]], body: bytes
) -> int:
    async with pool.stream("POST", target, headers=headers, content=body) as response:
        if not 200 <= response.status < 300:
            raise _status_error(response.status)
        return response.status


def callback_secrets(secret: SecretKey | None, *context: str) -> tuple[str, ...]:
    """Return the secrets that sign callbacks of that name, the current one first; none without a key.

    They are derived from the installation's key, so nothing has to be stored, and another name has others.
    """
    return () if secret is None else tuple(key.hex() for key in secret.derive_keys(SIGNING_PURPOSE, *context))


def signature_headers(body: bytes, secrets: Sequence[str], at_s: int) -> dict[str, str]:
    """Return the headers that sign a body with each secret, the current one first; none without a secret."""
    if not secrets:
        return {}
    stamped = f"{at_s}.".encode() + body
    timed = ",".join(f"v1={_hmac(secret, stamped)}" for secret in secrets)
    return {"X-Loomlog-Signature": f"t={at_s},{timed}", "X-Loomcycle-Signature": _hmac(secrets[0], body)}


def standard_headers(message_id: str, body: bytes, secrets: Sequence[str], at_s: int) -> dict[str, str]:
    """Return the headers of Standard Webhooks: id, time, and a signature with each secret, none without a secret.

    A secret is `whsec_` and base64 of the key, or any other text, which is the key itself. Raises ValueError for one
    whose base64 cannot be read.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(at_s)}
    if secrets:
        signed = f"{message_id}.{at_s}.".encode() + body
        digests = [hmac.new(_standard_key(secret), signed, sha256).digest() for secret in secrets]
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(one).decode()}" for one in digests)
    return headers


def _standard_key(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a secret that begins with {SECRET_PREFIX} continues with base64") from error


def _hmac(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, sha256).hexdigest()


def _status_error(status: int) -> ConnectorError:
    if 300 <= status < 400:
        return Permanent(f"it answered {status}: callbacks are not redirected", kind="refused", status=status)
    if status == 429 or status >= 500:
        return Transient(f"it answered {status}", kind="unavailable", status=status)
    return Permanent(f"it answered {status}", kind="refused", status=status)
