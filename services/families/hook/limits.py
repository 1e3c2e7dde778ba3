"""Bounds of hooks. The loop bounds the bytes of the state as well (services/core/families.py STATE_BYTES_MAX)."""

HOOKS_PER_TENANT_MAX = 100
"""Maximum hooks of a tenant; a call runs them one after the other, so more would only be slow."""
TENANT_BYTES_MAX = 60_000
"""Bytes of a tenant's hooks in the state, which all tenants share: about 100 hooks of the usual size."""
HOOKS_MAX = 1_000
"""Maximum hooks of all tenants: every call is compared with them."""
NAME_BYTES_MAX = 256
"""Bytes of an owner, a name, an agent or a tool."""
NAMES_MAX = 256
"""Maximum agents or tools in one registration."""
URL_CHARACTERS_MAX = 2_000
TIMEOUT_MS_DEFAULT = 5_000
TIMEOUT_MS_MAX = 60_000
