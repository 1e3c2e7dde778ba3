"""Statuses, error objects and transport errors of a provider as Transient or Permanent.

All of it is pure: input is the response, output is the exception to raise. The message is `<provider> <status>: <the
provider's explanation>`. It is written to the log and returned to the caller, so it is one line of limited length. The
API key is removed, because gateways repeat it ("invalid key sk-..."). The text is cut where it begins to repeat the
request, because gateways echo prompts and a prompt does not belong in an error.

Not chosen: the status alone. A 404 with the wording of a retired model is `deprecated`, which lets the run switch to
another model; an error inside a stream that began with 200 has only its type; a 429 for an account that has nothing
left is not passing, whatever its status says, and a 400 for a conversation that is too long can be helped. What the
explanation of an error means is decided in `_permanent_kind`, for every status and every wire.

Before: wire and the folds of all drivers. After: the run, which decides about another attempt.
"""

import math
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models import untrusted_json

MAX_MESSAGE_CHARACTERS = 500
"""Limit in characters, enough for every real explanation; errors are kept in the log permanently."""
ECHO_CHARACTERS = 48
"""Consecutive characters that also occur in the request and count as an echo, not a coincidence."""
MAX_RETRY_AFTER_S = 86_400.0
"""Limit in seconds on a requested wait: a day; a larger figure is a mistake or an attack."""
RETIRED_MODEL_MARKERS = (
    "no longer available",
    "has been deprecated",
    "model is deprecated",
    "model retired",
    "update your code to use",
)

KIND_BY_STATUS = {
    401: "unauthorised",
    402: "quota_exhausted",
    403: "forbidden",
    404: "not_found",
    410: "not_found",
    413: "context_exceeded",
}
"""Kinds of Permanent by status; every other 3xx and 4xx is `invalid`."""
KIND_BY_CODE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "insufficient_quota",
            "billing_error",
            "billing_not_active",
            "billing_hard_limit_reached",
            "exceeded_current_quota_error",
            "insufficient_user_quota",
            "insufficient_credits",
            "insufficient_balance",
            "credit_limit_exceeded",
            "arrearage",
            "accountoverdueerror",
        ),
        "quota_exhausted",
    ),
    **dict.fromkeys(("invalid_api_key", "authentication_error", "unauthenticated", "api_key_invalid"), "unauthorised"),
    **dict.fromkeys(("account_deactivated", "access_terminated", "permission_error", "permission_denied"), "forbidden"),
    **dict.fromkeys(
        ("context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"),
        "context_exceeded",
    ),
}
"""Kinds of Permanent by code, type, status or reason of an error, in lower case, whatever its HTTP status is. Sources:
OpenAI, Anthropic, Google, Moonshot, new-api gateways, xAI, DashScope, Volcengine, llama.cpp.
"""
KIND_BY_WORDING: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (kind, re.compile("|".join(forms), re.IGNORECASE))
    for kind, forms in (
        (
            "context_exceeded",
            (
                r"maximum context length",  # OpenAI, vLLM, DeepSeek, OpenRouter, Mistral
                r"maximum prompt length",  # xAI
                r"prompt is too long",  # Anthropic, Ollama
                r"input is too long for requested model",  # Bedrock
                r"exceed(s|ed)? (the |its )?(available |maximum |model'?s )*(context|input) (limit|length|size|window)",
                r"input token count .{0,40}exceeds the maximum number of tokens",  # Gemini
                r"prompt token count of \d+ exceeds the limit",  # Copilot
                r"inputs? tokens \+ .?max_new_tokens.? must be",  # text-generation-inference
                r"context the overflows",  # LM Studio
                r"Request too large for ",  # OpenAI and Groq: more than the tokens of a minute
            ),
        ),
        (
            "quota_exhausted",
            (
                r"credit balance is too low",  # Anthropic
                r"reached your specified api usage limits",  # Anthropic
                r"insufficient (account )?(balance|credits|funds|quota)",  # DeepSeek, OpenRouter, Zhipu
                r"(used all available credits|reached (its|your) monthly spending limit)",  # xAI
                r"(hourly|daily|weekly|monthly) usage limit",  # Ollama
                r"free-models-per-day",  # OpenRouter
                r"key limit exceeded",  # OpenRouter
                r"\blimit: 0\b",  # Gemini: the tier has nothing of this model
            ),
        ),
        ("unauthorised", (r"(invalid|incorrect|expired) api[ _-]?key", r"api[ _-]?key (not valid|expired|not found)")),
    )
)
"""Kinds of Permanent by the wording of an explanation, where the code says less."""
PERMANENT_WORDING_STATUSES = frozenset({400, 401, 402, 403, 413, 422, 429})
"""Statuses at which the wording counts: that of a server's own failure may quote anything."""
DAILY_QUOTA = "perday"
"""Part of the id of a quota of Google's APIs that is not there again within any wait of a run."""

STATUS_BY_ERROR: Mapping[str, int] = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "tokens": 429,
    "requests": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
    "server_is_overloaded": 529,
    "timeout": 504,
    "timeout_error": 504,
    "overloaded_error": 529,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""HTTP status of a named error when it comes before the stream instead of inside it."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def from_status(
    provider: str,
    status: int,
    body: bytes,
    *,
    headers: Mapping[str, str],
    now_s: float,
    secret: str = "",
    request_body: bytes = b"",
    reset_headers: Sequence[str] = (),
) -> ConnectorError:
    """Return the failure for an answer with this status. `headers` have lower-case names or ignore case; `now_s` since
    1970.
    """
    detail = (
        printable_line(explanation(body), secret=secret, request_body=request_body) or "no explanation in the answer"
    )
    error = _error_object(body)
    asked_s = retry_after_s(headers, now_s, reset_headers)
    if asked_s is None:
        asked_s = _retry_delay_of(error)
    return classify_status(provider, status, detail, retry_after_s=asked_s, error=error)


def from_error_object(provider: str, error: object, *, secret: str = "", request_body: bytes = b"") -> ConnectorError:
    """Return the failure for an error object inside a stream, by its code and type; unknown ones are Transient."""
    named = untrusted_json.fields(error)
    detail = printable_line(
        explanation_of(error) or "no explanation in the stream", secret=secret, request_body=request_body
    )
    status = 0
    for field in ("code", "status", "type"):
        candidate = _status_of_code(named.get(field))
        if 400 <= candidate <= 599:
            status = candidate
            break
    if not status and _permanent_kind(status, detail, named) is None:
        return Transient(f"{provider}: {detail} (error inside the stream)", kind="unavailable")
    return classify_status(
        provider, status, f"{detail} (error inside the stream)", retry_after_s=_retry_delay_of(named), error=named
    )


def classify_status(
    provider: str,
    status: int,
    detail: str,
    *,
    retry_after_s: float | None,
    error: Mapping[str, Any] = untrusted_json.EMPTY,
) -> ConnectorError:
    """Return Permanent for an error that says so, else Transient for 408, 429 and every 5xx, Permanent for the rest."""
    message = f"{provider} {status}: {detail}" if status else f"{provider}: {detail}"
    named_kind = _permanent_kind(status, detail, error)
    if named_kind is not None:
        return Permanent(message, kind=named_kind, status=status)
    if status == 429:
        return Transient(message, kind="rate_limited", status=status, retry_after_s=retry_after_s)
    if status == 529:
        return Transient(message, kind="overloaded", status=status, retry_after_s=retry_after_s)
    if status in (408, 504):
        return Transient(message, kind="timeout", status=status, retry_after_s=retry_after_s)
    if status >= 500:
        return Transient(message, kind="unavailable", status=status, retry_after_s=retry_after_s)
    kind = KIND_BY_STATUS.get(status, "invalid")
    if _is_retired(status, detail):
        kind = "deprecated"
    return Permanent(message, kind=kind, status=status)


CLOSED_ERRORS = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""httpx errors raised when the other side has closed the connection, depending on how and when."""


def from_transport(
    provider: str,
    error: Exception,
    *,
    action: str,
    is_streaming: bool,
    secret: str = "",
    is_reused_connection: bool = False,
) -> ConnectorError:
    """Return the failure for a connection error of httpx. `action`: the operation in progress; `is_streaming`: after
    the headers; `is_reused_connection`: on a connection of an earlier call.
    """
    detail = printable_line(str(error), secret=secret) or type(error).__name__
    message = f"{provider}: {action}: {detail}"
    if isinstance(error, httpx.TimeoutException):
        return Transient(message, kind="timeout")
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.TooManyRedirects)):
        return Permanent(message, kind="invalid")
    if is_reused_connection and not is_streaming and isinstance(error, CLOSED_ERRORS):
        return Transient(f"{message}, on a connection that was kept from an earlier call", kind="stale")
    return Transient(message, kind="broken_off" if is_streaming else "network")


def retry_after_s(headers: Mapping[str, str], now_s: float, reset_headers: Sequence[str] = ()) -> float | None:
    """Return the requested wait: Retry-After in seconds or as a date, else the smallest reset over zero."""
    asked = headers.get("retry-after", "").strip()
    if asked:
        seconds = _seconds(asked)
        if seconds is None:
            seconds = _seconds_until(asked, now_s)
        if seconds is not None:
            return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
    resets = [duration_s(headers.get(name, "")) for name in reset_headers]
    return min((min(reset, MAX_RETRY_AFTER_S) for reset in resets if reset), default=None)


def _error_object(body: bytes) -> Mapping[str, Any]:
    """Return the error object in the body of a failure; empty without one."""
    if body.strip()[:1] not in (b"{", b"["):
        return untrusted_json.EMPTY
    try:
        decoded = untrusted_json.decode(body)
    except ValueError:
        return untrusted_json.EMPTY
    holder = untrusted_json.fields(decoded[0] if isinstance(decoded, list) and decoded else decoded)
    inner = holder.get("error")
    return inner if isinstance(inner, dict) else holder


def _permanent_kind(status: int, detail: str, error: Mapping[str, Any]) -> str | None:
    """Return the kind of a failure that its explanation makes permanent; None when its status decides."""
    details = [untrusted_json.fields(entry) for entry in untrusted_json.items(error.get("details"))]
    codes = [error.get(field) for field in ("code", "type", "status")] + [entry.get("reason") for entry in details]
    for code in codes:
        kind = KIND_BY_CODE.get(code.lower()) if isinstance(code, str) else None
        if kind is not None:
            return kind
    if status and status not in PERMANENT_WORDING_STATUSES:
        return None
    quotas = [untrusted_json.items(entry.get("violations")) for entry in details]
    ids = [
        untrusted_json.text(untrusted_json.fields(one).get("quotaId")) for violations in quotas for one in violations
    ]
    if any(DAILY_QUOTA in quota_id.lower() for quota_id in ids):
        return "quota_exhausted"
    return next((kind for kind, wording in KIND_BY_WORDING if wording.search(detail)), None)


def _retry_delay_of(error: Mapping[str, Any]) -> float | None:
    """Return the wait requested by Google's APIs: a RetryInfo among the details, where others use a header."""
    details = map(untrusted_json.fields, untrusted_json.items(error.get("details")))
    delays = [duration_s(untrusted_json.text(detail.get("retryDelay"))) for detail in details]
    return min((min(delay, MAX_RETRY_AFTER_S) for delay in delays if delay), default=None)


def duration_s(text: str) -> float:
    """Return the seconds of a duration like 6m0s, 1.5s or 20ms; 0 for anything else."""
    text = text.strip()
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return 0.0
    return math.fsum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in parts)


def explanation(body: bytes) -> str:
    """Return the explanation in the body of an error: its JSON message, the title of an HTML page,
    or short plain text.
    """
    stripped = body.strip()
    if stripped[:1] in (b"{", b"["):
        try:
            return explanation_of(untrusted_json.decode(stripped))
        except ValueError:
            return "an answer that begins like JSON but is not valid JSON"
    text = stripped.decode(errors="replace")
    if stripped[:1] == b"<":
        title = _HTML_TITLE.search(text)
        return f"an HTML page titled {title[1].strip()!r}" if title else "an HTML page instead of JSON"
    return text


def explanation_of(value: object) -> str:
    """Return the message of an error object in the shapes providers and gateways use; empty when there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return explanation_of(value[0]) if value and not isinstance(value[0], list) else ""
    holder = untrusted_json.fields(value)
    for field in ("error", "message", "detail"):
        inner: Any = holder.get(field)
        if isinstance(inner, str) and inner.strip():
            return inner
        if isinstance(inner, dict):
            for name in ("message", "detail", "type"):
                if untrusted_json.text(inner.get(name)).strip():
                    return untrusted_json.text(inner.get(name))
    return untrusted_json.text(holder.get("type"))


def printable_line(text: str, *, secret: str = "", request_body: bytes = b"") -> str:
    """Return one printable line of limited length, without the key and without parts that repeat the request."""
    if secret:
        text = text.replace(secret, "[key]")
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_MESSAGE_CHARACTERS * 4]).split())
    if len(line) > MAX_MESSAGE_CHARACTERS:
        line = line[: MAX_MESSAGE_CHARACTERS - 3] + "..."
    for start in range(0, len(line) - ECHO_CHARACTERS + 1, ECHO_CHARACTERS // 2) if request_body else ():
        if line[start : start + ECHO_CHARACTERS].encode(errors="replace") in request_body:
            return f"{line[:start]}[the rest repeats the request]"
    return line


def _status_of_code(value: object) -> int:
    """Return the HTTP status for a code or type: 502, "502" or "overloaded_error"; 0 when there is none."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"[1-5][0-9]{2}", value) else STATUS_BY_ERROR.get(value.lower(), 0)
    return untrusted_json.count(value)


def _is_retired(status: int, detail: str) -> bool:
    """Return whether the model is retired: for 404 and 410 by the wording alone; for 400 only if it is about a model,
    since parameters are deprecated too.
    """
    words = detail.lower()
    if status not in (404, 410) and not (status == 400 and "model" in words):
        return False
    return any(marker in words for marker in RETIRED_MODEL_MARKERS)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _seconds_until(date: str, now_s: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
