"""The one table of error codes: how each surface answers a refusal.

A code is what clients switch on, so it stays. A test fails for a code that is raised without a row, and for a row with
a cell that no surface has. Not chosen: a mapping beside each surface, where a new code is forgotten in all but one.

The statuses of gRPC are those that its clients tell apart (parity: reference surfaces 2.3). JSON-RPC has -32602 for a
request that is wrong in itself, -32600 for one of the wrong form, -32601 for what is not served, -32603 for a bug,
-32001 for a caller who may not (parity: reference surfaces 3.1), and -32000 otherwise. MCP answers what a model can act
on as a result with isError.

Before: refusals.py. After: services/api/responses.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

INVALID_PARAMETERS, INVALID_REQUEST, NO_SUCH_METHOD, INTERNAL_ERROR = -32602, -32600, -32601, -32603
SERVER_ERROR, NOT_PERMITTED = -32000, -32001


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """How a code is answered."""

    http: int
    """Status; of a code with `shown_as`, the status of that one."""
    grpc: str
    """Name of the status."""
    jsonrpc: int = SERVER_ERROR
    is_tool_error: bool = True
    """MCP answers tools/call with a result that has isError; otherwise with an error of JSON-RPC."""
    shown_as: str = ""
    """Code that HTTP has in its place, with this one in the details; empty for a code that HTTP has itself."""


INVALID = ErrorRow(http=400, grpc="INVALID_ARGUMENT", jsonrpc=INVALID_PARAMETERS)
UNPROCESSABLE = replace(INVALID, http=422)
TOO_LARGE = replace(INVALID, http=413)
FULL = ErrorRow(http=413, grpc="RESOURCE_EXHAUSTED")
NOT_POSSIBLE = ErrorRow(http=400, grpc="FAILED_PRECONDITION")
UNKNOWN_VERSION = replace(NOT_POSSIBLE, http=422)
TOO_SLOW = ErrorRow(http=400, grpc="DEADLINE_EXCEEDED")
CONFLICT = ErrorRow(http=409, grpc="FAILED_PRECONDITION")
TAKEN = ErrorRow(http=409, grpc="ALREADY_EXISTS")
OUTDATED = ErrorRow(http=409, grpc="ABORTED")
GONE = ErrorRow(http=410, grpc="FAILED_PRECONDITION")
NOT_FOUND = ErrorRow(http=404, grpc="NOT_FOUND")
UNAUTHENTICATED = ErrorRow(http=401, grpc="UNAUTHENTICATED", jsonrpc=NOT_PERMITTED, is_tool_error=False)
FORBIDDEN = ErrorRow(http=403, grpc="PERMISSION_DENIED", jsonrpc=NOT_PERMITTED)
FOREIGN = replace(FORBIDDEN, is_tool_error=False)
NOT_SERVED = ErrorRow(http=404, grpc="UNIMPLEMENTED", jsonrpc=NO_SUCH_METHOD, is_tool_error=False)
WRONG_FORM = ErrorRow(http=415, grpc="INVALID_ARGUMENT", jsonrpc=INVALID_REQUEST, is_tool_error=False)
EXHAUSTED = ErrorRow(http=429, grpc="RESOURCE_EXHAUSTED")
UNAVAILABLE = ErrorRow(http=503, grpc="UNAVAILABLE")
SWITCHED_OFF = ErrorRow(http=503, grpc="FAILED_PRECONDITION")
FAILED_OUTSIDE = ErrorRow(http=502, grpc="UNAVAILABLE")
BUG = ErrorRow(http=500, grpc="INTERNAL", jsonrpc=INTERNAL_ERROR)
IN_REFUSAL = replace(CONFLICT, shown_as="command_refused")
"""HTTP has the code in `refusal`."""
IN_REASON = replace(UNPROCESSABLE, shown_as="tool_refused")
"""HTTP has the code in `reason`: those of definitions."""
FORBIDDEN_IN_REASON = replace(IN_REASON, grpc="PERMISSION_DENIED", jsonrpc=NOT_PERMITTED)
MISSING_IN_REASON = replace(IN_REASON, grpc="NOT_FOUND", jsonrpc=SERVER_ERROR)
CONFLICT_IN_REASON = replace(IN_REASON, grpc="FAILED_PRECONDITION", jsonrpc=SERVER_ERROR)

ERRORS: Mapping[str, ErrorRow] = {
    "bad_delivery": INVALID,
    "bad_mapping": INVALID,
    "bad_request": INVALID,
    "channel_scope_invalid": INVALID,
    "confirm_mismatch": INVALID,
    "dimension_mismatch": INVALID,
    "invalid_access_mode": INVALID,
    "invalid_body": INVALID,
    "invalid_registration": INVALID,
    "invalid_request": INVALID,
    "invalid_run": INVALID,
    "invalid_scope": INVALID,
    "invalid_sources": INVALID,
    "invalid_status": INVALID,
    "invalid_user_id": INVALID,
    "invalid_value": INVALID,
    "missing_query": INVALID,
    "missing_scope_id": INVALID,
    "missing_subject": INVALID,
    "missing_value": INVALID,
    "sql_refused": INVALID,
    "tenant_required": INVALID,
    "unknown_agent": INVALID,
    "unknown_user_tier": INVALID,
    "empty_source": NOT_POSSIBLE,
    "search_unavailable": NOT_POSSIBLE,
    "sql_timeout": TOO_SLOW,
    "capability_unsupported": replace(NOT_POSSIBLE, grpc="UNIMPLEMENTED"),
    "unauthorized": UNAUTHENTICATED,
    "insufficient_scope": FORBIDDEN,
    "not_an_approver": FORBIDDEN,
    "non_system_channel": FORBIDDEN,
    "operator_key_restricted": FORBIDDEN,
    "tier_agent_not_available": FORBIDDEN,
    "cross_site_login_refused": FOREIGN,
    "cross_site_refused": FOREIGN,
    "forbidden_host": FOREIGN,
    "forbidden_origin": FOREIGN,
    "channel_not_declared": NOT_FOUND,
    "channel_not_found": NOT_FOUND,
    "not_found": NOT_FOUND,
    "provider_unknown": replace(NOT_FOUND, grpc="INVALID_ARGUMENT"),
    "snapshot_not_found": NOT_FOUND,
    "token_not_found": NOT_FOUND,
    "unknown_agent_id": NOT_FOUND,
    "unknown_channel": NOT_FOUND,
    "unknown_preset": NOT_FOUND,
    "unknown_webhook": NOT_FOUND,
    "user_not_found": NOT_FOUND,
    "route_not_found": NOT_SERVED,
    "method_not_allowed": replace(NOT_SERVED, http=405),
    "request_timeout": replace(TOO_SLOW, http=408),
    "agent_gone": CONFLICT,
    "aggregate_quarantined": CONFLICT,
    "already_approved": CONFLICT,
    "already_completed": CONFLICT,
    "already_pausing": CONFLICT,
    "already_quarantined": CONFLICT,
    "approval_closed": CONFLICT,
    "approval_mismatch": CONFLICT,
    "approval_needed": CONFLICT,
    "bad_fork_point": CONFLICT,
    "channel_yaml_immutable": CONFLICT,
    "command_refused": CONFLICT,
    "content_in_clear": CONFLICT,
    "interrupt_closed": CONFLICT,
    "keys_missing": CONFLICT,
    "not_interactive": CONFLICT,
    "not_mid_turn": CONFLICT,
    "not_paused": CONFLICT,
    "not_quarantined": CONFLICT,
    "nothing_to_compact": CONFLICT,
    "nothing_to_resolve": CONFLICT,
    "run_busy": CONFLICT,
    "run_paused": CONFLICT,
    "run_quarantined": CONFLICT,
    "session_busy": CONFLICT,
    "user_disabled": CONFLICT,
    "channel_cursor_regression": OUTDATED,
    "definition_conflict": OUTDATED,
    "revision_conflict": OUTDATED,
    "sql_busy": OUTDATED,
    "agent_id_in_use": TAKEN,
    "channel_name_in_use": TAKEN,
    "run_id_taken": TAKEN,
    "user_exists": TAKEN,
    "content_erased": GONE,
    "interrupt_expired": GONE,
    "memory_quota_exceeded": FULL,
    "snapshot_too_large": FULL,
    "memory_value_too_large": TOO_LARGE,
    "payload_too_large": TOO_LARGE,
    "unsupported_media_type": WRONG_FORM,
    "snapshot_version_too_new": UNKNOWN_VERSION,
    "snapshot_version_unknown": UNKNOWN_VERSION,
    "command_invalid": UNPROCESSABLE,
    "empty_text": UNPROCESSABLE,
    "idempotency_key_reused": UNPROCESSABLE,
    "invalid_answer": UNPROCESSABLE,
    "tool_refused": UNPROCESSABLE,
    "upgrade_required": replace(WRONG_FORM, http=426),
    "backpressure": EXHAUSTED,
    "per_user_quota_exhausted": EXHAUSTED,
    "provider_concurrency_exhausted": EXHAUSTED,
    "queue_full": EXHAUSTED,
    "rate_limited": EXHAUSTED,
    "share_exhausted": EXHAUSTED,
    "tenant_quota_exhausted": EXHAUSTED,
    "token_limit_exceeded": EXHAUSTED,
    "internal": BUG,
    "restore_failed": BUG,
    "compaction_failed": FAILED_OUTSIDE,
    "provider_list_failed": FAILED_OUTSIDE,
    "credentials_off": SWITCHED_OFF,
    "embedder_not_configured": SWITCHED_OFF,
    "embedder_not_implemented": SWITCHED_OFF,
    "encryption_off": SWITCHED_OFF,
    "audit_unavailable": UNAVAILABLE,
    "minting_off": SWITCHED_OFF,
    "secret_unresolvable": SWITCHED_OFF,
    "sqlmem_unavailable": SWITCHED_OFF,
    "unauthenticated_mode_disabled": SWITCHED_OFF,
    "vector_unsupported": SWITCHED_OFF,
    "blobs_unavailable": UNAVAILABLE,
    "cancel_pending": UNAVAILABLE,
    "channel_unavailable": UNAVAILABLE,
    "command_pending": UNAVAILABLE,
    "compact_pending": UNAVAILABLE,
    "credentials_unavailable": UNAVAILABLE,
    "definition_pending": UNAVAILABLE,
    "definitions_unavailable": UNAVAILABLE,
    "embed_failed": UNAVAILABLE,
    "identity_unavailable": UNAVAILABLE,
    "import_pending": UNAVAILABLE,
    "input_pending": UNAVAILABLE,
    "insights_unavailable": UNAVAILABLE,
    "metrics_off": SWITCHED_OFF,
    "keys_unavailable": UNAVAILABLE,
    "limit_pending": UNAVAILABLE,
    "log_unavailable": UNAVAILABLE,
    "memory_unavailable": UNAVAILABLE,
    "not_yet": UNAVAILABLE,
    "outside_unavailable": UNAVAILABLE,
    "pause_pending": UNAVAILABLE,
    "pin_unavailable": UNAVAILABLE,
    "probe_unavailable": UNAVAILABLE,
    "projection_unavailable": UNAVAILABLE,
    "provider_unavailable": UNAVAILABLE,
    "quarantine_pending": UNAVAILABLE,
    "repair_pending": UNAVAILABLE,
    "resolve_pending": UNAVAILABLE,
    "run_pending": UNAVAILABLE,
    "runtime_paused": UNAVAILABLE,
    "runtime_unavailable": UNAVAILABLE,
    "starting": UNAVAILABLE,
    "stopping": UNAVAILABLE,
    "tier_unavailable": UNAVAILABLE,
    "capacity_exhausted": replace(EXHAUSTED, http=503),
    "sync_timeout": replace(TOO_SLOW, http=504),
    "channel_not_granted": IN_REFUSAL,
    "cursor_regression": IN_REFUSAL,
    "lease_lost": IN_REFUSAL,
    "quarantined": IN_REFUSAL,
    "sql_quota_exceeded": IN_REFUSAL,
    "state_too_large": IN_REFUSAL,
    "content_needed": CONFLICT_IN_REASON,
    "last_administrator": CONFLICT_IN_REASON,
    "name_taken": CONFLICT_IN_REASON,
    "retired": CONFLICT_IN_REASON,
    "static_name": CONFLICT_IN_REASON,
    "grants_exceeded": FORBIDDEN_IN_REASON,
    "host_not_allowed": FORBIDDEN_IN_REASON,
    "scope_denied": FORBIDDEN_IN_REASON,
    "tools_widened": FORBIDDEN_IN_REASON,
    "bad_name": IN_REASON,
    "invalid_definition": IN_REASON,
    "missing_field": IN_REASON,
    "name_mismatch": IN_REASON,
    "too_large": IN_REASON,
    "too_many": IN_REASON,
    "unknown_field": IN_REASON,
    "unknown_op": IN_REASON,
    "parent_not_found": MISSING_IN_REASON,
    "unknown_run": MISSING_IN_REASON,
}

STATUS_BY_CODE: Mapping[str, int] = {code: row.http for code, row in ERRORS.items() if not row.shown_as}
"""The codes that HTTP has, with their statuses."""


def says_missing(code: str) -> bool:
    """Whether a code says that what was named is not there."""
    row = ERRORS.get(code)
    return row is not None and row.grpc == "NOT_FOUND"
