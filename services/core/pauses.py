"""Pauses with a wider scope than one run: an agent, a tenant, everything.

The family of pauses decides and folds them; state files have them too. Before: a pause that was set. After:
services/families/pause/ and services/stream/archive/state_file.py.
"""

from loomlog.schemas.records import Value

AGENT, TENANT, ALL = "agent", "tenant", "all"


class WidePause(Value, frozen=True, kw_only=True):
    """A pause of an agent (of one tenant, or of every one), of a tenant, or of everything."""

    scope: str
    tenant: str = ""
    agent: str = ""
    reason: str = ""
    by: str = ""
    at_ms: int = 0
    """When it was set, UTC milliseconds."""


def validate_scope(scope: str, tenant: str, agent: str) -> None:
    """Check that scope, tenant and agent belong together. Raises ValueError."""
    right = {ALL: not tenant and not agent, TENANT: bool(tenant) and not agent, AGENT: bool(agent)}.get(scope)
    if right is None:
        raise ValueError(f"scope is {scope[:60]!r}: expected agent, tenant or all")
    if not right:
        raise ValueError(
            f"scope {scope} with tenant {tenant[:60]!r} and agent {agent[:60]!r} does not say what to pause"
        )
