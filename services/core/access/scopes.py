"""The closed catalogue of scopes, and the scopes each includes (reference surfaces 0.3).

A scope that is not listed grants nothing and may not be required: both are programming or configuration errors.

After: decide.py.
"""

from collections.abc import Mapping

ADMIN = "substrate:admin"
"""Everything in all tenants."""
TENANT = "substrate:tenant"
"""Operation of one tenant."""
USER = "substrate:user"
"""An end user: sees and changes only its own data."""
RUNS_CREATE = "runs:create"
RUNS_READ = "runs:read"
CHANNEL_PUBLISH = "channel:publish"
CHANNEL_READ = "channel:read"
MEMORY_WRITE = "memory:write"
"""Setting keys of agents, users and the tenant. What deletes them is operation of the tenant."""
TENANT_READ = "tenant:read"
"""Reading what a tenant has: memory, names of definitions, models. All members hold it, with any scope of theirs."""
OPERATOR_KEY = "providers:operator-key"
"""Permits use of the operator's provider keys; required where OPERATOR_KEY_RESTRICTION is on."""

MEMBER_SCOPES = frozenset({RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ, MEMORY_WRITE, OPERATOR_KEY})
"""Scopes of members, that is of callers of a tenant who neither operate it nor are isolated."""
SCOPES = MEMBER_SCOPES | {ADMIN, TENANT, USER, TENANT_READ}

INCLUDES: Mapping[str, frozenset[str]] = {
    ADMIN: SCOPES,
    TENANT: MEMBER_SCOPES | {TENANT_READ},
    USER: frozenset({RUNS_CREATE, RUNS_READ}),
    **dict.fromkeys(MEMBER_SCOPES, frozenset({TENANT_READ})),
}
"""Scopes that a scope includes. Not transitive: isolated users see their runs, and not the data of their tenant."""
