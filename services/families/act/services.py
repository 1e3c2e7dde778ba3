"""Acts in a process: opened once, recorded where requests are. The runtime does not read them.

Before: services/families/opening.py. After: handlers.py, recording.py.
"""

import os

from loomlog.projections.acts import SqlActReads
from loomlog.schemas.ids import fresh_token
from loomlog.services.families.act.handlers import ActHandlers
from loomlog.services.families.act.recording import ActLog
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.ports.acts import ActRecorder
from loomlog.services.families.ports.current_request import CurrentRequest

TOKEN_BYTES = 10
"""Random bytes of an id; the number that loomlog.schemas.ids takes."""


def open_family(context: FamilyContext) -> FamilyServices:
    """Open acts."""
    handlers = ActHandlers(context.find(SqlActReads), decrypt=context.decrypt).by_operation()
    request = context.find(CurrentRequest)
    if request is None:
        return FamilyServices(handlers=handlers)

    def new_token() -> str:
        return fresh_token(context.clock_ms(), os.urandom(TOKEN_BYTES))

    acts = ActLog(context.parts.client.tell, request.origin, clock_ms=context.clock_ms, new_token=new_token)
    context.provide_as(ActRecorder, acts)
    return FamilyServices(handlers=handlers, tasks={"acts": acts.run})
