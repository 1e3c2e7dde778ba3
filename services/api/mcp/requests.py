"""What carries out the operations of MCP in one process: those of the product, and those that only MCP has.

Before: endpoint.py. After: services/application/dispatch.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loomlog.services.api.mcp.agent_operations import AgentOperations
from loomlog.services.api.mcp.event_operations import EventOperations
from loomlog.services.api.mcp.operations import McpOperations
from loomlog.services.api.mcp.state_file_operations import StateFileOperations
from loomlog.services.api.mcp.tasks import TaskOperations
from loomlog.services.application.application import Application
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.resources import clock_ms
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Answer, AnyOperation

if TYPE_CHECKING:  # it opens these requests
    from loomlog.services.api.service import Service


class McpRequests:
    """Carries out operations (server.py Requests). The dispatch is made at the first request after the start."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._application: Application | None = None
        self._own = Dispatch({}, clock_ms=clock_ms, new_token=str)

    async def request(self, operation: AnyOperation, caller: Caller, fields: Mapping[str, Any]) -> Answer[Any]:
        """Carry out an operation. Raises Refused."""
        own = self._own_dispatch()
        chosen = own if operation in own.handlers else self._service.dispatch(operation)
        return await chosen.request(operation, caller, fields)

    def _own_dispatch(self) -> Dispatch:
        application = self._service.application
        if application is not self._application:
            handlers = {
                **McpOperations(application).by_operation(),
                **AgentOperations(self._service.dispatch, clock_ms=clock_ms).by_operation(),
                **StateFileOperations(application).by_operation(),
                **TaskOperations(application).by_operation(),
                **EventOperations(application, self._service.dispatch).by_operation(),
            }
            self._application, self._own = application, application.dispatch.with_handlers(handlers)
        return self._own
