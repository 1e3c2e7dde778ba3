"""Channels for callers outside of runs: declarations, messages, waiting, and a stream of messages.

The declared scope of a channel decides which queue a request is for, whichever route it came by. The routes of a user
are for channels of the scope user; the others take `scope_id` for the user or the agent.

    members of a tenant     all channels that the tenant sees; its own declarations
    administrators          global declarations too, channels of the system, other tenants
    callers of one user     the routes of that user, with channel:publish or channel:read

Before: services/api/channel_endpoints.py. After: services/families/channel, which the Channel tool shares.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loomlog.schemas.codec import Codec
from loomlog.services.application.authentication import require_member
from loomlog.services.application.channel_stream import KEEPALIVE_S, ChannelStream
from loomlog.services.application.definitions import Definitions
from loomlog.services.application.entities import resolve_tenant
from loomlog.services.application.errors import request_refusal, run_refusing
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.application.streaming.subscription import STOPPING
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.access import is_system_name, require_channel, require_publisher, resolve_queue
from loomlog.services.families.channel.caller import (
    AGENT,
    FAMILY_NAME,
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
from loomlog.services.families.channel.declarations import (
    ORPHAN,
    ChannelDeclarations,
    declaration_json,
)
from loomlog.services.families.channel.entries import Lease, Wait
from loomlog.services.families.channel.fields import CURSOR_CHARACTERS_MAX, format_ns, text_field
from loomlog.services.families.channel.limits import NAME_CHARACTERS_MAX, READ_MAX
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import (
    BATCH_BYTES_MAX,
    ChannelLimits,
    ChannelOperations,
)
from loomlog.services.families.channel.state import QueueState
from loomlog.services.families.channel.store import ChannelStats, ChannelStore, Decrypt, Message, message_json
from loomlog.services.families.operation import Reply
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads

ValueT = TypeVar("ValueT")
ADMIN_MARK = "_admin"
"""Mark of what administrators publish."""
USER_ID_CHARACTERS_MAX = 256
PUBLISH_FIELDS = frozenset({"payload", "deliver_at", "ttl", "scope_id"})
SUBSCRIBE_FIELDS = frozenset({"from_cursor", "max_messages", "wait_ms", "reader", "scope_id"})
ACK_FIELDS = frozenset({"cursor", "reader", "scope_id"})
AWAIT_FIELDS = frozenset({"channels", "scope", "scope_id", "mode", "n", "from_cursor", "max_messages", "wait_ms"})
OLDEST, NEWEST = "oldest", "newest"
QUEUES_DEFAULT, QUEUES_MAX = 50, 200
BROADCAST_FIELDS = frozenset({"channels", "scope", "scope_id", "payload", "deliver_at", "ttl"})
NULLABLE = frozenset({"payload", "ttl"})
"""Fields that may be null: a ttl is the declared one then, and the operation says what a payload must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """What the configuration says of channels. `files`: see declarations.configured_channels."""

    files: Mapping[str, Declaration] = field(default_factory=dict)
    limits: ChannelLimits = ChannelLimits()  # noqa: RUF009 - frozen


DEFAULT_CHANNEL_OPTIONS = ChannelOptions()


def build_channels(
    options: ChannelOptions,
    definitions: Definitions,
    parts: EntityParts,
    commands: EntityCommands,
    reads: EntityReads,
    codec: Codec,
    *,
    decrypt: Decrypt,
    clock_ms: Callable[[], int],
    new_token: Callable[[], str],
    keepalive_s: float,
) -> "Channels":
    """Build the use cases over the entities of a process, and follow the messages that it reads."""
    of_channels = parts.of(f"{FAMILY_NAME}:")
    cache = MessageCache(codec, topic=of_channels.topics.events)
    of_channels.replicas.on_event(FAMILY_NAME, cache.read, at_once=True)
    declarations = ChannelDeclarations(definitions.table, options.files)
    store = ChannelStore(commands, reads, cache, clock_ms=clock_ms, decrypt=decrypt)
    return Channels(
        ChannelOperations(declarations, store, limits=options.limits, clock_ms=clock_ms),
        DeclarationOperations(definitions.operations, declarations),
        definitions,
        clock_ms=clock_ms,
        new_token=new_token,
        keepalive_s=keepalive_s,
    )


class Channels:
    """The use cases. All methods raise Refused; `tenant` empty is the caller's. Writes return the position too.

    `user_id` is that of a user's route; empty for the others.
    """

    def __init__(
        self,
        operations: ChannelOperations,
        declared: DeclarationOperations,
        definitions: Definitions,
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self._operations = operations
        self._declared = declared
        self._declarations = declared.declarations
        self._definitions = definitions
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._keepalive_s = keepalive_s
        self._streams: set[ChannelStream] = set()

    def written_positions(self, tenant: str) -> tuple[str, ...]:
        """Return what a run of the tenant must read so that it knows the channels that were declared here."""
        return self._declared.written_positions(tenant)

    # --- declarations ------------------------------------------------------------------------------------------------

    async def list(self, caller: Caller, *, tenant: str = "") -> dict[str, Any]:
        """Return all channels that a tenant sees, by name, with what their queues hold."""
        require_member(caller)
        owner = resolve_tenant(caller, tenant)
        own, shared = await self._stats(owner), await self._stats(SHARED_TENANT)
        rows = []
        for declared in self._declarations.list(owner):
            stats = (shared if declared.scope == GLOBAL else own).pop(declared.name, None)
            rows.append(channel_row(declared, stats))
        for name, left in own.items():
            if left.message_count:
                rows.append(channel_row(Declaration(name=name, scope=left.scope, tenant=owner, source=ORPHAN), left))
        return {"channels": sorted(rows, key=lambda row: str(row["name"]))}

    async def create(self, caller: Caller, body: Any, *, tenant: str = "") -> tuple[dict[str, Any], str]:
        """Declare a channel; return its row."""
        fields = _object(body, None)
        author = self._author(caller, tenant)
        declared, position = await _run(self._declared.create(fields, author))
        return await self._row(declared, author.tenant), position

    async def update(self, caller: Caller, name: str, body: Any, *, tenant: str = "") -> tuple[dict[str, Any], str]:
        """Change a channel that was declared at run time; return its row."""
        fields = _object(body, None)
        author = self._author(caller, tenant)
        declared, position = await _run(self._declared.update(name, fields, author))
        return await self._row(declared, author.tenant), position

    async def delete(self, caller: Caller, name: str, *, tenant: str = "") -> str:
        """Delete the declaration of a channel; its messages stay."""
        return await _run(self._declared.delete(name, self._author(caller, tenant)))

    async def _row(self, declared: Declaration, owner: str) -> dict[str, Any]:
        stats = await self._stats(SHARED_TENANT if declared.scope == GLOBAL else owner, declared.name)
        return channel_row(declared, stats.get(declared.name))

    async def _stats(self, tenant: str, channel: str = "") -> dict[str, ChannelStats]:
        return dict(await _run(self._operations.store.stats(tenant, channel)))

    # --- messages ----------------------------------------------------------------------------------------------------

    async def publish(
        self, caller: Caller, name: str, body: Any, *, tenant: str = "", user_id: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Publish a message."""
        fields = _object(body, _of_route(PUBLISH_FIELDS, user_id))
        asker = self._asker(caller, tenant, user_id)
        self._check_user_channel(asker, name)
        arguments = {"channel": name, **_without(fields, "payload"), "value": fields.get("payload")}
        reply = await self._run("publish", arguments, asker)
        message_id = str(reply.fields["message_id"])
        answer = {"msg_id": message_id, "channel": name, "created_at": format_ns(_published_ns(message_id))}
        if "visible_at" in reply.fields:
            answer["visible_at"] = reply.fields["visible_at"]
        if reply.fields.get("dropped_oldest"):
            answer["dropped_oldest"] = reply.fields["dropped_oldest"]
        return answer, _newest(reply)

    def require_publisher(self, caller: Caller, name: str) -> None:
        """Refuse a declared channel to which a request of the caller may not publish."""
        declared = self._declarations.find(caller.tenant, name)
        if declared is None:
            return
        try:
            require_publisher(declared, origin_of(caller))
        except Refused as refused:
            raise request_refusal(refused) from refused

    async def publish_system(
        self, caller: Caller, name: str, body: Any, *, tenant: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Publish to a channel of the system, as administrators may."""
        require_member(caller)
        if not is_system_name(name):
            text = f"{name[:80]!r} is no channel of the system: publish with POST /v1/_channels/{name[:80]}/publish"
            raise Refused("non_system_channel", text)
        return await self.publish(caller, name, body, tenant=tenant)

    async def subscribe(
        self, caller: Caller, name: str, body: Any, *, tenant: str = "", user_id: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Take the next messages of a queue, and wait for one if there is none."""
        fields = _object(body, _of_route(SUBSCRIBE_FIELDS, user_id))
        asker = self._asker(caller, tenant, user_id)
        self._check_user_channel(asker, name)
        reply = await self._run("subscribe", {"channel": name, **fields}, asker)
        return dict(reply.fields), _newest(reply)

    async def peek(
        self, caller: Caller, name: str, fields: Mapping[str, Any], *, tenant: str = "", user_id: str = ""
    ) -> dict[str, Any]:
        """Return messages with their cursors, by default from the oldest.

        `fields`: from_cursor, max_messages, scope_id, order. In the order newest they are those before a cursor.
        """
        asker = self._asker(caller, tenant, user_id)
        self._check_user_channel(asker, name)
        order = fields.get("order") or OLDEST
        if order not in (OLDEST, NEWEST):
            raise Refused("invalid_request", f"order is {str(order)[:40]!r}: expected {OLDEST} or {NEWEST}")
        asked = {"channel": name, **_without(fields, "order")}
        queue, messages = await _run(self._operations.peek_messages(asked, asker, newest_first=order == NEWEST))
        shown = [
            {**message_json(message), "cursor": message.cursor, "position": message.log_position}
            for message in messages
        ]
        next_cursor = {"next_cursor": messages[-1].cursor} if messages else {}
        return {"channel": queue.channel, "messages": shown, **next_cursor}

    async def queues(
        self, caller: Caller, name: str, *, limit: int = QUEUES_DEFAULT, cursor: str = "", tenant: str = ""
    ) -> dict[str, Any]:
        """Return the queues of a channel, by user or agent, with what they hold; `cursor`: `next` of a page."""
        asker = self._asker(caller, tenant, "")
        try:
            declared = require_channel(self._declarations, asker, name, publishes=False)
            after = text_field({"cursor": cursor}, "cursor", default="", most=NAME_CHARACTERS_MAX)
        except Refused as refused:
            raise request_refusal(refused) from refused
        store, now_ms = self._operations.store, self._clock_ms()
        page = await _run(store.page_of_queues(declared, asker.tenant, after=after, limit=limit + 1))
        following = page[limit - 1][0].scope_id if len(page) > limit else None
        rows = [queue_row(queue, state, now_ms) for queue, state in page[:limit]]
        return {"channel": name, "scope": declared.scope, "queues": rows, "next": following}

    async def readers(self, caller: Caller, name: str, *, scope_id: str = "", tenant: str = "") -> dict[str, Any]:
        """Return the cursors of a queue, by reader; the shared one has no name."""
        asker = self._asker(caller, tenant, "")
        try:
            queue = self._operations.readable_queue({"channel": name, "scope_id": scope_id}, asker)
        except Refused as refused:
            raise request_refusal(refused) from refused
        state = await _run(self._operations.store.state(queue))
        rows = await _run(self._cursors(queue))
        entries = [entry for bucket in state.buckets.values() for entry in bucket.entries.values()]
        waiting = Counter(entry.reader for entry in entries if isinstance(entry, Wait))
        leased = Counter[str]()
        for entry in entries:
            if isinstance(entry, Lease):
                leased[entry.reader] += sum(last - first + 1 for first, last in entry.positions)
        shown = [{**row, "waiting": waiting[row["reader"]], "leased": leased[row["reader"]]} for row in rows]
        return {**queue_row(queue, state, self._clock_ms()), "channel": name, "readers": shown}

    async def ack(
        self, caller: Caller, name: str, body: Any, *, tenant: str = "", user_id: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Move a cursor forward."""
        fields = _object(body, _of_route(ACK_FIELDS, user_id))
        asker = self._asker(caller, tenant, user_id)
        self._check_user_channel(asker, name)
        reply = await self._run("ack", {"channel": name, **fields}, asker)
        return dict(reply.fields), _newest(reply)

    async def purge(self, caller: Caller, name: str, *, tenant: str = "") -> tuple[dict[str, Any], Sequence[str]]:
        """Remove the messages of all queues of a channel; return how many, and the positions."""
        asker = self._asker(caller, tenant, "")
        declared = self._declarations.find(asker.tenant, name)
        if declared is not None and declared.scope == GLOBAL:
            _require_admin(caller, f"{name} is global: it has the messages of all tenants")
        reply = await self._run("purge", {"channel": name}, asker)
        return dict(reply.fields), reply.positions

    async def await_(self, caller: Caller, body: Any, *, tenant: str = "") -> dict[str, Any]:
        """Wait until channels have messages; no cursor moves."""
        fields = _object(body, AWAIT_FIELDS)
        asker = self._asker(caller, tenant, "")
        self._check_scope(asker, fields)
        return dict((await self._run("await", _without(fields, "scope"), asker)).fields)

    async def broadcast(self, caller: Caller, body: Any, *, tenant: str = "") -> tuple[dict[str, Any], Sequence[str]]:
        """Publish to several channels, of which all must be allowed."""
        fields = _object(body, BROADCAST_FIELDS)
        asker = self._asker(caller, tenant, "")
        self._check_scope(asker, fields)
        arguments = {**_without(fields, "scope", "payload"), "value": fields.get("payload")}
        reply = await self._run("broadcast", arguments, asker)
        return dict(reply.fields), reply.positions

    async def agent_cursors(self, caller: Caller, agent: str, *, tenant: str = "") -> dict[str, Any]:
        """Return the cursors of the queues that an agent has, one for each channel and reader."""
        require_member(caller)
        owner = resolve_tenant(caller, tenant)
        queues = [Queue(owner, one.name, AGENT, agent) for one in self._declarations.list(owner) if one.scope == AGENT]
        cursors = [row for queue in queues for row in await _run(self._cursors(queue))]
        return {"agent": agent, "channels": cursors}

    async def _cursors(self, queue: Queue) -> Sequence[dict[str, Any]]:
        """Return the cursors of a queue; `cursor` is empty when its message is gone. Raises Unavailable."""
        state = await self._operations.store.state(queue)
        readers = {name: reader.committed for some in state.readers.values() for name, reader in some.items()}
        messages = await self._operations.store.load(queue, sorted({one for one in readers.values() if one}))
        known = {message.position: message.cursor for message in messages}
        return [
            {
                "channel": queue.channel,
                "scope": queue.scope,
                "scope_id": queue.scope_id,
                "reader": name,
                "cursor": known.get(position, ""),
                "behind": state.last_position - position,
            }
            for name, position in sorted(readers.items())
        ]

    # --- streams -----------------------------------------------------------------------------------------------------

    async def follow(
        self, caller: Caller, name: str, *, scope_id: str = "", from_cursor: str = "", tenant: str = ""
    ) -> ChannelStream:
        """Open a stream of the messages of a queue after a cursor, by default from the oldest; no cursor moves."""
        asker = self._asker(caller, tenant, "")
        try:
            cursor = text_field({"from_cursor": from_cursor}, "from_cursor", default="", most=CURSOR_CHARACTERS_MAX)
            declared = require_channel(self._declarations, asker, name, publishes=False)
            queue = resolve_queue(declared, asker, scope_id)
        except Refused as refused:
            raise request_refusal(refused) from refused
        store = self._operations.store

        async def read(after: str) -> Sequence[Message]:
            return await _run(store.peek(queue, after=after, limit=READ_MAX, bytes_max=BATCH_BYTES_MAX, positions=()))

        await read(cursor)  # a cursor of another queue is refused while there still is a status to refuse it with
        stream = ChannelStream(
            queue,
            store.cache,
            read,
            cursor=cursor,
            keepalive_s=self._keepalive_s,
            on_close=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Give up what is done beside answers."""
        await self._operations.close()

    def stop(self) -> None:
        """End all streams: the process is shutting down and its clients reconnect to another."""
        for stream in list(self._streams):
            stream.close(STOPPING)

    # --- the caller --------------------------------------------------------------------------------------------------

    def _author(self, caller: Caller, tenant: str) -> Any:
        require_member(caller)
        return self._definitions.author(caller, "channel", tenant)

    def _asker(self, caller: Caller, tenant: str, user_id: str) -> ChannelCaller:
        """Return the caller of an operation on messages."""
        if user_id:
            self._check_user(caller, user_id)
        else:
            require_member(caller)
        owner = resolve_tenant(caller, tenant)
        return ChannelCaller(
            tenant=owner,
            origin=origin_of(caller),
            subject=caller.subject,
            command_id=make_command_id("entity", "channel", owner, self._new_token()),
            # A repetition was issued at a time that only its first sender knows: 0 makes the owner look it up.
            issued_at_ms=0 if current_request.get().idempotency_key else self._clock_ms(),
            user_id=user_id,
            is_isolated=caller.is_isolated,
            publisher=ADMIN_MARK if caller.is_admin else user_id or caller.subject,
        )

    def _check_user(self, caller: Caller, user_id: str) -> None:
        """Refuse the channels of another user, as if they did not exist."""
        if len(user_id) > USER_ID_CHARACTERS_MAX or not user_id.isprintable():
            text = f"the user's id has 1 to {USER_ID_CHARACTERS_MAX} characters that can be printed"
            raise Refused("invalid_user_id", text)
        if user_id != caller.subject and not caller.is_admin:
            raise Refused("unknown_channel", f"the user {user_id[:80]!r} has no channels that you see")

    def _check_user_channel(self, asker: ChannelCaller, name: str) -> None:
        """Refuse a channel of another scope on the route of a user."""
        declared = self._declarations.find(asker.tenant, name)
        if declared is not None and asker.user_id and declared.scope != USER:
            text = f"{name} has the scope {declared.scope}, and this route is for channels of users: use /v1/_channels"
            raise Refused("channel_scope_invalid", text)

    def _check_scope(self, asker: ChannelCaller, fields: Mapping[str, Any]) -> None:
        """Refuse a scope that is not the one declared: the declaration decides, and the caller meant another queue."""
        scope, names = fields.get("scope"), fields.get("channels")
        if scope is None:
            return
        if scope not in SCOPES:
            text = f"scope is {str(scope)[:40]!r}: expected one of {', '.join(SCOPES)}"
            raise Refused("channel_scope_invalid", text)
        for name in names if isinstance(names, list) else []:
            declared = self._declarations.find(asker.tenant, name) if isinstance(name, str) else None
            if declared is not None and declared.scope != scope:
                raise Refused("channel_scope_invalid", f"{name} has the scope {declared.scope}, not {scope}")

    async def _run(self, op: str, arguments: Mapping[str, Any], asker: ChannelCaller) -> Reply:
        operations = self._operations
        handlers: Mapping[str, Callable[[Mapping[str, Any], ChannelCaller], Awaitable[Reply]]] = {
            "publish": operations.publish,
            "subscribe": operations.subscribe,
            "ack": operations.ack,
            "purge": operations.purge,
            "await": operations.await_,
            "broadcast": operations.broadcast,
        }
        present = {key: value for key, value in arguments.items() if value is not None}
        return await _run(handlers[op](present, asker))


def origin_of(caller: Caller) -> Origin:
    """Return the origin of what a request publishes."""
    return Origin.ADMINISTRATOR if caller.is_admin else Origin.MEMBER


def channel_row(declared: Declaration, stats: ChannelStats | None) -> dict[str, Any]:
    """Return a channel as lists show it; a time is absent without messages."""
    row = {**declaration_json(declared), "message_count": stats.message_count if stats is not None else 0}
    if stats is not None and stats.message_count:
        row["oldest_visible_at"] = format_ns(stats.oldest_visible_ns)
        row["newest_visible_at"] = format_ns(stats.newest_visible_ns)
    return row


def queue_row(queue: Queue, state: QueueState, now_ms: int) -> dict[str, Any]:
    """Return what a queue holds, and who reads it; a time is absent when there is none."""
    row: dict[str, Any] = {
        "scope": queue.scope,
        "scope_id": queue.scope_id,
        "message_count": state.message_count(now_ms),
        "delayed": state.delayed_count,
        "leased": state.leased,
        "waiting": state.waits,
        "awaiting": state.watches,
        "readers_count": state.named_readers + state.has_reader(""),
        "published": state.last_number,
    }
    if oldest_ns := state.oldest_visible_ns(now_ms):
        row["oldest_visible_at"] = format_ns(oldest_ns)
    if newest_ns := state.newest_visible_ns(now_ms):
        row["newest_visible_at"] = format_ns(newest_ns)
    if state.delayed:
        row["next_visible_at"] = format_ns(state.delayed[0][0].visible_ms * NS_PER_MS)
    return row


async def _run(operation: Awaitable[ValueT]) -> ValueT:
    return await run_refusing(operation, unavailable_code="channel_unavailable")


def _require_admin(caller: Caller, why: str) -> None:
    if not caller.is_admin:
        raise Refused("insufficient_scope", f"{why}; this needs the scope {ADMIN}", details={"scope": ADMIN})


def _object(body: Any, known: frozenset[str] | None) -> Mapping[str, Any]:
    """Return the fields of a body. `known` None: the operation checks their names."""
    if not isinstance(body, Mapping):
        raise Refused("invalid_body", "the body must be an object")
    if known is not None and (unknown := sorted(set(body) - known)):
        text = f"{unknown[0][:60]!r} is unknown, expected are {', '.join(sorted(known))}"
        raise Refused("invalid_request", text)
    if known is not None and (empty := sorted(name for name in set(body) - NULLABLE if body[name] is None)):
        raise Refused("invalid_request", f"{empty[0]}: null is no value of it; leave the field out")
    return body


def _of_route(fields: frozenset[str], user_id: str) -> frozenset[str]:
    """Return the fields of a body; the route of a user has named whose queue it is."""
    return fields - {"scope_id"} if user_id else fields


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


def _published_ns(message_id: str) -> int:
    """Return when a message was published, which its id has."""
    return int(message_id[4:20], 16)


def _newest(reply: Reply) -> str:
    return reply.positions[-1] if reply.positions else ""
