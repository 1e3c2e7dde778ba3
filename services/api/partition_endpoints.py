"""The partitions of the log over HTTP: owners, take-overs, cursors.

Before: operator_routes.py. After: services/application/queries/partitions.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import query_integer
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.queries.partitions import TAKEOVERS_DEFAULT, TAKEOVERS_MAX, PartitionList
from loomlog.services.core.access.decide import Caller


async def list_partitions(service: Service, caller: Caller, request: Request) -> JsonResponse[PartitionList]:
    takeovers = query_integer(request, "takeovers", TAKEOVERS_DEFAULT, minimum=1, maximum=TAKEOVERS_MAX)
    return json_response(await service.application.partitions.list(caller, takeovers=takeovers))
