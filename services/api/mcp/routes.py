"""The routes of MCP. They take any caller: each tool and method has an access of its own.

Before: services/api/routes.py. After: endpoint.py, authorization.py.
"""

from loomlog.connectors.mcp.oauth import client_document
from loomlog.services.api.mcp import authorization, endpoint, login
from loomlog.services.api.mcp.messages import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import NamedSchema, QueryParameter, Route
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC
from loomlog.services.core.mcp_logins import CALLBACK_PATH, CLIENT_PATH, CONSENT_PATH
from loomlog.services.core.operations import Tag

TAG = Tag(name="MCP", description="The Model Context Protocol, for assistants and editors.")
PATH = authorization.MCP_PATH
MESSAGE = {
    "type": "object",
    "properties": {
        "jsonrpc": {"type": "string", "enum": ["2.0"]},
        "id": {"type": ["string", "integer"]},
        "method": {"type": "string", "description": "Such as initialize, tools/list, tools/call, server/discover."},
        "params": {"type": "object", "additionalProperties": True},
    },
    "required": ["jsonrpc", "method"],
}
ANSWER = {
    "type": "object",
    "properties": {
        "jsonrpc": {"type": "string"},
        "id": {"type": ["string", "integer", "null"]},
        "result": {"type": "object", "additionalProperties": True},
        "error": {"type": "object", "additionalProperties": True},
    },
    "required": ["jsonrpc", "id"],
}
ANSWER_FORM = NamedSchema(name="McpAnswer", schema=ANSWER, example={"jsonrpc": "2.0", "id": 1, "result": {}})
CLIENT_FORM = NamedSchema(
    name="McpClientDocument",
    schema={
        "type": "object",
        "properties": {
            "client_id": {"type": "string"},
            "client_name": {"type": "string"},
            "redirect_uris": {"type": "array", "items": {"type": "string"}},
            "grant_types": {"type": "array", "items": {"type": "string"}},
            "response_types": {"type": "array", "items": {"type": "string"}},
            "token_endpoint_auth_method": {"type": "string"},
        },
        "required": ["client_id", "client_name", "redirect_uris"],
    },
    example=client_document("https://loomlog.example.com" + CLIENT_PATH, "https://loomlog.example.com" + CALLBACK_PATH),
)
REVISIONS = ", ".join((*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS))
MCP_ROUTES: tuple[Route, ...] = (
    Route(
        route=f"POST {PATH}",
        access=ANY_CALLER,
        handler=endpoint.answer_message,
        tag=TAG,
        summary=f"Answer a message of MCP, in the revisions {REVISIONS}.",
        body=NamedSchema(
            name="McpMessage", schema=MESSAGE, example={"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        ),
        response=ANSWER_FORM,
        refusal_form=ANSWER_FORM,
        alternative_status=202,
        takes_instead=Takes.WAIT,
        operation="post_mcp_message",
    ),
    Route(
        route=f"DELETE {PATH}",
        access=ANY_CALLER,
        handler=endpoint.end_session,
        tag=TAG,
        summary="End a session of MCP.",
        status=204,
        operation="delete_mcp_session",
    ),
    Route(
        route=f"GET {authorization.WELL_KNOWN}",
        access=PUBLIC,
        handler=authorization.describe_api,
        tag=TAG,
        summary="Get where tokens for this API come from, as OAuth has it (RFC 9728).",
        refusal_statuses=(404,),
        operation="get_protected_resource",
    ),
    Route(
        route=f"GET {authorization.WELL_KNOWN}{PATH}",
        access=PUBLIC,
        handler=authorization.describe_mcp,
        tag=TAG,
        summary="Get where tokens for MCP come from, as OAuth has it (RFC 9728).",
        refusal_statuses=(404,),
        operation="get_protected_mcp_resource",
    ),
    Route(
        route=f"GET {CONSENT_PATH}",
        access=PUBLIC,
        handler=login.ask_consent,
        tag=TAG,
        summary="Show a person who asks for access to an MCP server, and lead to its authorization server.",
        query=(
            QueryParameter(name="state", description="From `POST /v1/_mcp_servers/{name}/login`.", required=True),
            QueryParameter(name="go", description="Set by the link of the page that is shown without it."),
        ),
        media_type="text/html",
        refusal_statuses=(400, 403, 503),
        operation="get_mcp_consent",
    ),
    Route(
        route=f"GET {CALLBACK_PATH}",
        access=PUBLIC,
        handler=login.finish_consent,
        tag=TAG,
        summary="Store the access to an MCP server that a person has granted: where authorization servers lead back.",
        query=(
            QueryParameter(name="state", description="As it was sent.", required=True),
            QueryParameter(name="code", description="Code of the authorization server."),
            QueryParameter(name="iss", description="The authorization server (RFC 9207)."),
            QueryParameter(name="error", description="Why there is no code."),
        ),
        takes_any_query=True,
        media_type="text/html",
        refusal_statuses=(400, 403, 404, 422, 503),
        operation="start_mcp_access",
    ),
    Route(
        route=f"GET {CLIENT_PATH}",
        access=PUBLIC,
        handler=login.describe_client,
        tag=TAG,
        response=CLIENT_FORM,
        summary="Get what this installation is to authorization servers of MCP servers (client ID metadata document).",
        operation="get_mcp_client_document",
    ),
)
