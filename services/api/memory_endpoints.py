"""Memory over HTTP, in the formats of reference surfaces 1.5, and its past.

Keys may have slashes, and scope ids escaped ones (`memory%2Fconsolidator`). `.../keys/<key>/history` is the past of a
key, unless there is a key that ends so; `?history=1` asks for it whatever there is.

Before: memory_routes.py. After: services/application/memory.py.
"""

from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.request_parsing import (
    json_value,
    query_flag,
    query_integer,
    query_text,
)
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application.errors import bad_request
from loomlog.services.application.memory import HISTORY_MAX, LIST_DEFAULT, LIST_MAX
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.memory.limits import KEY_CHARACTERS_MAX, VALUE_BYTES_MAX

USAGE_HEADER = "x-loomlog-memory-usage"
BODY_MAX = VALUE_BYTES_MAX * 6 + 64 * 1024
"""A value with every character escaped."""
SEARCH_BODY_MAX = 256 * 1024
SQL_BODY_MAX = 1024 * 1024
HISTORY = "/history"
Json = JsonResponse[dict[str, Any]]


async def list_memory_scopes(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(service.application.memory.list_scopes(caller))


async def list_memory_scope_ids(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(
        await service.application.memory.list_scope_ids(
            caller, request.path_params["scope"], tenant=query_text(request, "tenant")
        )
    )


async def list_memory_keys(service: Service, caller: Caller, request: Request) -> Json:
    name, scope_id = _scope(request)
    page = await service.application.memory.list_keys(
        caller,
        name,
        scope_id,
        tenant=query_text(request, "tenant"),
        prefix=query_text(request, "prefix", max_length=KEY_CHARACTERS_MAX),
        after=query_text(request, "after", max_length=KEY_CHARACTERS_MAX),
        limit=query_integer(request, "limit", LIST_DEFAULT, minimum=1, maximum=LIST_MAX),
        kind=query_text(request, "kind"),
        with_details=query_flag(request, "details"),
        with_models=query_flag(request, "include_embedding_metadata"),
    )
    return json_response(page)


async def get_memory_key(service: Service, caller: Caller, request: Request) -> Json:
    name, scope_id = _scope(request)
    key, tenant = _key(request), query_text(request, "tenant")
    memory, wants_history = service.application.memory, query_flag(request, "history")
    try:
        if not wants_history:
            return json_response(await memory.get(caller, name, scope_id, key, tenant=tenant))
    except Refused as refused:
        # With /history behind it, the longest key is too long for one.
        if refused.code not in ("not_found", "bad_request") or key.removesuffix(HISTORY) in ("", key):
            raise
    return json_response(
        await memory.history(
            caller,
            name,
            scope_id,
            key if wants_history else key.removesuffix(HISTORY),
            tenant=tenant,
            limit=query_integer(request, "limit", HISTORY_MAX, minimum=1, maximum=HISTORY_MAX),
            cursor=query_text(request, "cursor", max_length=2_000),
        )
    )


async def put_memory_key(service: Service, caller: Caller, request: Request) -> Json:
    name, scope_id = _scope(request)
    try:
        body = await json_value(request, limit=BODY_MAX)
    except Refused as refused:
        match refused.code:
            case "bad_request":
                raise Refused("invalid_value", refused.message) from refused
            case "payload_too_large":
                raise Refused("memory_value_too_large", refused.message) from refused
        raise
    answer, written = await service.application.memory.put(
        caller, name, scope_id, _key(request), body, tenant=query_text(request, "tenant")
    )
    headers = {
        **(position_headers(written.position) or {}),
        "etag": f'"{written.revision}"',
        USAGE_HEADER: ", ".join(f"{field}={value}" for field, value in written.usage.items()),
    }
    return json_response(answer, headers=headers)


async def delete_memory_key(service: Service, caller: Caller, request: Request) -> Response:
    name, scope_id = _scope(request)
    position = await service.application.memory.delete(
        caller, name, scope_id, _key(request), tenant=query_text(request, "tenant")
    )
    return Response(status_code=204, headers=position_headers(position))


async def drop_memory_scope(service: Service, caller: Caller, request: Request) -> Json:
    name, scope_id = _scope(request)
    answer, position = await service.application.memory.drop(
        caller,
        name,
        scope_id,
        reason=query_text(request, "reason"),
        dry_run=_is_dry_run(request),
        tenant=query_text(request, "tenant"),
    )
    return json_response(answer, headers=position_headers(position))


async def list_superseded_entries(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(
        await service.application.memory.list_superseded(
            caller,
            query_text(request, "scope") or "user",
            query_text(request, "scope_id"),
            tenant=query_text(request, "tenant"),
            limit=query_integer(request, "limit", HISTORY_MAX, minimum=1, maximum=HISTORY_MAX),
            cursor=query_text(request, "cursor"),
        )
    )


async def read_memory_at(service: Service, caller: Caller, request: Request) -> Json:
    at = query_text(request, "at")
    return json_response(
        await service.application.memory.at(
            caller,
            query_text(request, "scope") or "user",
            query_text(request, "scope_id"),
            query_text(request, "key", max_length=KEY_CHARACTERS_MAX),
            tenant=query_text(request, "tenant"),
            at_ms=parse_time_ms("at", at) if at else None,
            position=query_text(request, "event"),
            before_run=query_text(request, "before_run"),
        )
    )


async def read_memory_usage(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(
        await service.application.memory.usage(
            caller,
            query_text(request, "scope") or "user",
            query_text(request, "scope_id"),
            tenant=query_text(request, "tenant"),
        )
    )


async def search_memory(service: Service, caller: Caller, request: Request) -> Json:
    body = await json_value(request, limit=SEARCH_BODY_MAX)
    return json_response(await service.application.memory.search(caller, body, tenant=query_text(request, "tenant")))


async def query_memory_sql(service: Service, caller: Caller, request: Request) -> Json:
    body = await json_value(request, limit=SQL_BODY_MAX)
    return json_response(await service.application.memory_sql.query(caller, body, tenant=query_text(request, "tenant")))


async def read_embed_stats(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(await service.application.memory.embed_stats(caller, tenant=query_text(request, "tenant")))


async def reembed_memory(service: Service, caller: Caller, request: Request) -> Json:
    return await _administer(service, caller, request, "reembed")


async def backfill_embeddings(service: Service, caller: Caller, request: Request) -> Json:
    return await _administer(service, caller, request, "backfill")


async def purge_stale_embeddings(service: Service, caller: Caller, request: Request) -> Json:
    return await _administer(service, caller, request, "purge_stale")


async def _administer(service: Service, caller: Caller, request: Request, op: str) -> Json:
    return json_response(
        await service.application.memory.administer(
            caller,
            op,
            query_text(request, "scope"),
            query_text(request, "scope_id"),
            dry_run=_is_dry_run(request),
            tenant=query_text(request, "tenant"),
        )
    )


def _is_dry_run(request: Request) -> bool:
    """Whether nothing is to be done: unless the request says so."""
    return request.query_params.get("dry_run", "true").lower() not in ("0", "false", "no")


def _scope(request: Request) -> tuple[str, str]:
    """Return the names of a scope."""
    scope_id = _parts(request)[1]
    if "\0" in scope_id:
        raise bad_request("scope_id: it has the character NUL")
    return request.path_params["scope"], scope_id


def _key(request: Request) -> str:
    return _parts(request)[2]


def _parts(request: Request) -> tuple[str, str, str]:
    """Return scope, scope id and key of a path, from its undecoded form: an id may have escaped slashes."""
    raw = request.scope.get("raw_path") or b""
    # /v1/_memory/scopes/{scope}/{scope_id}/keys/{key}
    segments = [*raw.partition(b"?")[0].decode("ascii", "replace").split("/", 7), "", "", ""]
    return unquote(segments[4]), unquote(segments[5]), unquote(segments[7])
