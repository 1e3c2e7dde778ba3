"""Names of tools as agents see them, and the other forms in which files, definitions and the log have them.

A client's tool read_page is granted as client:read_page, and an agent sees it as client__read_page, because providers
do not allow a colon in a function name. A tool that was renamed keeps its old name as an alias for ever: runs and
definitions of the log have it.
"""

from collections.abc import Mapping

GRANT_PREFIX, TOOL_NAME_PREFIX = "client:", "client__"
RENAMED_TOOLS: Mapping[str, str] = {"WebFetchTool": "WebFetch"}
"""Old name -> name of today."""


def visible_name(grant: str) -> str:
    """Return a granted name or pattern in the form of the names that agents see."""
    if grant.startswith(GRANT_PREFIX):
        return TOOL_NAME_PREFIX + grant.removeprefix(GRANT_PREFIX)
    return RENAMED_TOOLS.get(grant, grant)


def all_names(tool: str) -> tuple[str, ...]:
    """Return the name of a tool and those it had, for rules about it that were made earlier."""
    name = visible_name(tool)
    return (name, *(old for old, new in RENAMED_TOOLS.items() if new == name))


def is_client_grant(grant: str) -> bool:
    """Return whether a grant is for tools that clients execute, by name or by prefix."""
    return visible_name(grant).startswith(TOOL_NAME_PREFIX)
