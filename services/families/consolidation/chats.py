"""Settled chats of a target, from the read model of runs, and what was said in them.

Only what a person wrote and what the agent answered is dialogue. System texts, untrusted blocks, images, reasoning and
calls of tools with their results are scaffolding: nothing is learnt from them. Erased messages are left out.

Before: operations.py. After: projections/settled_sessions.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import orjson

from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.settled_sessions import (
    PAGE_MAX,
    FramePlace,
    SessionFilter,
    SettledSession,
    last_dialogue_frames,
    settled_session,
    settled_sessions,
)
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value
from loomlog.services.families.memory.author import AGENT, USER, Scope
from loomlog.services.families.operation import Decrypt
from loomlog.services.stream.encryption.subject_keys import ERASED

MESSAGE_OVERHEAD_BYTES = 160
"""Bytes of a message in an answer besides its text."""


class Message(Value, frozen=True, kw_only=True):
    """Something that was said. A span of it is a run, the number of its event, and characters of `text`."""

    run_id: str
    seq: int
    """Number of the event in the run."""
    role: str
    """user or assistant."""
    text: str
    at: str
    """RFC 3339."""


class Dialogue(Value, frozen=True, kw_only=True):
    """Messages of a chat, oldest first; `is_truncated`: older ones are left out."""

    messages: tuple[Message, ...]
    is_truncated: bool


class Chats(Protocol):
    """Finds settled chats of a scope. All methods raise ConnectorError."""

    async def after(
        self, scope: Scope, watermark: SettledSession, *, without: str, limit: int
    ) -> Sequence[SettledSession]:
        """Return settled chats completed after the watermark, oldest first; the session `without` is left out."""
        ...

    async def find(self, scope: Scope, session_id: str) -> SettledSession | None:
        """Return a chat of the scope; None unless it is settled."""
        ...

    async def dialogue(self, scope: Scope, session_id: str, *, bytes_max: int) -> Dialogue:
        """Return the newest messages of a chat that have that many bytes together."""
        ...


class ReadModelChats:
    """Protocol Chats over the projections of runs."""

    def __init__(
        self,
        reader: PostgresReader,
        blobs: Blobs,
        *,
        decrypt: Decrypt,
        internal_agents: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`internal_agents` returns the names of agents with `internal: true`, whose chats are left out."""
        self._reader = reader
        self._blobs = blobs
        self._decrypt = decrypt
        self._internal_agents = internal_agents

    async def after(
        self, scope: Scope, watermark: SettledSession, *, without: str, limit: int
    ) -> Sequence[SettledSession]:
        return await settled_sessions(self._reader, self._filter(scope), after=watermark, without=without, limit=limit)

    async def find(self, scope: Scope, session_id: str) -> SettledSession | None:
        return await settled_session(self._reader, self._filter(scope), session_id)

    async def dialogue(self, scope: Scope, session_id: str, *, bytes_max: int) -> Dialogue:
        messages: list[Message] = []
        before: FramePlace | None = None
        while True:
            page = await last_dialogue_frames(self._reader, self._filter(scope), session_id, before=before)
            for place, row in page:
                message = await self._message(row)
                before = place
                if message is None:
                    continue
                bytes_max -= len(message.text.encode()) + MESSAGE_OVERHEAD_BYTES
                if bytes_max < 0:
                    return Dialogue(messages=tuple(reversed(messages)), is_truncated=True)
                messages.append(message)
            if len(page) < PAGE_MAX:
                return Dialogue(messages=tuple(reversed(messages)), is_truncated=False)

    def _filter(self, scope: Scope) -> SessionFilter:
        return SessionFilter(
            tenant=scope.tenant,
            user_id=scope.id if scope.name == USER else "",
            agent=scope.id if scope.name == AGENT else "",
            without_agents=self._internal_agents(),
        )

    async def _message(self, row: TranscriptRow) -> Message | None:
        """Return what a frame says; None for one without a text of its role."""
        if row.type == "text":
            frame = await self._decrypt(orjson.loads(row.event), row.tenant)
            role, text = "assistant", await self._text(frame, "text_blob", row.tenant)
        else:
            segments = await self._decrypt(orjson.loads(row.payload or "[]"), row.tenant)
            texts = [await self._text(block, "blob", row.tenant) for block in _said(segments)]
            role, text = "user", "\n".join(one for one in texts if one and one != ERASED)
        if not text.strip() or text == ERASED:
            return None
        return Message(
            run_id=row.run_id,
            seq=row.seq // FRAMES_PER_EVENT,
            role=role,
            text=text,
            at=format_rfc3339(row.ts_ns // 1_000_000),
        )

    async def _text(self, block: Mapping[str, Any], blob_field: str, tenant: str) -> str:
        ref = block.get(blob_field)
        if ref is None:
            return str(block.get("text", ""))
        stored = (await self._blobs.get(BlobRef.from_avro(ref))).decode()
        return str(await self._decrypt(stored, tenant))


def _said(segments: Any) -> Sequence[Mapping[str, Any]]:
    """Return the blocks that a person wrote."""
    return [
        block
        for segment in segments
        if segment.get("role") == "user"
        for block in segment.get("content", ())
        if block.get("type") == "trusted-text"
    ]
