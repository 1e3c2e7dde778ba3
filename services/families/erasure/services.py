"""Erasures in a process: opened once, where it is given the read models of erasures.

Before: services/families/opening.py. After: row_erasure.py.
"""

from loomlog.projections.erasures import SqlErasures
from loomlog.services.families.erasure import row_erasure
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.ports.row_erasure import RowErasure


def open_family(context: FamilyContext) -> FamilyServices:
    """Open erasures."""
    if (erasures := context.find(SqlErasures)) is not None:
        rows = row_erasure.RowErasure(context.commands, erasures, context.blobs, clock_ms=context.clock_ms)
        context.provide_as(RowErasure, rows)
    return FamilyServices()
