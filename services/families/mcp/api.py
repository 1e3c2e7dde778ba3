"""The operations of MCP servers: which there are, what they list, and asking one now. Pure.

Servers are made and changed as definitions of the kind mcpserver, or in the block mcp_servers of a file.

Before: __init__.py. After: handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT, TENANT_READ
from loomlog.services.core.operations import PRINTABLE, Effect, Http, Input, NoInput, Operation, Output, Tag

TAG = Tag(name="MCP servers", description="Servers whose tools agents use.")
NAME_CHARACTERS_MAX = 128
SCOPES_MAX = 50
"""Scopes that one grant asks for."""

Name = Annotated[
    str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE, description="Name of the server.")
]
Authorization = Annotated[
    Literal["none", "granted", "needs_authorization"],
    Meta(description="needs_authorization: it asks for a token, and neither the tenant nor the caller has a grant."),
]
Time = Annotated[str, Meta(description="RFC 3339; empty: never.")]


class McpServerNamed(Input, frozen=True, kw_only=True):
    name: Name


class McpLogin(Input, frozen=True, kw_only=True):
    name: Name
    scope: Annotated[
        Literal["tenant", "user"],
        Meta(description="Whose grant it is: runs of the user use that of the user before that of the tenant."),
    ] = "tenant"
    scope_id: Annotated[
        Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE)],
        Meta(description="Subject of the user; absent: your own."),
    ] = ""
    scopes: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE)]],
        Meta(max_length=SCOPES_MAX, description="Scopes of OAuth to ask for; absent: those that the server names."),
    ] = msgspec.field(default_factory=list)


class McpLoginBegun(Output, frozen=True, kw_only=True):
    """Where a person grants access to a server. The address counts once."""

    name: str
    url: Annotated[str, Meta(description="Address to open in a browser.")]
    expires_at: Annotated[str, Meta(description="When the address no longer counts, RFC 3339.")]


class McpServer(Output, frozen=True, kw_only=True):
    """A server that resolves for the caller's tenant, and what is known of it."""

    name: str
    source: Annotated[
        Literal["file", "tenant", "shared"], Meta(description="Where it is defined: a file, or a definition.")
    ]
    transport: str
    url: Annotated[str, Meta(description="Empty for a process.")]
    description: str
    def_id: Annotated[str, Meta(description="Version that resolves.")]
    revision: Annotated[str, Meta(description="Revision of the protocol it speaks; empty: it was not reached yet.")]
    tool_count: int
    digest: Annotated[str, Meta(description="Hash of its tools; a run records what it was shown.")]
    listed_at: Time
    authorization: Authorization
    error: Annotated[str, Meta(description="Why the newest attempt gave no list; empty: it did, or there was none.")]


class McpServerList(Output, frozen=True, kw_only=True):
    """Servers by name."""

    servers: list[McpServer]


class McpListedTool(Output, frozen=True, kw_only=True):
    """A tool of a server."""

    name: Annotated[str, Meta(description="Name under which agents see it.")]
    server_name: Annotated[str, Meta(description="Name that its server gives it.")]
    description: str
    effect: Annotated[str, Meta(description="What repeating a call does: pure, read, idempotent or unsafe.")]
    input_schema: Annotated[dict[str, Any], Meta(description="JSON Schema of its arguments.")]


class McpToolList(Output, frozen=True, kw_only=True):
    """The tools of a server, and why others were left out."""

    server: McpServer
    tools: list[McpListedTool]
    problems: list[str]


_read = partial(Operation, tag=TAG, access=requires(TENANT_READ), effect=Effect.READ)
_administer = partial(Operation, tag=TAG, access=requires(TENANT), effect=Effect.WRITE)

LIST = _read(
    name="mcp.servers",
    summary="List the MCP servers that agents of the tenant may use.",
    input=NoInput,
    output=McpServerList,
    http=(Http(route="GET /v1/_mcp_servers", id="list_mcp_servers"),),
)
TOOLS = _read(
    name="mcp.tools",
    summary="List the tools of an MCP server, as last listed by it.",
    input=McpServerNamed,
    output=McpToolList,
    http=(Http(route="GET /v1/_mcp_servers/{name}/tools", id="list_mcp_tools", refusal_statuses=(404,)),),
)
PROBE = _administer(
    name="mcp.probe",
    summary="Connect to an MCP server now, and record the tools it lists.",
    input=McpServerNamed,
    output=McpToolList,
    http=(Http(route="POST /v1/_mcp_servers/{name}/probe", id="probe_mcp_server", refusal_statuses=(404, 422, 503)),),
)
LOGIN = _administer(
    name="mcp.login",
    summary="Begin to grant access to an MCP server that asks for it: a person opens the address.",
    input=McpLogin,
    output=McpLoginBegun,
    http=(
        Http(
            route="POST /v1/_mcp_servers/{name}/login",
            id="start_mcp_login",
            body_optional=True,
            example={"scope": "tenant"},
            refusal_statuses=(404, 422, 503),
        ),
    ),
)
OPERATIONS = (LIST, TOOLS, PROBE, LOGIN)
