"""The handlers of all operations of the application.

They take the use cases from the Application when they are called, so that it can be given them while it is built.

Before: application.py. After: the handlers of each area.
"""

from typing import TYPE_CHECKING

from loomlog.services.application.operations.aggregate_handlers import AggregateHandlers
from loomlog.services.application.operations.budget_handlers import BudgetHandlers
from loomlog.services.application.operations.definition_run_handlers import DefinitionRunHandlers
from loomlog.services.application.operations.erasure_handlers import ErasureHandlers
from loomlog.services.application.operations.history_handlers import HistoryHandlers
from loomlog.services.application.operations.interrupt_handlers import InterruptHandlers
from loomlog.services.application.operations.log_handlers import LogHandlers
from loomlog.services.application.operations.projection_handlers import ProjectionHandlers
from loomlog.services.application.operations.resident_handlers import ResidentHandlers
from loomlog.services.application.operations.run_handlers import RunHandlers
from loomlog.services.application.operations.session_handlers import SessionHandlers
from loomlog.services.application.operations.state_file_handlers import StateFileHandlers
from loomlog.services.application.operations.view_handlers import ViewHandlers
from loomlog.services.application.runs.approvals import ApprovalHandlers
from loomlog.services.core.operations import Handlers

if TYPE_CHECKING:
    from loomlog.services.application.application import Application


def application_handlers(application: "Application") -> Handlers:
    """Return the handler of each operation."""
    areas = (
        RunHandlers,
        InterruptHandlers,
        ResidentHandlers,
        SessionHandlers,
        HistoryHandlers,
        ProjectionHandlers,
        LogHandlers,
        AggregateHandlers,
        BudgetHandlers,
        DefinitionRunHandlers,
        ErasureHandlers,
        StateFileHandlers,
        ApprovalHandlers,
        ViewHandlers,
    )
    return {operation: handler for area in areas for operation, handler in area(application).by_operation().items()}
