"""The routes of MCP. They take any caller: each tool and method has an access of its own.

Before: services/api/routes.py. After: endpoint.py, authorization.py.
"""

from loomlog.services.api.mcp import authorization, endpoint
from loomlog.services.api.mcp.messages import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import NamedSchema, Route, Tag
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC

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
REVISIONS = ", ".join((*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS))
MCP_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=PATH,
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
        method="DELETE",
        path=PATH,
        access=ANY_CALLER,
        handler=endpoint.end_session,
        tag=TAG,
        summary="End a session of MCP.",
        status=204,
        operation="delete_mcp_session",
    ),
    Route(
        method="GET",
        path=authorization.WELL_KNOWN,
        access=PUBLIC,
        handler=authorization.describe_api,
        tag=TAG,
        summary="Get where tokens for this API come from, as OAuth has it (RFC 9728).",
        refusal_statuses=(404,),
        operation="get_protected_resource",
    ),
    Route(
        method="GET",
        path=authorization.WELL_KNOWN + PATH,
        access=PUBLIC,
        handler=authorization.describe_mcp,
        tag=TAG,
        summary="Get where tokens for MCP come from, as OAuth has it (RFC 9728).",
        refusal_statuses=(404,),
        operation="get_protected_mcp_resource",
    ),
)
