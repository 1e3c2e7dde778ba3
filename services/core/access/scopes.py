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
OPERATOR_KEY = "providers:operator-key"
"""Permits use of the operator's provider keys; required where OPERATOR_KEY_RESTRICTION is on."""

SCOPES = frozenset({ADMIN, TENANT, USER, RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ, OPERATOR_KEY})

INCLUDES: Mapping[str, frozenset[str]] = {
    ADMIN: SCOPES,
    TENANT: frozenset({RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ, OPERATOR_KEY}),
    USER: frozenset({RUNS_CREATE, RUNS_READ}),
}
"""Scopes that a scope includes. Not transitive, because no included scope includes more than its holder has."""
