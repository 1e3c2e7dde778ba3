"""Merges events and previews of one run into the frames of one client. Pure: items in, chunks out.

Previews show a model turn while it streams; its event contains the whole turn. A client must receive the turn's text
exactly once: of a turn with previews only the remainder is sent when the event arrives, counted in characters of that
attempt. The two arrive over different topics in any order, so:

    a preview of the open attempt       is sent, from the next character on; one after a gap is dropped
    a preview of a later attempt        waits for the event that opens it, which is already in the log
    any other preview                   is dropped: its turn is in the log, its attempt failed, or its owner was fenced
    a new attempt                       restarts the text, after the `retry` frame that announces it

Events must be dense; a gap (the subscription began later than the read models reach) is `EventGap`, and the stream
falls back to the read models. The state of the previews survives that, so that no character is sent twice.

Before: subscription.py. After: run_stream.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from loomlog.projections.frames.frame import Frame, FrameMemory
from loomlog.schemas.generated.run_events import ModelCallFailed, ModelCallRequested, ModelReplied, TurnCancelled
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.limits import BUFFERED_PREVIEWS_MAX
from loomlog.services.application.streaming.items import (
    DeltaItem,
    EventItem,
    Item,
    StreamChunk,
    chunk_of,
    preview_chunk,
)

RUN_END_FRAMES = frozenset({"done", "error"})
"""Frames after which a run sends no more."""


class EventGap(Exception):
    """An event is missing between the last one that was sent and this one."""


@dataclass(frozen=True, slots=True)
class Decryptor:
    """Decrypts content for a client that may see one tenant's data."""

    content: ContentAccess
    tenant: str

    def decrypt_text(self, text: str) -> str:
        return self.content.decrypt_text(text, self.tenant)

    def decrypt_frame(self, frame: Frame) -> Frame:
        return self.content.decrypt_frame(frame, self.tenant)


class PreviewBuffer:
    """Tracks how much of the current turn a client has received."""

    __slots__ = ("_attempt", "_decryptor", "_held", "_open", "_sent", "_silent_turn")

    def __init__(self, decryptor: Decryptor | None = None) -> None:
        self._decryptor = decryptor
        self._attempt = (0, 0)
        """Turn and attempt of the newest model call."""
        self._silent_turn = 0
        """The turn under way whose attempt is not known, because it had no previews yet; 0 for none."""
        self._open = False
        self._sent = {"text": 0, "thinking": 0}
        self._held: list[DeltaItem] = []

    def resume_after(self, recent: Sequence[Item], last_event: int, *, open_turn: int = 0) -> None:
        """Start after event `last_event`; `recent` items are available. `open_turn` is the turn whose model call is
        under way after that event, 0 for none.

        If the event that opened the turn is not among them, the newest attempt that has previews is the current one.
        Without any it is the attempt of the next preview of that turn: all that were there are in `recent`.
        """
        # The waiting ones arrive again with the new subscription, or their gap is filled when the turn is in the log.
        self._held.clear()
        self._silent_turn = 0
        for item in reversed(recent):
            if isinstance(item, DeltaItem) or item.raw.seq > last_event:
                continue
            match item.record:
                case ModelCallRequested(turn=turn, attempt=attempt):
                    self.turn_requested(turn, attempt)
                    return
                case (
                    ModelReplied(turn=turn, attempt=attempt)
                    | ModelCallFailed(turn=turn, attempt=attempt)
                    | TurnCancelled(turn=turn, attempt=attempt)
                ) if attempt > 0:
                    self._attempt = (turn, attempt)
                    self.turn_ended()
                    return
                case _:
                    pass
        deltas = (item.delta for item in recent if isinstance(item, DeltaItem))
        attempts = [delta.attempt for delta in deltas if delta.turn == open_turn]
        if attempts:
            self.turn_requested(open_turn, max(attempts))
        elif open_turn > self._attempt[0] or not self._open:
            self._silent_turn = open_turn

    def turn_requested(self, turn: int, attempt: int) -> list[StreamChunk]:
        """Note the start of a model call; return the previews that waited for it."""
        if (turn, attempt) != self._attempt:
            self._attempt = (turn, attempt)
            self._sent = {"text": 0, "thinking": 0}
        self._open = True
        self._silent_turn = 0
        held, self._held = self._held, []
        return [piece for item in held for piece in self.new_chunks(item)]

    def turn_ended(self) -> None:
        """Note that the model call has returned or failed; later previews of it are dropped."""
        self._open = False
        self._silent_turn = 0

    def new_chunks(self, item: DeltaItem) -> list[StreamChunk]:
        """Return the part of a preview to send now."""
        delta = item.delta
        attempt = (delta.turn, delta.attempt)
        if attempt > self._attempt and delta.turn == self._silent_turn:
            self.turn_requested(*attempt)
        if attempt > self._attempt:
            if len(self._held) < BUFFERED_PREVIEWS_MAX:
                self._held.append(item)
            return []
        if attempt < self._attempt or not self._open:
            return []
        channel = "thinking" if delta.thinking else "text"
        sent = self._sent[channel]
        # Positions count characters of the text, not of its token.
        text = delta.text if self._decryptor is None else self._decryptor.decrypt_text(delta.text)
        fresh = text[sent - delta.start :] if delta.start <= sent else ""
        if not fresh:
            return []
        self._sent[channel] = sent + len(fresh)
        whole = fresh == delta.text
        return [item.chunk() if whole else preview_chunk(fresh, thinking=delta.thinking)]

    def remainder(self, chunk: StreamChunk, text: Callable[[], str]) -> StreamChunk | None:
        """Return a frame of the log without the characters sent as previews; None when nothing remains."""
        if chunk.type in ("retry", "usage", "turn_cancelled"):
            # The first frame of an attempt and the last of a turn end the current text; another one follows.
            self._open = False
            self._sent = {"text": 0, "thinking": 0}
        sent = self._sent.get(chunk.type, 0)
        if not sent:
            return chunk
        self._sent[chunk.type] = 0
        if chunk.blob is not None:
            return chunk._replace(skip=sent)
        left = text()[sent:]
        return chunk._replace(data=orjson.dumps({"type": chunk.type, "text": left})) if left else None


class StreamMerge:
    """The stream of one client from a given event on.

    `memory` and `next_event` belong together: the memory after all events before that one. Frames up to `after` were
    sent already. `term_of` returns the term in force in a partition.
    """

    __slots__ = ("_decryptor", "_memory", "_next_event", "_previews", "_term_of", "after", "ended")

    def __init__(
        self,
        *,
        term_of: Callable[[int], int],
        memory: FrameMemory | None = None,
        next_event: int = 1,
        after: int = -1,
        previews: PreviewBuffer | None = None,
        decryptor: Decryptor | None = None,
    ) -> None:
        self._decryptor = decryptor
        self.after = after
        self.ended = False
        self._term_of = term_of
        self._memory = memory if memory is not None else FrameMemory()
        self._next_event = next_event
        self._previews = previews if previews is not None else PreviewBuffer()

    def take(self, item: EventItem | DeltaItem) -> list[StreamChunk]:
        """Return the chunks of an item. Raises EventGap, and Undecodable for an unreadable event."""
        if isinstance(item, DeltaItem):
            return [] if item.delta.term < self._term_of(item.partition) else self._previews.new_chunks(item)
        return self._merge_event(item)

    def _merge_event(self, item: EventItem) -> list[StreamChunk]:
        seq = item.raw.seq
        if seq < self._next_event:
            return []  # already read from the read models
        if seq > self._next_event:
            raise EventGap(f"event {seq} of {item.raw.aggregate} came, {self._next_event} was next")
        frames, pieces, self._memory = item.frames(self._memory)
        if self._decryptor is not None and pieces:
            # The item keeps the tokens: it is shared, and outlives an erasure.
            frames = [self._decryptor.decrypt_frame(frame) for frame in frames]
            pieces = [chunk_of(frame) for frame in frames]
        self._next_event = seq + 1
        chunks = [
            kept
            for frame, piece in zip(frames, pieces, strict=True)
            if frame.seq > self.after and (kept := self._previews.remainder(piece, _text_getter(frame))) is not None
        ]
        if pieces:
            self.after = max(self.after, frames[-1].seq)
            self.ended = pieces[-1].type in RUN_END_FRAMES
        record = item.record
        match record:
            case ModelCallRequested():
                chunks += self._previews.turn_requested(record.turn, record.attempt)
            case ModelReplied() | ModelCallFailed() | TurnCancelled():
                self._previews.turn_ended()
            case _:
                pass
        return chunks


def _text_getter(frame: Frame) -> Callable[[], str]:
    return lambda: str(frame.event["text"])
