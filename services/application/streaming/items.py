"""Items of the hub's subscriptions: an accepted event or a preview, decoded and encoded at most once.

All subscribers of a run share an item, so the work of the first serves the others: the decoded record, the frames and
their JSON bytes. That is sound because the frames of an event depend only on the events before it, which are the same
for all.

After delivery only the subscribers hold an item. For late subscribers the plain values of `StoredItem` are kept, from
which items are rebuilt: decoded, the events of half a minute would be hundreds of thousands of objects, and the garbage
collector stopped the process for up to a second when it traversed them.

Before: event_hub.py makes them. After: merge.py turns them into what one client is sent.
"""

from typing import NamedTuple

import orjson

from loomlog.connectors.crypto.content_encryption import TOKEN_PREFIX
from loomlog.projections.frames.frame import Frame, FrameMemory
from loomlog.projections.frames.frames import build_frames
from loomlog.projections.frames.output import stream_frame
from loomlog.schemas.codec import Codec, local_codec, read_envelope
from loomlog.schemas.generated.run_events import Event
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import BlobRef, Envelope
from loomlog.schemas.reader import RawEvent


class StreamChunk(NamedTuple):
    """A frame as sent to a client. `seq` is None for a preview, at which a stream cannot be resumed.

    With `blob` set the text of the frame has still to be loaded, and `skip` characters of it were sent already.
    `id` is where a stream resumes that is not of a run; empty: `seq`.
    """

    seq: int | None
    type: str
    data: bytes
    blob: BlobRef | None = None
    skip: int = 0
    id: str = ""


class EventItem:
    """An accepted event of a run."""

    __slots__ = ("_chunks", "_codec", "_envelope", "_frames", "_memory", "_record", "partition", "raw")

    def __init__(self, raw: RawEvent, partition: int, codec: Codec | None = None) -> None:
        self.raw = raw
        self.partition = partition
        self._codec = codec
        self._record: Event | None = None
        self._envelope: Envelope | None = None
        self._frames: list[Frame] = []
        self._chunks: list[StreamChunk] | None = None
        self._memory: FrameMemory | None = None

    @property
    def size(self) -> int:
        return len(self.raw.value)

    @property
    def encrypted_text(self) -> str:
        """Return the record as text, in which tokens can be found; empty when it has none."""
        return _text_with_tokens(self.raw.value)

    @property
    def record(self) -> Event:
        """Return the event. Raises Undecodable."""
        return self._decode()[1]

    @property
    def envelope(self) -> Envelope:
        """Return the envelope alone; cheaper than the record."""
        if self._envelope is None:
            self._envelope = read_envelope(self.raw.value)[0]
        return self._envelope

    def frames(self, memory: FrameMemory) -> tuple[list[Frame], list[StreamChunk], FrameMemory]:
        """Return the live frames, their encoded form, and the memory for the next event. Raises Undecodable."""
        if self._chunks is None or self._memory is None:
            envelope, record = self._decode()
            frames, self._memory = build_frames(memory, envelope, record)
            self._frames = [frame for frame in frames if frame.live]
            self._chunks = [chunk_of(frame) for frame in self._frames]
        return self._frames, self._chunks, self._memory

    def _decode(self) -> tuple[Envelope, Event]:
        if self._record is None or self._envelope is None:
            decoded = self.raw.decode(self._codec)
            assert decoded.envelope is not None, "an events topic holds events only"
            self._record, self._envelope = decoded.record, decoded.envelope
        return self._envelope, self._record


class DeltaItem:
    """A preview of a model turn."""

    __slots__ = ("_chunk", "_codec", "_delta", "partition", "value")

    def __init__(self, value: bytes, partition: int, codec: Codec | None = None) -> None:
        self.value = value
        self.partition = partition
        self._codec = codec
        self._delta: ModelDelta | None = None
        self._chunk: StreamChunk | None = None

    @property
    def size(self) -> int:
        return len(self.value)

    @property
    def encrypted_text(self) -> str:
        """Return the preview as text, as EventItem.encrypted_text."""
        return _text_with_tokens(self.value)

    @property
    def delta(self) -> ModelDelta:
        """Return the preview. Raises Undecodable."""
        if self._delta is None:
            record = (self._codec or local_codec()).decode(self.value).record
            assert isinstance(record, ModelDelta), f"{type(record).__name__} on the topic of previews"
            self._delta = record
        return self._delta

    def chunk(self) -> StreamChunk:
        """Return the whole preview as a frame."""
        if self._chunk is None:
            self._chunk = preview_chunk(self.delta.text, thinking=self.delta.thinking)
        return self._chunk


Item = EventItem | DeltaItem

StoredItem = tuple[int, bytes] | tuple[int, bytes, int, int, int, int]
"""An item as stored: partition and record; of an event also offset, schema id, term and seq. The garbage collector
untracks a tuple of plain values at its first pass.
"""


def stored_event(raw: RawEvent, partition: int) -> StoredItem:
    """Return an event in its stored form."""
    return partition, raw.value, raw.offset, raw.schema_id, raw.term, raw.seq


def restore_item(run_id: str, stored: StoredItem, codec: Codec | None) -> Item:
    """Return the item of a stored form, not decoded."""
    if len(stored) == 2:
        partition, value = stored
        return DeltaItem(value, partition, codec)
    partition, value, offset, schema_id, term, seq = stored
    return EventItem(RawEvent(offset, schema_id, term, seq, run_id, value), partition, codec)


def _text_with_tokens(value: bytes) -> str:
    # Tokens are ASCII, and Avro writes texts unchanged.
    return value.decode("latin-1") if TOKEN_PREFIX.encode() in value else ""


def chunk_of(frame: Frame) -> StreamChunk:
    """Encode a frame of an event."""
    made = stream_frame(frame)
    return StreamChunk(made.seq, made.type, made.data.encode(), made.blob)


def preview_chunk(text: str, *, thinking: bool) -> StreamChunk:
    """Encode a frame with characters of a turn that is not in the log yet."""
    kind = "thinking" if thinking else "text"
    return StreamChunk(None, kind, orjson.dumps({"type": kind, "text": text}))
