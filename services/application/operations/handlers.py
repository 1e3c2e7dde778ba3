"""The handlers of all operations of the application.

They take the use cases from the Application when they are called, so that it can be given them while it is built.

Before: application.py. After: the handlers of each area.
"""

from typing import TYPE_CHECKING

from loomlog.services.application.operations.interrupt_handlers import InterruptHandlers
from loomlog.services.core.operations import Handlers

if TYPE_CHECKING:
    from loomlog.services.application.application import Application


def application_handlers(application: "Application") -> Handlers:
    """Return the handler of each operation."""
    return {**InterruptHandlers(application).by_operation()}
