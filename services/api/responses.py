"""Responses: JSON, and the one error format of every refusal: {"code", "error"} and the details of the code.

The status of a code is in services/core/error_codes.py.

Before: endpoints. After: the ASGI response.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
import orjson
from msgspec import Struct
from starlette.responses import Response

from loomlog.schemas.position import Position
from loomlog.services.application.request_context import current_request
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused

POSITION_HEADER = "x-loomlog-position"
JSON_MEDIA_TYPE = "application/json"
STATIC_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of a page that is self-contained: injected content may load nothing."""

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


def record_response(record: Struct, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The JSON of a record."""
    return Response(msgspec.json.encode(record), status_code=status, headers=headers, media_type=JSON_MEDIA_TYPE)


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


def refusal_response(refusal: Refused, headers: Mapping[str, str] | None = None) -> Response:
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
