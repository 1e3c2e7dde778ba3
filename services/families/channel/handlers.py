"""The handlers of the operations on channels, the same for requests and tool calls.

    members of a tenant     all channels that the tenant sees; its own declarations
    administrators          global declarations too, channels of the system, other tenants
    callers of one user     the routes of that user
    agents                  the patterns of their definition

Before: services.py. After: operations.py for messages, declaration_operations.py for declarations.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import UNSET, structs

from loomlog.schemas.generated.values import CallRef
from loomlog.schemas.records import copy_as
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import (
    Answer,
    AnyOperation,
    Call,
    Handler,
    Handlers,
    NoInput,
    NoOutput,
    OperationCaller,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import format_ns
from loomlog.services.families.channel import api
from loomlog.services.families.channel.access import is_system_name, require_channel, require_publisher
from loomlog.services.families.channel.caller import (
    AGENT,
    GLOBAL,
    SCOPES,
    SHARED_TENANT,
    USER,
    ChannelCaller,
    Declaration,
    Origin,
    Queue,
)
from loomlog.services.families.channel.cursor import NS_PER_MS
from loomlog.services.families.channel.declaration_operations import DeclarationOperations
from loomlog.services.families.channel.declarations import ORPHAN, declaration_json
from loomlog.services.families.channel.entries import Lease, Wait
from loomlog.services.families.channel.limits import USER_ID_CHARACTERS_MAX
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.channel.state import QueueState
from loomlog.services.families.channel.store import ChannelStats
from loomlog.services.families.definition.author import author_of
from loomlog.services.families.operation import RunAnswer

ADMIN_MARK = "_admin"
"""Mark of what administrators publish."""
Operate = Callable[[Any, ChannelCaller], Awaitable[Answer[Any]]]
"""Does something with the messages of a queue, for a caller."""


class ChannelHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(
        self, operations: ChannelOperations, declared: DeclarationOperations, *, clock_ms: Callable[[], int]
    ) -> None:
        self._operations, self._store = operations, operations.store
        self._declared, self._declarations = declared, declared.declarations
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        messages = self._operations
        on_messages: dict[AnyOperation, Operate] = {
            api.AWAIT: messages.await_,
            api.BROADCAST: messages.broadcast,
            api.PUBLISH: messages.publish,
            api.SUBSCRIBE: messages.subscribe,
            api.PEEK: messages.peek,
            api.ACK: messages.ack,
        }
        return {
            **{operation: self._on_messages(operate) for operation, operate in on_messages.items()},
            api.LIST: self.list,
            api.CREATE: self.create,
            api.LIST_QUEUES: self.queues,
            api.LIST_READERS: self.readers,
            api.LIST_GRANTS: self.grants,
            api.PURGE: self.purge,
            api.PUBLISH_SYSTEM: self.publish_system,
            api.UPDATE: self.update,
            api.DELETE: self.delete,
            api.LIST_AGENT_CURSORS: self.agent_cursors,
        }

    # --- declarations ------------------------------------------------------------------------------------------------

    def require_publisher(self, caller: Caller, channel: str) -> None:
        """Protocol loomlog.services.families.ports.publishing.PublishRights."""
        declared = self._declarations.find(caller.tenant, channel)
        if declared is not None:
            require_publisher(declared, request_origin(is_admin=caller.is_admin))

    async def list(self, call: Call[NoInput]) -> Answer[api.Channels]:
        """Return all channels that a tenant sees, by name, with what their queues hold."""
        owner = call.caller.tenant
        own, shared = dict(await self._store.stats(owner, "")), dict(await self._store.stats(SHARED_TENANT, ""))
        rows = []
        for declared in self._declarations.list(owner):
            stats = (shared if declared.scope == GLOBAL else own).pop(declared.name, None)
            rows.append(channel_row(declared, stats))
        for name, left in own.items():
            if left.message_count:
                rows.append(channel_row(Declaration(name=name, scope=left.scope, tenant=owner, source=ORPHAN), left))
        return Answer(value=api.Channels(channels=sorted(rows, key=lambda row: row.name)))

    async def create(self, call: Call[api.ChannelCreate]) -> Answer[api.Channel]:
        """Declare a channel."""
        declared, position = await self._declared.create(_present(call.input), author_of(call))
        return await self._declared_row(declared, call.caller, position)

    async def update(self, call: Call[api.ChannelUpdate]) -> Answer[api.Channel]:
        """Change a channel that was declared at run time."""
        fields = {name: value for name, value in _present(call.input).items() if name != "channel"}
        declared, position = await self._declared.update(call.input.channel, fields, author_of(call))
        return await self._declared_row(declared, call.caller, position)

    async def delete(self, call: Call[api.ChannelNamed]) -> Answer[NoOutput]:
        """Delete the declaration of a channel."""
        position = await self._declared.delete(call.input.channel, author_of(call))
        return Answer(value=NoOutput(), positions=(position,))

    async def _declared_row(self, declared: Declaration, caller: OperationCaller, position: str) -> Answer[api.Channel]:
        owner = SHARED_TENANT if declared.scope == GLOBAL else caller.tenant
        stats = await self._store.stats(owner, declared.name)
        return Answer(value=channel_row(declared, stats.get(declared.name)), positions=(position,))

    # --- messages ----------------------------------------------------------------------------------------------------

    def _on_messages(self, operate: Operate) -> Handler:
        async def handle(call: Call[Any]) -> Answer[Any]:
            return await operate(call.input, self._caller(call))

        return handle

    async def publish_system(self, call: Call[api.ChannelPublish]) -> RunAnswer[api.Published]:
        """Publish to a channel of the system."""
        name = call.input.channel
        if not is_system_name(name):
            text = f"{name[:80]!r} is no channel of the system: publish with POST /v1/_channels/{name[:80]}/publish"
            raise Refused("non_system_channel", text)
        return await self._operations.publish(call.input, self._caller(call))

    async def grants(self, call: Call[NoInput]) -> Answer[api.ChannelGrants]:
        """Return what the agent may publish to and read."""
        caller = channel_caller(call)
        return Answer(value=api.ChannelGrants(publish=[*(caller.publish or ())], subscribe=[*(caller.subscribe or ())]))

    async def purge(self, call: Call[api.ChannelNamed]) -> RunAnswer[api.ChannelPurged]:
        """Remove the messages of all queues of a channel."""
        name = call.input.channel
        declared = self._declarations.find(call.caller.tenant, name)
        if declared is not None and declared.scope == GLOBAL and not call.caller.is_admin:
            text = f"{name} is global: it has the messages of all tenants; this needs the scope {ADMIN}"
            raise Refused("insufficient_scope", text, details={"scope": ADMIN})
        return await self._operations.purge(name, self._caller(call))

    # --- what operators see ------------------------------------------------------------------------------------------

    async def queues(self, call: Call[api.ChannelListQueues]) -> Answer[api.ChannelQueues]:
        """Return the queues of a channel, by user or agent, with what they hold."""
        caller, asked = self._caller(call), call.input
        declared = require_channel(self._declarations, caller, asked.channel, publishes=False)
        page = await self._store.page_of_queues(declared, caller.tenant, after=asked.cursor, limit=asked.limit + 1)
        following = page[asked.limit - 1][0].scope_id if len(page) > asked.limit else None
        rows = [api.QueueRow(**queue_fields(queue, state, self._clock_ms())) for queue, state in page[: asked.limit]]
        return Answer(value=api.ChannelQueues(channel=asked.channel, scope=declared.scope, queues=rows, next=following))

    async def readers(self, call: Call[api.ChannelListReaders]) -> Answer[api.ChannelReaders]:
        """Return the cursors of a queue, by reader; the shared one has no name."""
        queue = self._operations.readable_queue(call.input.channel, call.input.scope_id, self._caller(call))
        state = await self._store.state(queue)
        entries = [entry for bucket in state.buckets.values() for entry in bucket.entries.values()]
        waiting = Counter(entry.reader for entry in entries if isinstance(entry, Wait))
        leased = Counter[str]()
        for entry in entries:
            if isinstance(entry, Lease):
                leased[entry.reader] += sum(last - first + 1 for first, last in entry.positions)
        rows = [
            structs.replace(row, waiting=waiting[row.reader], leased=leased[row.reader])
            for row in await self._cursors(queue)
        ]
        fields = queue_fields(queue, state, self._clock_ms())
        return Answer(value=api.ChannelReaders(**fields, channel=call.input.channel, readers=rows))

    async def agent_cursors(self, call: Call[api.AgentListCursors]) -> Answer[api.AgentCursors]:
        """Return the cursors of the queues that an agent has, one for each channel and reader."""
        owner, agent = call.caller.tenant, call.input.agent
        queues = [Queue(owner, one.name, AGENT, agent) for one in self._declarations.list(owner) if one.scope == AGENT]
        cursors = [row for queue in queues for row in await self._cursors(queue)]
        return Answer(value=api.AgentCursors(agent=agent, channels=cursors))

    async def _cursors(self, queue: Queue) -> Sequence[api.ReaderRow]:
        """Return the cursors of a queue; `cursor` is empty when its message is gone."""
        state = await self._store.state(queue)
        readers = {name: reader.committed for some in state.readers.values() for name, reader in some.items()}
        messages = await self._store.load(queue, sorted({one for one in readers.values() if one}))
        known = {message.position: message.cursor for message in messages}
        return [
            copy_as(
                api.ReaderRow, queue, reader=name, cursor=known.get(position, ""), behind=state.last_position - position
            )
            for name, position in sorted(readers.items())
        ]

    # --- the caller --------------------------------------------------------------------------------------------------

    def _caller(self, call: Call[Any]) -> ChannelCaller:
        """Return the caller; one of a user's route must be that user, and the channel one of users."""
        caller = channel_caller(call)
        self._check_scope(call)
        if call.caller.run is not None or not (user_id := getattr(call.input, "user_id", "")):
            return caller
        _check_user(call.caller, user_id)
        declared = self._declarations.find(caller.tenant, call.input.channel)
        if declared is not None and declared.scope != USER:
            name = declared.name
            text = f"{name} has the scope {declared.scope}, and this route is for channels of users: use /v1/_channels"
            raise Refused("channel_scope_invalid", text)
        return caller

    def _check_scope(self, call: Call[Any]) -> None:
        """Refuse a scope that is not the one declared: the declaration decides, and the caller meant another queue."""
        scope = getattr(call.input, "scope", "")
        if not scope:
            return
        if scope not in SCOPES:
            text = f"scope is {scope[:40]!r}: expected one of {', '.join(SCOPES)}"
            raise Refused("channel_scope_invalid", text)
        for name in getattr(call.input, "channels", None) or (call.input.channel,):
            declared = self._declarations.find(call.caller.tenant, name)
            if declared is not None and declared.scope != scope:
                raise Refused("channel_scope_invalid", f"{name} has the scope {declared.scope}, not {scope}")


def channel_caller(call: Call[Any]) -> ChannelCaller:
    """Return the caller of an operation as the rules of channels see it."""
    caller, run = call.caller, call.caller.run
    if run is not None:
        return ChannelCaller(
            tenant=caller.tenant,
            origin=Origin.AGENT,
            subject=caller.subject,
            command_id=call.command_id,
            issued_at_ms=call.issued_at_ms,
            user_id=caller.user_id,
            agent=run.agent,
            call=CallRef(run_id=run.run_id, turn=caller.turn, index=caller.call),
            publish=tuple(run.grants.get("channels_publish") or ()),
            subscribe=tuple(run.grants.get("channels_subscribe") or ()),
            is_isolated=caller.is_isolated,
            positions=caller.positions,
        )
    user_id = getattr(call.input, "user_id", "")
    return ChannelCaller(
        tenant=caller.tenant,
        origin=request_origin(is_admin=caller.is_admin),
        subject=caller.subject,
        command_id=call.command_id,
        issued_at_ms=call.issued_at_ms,
        user_id=user_id,
        is_isolated=caller.is_isolated,
        publisher=ADMIN_MARK if caller.is_admin else user_id or caller.subject,
    )


def request_origin(*, is_admin: bool) -> Origin:
    """Return the origin of what a request publishes."""
    return Origin.ADMINISTRATOR if is_admin else Origin.MEMBER


def _check_user(caller: OperationCaller, user_id: str) -> None:
    """Refuse the channels of another user, as if they did not exist."""
    if len(user_id) > USER_ID_CHARACTERS_MAX or not user_id.isprintable():
        text = f"the user's id has 1 to {USER_ID_CHARACTERS_MAX} characters that can be printed"
        raise Refused("invalid_user_id", text)
    if user_id != caller.subject and not caller.is_admin:
        raise Refused("unknown_channel", f"the user {user_id[:80]!r} has no channels that you see")


def channel_row(declared: Declaration, stats: ChannelStats | None) -> api.Channel:
    """Return a channel as lists show it; a time is absent without messages."""
    row = api.Channel(**declaration_json(declared))
    if stats is None or not stats.message_count:
        return row
    return structs.replace(
        row,
        message_count=stats.message_count,
        oldest_visible_at=format_ns(stats.oldest_visible_ns),
        newest_visible_at=format_ns(stats.newest_visible_ns),
    )


def queue_fields(queue: Queue, state: QueueState, now_ms: int) -> dict[str, Any]:
    """Return the fields of QueueRow: what a queue holds, and who reads it."""
    oldest_ns, newest_ns = state.oldest_visible_ns(now_ms), state.newest_visible_ns(now_ms)
    next_ns = state.delayed[0][0].visible_ms * NS_PER_MS if state.delayed else 0
    return {
        "scope": queue.scope,
        "scope_id": queue.scope_id,
        "message_count": state.message_count(now_ms),
        "delayed": state.delayed_count,
        "leased": state.leased,
        "waiting": state.waits,
        "awaiting": state.watches,
        "readers_count": state.named_readers + state.has_reader(""),
        "published": state.last_number,
        "oldest_visible_at": format_ns(oldest_ns) if oldest_ns else UNSET,
        "newest_visible_at": format_ns(newest_ns) if newest_ns else UNSET,
        "next_visible_at": format_ns(next_ns) if next_ns else UNSET,
    }


def _present(asked: Any) -> dict[str, Any]:
    """Return the fields that are not null, by name."""
    return {name: value for name, value in structs.asdict(asked).items() if value is not None}
