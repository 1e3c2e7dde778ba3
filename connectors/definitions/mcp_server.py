"""The kind mcpserver: the address of a server whose tools agents may use.

A server that is started as a process of this installation (stdio) is configured in files only, because its definition
decides what the installation executes.

Before: kind.py. After: kinds.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from loomlog.connectors.configuration.field_classes import NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import FORBID_EXTRA, check_url
from loomlog.connectors.definitions.go_json import select_set, sort_keys
from loomlog.connectors.definitions.kind import Content, Kind
from loomlog.connectors.definitions.problems import DefinitionProblem

_STDIO = "a server that is started as a process needs the operator; define one with transport http and a url"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerBlock:
    """Content of an MCP server. Headers may hold `${run.*}` and `$cred:` references."""

    __pydantic_config__ = FORBID_EXTRA
    transport: Annotated[Literal["http", "streamable-http", "stdio"], NEUTRAL]
    url: Annotated[str, Grant(order=Order.HOST, held="hosts")]
    headers: Annotated[Mapping[str, str], Grant(order=Order.REFERENCES)] = field(default_factory=dict)
    description: Annotated[str, NEUTRAL] = ""
    discovered_tools: Annotated[tuple[Mapping[str, Any], ...], NEUTRAL] = ()


def require_url(field_name: str, url: str) -> None:
    """Raise DefinitionProblem unless the text is an absolute address with http or https and without a password."""
    try:
        check_url(url)
    except ValueError as error:
        raise DefinitionProblem("invalid_definition", f"{field_name}: {error}") from None


def _check(server: McpServerBlock) -> None:
    if server.transport == "stdio":
        raise DefinitionProblem("invalid_definition", f"transport: {_STDIO}")
    require_url("url", server.url)


def _hashed(name: str, content: Content) -> dict[str, Any]:
    return select_set(
        {**content, "name": name, "headers": sort_keys(content.get("headers", {}))},
        ("description", "headers", "name", "transport", "url"),
    )


MCP_SERVER = Kind(
    name="mcpserver",
    tool="MCPServerDef",
    id_prefix="mdf_",
    forks_promote=False,
    has_verify=True,
    block=McpServerBlock,
    file_only=dict.fromkeys(("command", "args", "env"), _STDIO),
    server_set=frozenset({"discovered_tools"}),
    check=_check,
    hashed=_hashed,
    reached="url",
)
