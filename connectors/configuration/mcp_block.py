"""The block mcp_servers, whose fields definitions of the kind mcpserver have too.

A server is a process of this machine (stdio), which only files may start, or an address (http, streamable-http).

Before: model.py. After: services/families/mcp/servers.py opens sessions with what is here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from loomlog.connectors.configuration.field_classes import NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import StringList, Switch, check_url, configuration_block

TOOL_PREFIX = "mcp__"
"""Beginning of the names of all tools of MCP servers."""
HEADERS_MAX = 50
POOL_MAX = 16
"""Processes of one stdio server for each tenant."""
STDIO = "stdio"


def _to_text(value: Any) -> Any:
    """Return a value of a header or a variable as it was written: a variable that is not set makes it empty, and some
    look like numbers.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | Decimal) else value


Texts = Mapping[str, Annotated[str, BeforeValidator(_to_text)]]


@configuration_block
class McpOAuthBlock:
    """How tokens for a server are had, where it does not say all of it. Without the block it says all."""

    grant: Annotated[Literal["authorization_code", "client_credentials"], NEUTRAL] = "authorization_code"
    client_id: Annotated[str, NEUTRAL] = ""
    client_secret: Annotated[str, Grant(order=Order.REFERENCES)] = field(default="", repr=False)
    scopes: Annotated[StringList, NEUTRAL] = ()


@configuration_block
class McpServerBlock:
    """Value of mcp_servers.<name>. Headers may hold `${run.*}` and `$cred:` references."""

    transport: Annotated[Literal["http", "streamable-http", "stdio"], NEUTRAL]
    url: Annotated[str, Grant(order=Order.HOST, held="hosts")] = ""
    headers: Annotated[Texts, Grant(order=Order.REFERENCES)] = field(default_factory=dict)
    oauth: McpOAuthBlock | None = None
    description: Annotated[str, NEUTRAL] = ""
    command: Annotated[str, NEUTRAL] = ""
    args: Annotated[StringList, NEUTRAL] = ()
    env: Annotated[Texts, NEUTRAL] = field(default_factory=dict)
    pool_size: Annotated[int, Field(ge=1, le=POOL_MAX), NEUTRAL] = 1
    tools: Annotated[StringList, NEUTRAL] = ()
    trust_annotations: Annotated[Switch, NEUTRAL] = False
    effects: Annotated[Mapping[str, Literal["pure", "read", "idempotent", "unsafe"]], NEUTRAL] = field(
        default_factory=dict
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=1_800), NEUTRAL] = 300
    question_timeout_seconds: Annotated[int, Field(ge=0, le=604_800), NEUTRAL] = 3_600
    discovered_tools: Annotated[tuple[Mapping[str, Any], ...], NEUTRAL] = ()


def iter_server_problems(server: McpServerBlock) -> Iterator[tuple[str, str]]:
    """Yield the field and the text of every mistake that one field alone does not show; "" : it is missing."""
    if server.transport == STDIO:
        if not server.command:
            yield "command", ""
        yield from (
            (name, "is for servers at an address; leave it out") for name in ("url", "oauth") if getattr(server, name)
        )
    else:
        if not server.url:
            yield "url", ""
        else:
            try:
                check_url(server.url)
            except ValueError as error:
                yield "url", str(error)
        yield from _iter_oauth_problems(server.oauth or McpOAuthBlock())
        for name in ("command", "args", "env"):
            if getattr(server, name):
                yield name, "is for servers with transport: stdio; leave it out"
    if len(server.headers) > HEADERS_MAX:
        yield "headers", f"has {len(server.headers)} entries; at most {HEADERS_MAX} are sent"
    for name in server.headers:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            yield "headers", f"{name[:60]!r} is not the name of a header"


def _iter_oauth_problems(oauth: McpOAuthBlock) -> Iterator[tuple[str, str]]:
    if oauth.grant == "client_credentials" and not (oauth.client_id and oauth.client_secret):
        yield "oauth", "grant: client_credentials needs client_id and client_secret"
    elif oauth.client_secret and not oauth.client_id:
        yield "oauth", "client_secret needs a client_id"
