"""The closed catalogue of scopes and what each includes (reference surfaces 0.3).

A scope that is not in here grants nothing and may not be asked for: both are mistakes of whoever wrote it.

After: decide.py.
"""

from collections.abc import Mapping

ADMIN = "substrate:admin"
"""Everything, all tenants."""
TENANT = "substrate:tenant"
"""Operates one tenant."""
USER = "substrate:user"
"""An end user on its own: sees and does what is its own, nothing else."""
RUNS_CREATE = "runs:create"
RUNS_READ = "runs:read"
CHANNEL_PUBLISH = "channel:publish"
CHANNEL_READ = "channel:read"
OPERATOR_KEY = "providers:operator-key"
"""May spend the operator's provider keys; asked for where OPERATOR_KEY_RESTRICTION is on."""

SCOPES = frozenset({ADMIN, TENANT, USER, RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ, OPERATOR_KEY})

INCLUDES: Mapping[str, frozenset[str]] = {
    ADMIN: SCOPES,
    TENANT: frozenset({RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ, OPERATOR_KEY}),
    USER: frozenset({RUNS_CREATE, RUNS_READ}),
}
"""What a scope gives beside itself. Not transitive, because no included scope includes more than its holder has."""
