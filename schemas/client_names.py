"""Names of tools that clients carry out: what a client calls read_page is granted as client:read_page, and an agent
sees it as client__read_page, because providers take no colon in the name of a function.
"""

GRANT, PREFIX = "client:", "client__"


def as_seen(grant: str) -> str:
    """A name or pattern of a grant as it is compared with the names that agents see."""
    return PREFIX + grant.removeprefix(GRANT) if grant.startswith(GRANT) else grant


def is_clients(grant: str) -> bool:
    """Whether it grants tools that clients carry out: one by name, or those that begin alike."""
    return as_seen(grant).startswith(PREFIX)
