"""The one way a use case refuses: a stable code, a sentence that says what to do, and sometimes a delay for a retry.

How each layer refuses or fails, and what it becomes:

    services/core      CommandRefusal (a value)         the event CommandRefused or RunRefused
    services/application  RequestRefused (code)         an HTTP status (services/api/responses.py)
    connectors         ConnectorError                   Transient: retried; Permanent: 502, 503 or a failed call
      tools            ToolCallRefused                  the result of the tool call, an error for the model
    schemas            Undecodable                      a dead letter or a quarantined run
    services/cli       CliError                         a sentence and an exit code (services/cli/errors.py)

Transports translate the code (services/api/responses.py has the HTTP status of each) and add nothing. The codes are a
closed list, so that a transport which does not know one fails in a test and not in front of a client.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.services.core.shares import ShareExhausted

if TYPE_CHECKING:  # the command line translates these errors, and the generated records take long to import
    from loomlog.schemas.generated.values import LimitNotice

RETRY_LATER_S = 5
"""Retry delay for callers that reached a limit: runs take seconds, so sooner is useless (parity: reference surfaces
0.5).
"""
RETRY_SOON_S = 1
"""Retry delay for something that passes quickly: a start, a projection slightly behind."""

CODES = frozenset(
    {
        # the request
        "bad_request",
        "invalid_registration",
        "confirm_mismatch",
        "unknown_agent",
        "unsupported_media_type",
        "payload_too_large",
        "missing_value",
        "missing_query",
        "missing_scope_id",
        "invalid_scope",
        "invalid_value",
        "invalid_sources",
        "invalid_body",
        "invalid_request",
        "channel_scope_invalid",
        "invalid_user_id",
        "memory_value_too_large",
        "memory_quota_exceeded",
        "sql_refused",
        "sql_timeout",
        "sql_busy",
        "search_unavailable",
        "dimension_mismatch",
        "capability_unsupported",
        "request_timeout",
        "empty_text",
        "invalid_answer",
        "encryption_off",
        "credentials_off",
        "idempotency_key_reused",
        # the caller
        "unauthorized",
        "insufficient_scope",
        "tier_agent_not_available",
        "operator_key_restricted",
        "forbidden_origin",
        "forbidden_host",
        "cross_site_refused",
        "cross_site_login_refused",
        "non_system_channel",
        # the resource
        "not_found",
        "channel_not_declared",
        "unknown_webhook",
        "bad_delivery",
        "sync_timeout",
        "runtime_unavailable",
        "unauthenticated_mode_disabled",
        "secret_unresolvable",
        "unknown_user_tier",
        "invalid_run",
        "bad_mapping",
        "channel_not_found",
        "unknown_channel",
        "unknown_agent_id",
        "provider_unknown",
        "unknown_preset",
        "route_not_found",
        "method_not_allowed",
        "upgrade_required",
        "session_busy",
        "agent_id_in_use",
        "run_quarantined",
        "already_completed",
        "nothing_to_resolve",
        "run_paused",
        "interrupt_closed",
        "interrupt_expired",
        "not_interactive",
        "not_mid_turn",
        "bad_fork_point",
        "content_erased",
        "run_id_taken",
        "snapshot_not_found",
        "snapshot_too_large",
        "snapshot_version_too_new",
        "snapshot_version_unknown",
        "restore_failed",
        "keys_missing",
        "content_in_clear",
        "already_pausing",
        "not_paused",
        "run_busy",
        "agent_gone",
        "empty_source",
        "nothing_to_compact",
        "compaction_failed",
        "already_quarantined",
        "not_quarantined",
        "command_invalid",
        "command_refused",
        "tool_refused",
        "definition_conflict",
        "revision_conflict",
        "channel_name_in_use",
        "channel_yaml_immutable",
        "channel_cursor_regression",
        "aggregate_quarantined",
        # limits
        "backpressure",
        "per_user_quota_exhausted",
        "provider_concurrency_exhausted",
        "token_limit_exceeded",
        "queue_full",
        "rate_limited",
        "share_exhausted",
        "capacity_exhausted",
        # unavailable dependencies
        "runtime_paused",
        "tier_unavailable",
        "pin_unavailable",
        "provider_unavailable",
        "provider_list_failed",
        "probe_unavailable",
        "insights_unavailable",
        "log_unavailable",
        "keys_unavailable",
        "projection_unavailable",
        "blobs_unavailable",
        "credentials_unavailable",
        "starting",
        "stopping",
        "outside_unavailable",
        "run_pending",
        "input_pending",
        "cancel_pending",
        "resolve_pending",
        "import_pending",
        "pause_pending",
        "compact_pending",
        "limit_pending",
        "repair_pending",
        "quarantine_pending",
        "command_pending",
        "definition_pending",
        "definitions_unavailable",
        "memory_unavailable",
        "sqlmem_unavailable",
        "channel_unavailable",
        "vector_unsupported",
        "embedder_not_configured",
        "embedder_not_implemented",
        "embed_failed",
        "not_yet",
        "internal",
    }
)

CODE_ALIASES: Mapping[str, str] = {"invalid_argument": "bad_request", "invalid_request": "bad_request"}
"""Codes of a run's owner that clients know by another name."""


FAMILY_CODES: Mapping[str, str] = {
    "quarantined": "aggregate_quarantined",
    **{
        code: code
        for code in (
            "bad_request",
            "not_found",
            "empty_text",
            "invalid_answer",
            "invalid_registration",
            "already_completed",
            "already_pausing",
            "not_paused",
            "content_erased",
            "queue_full",
            "backpressure",
            "token_limit_exceeded",
        )
    },
}
"""Codes of the commands of families that clients know by a name of this API; the others are in `refusal` of a
command_invalid or command_refused. Not among them: codes about the caller, the transport or a dependency, which a
decision cannot be about.
"""
INVALID_PREFIXES = ("invalid", "bad", "too_", "unknown", "empty", "missing")
INVALID_SUFFIXES = ("_invalid", "_too_large", "_too_long", "_too_many")
"""A code like that is about the command, whatever the state: sent again, it is refused again."""

QUOTA_FIELDS: Mapping[str, str] = {"per_user_quota_exhausted": "user_id", "provider_concurrency_exhausted": "provider"}
"""Field of the response that names the exhausted user or provider (parity: reference surfaces 0.5)."""


class RequestRefused(Exception):
    """Nothing was done, or (the codes that end in _pending) it will be done later. `details` join the answer."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_after_s: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.details: Mapping[str, Any] = details or {}


def bad_request(message: str) -> RequestRefused:
    """Return the refusal of an invalid request; the message names the field."""
    return RequestRefused("bad_request", message)


def owner_refusal(
    code: str, message: str, limit: "LimitNotice | None" = None, *, subject: str = "", cap: int = 0
) -> RequestRefused:
    """Return the refusal for a decision of the run's owner. A code unknown to this process is passed through.

    `limit`: the spending limit that was reached; `about`, `cap`: the user or provider at its limit, and the limit.
    """
    known = CODE_ALIASES.get(code, code)
    if known not in CODES:
        return RequestRefused("bad_request", f"{code}: {message}")
    waits = known in (
        "backpressure",
        "per_user_quota_exhausted",
        "provider_concurrency_exhausted",
    )
    details = None if limit is None else {k: v for k, v in limit.to_avro().items() if k != "severity"}
    if known in QUOTA_FIELDS:
        details = {QUOTA_FIELDS[known]: subject, "cap": cap}
    return RequestRefused(known, message, retry_after_s=RETRY_LATER_S if waits else None, details=details)


def family_refusal(code: str, message: str) -> RequestRefused:
    """Return the refusal for a CommandRefused of a family, with its code. Unknown codes become command_invalid when
    they are about the command itself, and otherwise command_refused: the state does not allow it.
    """
    if code in FAMILY_CODES:
        waits = code in ("backpressure", "queue_full")
        return RequestRefused(FAMILY_CODES[code], message, retry_after_s=RETRY_LATER_S if waits else None)
    return RequestRefused(
        "command_invalid" if is_invalid_code(code) else "command_refused", message or code, details={"refusal": code}
    )


def is_invalid_code(code: str) -> bool:
    """Return whether a refusal with that code is about the command alone: sent again, it is refused again."""
    return code.startswith(INVALID_PREFIXES) or code.endswith(INVALID_SUFFIXES)


def share_refusal(error: ShareExhausted) -> RequestRefused:
    """Return the refusal for a bounded resource: the caller's own share is used up, or the total of the process is."""
    return RequestRefused(
        "share_exhausted" if error.is_own else "capacity_exhausted",
        str(error),
        retry_after_s=error.retry_after_s,
        details={"resource": error.resource, "bound": error.bound, "held": error.held, "limit": error.limit},
    )


def key_reused() -> RequestRefused:
    """Return the refusal of a request whose Idempotency-Key was used for one with another body."""
    return RequestRefused(
        "idempotency_key_reused",
        "this Idempotency-Key was used for a request with another body, which was carried out; use a new key for a new "
        "request",
    )


def stopping_error() -> RequestRefused:
    """Return the refusal of a process that is shutting down."""
    return RequestRefused(
        "stopping",
        "this process is being stopped before it could answer; what was asked may still take effect: ask again, with "
        "the same Idempotency-Key",
        retry_after_s=RETRY_SOON_S,
    )


def unavailable(dependency: str, error: ConnectorError) -> RequestRefused:
    """Return the refusal for a dependency that does not answer: log, projection, blobs or credentials. Details are not
    exposed.
    """
    hint = "it is not set up rightly; see the logs" if isinstance(error, Permanent) else "try again in a moment"
    names = {
        "log": "the log",
        "projection": "the read models",
        "blobs": "the blob store",
        "credentials": "the store of credentials",
        "outside": "something that is needed for this",
    }
    return RequestRefused(
        f"{dependency}_unavailable",
        f"{names[dependency]} cannot be reached ({error.kind}); {hint}",
        retry_after_s=RETRY_SOON_S,
    )
