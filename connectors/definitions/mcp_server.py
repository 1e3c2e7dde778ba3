"""The kind mcpserver: the address of a server whose tools agents may use.

A server that is started as a process of this installation (stdio) is configured in files only, because its definition
decides what the installation executes.

Before: kind.py, connectors/configuration/mcp_block.py. After: kinds.py.
"""

import re
from typing import Any

from loomlog.connectors.configuration.field_types import check_url
from loomlog.connectors.configuration.mcp_block import STDIO, McpServerBlock, iter_server_problems
from loomlog.connectors.definitions.go_json import select_set, sort_keys
from loomlog.connectors.definitions.kind import Content, Kind
from loomlog.connectors.definitions.problems import DefinitionProblem

_REFERENCE = re.compile(r"\$cred:[A-Za-z0-9_-]{1,64}\Z")
_STDIO = "a server that is started as a process needs the operator; define one with transport http and a url"


def require_url(field_name: str, url: str) -> None:
    """Raise DefinitionProblem unless the text is an absolute address with http or https and without a password."""
    try:
        check_url(url)
    except ValueError as error:
        raise DefinitionProblem("invalid_definition", f"{field_name}: {error}") from None


def _check(server: McpServerBlock) -> None:
    if server.transport == STDIO:
        raise DefinitionProblem("invalid_definition", f"transport: {_STDIO}")
    for name, problem in iter_server_problems(server):
        if not problem:
            raise DefinitionProblem("missing_field", f"missing required field: {name}")
        raise DefinitionProblem("invalid_definition", f"{name}: {problem}")
    if server.oauth is not None and server.oauth.client_secret and not _REFERENCE.match(server.oauth.client_secret):
        text = "oauth.client_secret: expected the name of a stored credential, such as $cred:crm-client"
        raise DefinitionProblem("invalid_definition", text)


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
