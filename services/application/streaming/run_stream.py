"""The stream of one run for one client: stored frames, then live ones, without gap and without repetition.

A new run is followed from its first event, which the hub has: no read model is queried, and a run costs only its
events. Any other stream first subscribes, then reads the stored frames (waiting shortly for the read models to pass
what this process has seen), then continues with what the subscription has queued. A stream that fell behind, or finds a
gap between the two, does the same again from the last frame it sent. So the read models may lag, and a client may be
slow, and neither loses anything.

`next` returns the chunks to send, [] when a keepalive is due, None at the end. `close` ends the stream from outside;
the run continues without listeners.

Before: services/application/runs/start.py (a new run), services/application/queries/runs.py (any other). After: a
transport writes the chunks.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.projections.frames.frame import FrameMemory
from loomlog.projections.frames.output import replay_frames, text_holder
from loomlog.projections.runs import MODEL, RunRow
from loomlog.projections.tables import Scope
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.codec import Undecodable
from loomlog.services.application import limits
from loomlog.services.application.content import PLAINTEXT, ContentAccess
from loomlog.services.application.queries.read_models import ReadModels
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.streaming.event_hub import EventHub
from loomlog.services.application.streaming.items import Item, StreamChunk
from loomlog.services.application.streaming.merge import RUN_END_FRAMES, Decryptor, EventGap, PreviewBuffer, StreamMerge
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, SLOW_CONSUMER, Subscription

ENDED = "ended"
FELL_BEHIND = "behind"
UNREADABLE = "unreadable"
MODEL_OUTPUT_FRAMES = frozenset({"text", "thinking", "tool_call"})
"""Frames with model output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSources:
    """What streams and reads are made from. `partition_of` returns the partition of any id of a run family."""

    hub: EventHub
    projection: ReadModels
    barrier: PositionBarrier
    blobs: Blobs
    partition_of: Callable[[str], int]
    keepalive_s: float
    content: ContentAccess = PLAINTEXT


class RunStream:
    """One client's view of one run; create it with `new_stream` or `resumed_stream`."""

    def __init__(
        self,
        sources: StreamSources,
        subscription: Subscription,
        *,
        scope: Scope,
        head: Sequence[StreamChunk] = (),
        after: int = -1,
        from_first_event: bool = False,
    ) -> None:
        self.end_reason = ""
        """Empty while there is more; ENDED when the run has ended; otherwise the reason why the client has to
        reconnect.
        """
        self._sources = sources
        self._subscription = subscription
        self._scope = scope
        self._head = list(head)
        self._after = after
        # A stream shows one run, so one tenant; nothing is decrypted for a stream over all of them.
        self._tenant = scope if isinstance(scope, str) else ""
        content = sources.content if sources.content.keys is not None else None
        self._decryptor = None if content is None else Decryptor(content, self._tenant)
        self._previews = PreviewBuffer(self._decryptor)
        self._merge = self._new_merge() if from_first_event else None
        self._stored_run: tuple[RunRow, FrameMemory] | None = None
        self._has_output = False
        """Model output was sent. Nothing is batched before: the time to the first output is noticed."""
        self._catch_up_count = 0
        self._clock = asyncio.get_running_loop().time
        self._last_sent = self._clock()

    async def next(self) -> list[StreamChunk] | None:
        """Return the next chunks, as the module describes. Raises Refused when the read models are needed and
        unavailable.
        """
        while not self.end_reason:
            pieces = await (self._catch_up() if self._merge is None else self._listen(self._merge))
            if pieces is not None:
                return await self._complete_chunks(pieces)
        return await self._complete_chunks([]) if self._head else None

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the stream; a waiting `next` returns."""
        self.end_reason = self.end_reason or reason
        self._subscription.close(reason)

    async def _complete_chunks(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        self._last_sent = self._clock()
        if self._head:
            chunks, self._head = [*self._head, *chunks], []
        self._has_output = self._has_output or any(piece.type in MODEL_OUTPUT_FRAMES for piece in chunks)
        for index, piece in enumerate(chunks):
            if piece.blob is not None:
                chunks[index] = await self._load_text(piece)
        return chunks

    # --- live --------------------------------------------------------------------------------------------------------

    async def _listen(self, merge: StreamMerge) -> list[StreamChunk] | None:
        """Return chunks of new events, [] for a keepalive, None when they have nothing to show."""
        # The ids are sent at once; already queued items go along with them.
        silent = self._clock() - self._last_sent
        left = 0.0 if self._head else self._sources.keepalive_s - silent
        gather_s = limits.GATHER_S - silent if self._has_output else 0.0
        items = await self._subscription.take(left, gather_s=gather_s)
        if items:
            if self._decryptor is not None:
                await self._sources.content.wait_for_keys([item.encrypted_text for item in items])
            return self._merge_events(merge, items)
        if self._subscription.close_reason == SLOW_CONSUMER:
            self._catch_up_again(merge)
            return None
        if self._subscription.close_reason:
            self.close(self._subscription.close_reason)
            return None
        is_silent = self._clock() - self._last_sent >= self._sources.keepalive_s
        return [] if is_silent or self._head else None

    def _merge_events(self, merge: StreamMerge, items: Sequence[Item]) -> list[StreamChunk] | None:
        pieces: list[StreamChunk] = []
        for item in items:
            try:
                pieces += merge.take(item)
            except EventGap:
                self._catch_up_again(merge)
                break
            except Undecodable:
                self.close(UNREADABLE)
                break
            if merge.ended:
                self.close(ENDED)
                break
        return pieces or None

    def _catch_up_again(self, merge: StreamMerge) -> None:
        self._after = merge.after
        self._merge = None

    # --- stored ------------------------------------------------------------------------------------------------------

    async def _catch_up(self) -> list[StreamChunk] | None:
        """Return the next page of stored frames; after the last one the stream is live, or the run has ended."""
        if self._stored_run is None:
            await self._restart()
            return None
        row, memory = self._stored_run
        rows = await self._sources.projection.frames(
            self._scope, row.run_id, from_seq=self._after, limit=limits.REPLAY_PAGE
        )
        pieces = self._chunks_of(await self._sources.content.decrypt_transcript(rows))
        if rows:
            self._after = rows[-1].seq
        if pieces and pieces[-1].type in RUN_END_FRAMES:
            self.close(ENDED)
        elif len(rows) < limits.REPLAY_PAGE:
            if row.status != "running":
                self.close(ENDED)
            else:
                self._go_live(row, memory)
        return pieces or None

    async def _restart(self) -> None:
        run_id = self._subscription.run_id
        self._catch_up_count += 1
        if self._catch_up_count > limits.CATCH_UPS_MAX:
            self.close(FELL_BEHIND)
            return
        if self._catch_up_count > 1:
            await asyncio.sleep(limits.CATCH_UP_PAUSE_S)
            if self.end_reason:
                return
            # The new subscription begins before the rows are read, so nothing is missed in between.
            self._subscription.close()
            self._subscription = self._sources.hub.subscribe(run_id, previews=True)
        await self._sources.hub.wait_for_previews()
        await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(run_id))
        self._stored_run = await self._sources.projection.follow_from(self._scope, run_id)
        if self._stored_run is None:
            recent = self._sources.hub.recent(run_id)
            if recent and recent[0].raw.seq == 1:
                # The read models do not have the run yet, the hub has all of it.
                self._merge = self._new_merge(after=self._after)

    def _go_live(self, row: RunRow, memory: FrameMemory) -> None:
        self._stored_run = None
        open_turn = row.iterations + 1 if row.under_way == MODEL else 0
        self._previews.resume_after(self._sources.hub.recent_items(row.run_id), row.last_seq, open_turn=open_turn)
        self._merge = self._new_merge(memory=memory, next_event=row.last_seq + 1, after=self._after)

    def _new_merge(self, **more: Any) -> StreamMerge:
        return StreamMerge(term_of=self._sources.hub.term, previews=self._previews, decryptor=self._decryptor, **more)

    def _chunks_of(self, rows: Sequence[TranscriptRow]) -> list[StreamChunk]:
        pieces = []
        for frame in replay_frames(rows):
            piece = StreamChunk(frame.seq, frame.type, frame.data.encode(), frame.blob)
            kept = self._previews.remainder(piece, _text_getter(piece))
            if kept is not None:
                pieces.append(kept)
        return pieces

    async def _load_text(self, chunk: StreamChunk) -> StreamChunk:
        """Return the chunk with the text of its blob; when that is unavailable, with a note and the reference."""
        assert chunk.blob is not None
        event = orjson.loads(chunk.data)
        try:
            text = (await self._sources.blobs.get(chunk.blob)).decode()
            await self._sources.content.wait_for_keys(text)
            text_holder(event)["text"] = self._sources.content.decrypt_text(text, self._tenant)[chunk.skip :]
        except ConnectorError as error:
            event["text_unavailable"] = error.kind
        else:
            event.pop("text_blob", None)
        return chunk._replace(data=orjson.dumps(event), blob=None)


def _text_getter(chunk: StreamChunk) -> Callable[[], str]:
    return lambda: str(orjson.loads(chunk.data)["text"])


def new_stream(
    sources: StreamSources, subscription: Subscription, *, scope: Scope, head: Sequence[StreamChunk] = ()
) -> RunStream:
    """Open the stream of a run whose first event is in the subscription or still to come."""
    return RunStream(sources, subscription, scope=scope, head=head, from_first_event=True)


def resumed_stream(
    sources: StreamSources, run_id: str, *, scope: Scope, head: Sequence[StreamChunk] = (), after: int = -1
) -> RunStream:
    """Open the stream of a run from the frame after `after`; -1 is from the start."""
    return RunStream(sources, sources.hub.subscribe(run_id, previews=True), scope=scope, head=head, after=after)
