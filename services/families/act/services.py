"""Acts in a process: opened once, recorded where requests are. The runtime does not read them.

Before: services/families/opening.py. After: handlers.py, recording.py.
"""

from loomlog.projections.acts import SqlActReads
from loomlog.services.families.act.handlers import ActHandlers
from loomlog.services.families.act.recording import ActLog
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.ports.acts import ActRecorder
from loomlog.services.families.ports.current_request import CurrentRequest


def open_family(context: FamilyContext) -> FamilyServices:
    """Open acts."""
    handlers = ActHandlers(context.find(SqlActReads), decrypt=context.decrypt).by_operation()
    request = context.find(CurrentRequest)
    if request is None:
        return FamilyServices(handlers=handlers)
    acts = ActLog(context.parts.client.tell, request.origin, clock_ms=context.clock_ms, new_token=context.new_token)
    context.provide_as(ActRecorder, acts)
    return FamilyServices(handlers=handlers, tasks={"acts": acts.run})
