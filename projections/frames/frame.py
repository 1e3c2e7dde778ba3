"""Types of a frame: built from an event, sent, and stored; and the memory of earlier events it needs.

Before: frames.py builds them from events. After: projections/transcript.py stores them, the API sends them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import field

from loomlog.schemas.generated.run_events import InputReceived
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value

SESSION_STRIDE = 1 << 40
"""Distance between the seqs of two runs in a transcript: 4 billion events; JavaScript counts 8,191 runs exactly."""
FRAMES_PER_EVENT = 256
"""Seq numbers of one event."""


class PendingInput(NamedTuple):
    """A user text that waits for the next turn boundary; received at `at_ms` in UTC milliseconds."""

    text: str
    source: str
    at_ms: int
    blob: dict[str, Any] | None = None
    """Reference of a long text in the blob store; `text` is empty then."""


def pending_input_of(event: InputReceived, at_ms: int) -> PendingInput:
    """The input of an event, to be shown later."""
    return PendingInput(event.text, event.source, at_ms, None if event.text_blob is None else event.text_blob.to_avro())


class FrameCall(NamedTuple):
    """A call of the latest turn; `input` is parsed JSON."""

    name: str
    input: Any


class FrameMemory(Value, frozen=True, kw_only=True):
    """What frames need from a run's earlier events. A run begins with an empty one."""

    provider: str = ""
    model: str = ""
    calls: Mapping[str, FrameCall] = field(default_factory=dict)
    """The calls of the latest turn by id."""
    retry_reason: str = ""
    """Reason of the next attempt."""
    pending_inputs: tuple[PendingInput, ...] = ()
    """Received texts that have not yet joined the conversation."""


class Frame(Value, frozen=True, kw_only=True):
    """One frame. `event` is its data; `payload` exists in stored rows only."""

    seq: int
    type: str
    event: dict[str, Any]
    payload: list[dict[str, Any]] | None = None
    stored: bool = True
    live: bool = True


class StreamFrame(Value, frozen=True, kw_only=True):
    """A frame as it is sent: `data` is one line of JSON. With `blob` set, its text has yet to be loaded."""

    seq: int
    type: str
    data: str
    blob: BlobRef | None = None


class StoredFrame(Protocol):
    """A row of the transcript; `event` and `payload` are JSON texts."""

    @property
    def seq(self) -> int: ...
    @property
    def ts_ns(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def payload(self) -> str | None: ...
