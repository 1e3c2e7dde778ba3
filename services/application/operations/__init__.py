"""The operations of the application, which no family has: declared in a module for each area, carried out in the module
beside it with the use cases.

    interrupts.py   declarations: names, records of input, access, routes; pure
    handlers/       what carries them out, over the Application

Before: services/api/routes.py, services/cli/operations.py. After: the declarations.
"""

from loomlog.services.application.operations.interrupts import INTERRUPT_OPERATIONS
from loomlog.services.core.operations import AnyOperation
from loomlog.services.families.registry import all_operations

APPLICATION_OPERATIONS: tuple[AnyOperation, ...] = (*INTERRUPT_OPERATIONS,)


def product_operations() -> tuple[AnyOperation, ...]:
    """Return all operations: those of the application, then those of the families of this process.

    Raises FamilyProblem.
    """
    return (*APPLICATION_OPERATIONS, *all_operations())
