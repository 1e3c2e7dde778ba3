"""The report of a subject over HTTP, and without a subject those of a tenant: two operations of one route.

Before: data_routes.py. After: services/application/operations/erasure.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import query_text
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.erasure import SubjectList, SubjectReport
from loomlog.services.application.operations.erasure import LIST_SUBJECTS, REPORT
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import AnyOperation


async def report_subject(
    service: Service, caller: Caller, request: Request
) -> JsonResponse[SubjectReport] | JsonResponse[SubjectList]:
    """Return a subject's report; without a subject, every subject in the tenant that has or had a key."""
    fields = {"tenant": query_text(request, "tenant")}
    operation: AnyOperation = LIST_SUBJECTS
    if subject := query_text(request, "subject"):
        operation, fields = REPORT, {**fields, "subject": subject}
    return json_response((await service.application.dispatch.request(operation, caller, fields)).value)
