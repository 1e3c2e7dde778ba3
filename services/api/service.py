"""State shared by all endpoints of the process. Created in main() before the log and the read models are available.

Until they are, `application` raises 503 `starting`; authentication works from the first moment.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.providers import Provider
from loomlog.connectors.identity_providers.sign_in import SignIn
from loomlog.connectors.protocols import Model
from loomlog.connectors.storage.metric_samples import MetricSamples
from loomlog.services.api.mcp.calls import CallUnderWay
from loomlog.services.api.mcp.messages import RequestId
from loomlog.services.api.mcp.requests import McpRequests
from loomlog.services.api.mcp.sessions import Sessions
from loomlog.services.api.metric_handlers import MetricHandlers
from loomlog.services.api.metrics import Metrics
from loomlog.services.api.open_access import OpenAccess
from loomlog.services.api.process_handlers import ProcessHandlers
from loomlog.services.api.request_shares import RequestShares, no_quota
from loomlog.services.api.shared_insights import SharedInsights
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.bootstrap import Readiness
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import RETRY_SOON_S
from loomlog.services.application.operations.process import PROCESS_OPERATIONS
from loomlog.services.application.resources import clock_ms, new_token
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import MCP_LONG_CALLS
from loomlog.services.core.operations import AnyOperation
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.shared_slots import SharedSlots
from loomlog.services.web.static_files import WebPage

DISTRIBUTION = "loomlog"
OF_PROCESS = frozenset(PROCESS_OPERATIONS)


def installed_version() -> str:
    """Return the installed version; 0 when the package is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"


@dataclass(slots=True, kw_only=True)
class Service:
    """State of one API process. `providers` are the configured ones, `models` their drivers, created on first use."""

    authenticator: Authenticator
    configuration: Configuration
    providers: Mapping[str, Provider]
    metrics: Metrics
    replica_id: str
    max_request_bytes: int
    metrics_enabled: bool
    readiness: Readiness = field(default_factory=Readiness)
    current_application: Application | None = None
    insights: SharedInsights = field(default_factory=lambda: SharedInsights(None))
    is_stopping: bool = False
    """The process is stopping: requests still unanswered get a response with that reason."""
    models: dict[str, Model] = field(default_factory=dict)
    version: str = field(default_factory=installed_version)
    commit: str = ""
    built: str = ""
    started_at: float = field(default_factory=time.monotonic)
    shares: RequestShares = field(default_factory=RequestShares)
    mcp_sessions: Sessions = field(default_factory=lambda: Sessions(None, clock_ms=clock_ms))
    readiness_checked_at: float = 0.0
    """Monotonic time of the last readiness check of the broker and Postgres."""
    unreachable: frozenset[str] = frozenset()
    """Dependencies missing at the last readiness check."""
    readiness_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    openapi_document: bytes = b""
    """The OpenAPI document; set with its HTML page by build_app."""
    docs_page: bytes = b""
    web_page: WebPage | None = None
    web_page_absence: str = "this process was started without it"
    """Why there is no web page, where there is none."""
    sign_in: SignIn | None = None
    """Sign-in to the page with identity providers; None when there is none with a client of the page."""
    public_url: str = ""
    """Address of this API as others see it; empty: that of each request."""
    login_origins: tuple[str, ...] = ()
    """Origins whose pages may pass a token to the sign-in page."""
    samples: MetricSamples | None = None
    """Samples of metrics; None: none are taken."""
    public_config: bool = False
    """Whether /v1/config answers requests without a token."""
    features: Mapping[str, bool] = field(default_factory=dict)
    """Which features can be used, by their names."""
    memory_changes_hours: int = 0
    """How long the feed of changes of memory is kept."""
    http_hosts: tuple[str, ...] = ()
    """Hosts that the network tools may reach."""
    own_hosts: frozenset[str] = frozenset()
    """Hosts, with and without port, of the configured addresses of this API."""
    open_access: OpenAccess = field(init=False)
    """Streams and sockets, which end with the access of their callers."""
    process_dispatch: Dispatch = field(init=False)
    """Carries out the operations on what this process knows by itself."""
    mcp_calls: dict[tuple[str, RequestId | None], CallUnderWay] = field(default_factory=dict)
    """Calls of MCP under way, by session and request."""
    mcp_long_calls: SharedSlots = field(default_factory=lambda: SharedSlots(MCP_LONG_CALLS.name, MCP_LONG_CALLS.shares))
    mcp_requests: McpRequests = field(init=False)
    """Carries out the operations of MCP."""

    def __post_init__(self) -> None:
        self.mcp_requests = McpRequests(self)
        self.open_access = OpenAccess(self.authenticator)
        self.shares.take_quota = self._take_stream
        self.process_dispatch = Dispatch(
            {**ProcessHandlers(self).by_operation(), **MetricHandlers(self).by_operation()},
            clock_ms=clock_ms,
            new_token=new_token,
        )

    def dispatch(self, operation: AnyOperation) -> Dispatch:
        """Return what carries out an operation. Raises Refused(starting) for one of the application or of a family."""
        if operation not in OF_PROCESS:
            return self.application.dispatch
        if self.current_application is not None:
            self.process_dispatch.acts = self.current_application.acts
        return self.process_dispatch

    def _take_stream(self, caller: Caller) -> Callable[[], None]:
        """Count an open stream against the quotas of its caller. Raises Refused(tenant_quota_exhausted)."""
        application = self.current_application
        return no_quota(caller) if application is None else application.quotas.take_stream(caller)

    @property
    def application(self) -> Application:
        """The use cases. Raises Refused(starting)."""
        if self.current_application is None:
            missing = ", ".join(sorted(self.readiness.missing)) or "the log and the read models"
            raise Refused("starting", f"not ready yet, waiting for: {missing}", retry_after_s=RETRY_SOON_S)
        return self.current_application
