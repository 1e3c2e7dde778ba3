"""The live figures over HTTP: the report of the insights service.

Before: operator_routes.py. After: shared_insights.py.
"""

from starlette.requests import Request

from loomlog.connectors.http.insights_report import InsightsReport
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def get_insights(service: Service, caller: Caller, request: Request) -> JsonResponse[InsightsReport]:
    return json_response(await service.insights.report())
