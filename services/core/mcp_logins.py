"""What transports know of logins to MCP servers: a person is asked, and comes back from an authorization server.

Before: services/api/mcp/login.py, services/application/application.py. After: services/families/mcp/handlers.py.
"""

from collections.abc import Mapping

from loomlog.schemas.records import Value

PATH = "/v1/_mcp_oauth"
CALLBACK_PATH, CLIENT_PATH, CONSENT_PATH = f"{PATH}/callback", f"{PATH}/client.json", f"{PATH}/authorize"


class AskedConsent(Value, frozen=True, kw_only=True):
    """What a person is shown before the way to the authorization server."""

    subject: str
    """Subject of the caller who began it."""
    tenant: str
    user: str
    """User whose runs are to have the access; empty: those of the tenant."""
    resource: str
    scopes: str
    issuer: str
    url: str
    """Address of the authorization server."""


class McpLogins:
    """Logins of persons to MCP servers. The family overrides all of it."""

    @property
    def origin(self) -> str:
        """Address of the API as browsers see it."""
        raise NotImplementedError

    async def find_pending(self, state: str) -> AskedConsent:
        """Return what a person is asked for. Raises Refused and Unavailable."""
        raise NotImplementedError

    async def finish_login(self, query: Mapping[str, str]) -> str:
        """Store what a person has granted, and return the name of the server. Raises Refused and Unavailable."""
        raise NotImplementedError
