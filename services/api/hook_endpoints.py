"""Hooks over HTTP, in the formats of reference surfaces 8.1; fields that we add are additive.

Before: routes.py. After: services/application/admin/hooks.py.
"""

from starlette.requests import Request

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.request_models import HookBody
from loomlog.services.api.request_parsing import json_body
from loomlog.services.api.response_models import Hook, HookCreated, HookList, HookRemoved
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.admin.hooks import HookRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.families.hook.state import Hook as RegisteredHook

BODY_MAX = 256 * 1024


async def register_hook(service: Service, caller: Caller, request: Request) -> JsonResponse[HookCreated]:
    body = await json_body(request, HookBody, limit=BODY_MAX)
    result = await service.application.hooks.register(
        caller,
        HookRequest(
            owner=body.owner,
            name=body.name,
            phase=body.phase,
            callback_url=body.callback_url,
            agents=tuple(body.agents or ()),
            tools=tuple(body.tools or ()),
            fail_mode=body.fail_mode or "open",
            timeout_ms=body.timeout_ms or 0,
        ),
    )
    answer: HookCreated = {"id": result.hook_id, "signing_secret": result.signing_secret or None}
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def list_hooks(service: Service, caller: Caller, request: Request) -> JsonResponse[HookList]:
    return json_response({"hooks": [_hook_json(hook) for hook in service.application.hooks.list_hooks(caller)]})


async def remove_hook(service: Service, caller: Caller, request: Request) -> JsonResponse[HookRemoved]:
    hook_id = request.path_params["hook_id"]
    position = await service.application.hooks.remove(caller, hook_id)
    return json_response({"deleted": hook_id}, headers={POSITION_HEADER: position})


def _hook_json(hook: RegisteredHook) -> Hook:
    return {
        "id": hook.hook_id,
        "tenant_id": hook.tenant,
        "owner": hook.owner,
        "name": hook.name,
        "phase": hook.phase,
        "agents": hook.agents,
        "tools": hook.tools,
        "callback_url": hook.callback_url,
        "fail_mode": hook.fail_mode,
        "timeout_ms": hook.timeout_ms,
        "registered_at": format_rfc3339(hook.at_ms),
    }
