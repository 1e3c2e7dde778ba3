"""Names of tools that clients carry out: what a client calls read_page is granted as client:read_page, and an agent
sees it as client__read_page, because providers take no colon in the name of a function.
"""

GRANT_PREFIX, TOOL_NAME_PREFIX = "client:", "client__"


def visible_name(grant: str) -> str:
    """A name or pattern of a grant as it is compared with the names that agents see."""
    return TOOL_NAME_PREFIX + grant.removeprefix(GRANT_PREFIX) if grant.startswith(GRANT_PREFIX) else grant


def is_client_grant(grant: str) -> bool:
    """Whether it grants tools that clients carry out: one by name, or those that begin alike."""
    return visible_name(grant).startswith(TOOL_NAME_PREFIX)
