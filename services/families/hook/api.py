"""The operations of hooks: external programs that are called before and after tool calls. Pure.

A hook that is registered with the shared token belongs to no tenant and receives the calls of all, as existing clients
expect (parity: reference surfaces 8.1).

Before: __init__.py. After: handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import Effect, Http, Input, McpTool, NoInput, Operation, Output, Tag

TAG = Tag(name="Hooks", description="Callbacks before and after tool calls.")
BODY_BYTES_MAX = 256 * 1024


class HookRegister(Input, frozen=True, kw_only=True):
    """A callback before or after tool calls. The same owner and name replaces it."""

    owner: Annotated[str, Meta(description="Who has it.")]
    name: Annotated[str, Meta(description="Name of the hook, of its owner.")]
    phase: Annotated[str, Meta(description="pre: before the call; post: after it.")]
    callback_url: Annotated[str, Meta(description="http or https; receives one signed POST for each call.")]
    agents: Annotated[list[str] | None, Meta(description="Names; all agents if absent.")] = None
    tools: Annotated[list[str] | None, Meta(description="Names, or prefixes with a star; all tools if absent.")] = None
    fail_mode: Annotated[
        str | None, Meta(description="open (default): without an answer allow the call; closed: deny it.")
    ] = None
    timeout_ms: Annotated[int | None, Meta(description="Longest wait, at most 60,000; 5,000 if absent.")] = None


class HookRemove(Input, frozen=True, kw_only=True):
    hook_id: Annotated[str, Meta(description="Id of the hook.")]


class Hook(Output, frozen=True, kw_only=True):
    """A registered hook."""

    id: str
    tenant_id: Annotated[str, Meta(description="Empty: it receives the calls of all tenants.")]
    owner: str
    name: str
    phase: str
    agents: tuple[str, ...]
    tools: tuple[str, ...]
    callback_url: str
    fail_mode: str
    timeout_ms: int
    registered_at: Annotated[str, Meta(description="RFC 3339.")]


class HookCreated(Output, frozen=True, kw_only=True):
    """The id of the hook, and what its callbacks are signed with; null when this installation does not sign."""

    id: str
    signing_secret: str | None


class HookList(Output, frozen=True, kw_only=True):
    """Registered hooks."""

    hooks: list[Hook]


class HookRemoved(Output, frozen=True, kw_only=True):
    """The id of the hook."""

    deleted: str


_operation = partial(Operation, tag=TAG, access=requires(TENANT))
_http = partial(Http, takes_tenant=False)

REGISTER = _operation(
    name="hook.register",
    summary="Register a hook, called before or after tool calls.",
    input=HookRegister,
    output=HookCreated,
    effect=Effect.WRITE,
    http=(
        _http(
            route="POST /v1/hooks",
            id="register_hook",
            body_name="HookBody",
            body_bytes_max=BODY_BYTES_MAX,
            example={
                "owner": "security",
                "name": "approve-shell",
                "phase": "pre",
                "callback_url": "https://hooks.example.com/approve",
                "tools": ["Bash"],
                "fail_mode": "closed",
            },
        ),
    ),
    mcp=(McpTool(tool="register_hook"),),
)
LIST = _operation(
    name="hook.list",
    summary="List the registered hooks, in the order in which they are called.",
    input=NoInput,
    output=HookList,
    effect=Effect.READ,
    http=(_http(route="GET /v1/hooks", id="list_hooks"),),
    mcp=(McpTool(tool="list_hooks"),),
)
REMOVE = _operation(
    name="hook.remove",
    summary="Remove a hook; calls under way complete with it.",
    input=HookRemove,
    output=HookRemoved,
    effect=Effect.WRITE,
    http=(_http(route="DELETE /v1/hooks/{hook_id}", id="remove_hook"),),
    mcp=(McpTool(tool="delete_hook", names={"hook_id": "id"}),),
)
OPERATIONS = (REGISTER, LIST, REMOVE)
