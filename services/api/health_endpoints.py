"""The checks of `loomlog doctor` that this process can make by itself, over HTTP.

Before: log_routes.py. After: services/application/health/health_checks.py.
"""

from starlette.requests import Request

from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.health.check import FAIL, Check
from loomlog.services.application.health.components import insights_check
from loomlog.services.application.log.json_types import HealthCheck, HealthReport
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused


async def get_health_report(service: Service, caller: Caller, request: Request) -> JsonResponse[HealthReport]:
    """Make the checks; what fails is an answer too."""
    checks = [*await service.application.health.checks(caller), await _check_insights(service)]
    return json_response({"ok": not any(check.state == FAIL for check in checks), "checks": list(map(_json, checks))})


async def _check_insights(service: Service) -> Check:
    place = service.insights.place
    if not place:
        return insights_check("")
    try:
        report = await service.insights.report()
    except Refused as refusal:
        return insights_check(place, error=refusal.message)
    return insights_check(place, lag_records=report["lag_records"])


def _json(check: Check) -> HealthCheck:
    return {"name": check.name, "state": check.state, "text": check.text, "remedy": check.remedy}
