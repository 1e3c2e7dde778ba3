"""The Channel tool of agents: one `op` and its fields.

A command carries the call's idempotency key as its command id, so a message is published once however often the call is
made, and a repeated read gets the messages of the first attempt. A call that waits for messages returns `waiting`: the
run keeps it, no task and no place, and services/runtime/run/channel_waits.py completes it.
Calls of one turn take effect in the order in which the model made them.

Before: services/runtime/channel_setup.py. After: services/families/channel/operations.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.generated.values import CallRef
from loomlog.services.families.channel.caller import ChannelCaller, Origin
from loomlog.services.families.channel.fields import CHANNELS_MAX, MODES
from loomlog.services.families.channel.limits import READ_MAX
from loomlog.services.families.channel.operations import OPERATIONS, READS, ChannelOperations, Outcome
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S, call_operation

NAME = "Channel"
OPERATION = "op"
TEXT: Mapping[str, Any] = {"type": "string"}
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "channel": {**TEXT, "description": "Name of the channel."},
    "channels": {
        "type": "array",
        "items": TEXT,
        "maxItems": CHANNELS_MAX,
        "description": "For await and broadcast: names of channels.",
    },
    "value": {"description": "For publish and broadcast: any JSON but null, at most 64 KiB."},
    "ttl": {
        "type": "integer",
        "description": "Seconds until the message is gone; by default what the channel declares.",
    },
    "deliver_at": {**TEXT, "description": "When it becomes visible, RFC 3339; at most 30 days ahead."},
    "from_cursor": {**TEXT, "description": "Read after this cursor; cur_0 is before the oldest message."},
    "cursor": {**TEXT, "description": "For ack: next_cursor of an earlier answer."},
    "max_messages": {"type": "integer", "description": f"Most messages, 1 to {READ_MAX}; by default 10."},
    "wait_ms": {"type": "integer", "description": "For subscribe and await: wait so long when there is nothing."},
    "mode": {**TEXT, "enum": list(MODES), "description": "For await: when it ends; by default any."},
    "n": {"type": "integer", "description": "For await with at_least: messages of all channels together."},
    "reader": {**TEXT, "description": "For subscribe and ack: a cursor of its own; absent: that of all others."},
}
INPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"op": {**TEXT, "enum": list(OPERATIONS), "description": "What to do."}, **FIELDS},
    "required": ["op"],
    "additionalProperties": False,
}


class ChannelTool:
    """Protocol Tool."""

    name = NAME
    side_effect_class = "state"
    usage_hint = "hand work to other agents and wait for theirs; list_channels tells which channels there are"
    timeout_s: float = TIMEOUT_S
    is_ordered = True
    """Calls of one turn are made one after the other (call_order.py)."""
    description = (
        "Messages between agents and applications. op publish sends a JSON value to a channel, broadcast to several; "
        "subscribe takes the next messages and waits up to wait_ms for one; peek reads without taking; await waits "
        "until any, all or at_least n messages of several channels are there and takes none; ack moves the cursor past "
        "messages that were peeked; list_channels tells which channels this agent may use."
    )
    input_schema: Mapping[str, Any] = INPUT_SCHEMA

    def __init__(
        self,
        operations: ChannelOperations,
        *,
        is_isolated: Callable[[str, str], bool] = lambda tenant, subject: False,
        clock_ms: Callable[[], int],
    ) -> None:
        """`is_isolated` tells whether a subject of a tenant is confined to user and agent scope."""
        self._operations = operations
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ if arguments.get(OPERATION) in READS else EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        caller = caller_of(
            context,
            is_isolated=self._is_isolated(context.tenant, context.subject),
            # An earlier attempt issued it at a time that is lost: 0 makes the owner look it up.
            issued_at_ms=self._clock_ms() if context.attempt == 1 else 0,
        )

        async def ask() -> ToolResult:
            return to_tool_result(await self._operations.run(arguments, caller))

        is_read = arguments.get(OPERATION) in READS
        return await call_operation(NAME, ask, is_read=is_read, attempt=context.attempt)


def caller_of(context: ToolContext, *, is_isolated: bool, issued_at_ms: int) -> ChannelCaller:
    """Return the caller of a tool call."""
    turn, _, index = context.idempotency_key.rpartition(":")[2].partition(".")
    return ChannelCaller(
        tenant=context.tenant,
        origin=Origin.AGENT,
        subject=context.subject,
        command_id=context.idempotency_key,
        issued_at_ms=issued_at_ms,
        user_id=context.user_id,
        agent=context.agent,
        call=CallRef(run_id=context.run_id, turn=int(turn), index=int(index)),
        publish=tuple(context.grants.get("channels_publish") or ()),
        subscribe=tuple(context.grants.get("channels_subscribe") or ()),
        is_isolated=is_isolated,
        positions=context.positions,
    )


def to_tool_result(outcome: Outcome) -> ToolResult:
    """Return the outcome of an operation as the runtime takes it."""
    if outcome.waiting is not None:
        return ToolResult(text="", waiting=outcome.waiting)
    return ToolResult(
        text=orjson.dumps(outcome.fields).decode(),
        positions=outcome.positions,
        channels=outcome.channels,
        leases=outcome.leases,
    )
