"""Pausing the installation over HTTP, in the formats of reference surfaces 1.9; fields that we add are additive.

Before: routes.py. After: services/application/admin/pauses.py.
"""

from starlette.requests import Request

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.request_models import PauseBody, ResumeBody
from loomlog.services.api.request_parsing import json_body
from loomlog.services.api.response_models import PauseApplied, PauseLifted, PauseState
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.admin.pauses import PauseTarget
from loomlog.services.core.access.decide import Caller

BODY_MAX = 64 * 1024
DEFAULT_WAIT_MS = 30_000
"""Default milliseconds that a pause waits until all runs have stopped."""


async def pause_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[PauseApplied]:
    body = await json_body(request, PauseBody, limit=BODY_MAX, optional=True)
    timeout_s = (DEFAULT_WAIT_MS if body.timeout_ms is None else body.timeout_ms) / 1000
    still = await service.application.wide_pauses.pause(
        caller, _to_target(body), reason=body.reason or "", timeout_s=timeout_s
    )
    answer: PauseApplied = {
        "state": still.state,
        "duration_ms": still.duration_ms,
        # A pause never cancels anything; the key stays, because clients read it.
        "force_cancelled_count": 0,
        "paused_runs_count": still.paused,
        "warnings": [f"{run_id} does not stand still yet" for run_id in still.pending_runs],
    }
    return json_response(answer, headers={POSITION_HEADER: still.position})


async def resume_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[PauseLifted]:
    body = await json_body(request, ResumeBody, limit=BODY_MAX, optional=True)
    still = await service.application.wide_pauses.resume(caller, _to_target(body))
    answer: PauseLifted = {"state": still.state, "resumed_runs_count": still.resumed}
    return json_response(answer, headers={POSITION_HEADER: still.position})


async def get_pause_state(service: Service, caller: Caller, request: Request) -> JsonResponse[PauseState]:
    still, pauses = await service.application.wide_pauses.state(caller)
    return json_response(
        {
            "state": still.state,
            "paused_runs_count": still.paused,
            "pauses": [
                {
                    "scope": pause.scope,
                    "tenant": pause.tenant or None,
                    "agent": pause.agent or None,
                    "reason": pause.reason or None,
                    "by": pause.by,
                    "at": format_rfc3339(pause.at_ms),
                }
                for pause in pauses
            ],
        }
    )


def _to_target(body: PauseBody | ResumeBody) -> PauseTarget:
    return PauseTarget(scope=body.scope or "all", tenant=body.tenant or "", agent=body.agent or "")
