"""The operations of the application, which no family has: declared in a module for each area, carried out in the module
beside it with the use cases.

    runs.py, interrupts.py ...  declarations: names, records of input, access, routes; pure
    handlers.py, run_handlers.py ...  what carries them out, over the Application

Before: services/api/routes.py, services/cli/operations.py. After: the declarations.
"""

from loomlog.services.application.operations.aggregates import AGGREGATE_OPERATIONS
from loomlog.services.application.operations.budgets import BUDGET_OPERATIONS
from loomlog.services.application.operations.definition_runs import DEFINITION_RUN_OPERATIONS
from loomlog.services.application.operations.erasure import ERASURE_OPERATIONS
from loomlog.services.application.operations.history import HISTORY_OPERATIONS
from loomlog.services.application.operations.interrupts import INTERRUPT_OPERATIONS
from loomlog.services.application.operations.log import LOG_OPERATIONS
from loomlog.services.application.operations.process import PROCESS_OPERATIONS
from loomlog.services.application.operations.projections import PROJECTION_OPERATIONS
from loomlog.services.application.operations.residents import RESIDENT_OPERATIONS
from loomlog.services.application.operations.runs import RUN_OPERATIONS
from loomlog.services.application.operations.sessions import SESSION_OPERATIONS
from loomlog.services.application.operations.state_files import STATE_FILE_OPERATIONS
from loomlog.services.application.operations.views import VIEW_OPERATIONS
from loomlog.services.core.operations import AnyOperation
from loomlog.services.families.registry import all_operations

APPLICATION_OPERATIONS: tuple[AnyOperation, ...] = (
    *RUN_OPERATIONS,
    *INTERRUPT_OPERATIONS,
    *RESIDENT_OPERATIONS,
    *SESSION_OPERATIONS,
    *HISTORY_OPERATIONS,
    *PROJECTION_OPERATIONS,
    *LOG_OPERATIONS,
    *AGGREGATE_OPERATIONS,
    *BUDGET_OPERATIONS,
    *DEFINITION_RUN_OPERATIONS,
    *ERASURE_OPERATIONS,
    *STATE_FILE_OPERATIONS,
    *VIEW_OPERATIONS,
)


def product_operations() -> tuple[AnyOperation, ...]:
    """Return all operations: those of the process, of the application, and of the families of this process.

    Raises FamilyProblem.
    """
    return (*PROCESS_OPERATIONS, *APPLICATION_OPERATIONS, *all_operations())
