"""What the operations of a consolidation target do, for the consolidator and for the ends and compactions of runs.

Before: handlers.py; facts.py and compaction bank. After: decide.py; chats.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from msgspec import structs

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.settled_sessions import SettledSession
from loomlog.schemas.generated.consolidation_commands import (
    AckPending,
    AdvanceTarget,
    BankPending,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
from loomlog.schemas.generated.consolidation_events import PendingAcked, PendingBanked, TargetLeased
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.consolidation import api, limits
from loomlog.services.families.consolidation.chats import Chats
from loomlog.services.families.consolidation.decide import has_lease, lease_lost
from loomlog.services.families.consolidation.items import PENDING_ITEM
from loomlog.services.families.consolidation.state import FAMILY_NAME, Target
from loomlog.services.families.memory.author import USER, Author, Scope
from loomlog.services.families.memory.values import value_text
from loomlog.services.families.operation import Decrypt, Encrypt, ask_owner, plain_text, plaintext
from loomlog.services.stream.entities.answers import Answer as OwnerAnswer
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

WAIT_S = 50.0
"""Seconds to wait for the owner's answer; within the time of a tool call, so that the outcome is told as unknown."""
ADVANCE_TOLERANCE_MS = 1_000
"""How far the time that a run names may be from that of the chat (parity: reference runtime 5.4)."""
SLOT_WAIT_S, SLOT_POLL_S = 40.0, 0.2
"""How long a pass waits until fewer passes are at work; within the time of a tool call."""
UNVERIFIED = 0
"""A time that is refused: the command is only looked up."""


class ConsolidationPolicy(Value, frozen=True, kw_only=True):
    """What the consolidator does with near facts (configuration block memory.consolidation)."""

    merge_threshold: float = 0.95
    """Similarity from which a fact takes the place of another one of its class and subject."""
    related_threshold: float = 0.85
    verify_writes: bool = False
    """Whether a judge looks at facts that are near to another one before they are written."""
    detect_conflicts: bool = False
    """Whether near facts that contradict each other are reported."""


class ConsolidationOperations:
    """All methods raise Refused and Unavailable."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        chats: Chats,
        blobs: Blobs,
        *,
        clock_ms: Callable[[], int],
        decrypt: Decrypt = plaintext,
        encrypt: Encrypt = plain_text,
        policy: ConsolidationPolicy | None = None,
        passes_max: int = 4,
        wait_s: float = WAIT_S,
    ) -> None:
        """`passes_max`: runs of this process that have a lease at one time (MAX_CONSOLIDATION_CONCURRENCY)."""
        self._commands = commands
        self._reads = reads
        self._chats = chats
        self._blobs = blobs
        self._clock_ms = clock_ms
        self._decrypt = decrypt
        self._encrypt = encrypt
        self._policy = policy or ConsolidationPolicy()
        self._passes_max = passes_max
        self._passes: dict[str, int] = {}
        """Runs of this process that have a lease, and when it expires."""
        self._wait_s = wait_s

    def run_ended(self, run_id: str) -> None:
        """Let another pass take the place of a run that has ended."""
        self._passes.pop(run_id, None)

    async def require_lease(self, scope: Scope, author: Author) -> None:
        """Raise Refused(lease_lost) unless the author's run has the lease of the scope."""
        target, now_ms = await self._target(scope, author), self._clock_ms()
        if not has_lease(target, author.run_id, now_ms):
            raise Refused("lease_lost", lease_lost(target, author.run_id, now_ms))

    async def bank(
        self, scope: Scope, payload: Mapping[str, Any], origin: str, author: Author, *, step: str = ""
    ) -> Answer[str]:
        """Keep dialogue for the consolidator; return the id of the entry. `step` tells commands of one call apart.

        `payload` has messages (objects with role and content) or content, and may have metadata.
        """
        text = value_text(payload, limits.PAYLOAD_BYTES_MAX)
        envelope = author.envelope(step)
        size, blob = len(text.encode()), None
        if size > limits.PAYLOAD_INLINE_BYTES:
            subject = scope.id if scope.name == USER else envelope.subject
            blob, text = await self._store(text, scope.tenant, subject), ""
        command = BankPending(
            envelope=envelope,
            scope=scope.name,
            scope_id=scope.id,
            payload=text,
            payload_blob=blob,
            payload_bytes=size,
            origin=origin,
            source=author.source(),
        )
        answer = await self._ask(command)
        event = answer.events[-1]
        assert isinstance(event, PendingBanked)
        return Answer(value=event.pending_id, positions=(answer.position,))

    async def note_settled_chat(self, scope: Scope, author: Author, *, step: str = "") -> None:
        """Say that a chat of the scope has settled: the consolidator is started soon."""
        command = NoteSettledChat(envelope=author.envelope(step), scope=scope.name, scope_id=scope.id)
        await self._ask(command)

    async def pending_source(self, scope: Scope, pending_id: str, author: Author) -> Mapping[str, str]:
        """Return origin, source_session_id and source_run_id of a pending entry. Raises Refused(not_found)."""
        rows = await self._read(
            self._reads.load_items(FAMILY_NAME, scope.tenant, PENDING_ITEM, [pending_id], positions=author.positions)
        )
        if not rows or rows[0].key_a != scope.aggregate:
            raise Refused("not_found", f"from_pending: {scope.aggregate} has no pending entry {pending_id[:80]}")
        document = orjson.loads(rows[0].document)
        return {name: document[name] for name in ("origin", "source_session_id", "source_run_id")}

    # --- the watermark and the lease ---------------------------------------------------------------------------------

    async def get_cursor(self, author: Author, scope: Scope) -> Answer[api.ConsolidationCursor]:
        """Tell the watermark, and who has the lease."""
        return Answer(value=await self._cursor(author, scope))

    async def _cursor(self, author: Author, scope: Scope) -> api.ConsolidationCursor:
        target = await self._target(scope, author)
        is_held = target.expires_at_ms > self._clock_ms()
        return api.ConsolidationCursor(
            **_watermark(target.watermark_at_ms, target.watermark_session_id),
            leased_by=target.owner if is_held else "",
            lease_expires_at=format_rfc3339(target.expires_at_ms) if is_held else None,
        )

    async def scan(self, asked: api.ConsolidationScan, author: Author, scope: Scope) -> Answer[api.ConsolidationChats]:
        """List the settled chats behind the watermark, oldest first."""
        target, limit = await self._target(scope, author), asked.limit
        watermark = SettledSession(target.watermark_session_id, target.watermark_at_ms)
        chats = await self._read(self._chats.after(scope, watermark, without=author.session_id, limit=limit + 1))
        sessions = [
            api.ConsolidationChat(session_id=chat.session_id, completed_at=format_rfc3339(chat.completed_at_ms))
            for chat in chats[:limit]
        ]
        return Answer(value=api.ConsolidationChats(sessions=sessions, truncated=len(chats) > limit))

    async def lease(
        self, asked: api.ConsolidationLease, author: Author, scope: Scope
    ) -> Answer[api.ConsolidationLeased]:
        """Take the lease, once few enough passes are at work."""
        owner = _owner(author, "cursor_lease")
        if not await self._may_work(owner, scope, author):
            cursor = await self._cursor(author, scope)
            reason = f"{len(self._passes)} passes are at work in this process, the most there may be"
            return Answer(
                value=api.ConsolidationLeased(
                    **structs.asdict(cursor), acquired=False, owner=cursor.leased_by, reason=reason
                )
            )
        command = LeaseTarget(
            envelope=author.envelope(),
            scope=scope.name,
            scope_id=scope.id,
            owner=owner,
            lease_ms=asked.lease_ttl_ms,
        )
        answer = await self._ask(command)
        event = answer.events[-1]
        assert isinstance(event, TargetLeased)
        if event.is_acquired:
            self._passes[owner] = event.expires_at_ms
        return Answer(
            value=api.ConsolidationLeased(
                **_watermark(event.watermark_at_ms, event.watermark_session_id),
                leased_by=event.owner,
                lease_expires_at=format_rfc3339(event.expires_at_ms),
                acquired=event.is_acquired,
                owner=event.owner,
                consolidation=api.ConsolidationBands(**structs.asdict(self._policy)),
            ),
            positions=(answer.position,),
        )

    async def _may_work(self, owner: str, scope: Scope, author: Author) -> bool:
        """Whether a run may ask for the lease: few others are at work, or soon are, or it has the lease already."""
        # An earlier attempt may have taken it.
        if not author.issued_at_ms or self._others_at_work(owner) < self._passes_max:
            return True
        if has_lease(await self._target(scope, author), owner, self._clock_ms()):
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLOT_WAIT_S
        while self._others_at_work(owner) >= self._passes_max:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(SLOT_POLL_S)
        return True

    def _others_at_work(self, owner: str) -> int:
        now_ms = self._clock_ms()
        self._passes = {run_id: at_ms for run_id, at_ms in self._passes.items() if at_ms > now_ms}
        return len(self._passes.keys() - {owner})

    async def advance(
        self, asked: api.ConsolidationAdvance, author: Author, scope: Scope
    ) -> Answer[api.ConsolidationAdvanced]:
        """Move the watermark past a chat that has settled."""
        session_id, named_ms = asked.session_id, _time_ms(asked.completed_at)
        owner = _owner(author, "cursor_advance")
        chat = await self._read(self._chats.find(scope, session_id))
        refusal = None
        if named_ms > self._clock_ms() + limits.CLOCK_SKEW_MS:
            refusal = Refused("not_yet", "completed_at is in the future: only settled chats are passed")
        elif chat is None or abs(chat.completed_at_ms - named_ms) > ADVANCE_TOLERANCE_MS:
            settled = "" if chat is None else f"; it was completed at {format_rfc3339(chat.completed_at_ms)}"
            message = f"{scope.aggregate} has no settled chat {session_id[:80]} of that time{settled}: scan again"
            refusal = Refused("not_found", message)
        if refusal is not None and author.issued_at_ms:
            raise refusal
        command = AdvanceTarget(
            envelope=author.envelope(),
            scope=scope.name,
            scope_id=scope.id,
            owner=owner,
            completed_at_ms=UNVERIFIED if refusal is not None or chat is None else chat.completed_at_ms,
            session_id=session_id,
        )
        try:
            answer = await self._ask(command)
        except Refused as unknown:
            # An earlier attempt was not carried out, so this one is judged by the chat as it is now.
            raise refusal or unknown from unknown
        event = answer.events[-1]
        at_ms = command.completed_at_ms if isinstance(event, CommandHadNoEffect) else event.watermark_at_ms
        advanced = api.ConsolidationAdvanced(ok=True, **_watermark(at_ms, session_id))
        return Answer(value=advanced, positions=(answer.position,))

    async def release(
        self, asked: api.ConsolidationRelease, author: Author, scope: Scope
    ) -> Answer[api.ConsolidationReleased]:
        """Give the lease back."""
        command = ReleaseTarget(
            envelope=author.envelope(),
            scope=scope.name,
            scope_id=scope.id,
            owner=_owner(author, "cursor_release"),
            has_more=asked.more,
        )
        answer = await self._ask(command)
        self.run_ended(command.owner)
        was_held = not isinstance(answer.events[-1], CommandHadNoEffect)
        return Answer(value=api.ConsolidationReleased(ok=True, released=was_held), positions=(answer.position,))

    # --- pending entries ---------------------------------------------------------------------------------------------

    async def drain(
        self, asked: api.ConsolidationDrain, author: Author, scope: Scope
    ) -> Answer[api.ConsolidationPending]:
        """Return the oldest entries: at least one, then as many as have PAYLOAD_BYTES_MAX together."""
        page = await self._read(
            self._reads.list_items(
                FAMILY_NAME,
                scope.tenant,
                PENDING_ITEM,
                key_a=scope.aggregate,
                newest_first=False,
                limit=asked.limit,
                positions=author.positions,
            )
        )
        entries: list[api.ConsolidationPendingRow] = []
        size = 0
        for row in page.rows:
            document = orjson.loads(row.document)
            size += document["bytes"]
            if entries and size > limits.PAYLOAD_BYTES_MAX:
                break
            entries.append(
                api.ConsolidationPendingRow(
                    id=row.id,
                    payload=await self._payload(document, scope.tenant),
                    origin=document["origin"],
                    source_session_id=document["source_session_id"],
                    source_run_id=document["source_run_id"],
                    created_at=format_rfc3339(row.at_ms),
                )
            )
        is_truncated = bool(page.next) or len(entries) < len(page.rows)
        return Answer(value=api.ConsolidationPending(pending=entries, truncated=is_truncated))

    async def _payload(self, document: Mapping[str, Any], tenant: str) -> Any:
        """Return a payload; of erased content what is left of it, as text."""
        blob = document["blob"]
        stored = document["payload"]
        if blob is not None:
            stored = (await self._read(self._blobs.get(BlobRef.from_avro(blob)))).decode()
        text = str(await self._read(self._decrypt(stored, tenant)))
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text

    async def ack(self, asked: api.ConsolidationAck, author: Author, scope: Scope) -> Answer[api.ConsolidationAcked]:
        """Remove pending entries."""
        command = AckPending(
            envelope=author.envelope(),
            scope=scope.name,
            scope_id=scope.id,
            owner=_owner(author, "pending_ack"),
            ids=tuple(asked.ids),
        )
        answer = await self._ask(command)
        acked = sum(len(event.ids) for event in answer.events if isinstance(event, PendingAcked))
        return Answer(value=api.ConsolidationAcked(ok=True, acked=acked), positions=(answer.position,))

    # --- dialogue ----------------------------------------------------------------------------------------------------

    async def read_session(
        self, asked: api.ConsolidationReadSession, author: Author, scope: Scope
    ) -> Answer[api.ConsolidationSession]:
        """Read what was said in a settled chat."""
        session_id = asked.session_id
        chat = await self._read(self._chats.find(scope, session_id))
        if chat is None:
            raise Refused("not_found", f"{scope.aggregate} has no settled chat {session_id[:80]}")
        dialogue = await self._read(self._chats.dialogue(scope, session_id, bytes_max=asked.max_bytes))
        return Answer(
            value=api.ConsolidationSession(
                session_id=session_id,
                completed_at=format_rfc3339(chat.completed_at_ms),
                messages=[api.ConsolidationMessage(**structs.asdict(message)) for message in dialogue.messages],
                truncated=dialogue.is_truncated,
            )
        )

    # --- the log, the rows and the blobs -----------------------------------------------------------------------------

    async def _target(self, scope: Scope, author: Author) -> Target:
        """Return the state of a target: that of its owner in this process, else that of its row."""
        positions: Sequence[str] = author.positions
        row = await self._read(
            self._reads.local(FAMILY_NAME, scope.tenant, scope.aggregate, positions=positions)
        ) or await self._read(self._reads.show(FAMILY_NAME, scope.tenant, scope.aggregate, positions=positions))
        if row is None:
            return Target(tenant=scope.tenant, scope=scope.name, scope_id=scope.id)
        state: Target = row.entity.state
        return state

    async def _store(self, text: str, tenant: str, subject: str) -> BlobRef:
        try:
            return await self._blobs.put((await self._encrypt(text, tenant, subject)).encode())
        except ConnectorError as error:
            raise Unavailable(f"the payload cannot be stored: {error}") from error

    async def _ask(self, command: Any) -> OwnerAnswer:
        answer = await ask_owner(self._commands, command, wait_s=self._wait_s)
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise Refused(last.code, last.message)
        return answer

    async def _read(self, reading: Awaitable[Any]) -> Any:
        try:
            return await reading
        except (PositionNotRead, ConnectorError) as error:
            raise Unavailable(f"the target cannot be read: {error}") from error


def _owner(author: Author, op: str) -> str:
    if not author.run_id:
        raise Refused("capability_unsupported", f"{op} is for runs: a lease belongs to one")
    return author.run_id


def _watermark(at_ms: int, session_id: str) -> Mapping[str, Any]:
    return {
        "watermark_completed_at": format_rfc3339(at_ms) if at_ms else None,
        "watermark_session_id": session_id,
    }


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or time.year < 1970:
        text = f"completed_at is {text[:60]!r}: expected that of a chat of cursor_scan, a time of RFC 3339"
        raise Refused("bad_request", text)
    return int(time.astimezone(UTC).timestamp() * 1000)
