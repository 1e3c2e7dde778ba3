"""Responses: JSON, and the one error format of every refusal: {"code", "error"} and the details of the code.

The status of a code is defined only here. A test fails when a code of the command layer is missing here.

Before: endpoints. After: the ASGI response.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import orjson
from starlette.responses import Response

from loomlog.schemas.position import Position
from loomlog.services.application.errors import RequestRefused
from loomlog.services.application.request_context import current_request

POSITION_HEADER = "x-loomlog-position"
JSON_MEDIA_TYPE = "application/json"

STATUS_BY_CODE: Mapping[str, int] = {
    "bad_request": 400,
    "invalid_registration": 400,
    "confirm_mismatch": 400,
    "empty_source": 400,
    "unknown_agent": 400,
    "missing_value": 400,
    "missing_query": 400,
    "missing_scope_id": 400,
    "invalid_scope": 400,
    "invalid_value": 400,
    "invalid_sources": 400,
    "invalid_body": 400,
    "invalid_request": 400,
    "channel_scope_invalid": 400,
    "invalid_user_id": 400,
    "search_unavailable": 400,
    "dimension_mismatch": 400,
    "capability_unsupported": 400,
    "unauthorized": 401,
    "insufficient_scope": 403,
    "tier_agent_not_available": 403,
    "operator_key_restricted": 403,
    "forbidden_origin": 403,
    "forbidden_host": 403,
    "cross_site_refused": 403,
    "cross_site_login_refused": 403,
    "non_system_channel": 403,
    "not_found": 404,
    "channel_not_declared": 404,
    "unknown_webhook": 404,
    "bad_delivery": 400,
    "sync_timeout": 504,
    "runtime_unavailable": 503,
    "unauthenticated_mode_disabled": 503,
    "secret_unresolvable": 503,
    "unknown_user_tier": 400,
    "invalid_run": 400,
    "bad_mapping": 400,
    "channel_not_found": 404,
    "unknown_channel": 404,
    "unknown_agent_id": 404,
    "snapshot_not_found": 404,
    "provider_unknown": 404,
    "unknown_preset": 404,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "already_completed": 409,
    "nothing_to_resolve": 409,
    "run_paused": 409,
    "interrupt_closed": 409,
    "not_interactive": 409,
    "not_mid_turn": 409,
    "session_busy": 409,
    "agent_id_in_use": 409,
    "run_quarantined": 409,
    "bad_fork_point": 409,
    "run_id_taken": 409,
    "already_pausing": 409,
    "not_paused": 409,
    "run_busy": 409,
    "agent_gone": 409,
    "nothing_to_compact": 409,
    "keys_missing": 409,
    "content_in_clear": 409,
    "already_quarantined": 409,
    "not_quarantined": 409,
    "command_refused": 409,
    "definition_conflict": 409,
    "revision_conflict": 409,
    "channel_name_in_use": 409,
    "channel_yaml_immutable": 409,
    "channel_cursor_regression": 409,
    "sql_busy": 409,
    "sql_refused": 400,
    "sql_timeout": 400,
    "aggregate_quarantined": 409,
    "interrupt_expired": 410,
    "content_erased": 410,
    "payload_too_large": 413,
    "memory_value_too_large": 413,
    "memory_quota_exceeded": 413,
    "snapshot_too_large": 413,
    "unsupported_media_type": 415,
    "upgrade_required": 426,
    "command_invalid": 422,
    "tool_refused": 422,
    "empty_text": 422,
    "invalid_answer": 422,
    "idempotency_key_reused": 422,
    "snapshot_version_too_new": 422,
    "snapshot_version_unknown": 422,
    "backpressure": 429,
    "per_user_quota_exhausted": 429,
    "provider_concurrency_exhausted": 429,
    "token_limit_exceeded": 429,
    "queue_full": 429,
    "rate_limited": 429,
    "share_exhausted": 429,
    "internal": 500,
    "restore_failed": 500,
    "provider_list_failed": 502,
    "compaction_failed": 502,
    "runtime_paused": 503,
    "tier_unavailable": 503,
    "pin_unavailable": 503,
    "provider_unavailable": 503,
    "probe_unavailable": 503,
    "insights_unavailable": 503,
    "log_unavailable": 503,
    "keys_unavailable": 503,
    "projection_unavailable": 503,
    "blobs_unavailable": 503,
    "starting": 503,
    "stopping": 503,
    "outside_unavailable": 503,
    "run_pending": 503,
    "input_pending": 503,
    "cancel_pending": 503,
    "resolve_pending": 503,
    "import_pending": 503,
    "pause_pending": 503,
    "compact_pending": 503,
    "limit_pending": 503,
    "repair_pending": 503,
    "encryption_off": 503,
    "credentials_off": 503,
    "credentials_unavailable": 503,
    "quarantine_pending": 503,
    "command_pending": 503,
    "definition_pending": 503,
    "definitions_unavailable": 503,
    "memory_unavailable": 503,
    "sqlmem_unavailable": 503,
    "channel_unavailable": 503,
    "vector_unsupported": 503,
    "embedder_not_configured": 503,
    "embedder_not_implemented": 503,
    "embed_failed": 503,
    "not_yet": 503,
    "capacity_exhausted": 503,
}


T = TypeVar("T")


class JsonResponse(Response, Generic[T]):
    """A response whose body is the JSON of a `T`."""


def json_response(value: T, *, status: int = 200, headers: Mapping[str, str] | None = None) -> JsonResponse[T]:
    """The JSON of a value."""
    return JsonResponse(
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS),
        status_code=status,
        headers=headers,
        media_type=JSON_MEDIA_TYPE,
    )


def position_headers(*positions: str | None) -> dict[str, str] | None:
    """The header with the positions of what a request wrote, of each partition the newest, separated by commas; None
    when it wrote nothing.
    """
    newest: dict[tuple[str, int], Position] = {}
    for position in map(Position.parse, filter(None, positions)):
        place = position.topic, position.partition
        if place not in newest or newest[place].offset < position.offset:
            newest[place] = position
    return {POSITION_HEADER: ",".join(map(str, newest.values()))} if newest else None


def refusal_response(refusal: RequestRefused, headers: Mapping[str, str] | None = None) -> Response:
    """Return a refusal as a response, with the time to retry, the missing scope and how to authenticate."""
    status = STATUS_BY_CODE[refusal.code]
    response_headers = dict(headers or {})
    if refusal.retry_after_s is not None:
        response_headers["retry-after"] = str(refusal.retry_after_s)
    if status == 401:
        response_headers["www-authenticate"] = 'Bearer realm="loomlog"'
    if refusal.code == "insufficient_scope":
        response_headers["www-authenticate"] = f'Bearer realm="loomlog", scope="{refusal.details["scope"]}"'
    if position := refusal.details.get("position"):
        response_headers[POSITION_HEADER] = str(position)
    body = {**refusal.details, "code": refusal.code, "error": refusal.message}
    if request_id := current_request.get().request_id:
        body["request_id"] = request_id
    return json_response(body, status=status, headers=response_headers)
