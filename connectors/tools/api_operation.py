"""Tools of an OpenAPI file: each operation is one request to the API that the operator names.

The model chooses arguments, never the address: host and headers are of the configuration, and a redirect to another
host is refused. The answer is the body; one with a status of 400 or more is an error for the model, with its status.
Effect classes follow the method, as those of the tool HTTP do.

Before: connectors/openapi.py. After: web_client.py.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from loomlog.connectors.configuration.local_api_block import LocalApiBlock
from loomlog.connectors.json_schema import CompiledSchema, compile_schema
from loomlog.connectors.openapi import ApiOperation, OperationUnusable, request_parts
from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.connectors.tools.hosts import EXACT_PREFIX
from loomlog.connectors.tools.http import (
    EFFECT_BY_METHOD,
    TIMEOUT_MARGIN_S,
    build_request_headers,
    decode_body,
    truncation_notice,
)
from loomlog.connectors.tools.references import RunValues, stored_references, substitute_references
from loomlog.connectors.tools.results import ToolCallRefused, error_result, escape_name
from loomlog.connectors.tools.web_client import (
    REQUEST_TIMEOUT_S,
    RequestOutcomeUnknown,
    WebClient,
    WebRequest,
    WebResponse,
    parse_web_url,
)

log = logging.getLogger("loomlog.runtime")


class ApiOperationTool:
    """An operation (protocol Tool). `headers` may hold references of a run."""

    side_effect_class = "network"
    timeout_s: float = REQUEST_TIMEOUT_S + TIMEOUT_MARGIN_S

    def __init__(self, operation: ApiOperation, base_url: str, headers: Mapping[str, str], web: WebClient) -> None:
        self.name = operation.name
        self.description = operation.description
        self.input_schema: Mapping[str, Any] = operation.input_schema
        self.credential_references = stored_references(headers)
        self._operation = operation
        self._base_url = base_url.rstrip("/")
        self._host = parse_web_url(base_url).raw_host.decode("ascii")
        self._headers = headers
        self._web = web

    @cached_property
    def _schema(self) -> CompiledSchema:
        return compile_schema(self.input_schema)

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EFFECT_BY_METHOD[self._operation.method]

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if problems := self._schema.find_problems(dict(arguments)):
            return ToolResult(text=f"{self.name} was not called: {'; '.join(map(str, problems))}", is_error=True)
        try:
            response = await self._web.send(self._request(arguments, context), (EXACT_PREFIX + self._host,))
        except RequestOutcomeUnknown as reason:
            return ToolResult(text=str(reason), is_error=True, is_unknown=True)
        except ToolCallRefused as reason:
            return error_result(reason)
        except OperationUnusable as reason:
            return ToolResult(text=f"{self.name} was not called: {reason}", is_error=True)
        return _to_result(response)

    def _request(self, arguments: Mapping[str, Any], context: ToolContext) -> WebRequest:
        target, chosen, body = request_parts(self._operation, arguments)
        values = RunValues(root_run_id=context.root_run_id, tenant=context.tenant, credentials=context.credentials)
        own, left_out = substitute_references(self._headers, values)
        for name in left_out:
            log.warning("%s: the header %s has a reference that this run does not have; left out", self.name, name)
        headers = build_request_headers({**dict(chosen), **own}, self._operation.method, context.idempotency_key)
        return WebRequest(
            method=self._operation.method, url=parse_web_url(self._base_url + target), headers=headers, body=body
        )


def build_api_tools(block: LocalApiBlock) -> dict[str, Tool]:
    """Return the tools of the file by name. Raises ApiFileRefused, and ToolCallRefused for a bad address."""
    api = block.load()
    if api is None:
        return {}
    for problem in api.problems:
        log.warning("local_api: left out: %s", problem)
    # The operator wrote the address, so it may be a private one.
    web = WebClient(private_hosts=(parse_web_url(api.base_url).host,))
    return {one.name: ApiOperationTool(one, api.base_url, block.headers, web) for one in api.operations}


def _to_result(response: WebResponse) -> ToolResult:
    body = decode_body(response) + truncation_notice(response)
    status = f"{response.status} {escape_name(response.reason)}".rstrip()
    if response.status >= 400:
        return ToolResult(text=f"{status}\n{body}".rstrip(), is_error=True)
    return ToolResult(text=body or status)
