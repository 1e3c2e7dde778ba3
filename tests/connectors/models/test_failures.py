import json

import httpx
import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models import failures

NOW_S = 1_700_000_000.0


def from_status(status: int, body: bytes = b"", **more: object) -> ConnectorError:
    values: dict[str, object] = {"headers": {}, "now_s": NOW_S}
    return failures.from_status("some", status, body, **(values | more))  # type: ignore[arg-type]


def said(message: str) -> bytes:
    return json.dumps({"error": {"type": "x", "message": message}}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, "timeout"),
        (429, "rate_limited"),
        (500, "unavailable"),
        (501, "unavailable"),
        (502, "unavailable"),
        (503, "unavailable"),
        (504, "timeout"),
        (529, "overloaded"),
        (599, "unavailable"),
    ],
)
def test_these_statuses_are_transient(status: int, kind: str) -> None:
    failure = from_status(status, said("try again"))
    assert isinstance(failure, Transient)
    assert (failure.kind, failure.status, str(failure)) == (kind, status, f"some {status}: try again")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, "invalid"),
        (400, "invalid"),
        (401, "unauthorised"),
        (402, "quota_exhausted"),
        (403, "forbidden"),
        (404, "not_found"),
        (409, "invalid"),
        (410, "not_found"),
        (413, "context_exceeded"),
        (418, "invalid"),
        (422, "invalid"),
    ],
)
def test_these_statuses_are_permanent(status: int, kind: str) -> None:
    failure = from_status(status, said("no"))
    assert isinstance(failure, Permanent)
    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize("marker", failures.RETIRED_MODEL_MARKERS)
def test_a_404_in_the_words_of_a_retired_model_is_deprecated(marker: str) -> None:
    assert from_status(404, said(f"Sorry: {marker.upper()}.")).kind == "deprecated"


def test_a_400_is_deprecated_only_about_a_model() -> None:
    assert from_status(400, said("The parameter functions has been deprecated")).kind == "invalid"
    assert from_status(400, said("The model x has been deprecated")).kind == "deprecated"
    assert from_status(401, said("The model x has been deprecated")).kind == "unauthorised"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("17", 17.0),
        (" 0.5 ", 0.5),
        ("-3", 0.0),
        ("999999999", 86_400.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2000 22:14:20 GMT", 0.0),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    failure = from_status(429, headers=httpx.Headers({"Retry-After": header}))
    assert isinstance(failure, Transient)
    assert failure.retry_after_s == seconds


@pytest.mark.parametrize(
    ("requests", "tokens", "seconds"),
    [
        ("1s", "6m0s", 1.0),
        ("6m0s", "20ms", 0.02),
        ("0s", "2s", 2.0),
        ("1h2m3.5s", "", 3723.5),
        ("0s", "0ms", None),
        ("7", "s", None),
        ("1s junk", "x1s", None),
    ],
)
def test_the_smaller_reset_over_zero_counts_where_there_is_no_retry_after(
    requests: str, tokens: str, seconds: float | None
) -> None:
    headers = {"x-reset-requests": requests, "x-reset-tokens": tokens}
    names = ("x-reset-requests", "x-reset-tokens")
    assert failures.retry_after_s(headers, NOW_S, names) == (None if seconds is None else pytest.approx(seconds))
    assert failures.retry_after_s({**headers, "retry-after": "9"}, NOW_S, names) == 9.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "m"}}', "m"),
        (b'{"error": "m"}', "m"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": "m"}', "m"),
        (b'{"detail": [{"msg": 1}]}', "no explanation in the answer"),
        (b'[{"error": {"message": "m"}}]', "m"),
        (b'{"error": {"type": "overloaded_error"}}', "overloaded_error"),
        (b'{"error": {"message": ["m"]}}', "no explanation in the answer"),
        (b'{"error": {"message"', "an answer that begins like JSON but is not valid JSON"),
        (b"<html><head><TITLE> Bad\nGateway </title>", "an HTML page titled 'Bad\\nGateway'"),
        (b"<!DOCTYPE html><p>secret stuff", "an HTML page instead of JSON"),
        (b" plain\r\n\ttext \x00 here ", "plain text here"),
        (b"", "no explanation in the answer"),
        (b"[[[[[[1]]]]]]", "no explanation in the answer"),
    ],
)
def test_the_explanation_is_found_in_every_shape(body: bytes, message: str) -> None:
    assert str(from_status(500, body)) == f"some 500: {message}"


def test_a_message_is_bounded() -> None:
    assert len(str(from_status(500, said("word " * 10_000)))) < failures.MAX_MESSAGE_CHARACTERS + 20


def test_a_message_never_holds_the_key() -> None:
    failure = from_status(401, said("Incorrect API key sk-123: sk-123."), secret="sk-123")
    assert str(failure) == "some 401: Incorrect API key [key]: [key]."


def test_a_message_is_cut_where_it_repeats_the_request() -> None:
    prompt = "The patient, Jane Doe, was born on the first of May and complains about headaches. " * 3
    sent = json.dumps({"messages": [{"content": prompt}]}).encode()
    failure = from_status(400, f"cannot handle: {prompt}".encode(), request_body=sent)
    assert "headaches" not in str(failure)
    assert "[the rest repeats the request]" in str(failure)
    assert str(from_status(400, b"cannot handle: it", request_body=sent)) == "some 400: cannot handle: it"


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"type": "overloaded_error", "message": "m"}, "overloaded", 529),
        ({"type": "api_error", "message": "m"}, "unavailable", 500),
        ({"type": "rate_limit_error", "message": "m"}, "rate_limited", 429),
        ({"type": "timeout_error", "message": "m"}, "timeout", 504),
        ({"type": "invalid_request_error", "message": "m"}, "invalid", 400),
        ({"type": "authentication_error", "message": "m"}, "unauthorised", 401),
        ({"type": "permission_error", "message": "m"}, "forbidden", 403),
        ({"type": "not_found_error", "message": "m"}, "not_found", 404),
        ({"type": "request_too_large", "message": "m"}, "context_exceeded", 413),
        ({"code": 502, "message": "m"}, "unavailable", 502),
        ({"code": "429", "message": "m"}, "rate_limited", 429),
        ({"code": "context_length_exceeded", "type": "invalid_request_error", "message": "m"}, "context_exceeded", 400),
        ({"code": None, "type": "server_error", "message": "m"}, "unavailable", 500),
        ({"code": 7, "type": "brand_new", "message": "m"}, "unavailable", 0),
        ({"message": "m"}, "unavailable", 0),
        ("m", "unavailable", 0),
    ],
)
def test_an_error_inside_a_stream_is_classified_by_its_code_and_type(error: object, kind: str, status: int) -> None:
    failure = failures.from_error_object("some", error)
    assert (failure.kind, failure.status) == (kind, status)
    assert str(failure) == f"some{f' {status}' if status else ''}: m (error inside the stream)"


def test_an_error_inside_a_stream_may_say_how_long_to_wait() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}, {"retryDelay": "nonsense"}]
    failure = failures.from_error_object("some", {"code": 429, "message": "m", "details": details})
    assert isinstance(failure, Transient)
    assert failure.retry_after_s == 7.0


def test_an_error_inside_a_stream_may_be_anything() -> None:
    errors: list[object] = [None, [], 3, {}, {"code": {}}, {"code": "9" * 6000}]
    for error in errors:
        assert isinstance(failures.from_error_object("some", error), Transient)


def httpx_errors() -> list[type[Exception]]:
    found = [value for value in vars(httpx).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("kind", httpx_errors(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("streaming", [False, True])
def test_every_error_of_httpx_has_a_translation(kind: type[Exception], streaming: bool) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "it said sk-123")
    failure = failures.from_transport("some", error, action="POST /x", is_streaming=streaming, secret="sk-123")
    assert isinstance(failure, ConnectorError)
    assert str(failure).startswith("some: POST /x: ")
    assert "sk-123" not in str(failure)
    if isinstance(error, httpx.TimeoutException):
        assert failure.kind == "timeout"
    elif isinstance(error, httpx.NetworkError):
        assert failure.kind == ("broken_off" if streaming else "network")


def quota(
    quota_id: str, message: str = "You exceeded your current quota, please check your plan."
) -> dict[str, object]:
    violation = {"quotaMetric": "generate_content_free_tier_requests", "quotaId": quota_id}
    details = [{"violations": [violation]}, {"retryDelay": "34s"}]
    return {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}


def error(message: str = "m", **fields: object) -> dict[str, object]:
    return {"error": {"message": message, **fields}}


CURRENT_QUOTA = "You exceeded your current quota, please check your plan and billing details."
BODIES = [
    # the account has nothing left: nothing but a payment or another day helps
    ("openai", 429, error(CURRENT_QUOTA, code="insufficient_quota", type="insufficient_quota"), "quota_exhausted"),
    ("openai", 429, error(type="billing_not_active", code="billing_not_active"), "quota_exhausted"),
    ("openai", 400, error(code="billing_hard_limit_reached"), "quota_exhausted"),
    ("moonshot", 429, error(type="exceeded_current_quota_error"), "quota_exhausted"),
    (
        "zhipu",
        429,
        error("Insufficient balance or no resource package. Please recharge.", code="1113"),
        "quota_exhausted",
    ),
    ("deepseek", 402, error("Insufficient Balance", type="unknown_error"), "quota_exhausted"),
    ("openrouter", 402, error("Insufficient credits. Add more using the page.", code=402), "quota_exhausted"),
    ("openrouter", 429, error("Rate limit exceeded: free-models-per-day. Add 10 credits", code=429), "quota_exhausted"),
    ("openrouter", 403, error("Key limit exceeded (total limit).", code=403), "quota_exhausted"),
    ("xai", 429, error("Your team has either used all available credits or reached its"), "quota_exhausted"),
    ("anthropic", 402, error(type="billing_error"), "quota_exhausted"),
    (
        "anthropic",
        400,
        error("Your credit balance is too low to access the Anthropic API.", type="invalid_request_error"),
        "quota_exhausted",
    ),
    (
        "anthropic",
        400,
        error("You have reached your specified API usage limits. You will regain access on 2026-12-01."),
        "quota_exhausted",
    ),
    ("gemini", 429, quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), "quota_exhausted"),
    ("gemini", 429, quota("GenerateRequestsPerMinute", "Quota exceeded, limit: 0, model: gemini"), "quota_exhausted"),
    ("ollama", 429, {"error": "you've reached your hourly usage limit, please upgrade to continue"}, "quota_exhausted"),
    # the key is not accepted, with whatever status a gateway says so
    ("openai", 401, error("Incorrect API key provided: sk-x.", code="invalid_api_key"), "unauthorised"),
    ("gateway", 500, error(code="invalid_api_key", type="invalid_request_error"), "unauthorised"),
    ("gateway", 429, error("Invalid API key"), "unauthorised"),
    ("anthropic", 401, error("invalid x-api-key", type="authentication_error"), "unauthorised"),
    (
        "gemini",
        400,
        error("API key not valid.", status="INVALID_ARGUMENT", details=[{"reason": "API_KEY_INVALID"}]),
        "unauthorised",
    ),
    ("ollama", 401, {"error": "unauthorized"}, "unauthorised"),
    ("openai", 403, error(code="account_deactivated"), "forbidden"),
    # the conversation is too long: it can be compacted
    (
        "openai",
        400,
        error("This model's maximum context length is 128000 tokens.", code="context_length_exceeded"),
        "context_exceeded",
    ),
    (
        "vllm",
        400,
        {"object": "error", "message": "This model's maximum context length is 8 tokens."},
        "context_exceeded",
    ),
    ("llama.cpp", 400, error("the request exceeds the available context size", type="x"), "context_exceeded"),
    ("groq", 413, error("Request too large for model `m` on tokens per minute"), "context_exceeded"),
    ("xai", 400, {"error": "This model's maximum prompt length is 131072"}, "context_exceeded"),
    ("anthropic", 400, error("prompt is too long: 215000 tokens > 200000 maximum"), "context_exceeded"),
    (
        "anthropic",
        400,
        error("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        "context_exceeded",
    ),
    ("anthropic", 413, error(type="request_too_large"), "context_exceeded"),
    ("bedrock", 400, {"message": "Input is too long for requested model."}, "context_exceeded"),
    (
        "gemini",
        400,
        error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        "context_exceeded",
    ),
    ("ollama", 400, {"error": "the input length exceeds the context length"}, "context_exceeded"),
    # passing ones stay passing
    ("openai", 429, error("Rate limit reached for gpt-5", type="tokens", code="rate_limit_exceeded"), "rate_limited"),
    ("anthropic", 429, error("would exceed your rate limit", type="rate_limit_error"), "rate_limited"),
    ("gemini", 429, quota("GenerateRequestsPerMinutePerProjectPerModel"), "rate_limited"),
    ("mistral", 429, {"message": "Requests rate limit exceeded"}, "rate_limited"),
    ("ollama", 503, {"error": "server busy, please try again. maximum pending requests exceeded"}, "unavailable"),
    ("gateway", 502, error("upstream said: Invalid API key"), "unavailable"),
]
PASSING = {"rate_limited", "unavailable"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [pytest.param(status, body, kind, id=f"{who} {status} {kind}") for who, status, body, kind in BODIES],
)
def test_what_cannot_succeed_is_permanent_whatever_its_status(status: int, body: dict[str, object], kind: str) -> None:
    failure = from_status(status, json.dumps(body).encode())
    assert (failure.kind, failure.status, isinstance(failure, Transient)) == (kind, status, kind in PASSING)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"type": "insufficient_quota", "message": CURRENT_QUOTA}, "quota_exhausted"),
        ({"message": "prompt is too long: 3 tokens > 2 maximum"}, "context_exceeded"),
        ("the input length exceeds the context length", "context_exceeded"),
    ],
)
def test_it_is_the_same_inside_a_stream(value: object, kind: str) -> None:
    failure = failures.from_error_object("some", value)
    assert (type(failure), failure.kind) == (Permanent, kind)
