"""Acts in a process: opened once. The runtime does not read them.

Before: services/families/opening.py. After: handlers.py.
"""

from loomlog.projections.acts import SqlActReads
from loomlog.services.families.act.handlers import ActHandlers
from loomlog.services.families.opening import FamilyContext, FamilyServices


def open_family(context: FamilyContext) -> FamilyServices:
    """Open acts."""
    handlers = ActHandlers(context.find(SqlActReads), decrypt=context.decrypt)
    return FamilyServices(handlers=handlers.by_operation())
