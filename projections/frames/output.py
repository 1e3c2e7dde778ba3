"""Outgoing frames: live ones, and stored ones as a replay shows them.

Before: frames.py for live ones, projections/transcript.py for stored ones. After:
services/application/streaming/run_stream.py sends them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from loomlog.projections.frames.frame import Frame, StoredFrame, StreamFrame
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.values import BlobRef


def stream_frame(frame: Frame) -> StreamFrame:
    """A live frame as it is sent."""
    return StreamFrame(seq=frame.seq, type=frame.type, data=orjson.dumps(frame.event).decode(), blob=_blob(frame.event))


def replay_frames(rows: Iterable[StoredFrame]) -> Iterator[StreamFrame]:
    """Stored rows as a stream shows them: user turns become `steer` with source `replay`, the system prompt is not
    shown (and neither are the system segments of the request: a quirk of the reference that is fixed here).
    """
    for row in rows:
        if row.type == "system_prompt":
            continue
        if row.type == "user_input":
            data: dict[str, Any] = {
                "type": "steer",
                "user_input": {
                    "text": _user_text(row.payload),
                    "source": "replay",
                    "seen_at": format_rfc3339(row.ts_ns // 1_000_000),
                },
            }
            blob = _stored_blob(row.event) or _long_user_text(row.payload)
            if blob is not None:
                data["text_blob"] = blob.to_avro()
            yield StreamFrame(seq=row.seq, type="steer", data=orjson.dumps(data).decode(), blob=blob)
            continue
        blob = _stored_blob(row.event)
        yield StreamFrame(seq=row.seq, type=row.type, data=row.event, blob=blob)


def text_holder(event: dict[str, Any]) -> dict[str, Any]:
    """The object of a frame that holds its text; that of user input is one level down."""
    holder: dict[str, Any] = event.get("user_input", event)
    return holder


def _blob(event: Mapping[str, Any]) -> BlobRef | None:
    reference = event.get("text_blob")
    return None if reference is None else BlobRef.from_avro(reference)


def _stored_blob(event: str) -> BlobRef | None:
    return _blob(orjson.loads(event)) if '"text_blob":' in event else None


def _user_text(payload: str | None) -> str:
    segments = orjson.loads(payload) if payload else []
    return "\n".join(
        block["text"]
        for segment in segments
        if segment["role"] == "user"
        for block in segment["content"]
        if block.get("text")
    )


def _long_user_text(payload: str | None) -> BlobRef | None:
    """The blob of a user turn that is one long text; of several texts only the short ones are shown."""
    if not payload or '"blob":' not in payload:
        return None
    blocks = [
        block
        for segment in orjson.loads(payload)
        if segment["role"] == "user"
        for block in segment["content"]
        if block.get("text") or (block.get("blob") and block["type"] != "image")
    ]
    return BlobRef.from_avro(blocks[0]["blob"]) if len(blocks) == 1 and blocks[0].get("blob") else None
