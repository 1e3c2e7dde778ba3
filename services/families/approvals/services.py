"""Approvals in a process: opened once.

Before: services/families/opening.py. After: handlers.py.
"""

from loomlog.services.families.approvals.handlers import PolicyHandlers
from loomlog.services.families.opening import FamilyContext, FamilyServices


def open_family(context: FamilyContext) -> FamilyServices:
    """Open approvals."""
    return FamilyServices(handlers=PolicyHandlers(context).by_operation())
