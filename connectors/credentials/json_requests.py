"""One JSON exchange with a store or an issuer of tokens: bounded, to a checked address, without redirects.

Errors name the host and the status, never the body, which may repeat what was sent.

Before: vault.py, aws_secrets.py, github_apps.py, oauth_tokens.py. After: connectors/tools/web_client.py.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import orjson

from loomlog.connectors.configuration.issuer_check import is_confidential_url
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.tools.hosts import EXACT_PREFIX, is_host_allowed
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import WebClient, WebRequest, WebResponse, parse_web_url
from loomlog.schemas.records import Value

TIMEOUT_S = 10.0
"""Seconds of an exchange: a call of a tool or a model waits for it."""
BUSY = (408, 425, 429)


class JsonAnswer(Value, frozen=True, kw_only=True):
    """Status, and the JSON object of the body; empty where it is none."""

    status: int
    fields: Mapping[str, Any]


class JsonRequests:
    """Client. `private_hosts` may have private addresses. `hosts`: those it may talk to; None: any."""

    def __init__(self, *, private_hosts: Collection[str] = (), hosts: Collection[str] | None = None) -> None:
        self._private_hosts = tuple(private_hosts)
        self._hosts = hosts

    @cached_property
    def _web(self) -> WebClient:
        """The client, opened at the first use: reading the certificates takes 20 ms."""
        return WebClient(private_hosts=self._private_hosts, timeout_s=TIMEOUT_S, follows_redirects=False)

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> JsonAnswer:
        """Return the answer with a status below 500. Raises Transient where another try may help, and Permanent."""
        try:
            if not is_confidential_url(url):
                raise Permanent("expected an address with https://", kind="invalid")
            address = parse_web_url(url)
        except (ToolCallRefused, ValueError) as error:
            raise Permanent("its address is not usable: expected https:// and a host", kind="invalid") from error
        host = address.raw_host.decode("ascii")
        if self._hosts is not None and not is_host_allowed(host, self._hosts):
            raise Permanent(f"the host {host} is not in LOOMLOG_HTTP_HOST_ALLOWLIST", kind="forbidden")
        sent = tuple({"Accept": "application/json", **(headers or {})}.items())
        if not all(value.isascii() and value.isprintable() for _, value in sent):
            raise Permanent("it has characters that no header takes, such as a line break", kind="invalid")
        request = WebRequest(method=method, url=address, headers=sent, body=body)
        try:
            response = await self._web.send(request, (EXACT_PREFIX + host,))
        except ToolCallRefused as error:
            text = f"{host} does not answer, or its address is private and not among those allowed"
            raise Transient(text, kind="network") from error
        if response.status >= 500 or response.status in BUSY:
            raise Transient(f"{host} answered {response.status}", kind="unavailable", status=response.status)
        return JsonAnswer(status=response.status, fields=_parse(response))


def _parse(response: WebResponse) -> Mapping[str, Any]:
    try:
        value = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def refusal(what: str, status: int) -> Permanent:
    """Return the error of an answer that is no success."""
    kinds = {401: "unauthorised", 403: "forbidden", 404: "not_found"}
    return Permanent(f"{what} (status {status})", kind=kinds.get(status, "refused"), status=status)
