"""Names of tools that clients execute: a client's tool read_page is granted as client:read_page, and an agent sees it
as client__read_page, because providers do not allow a colon in a function name.
"""

GRANT_PREFIX, TOOL_NAME_PREFIX = "client:", "client__"


def visible_name(grant: str) -> str:
    """Return a granted name or pattern in the form of the names that agents see."""
    return TOOL_NAME_PREFIX + grant.removeprefix(GRANT_PREFIX) if grant.startswith(GRANT_PREFIX) else grant


def is_client_grant(grant: str) -> bool:
    """Return whether a grant is for tools that clients execute, by name or by prefix."""
    return visible_name(grant).startswith(TOOL_NAME_PREFIX)
