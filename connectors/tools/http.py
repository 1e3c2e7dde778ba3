"""HTTP: one request to an allowed host, with the response returned unchanged.

The answer is the status line, the headers, an empty line and the body. A status such as 404 is not an error: the model
reads it. Requests that change something carry the call's idempotency key, the same over all attempts, so that a server
that supports the header executes a repeated request once.

Effect class by method, as HTTP defines them: GET and HEAD read, PUT and DELETE idempotent, POST and PATCH unsafe. (The
header does not make POST idempotent: whether the server honours it is not known here.)

Before: registry.py. After: web_client.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, decode_text, encode_text, error_result, escape_name
from loomlog.connectors.tools.web_client import (
    REQUEST_TIMEOUT_S,
    RESPONSE_BYTES,
    SAFE_METHODS,
    RequestOutcomeUnknown,
    WebClient,
    WebRequest,
    WebResponse,
    parse_web_url,
)

EFFECT_BY_METHOD: Mapping[str, EffectClass] = {
    "GET": EffectClass.READ,
    "HEAD": EffectClass.READ,
    "PUT": EffectClass.IDEMPOTENT,
    "DELETE": EffectClass.IDEMPOTENT,
    "POST": EffectClass.UNSAFE,
    "PATCH": EffectClass.UNSAFE,
}
RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers set by the tool: they determine the destination, the framing and the compression."""
URL_CHARACTERS = 8_000
"""Maximum length of a URL; what common servers accept."""
TIMEOUT_MARGIN_S = 5.0
"""Seconds added to WebClient's own timeout, so that the model reads the message of that one."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_KNOWN_CHARSETS = re.compile(
    r"(utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-?8859-?\d+|windows-?\d+|cp\d+|koi8-[ru]|macintosh"
    r"|shift_?jis|euc-(jp|kr)|iso-2022-(jp|kr)|gb2312|gbk|gb18030|big5)\Z"
)
"""Charsets that Python supports and pages use; some others are not character sets or take quadratic time."""


class HttpTool:
    name = "HTTP"
    description = (
        "Sends one HTTP request to a host this run may reach and returns the status line, the headers, an empty line "
        "and the body. Follows up to 5 redirects. Takes at most 30 s; request and response body are limited to 256 KiB "
        "(a longer response is cut and says so). A status of 400 or more is returned like any other."
    )
    side_effect_class = "network"
    usage_hint = "For APIs; read a page with WebFetch instead."
    timeout_s: float = REQUEST_TIMEOUT_S + TIMEOUT_MARGIN_S
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "method": {"type": "string", "enum": list(EFFECT_BY_METHOD), "description": "The method. Default: GET."},
            "url": {
                "type": "string",
                "description": "Absolute http or https URL.",
                "minLength": 1,
                "maxLength": URL_CHARACTERS,
            },
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Request headers by name. Host, lengths, encodings and connection are set by the tool.",
            },
            "body": {"type": "string", "description": "Request body, sent as UTF-8. Set Content-Type to match."},
        },
        "required": ["url"],
        "additionalProperties": False,
    }

    def __init__(self, web: WebClient) -> None:
        self._web = web

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EFFECT_BY_METHOD.get(str(arguments.get("method") or "GET"), EffectClass.UNSAFE)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            good = check_arguments(self.name, arguments, self.input_schema)
            method = good.get("method", "GET")
            body = encode_text(good.get("body", ""), "The body")
            if body and method in SAFE_METHODS:
                raise ToolCallRefused(f"{method} has no body. Use POST, PUT or PATCH, or put the data into the URL.")
            headers = build_request_headers(good.get("headers", {}), method, context.idempotency_key)
            request = WebRequest(method=method, url=parse_web_url(good["url"]), headers=headers, body=body)
            return ToolResult(text=_format_response(await self._web.send(request, context.allowed_hosts)))
        except RequestOutcomeUnknown as reason:
            return ToolResult(text=str(reason), is_error=True, is_unknown=True)
        except ToolCallRefused as reason:
            return error_result(reason)


def decode_body(response: WebResponse) -> str:
    """Return the body as text without NUL, in the charset that the server declares, else UTF-8."""
    named = _CHARSET.search(response.header("content-type"))
    charset = named.group(1).lower() if named else "utf-8"
    if charset in ("utf-8", "utf8") or not _KNOWN_CHARSETS.match(charset):
        return decode_text(response.body, complete=not response.is_truncated)
    try:
        return response.body.decode(charset, "replace").replace("\0", "�")
    except LookupError:
        return decode_text(response.body, complete=not response.is_truncated)


def truncation_notice(response: WebResponse) -> str:
    return f"\n[cut: only the first {RESPONSE_BYTES} bytes of the response are shown]" if response.is_truncated else ""


def build_request_headers(headers: Mapping[str, str], method: str, key: str) -> tuple[tuple[str, str], ...]:
    """Return the headers to send, with the idempotency key if the request changes something. Raises ToolCallRefused."""
    for name, value in headers.items():
        if not _HEADER_NAME.match(name):
            raise ToolCallRefused(f'"{escape_name(name[:80])}" is no header name.')
        if name.lower() in RESERVED_HEADERS or name.lower().startswith("proxy-"):
            raise ToolCallRefused(f'The header "{name}" is set by the tool; leave it out.')
        encode_text(value, f'The header "{name}"')
        if any(c != "\t" and not c.isprintable() for c in value):
            raise ToolCallRefused(f'The value of the header "{name}" holds a line end or another control character.')
    sent = [(name, value.strip()) for name, value in headers.items()]
    if key and method not in SAFE_METHODS and not any(name.lower() == "idempotency-key" for name, _ in sent):
        sent.append(("Idempotency-Key", key))
    return tuple(sent)


def _format_response(response: WebResponse) -> str:
    lines = [f"HTTP/1.1 {response.status} {escape_name(response.reason)}".rstrip()]
    lines += [f"{escape_name(name)}: {escape_name(value)}" for name, value in response.headers]
    return "\n".join(lines) + "\n\n" + decode_body(response) + truncation_notice(response)
