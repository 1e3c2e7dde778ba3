"""Verifications of the log over HTTP, as server-sent events.

Before: operator_routes.py. After: services/application/log/audits.py.
"""

from starlette.requests import Request

from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import CONTROL_BODY_MAX, json_body
from loomlog.services.api.route import AsgiResponse
from loomlog.services.api.service import Service
from loomlog.services.application.bodies.models import VerifyBody
from loomlog.services.application.log.verifier import VerificationRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.times import parse_time_ms


async def verify_log(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    body = await json_body(request, VerifyBody, limit=CONTROL_BODY_MAX, optional=True)
    verification = VerificationRequest(
        run_id=body.run_id or "",
        partition=body.partition,
        since_ms=parse_time_ms("since", body.since) if body.since else None,
        entities_only=bool(body.entities),
        channels_only=bool(body.channels),
        max_unsigned_s=body.max_unsigned_s,
        follow_blobs=body.blobs is not False,
    )
    return EventStream(service.application.audits.verify(verification), with_ids=False)
