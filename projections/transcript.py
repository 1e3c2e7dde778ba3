"""Transcript: every frame of every run as it was streamed, except that likely secrets are masked
(projections/frames/masking.py).

One row per frame (projections/frames/frames.py defines which, and their seq), written once and never changed: a second
write of the same seq would disprove exactly-once, so it is an error and not an upsert. Rows go to clients byte for
byte.

The calls of a run's latest turn are also read from here: they are needed to build frames from the middle of a run on.

Before: projections/engine/run_projection.py. After: GET /v1/sessions/{id}/transcript, GET /v1/runs/{run_id}/stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from sqlalchemy import Index, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.frames.frame import FRAMES_PER_EVENT, FrameCall, FrameMemory
from loomlog.projections.frames.frame_json import clamp_ms
from loomlog.projections.frames.frames import build_frames
from loomlog.projections.frames.masking import mask_frame
from loomlog.projections.runs import RunRow, frame_memory, runs
from loomlog.projections.tables import (
    Json,
    Scope,
    define_table,
    in_scope,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.schemas.records import replace

PAGE_MAX = 5_000
"""Most frames of one page: some megabytes of text."""
PLACE_EPOCH_MS = 1_767_225_600_000
"""2026-01-01: no log is older, and 39 bits of milliseconds reach to 2043."""
PLACE_MS_MAX = (1 << 39) - 1
PLACE_BITS = 14
"""Bits of a place below its millisecond: 10 of the event, 4 of the frame. JavaScript counts all 53 bits exactly."""
PARTITION_STEP = 397
"""Prime to 1,024: events of different partitions at the same offset have different places."""


class TranscriptRow(NamedTuple):
    """A stored frame; `event` and `payload` are JSON texts. Its seq is what `from_seq` of the run's stream takes."""

    run_id: str
    seq: int
    tenant: str
    session_id: str
    ts_ns: int
    type: str
    event: Json
    payload: Json | None
    """Segments of a user_input."""
    place: int
    """Rises with time over all runs of the installation. Made of the position in the log alone, so that every build has
    the same; frames of one millisecond may share one, if seldom.
    """


transcript = define_table(
    "transcript",
    TranscriptRow,
    Index("transcript_tenant_place", "tenant", "place"),
    Index("transcript_place", "place"),
    key=["run_id", "seq"],
)


def apply(
    memory: FrameMemory, session_id: str, events: Sequence[PositionedEvent]
) -> tuple[list[TranscriptRow], FrameMemory]:
    """The rows of these events of one run, and the memory after them."""
    rows = []
    for at in events:
        frames, memory = build_frames(memory, at.envelope, at.event)
        for frame in frames:
            if frame.stored:
                rows.append(
                    TranscriptRow(
                        at.envelope.aggregate,
                        frame.seq,
                        at.envelope.tenant,
                        session_id,
                        clamp_ms(at.envelope.at_ms) * 1_000_000,
                        frame.type,
                        orjson.dumps(mask_frame(frame.event)).decode(),
                        None if frame.payload is None else orjson.dumps(frame.payload).decode(),
                        _place_of(at, frame.seq),
                    )
                )
    return rows, memory


def first_place(at_ms: int) -> int:
    """The lowest place of a millisecond."""
    return min(max(at_ms - PLACE_EPOCH_MS, 0), PLACE_MS_MAX) << PLACE_BITS


def _place_of(at: PositionedEvent, seq: int) -> int:
    event = (at.offset + at.partition * PARTITION_STEP) % 1024
    return first_place(at.envelope.at_ms) | event << 4 | min(seq % FRAMES_PER_EVENT, 15)


def open_calls(tool_call_events: Sequence[str]) -> dict[str, FrameCall]:
    """The calls of a turn from its stored `tool_call` frames, by id."""
    uses = [orjson.loads(event)["tool_use"] for event in tool_call_events]
    return {use["id"]: FrameCall(use["name"], use["input"]) for use in uses}


# --- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPage:
    """One page of a transcript. `next` is the token of the next page, empty at the end. `runs_before` are the runs of
    the session whose frames are all on earlier pages.
    """

    rows: tuple[TranscriptRow, ...]
    next: str
    runs_before: int = 0


async def transcript_of_session(
    reader: PostgresReader, tenant: Scope, session_id: str, *, limit: int = PAGE_MAX, after: str = ""
) -> TranscriptPage:
    """The frames of a session: its runs in the order they started, in each run by seq. Raises InvalidPageToken."""
    limit = max(1, min(limit, PAGE_MAX))
    order = (runs.c.started_at_ms, runs.c.run_id, transcript.c.seq)
    conditions = [in_scope(runs.c.tenant, tenant), runs.c.session_id == session_id]
    runs_before, last_run = 0, ""
    if after:
        started_at_ms, run_id, seq, counted = parse_page_token(after, 4)
        runs_before, last_run = parse_token_number(counted), run_id
        conditions.append(tuple_(*order) > tuple_(parse_token_number(started_at_ms), run_id, parse_token_number(seq)))
    fetched = await reader.fetch(
        select(transcript, runs.c.started_at_ms)
        .join(runs, runs.c.run_id == transcript.c.run_id)
        .where(*conditions)
        .order_by(*order)
        .limit(limit + 1)
    )
    rows = tuple(TranscriptRow._make(row[:-1]) for row in fetched[:limit])
    if last_run and rows and rows[0].run_id != last_run:
        runs_before += 1
    if len(fetched) <= limit:
        return TranscriptPage(rows=rows, next="", runs_before=runs_before)
    runs_until_last = runs_before + len({row.run_id for row in rows}) - 1
    token = page_token(fetched[limit - 1][-1], rows[-1].run_id, rows[-1].seq, runs_until_last)
    return TranscriptPage(rows=rows, next=token, runs_before=runs_before)


async def frames_of_run(
    reader: PostgresReader, tenant: Scope, run_id: str, *, from_seq: int = 0, limit: int = PAGE_MAX
) -> list[TranscriptRow]:
    """Stored frames of a run after `from_seq`, in order."""
    rows = await reader.fetch(
        select(transcript)
        .where(in_scope(transcript.c.tenant, tenant), transcript.c.run_id == run_id, transcript.c.seq > from_seq)
        .order_by(transcript.c.seq)
        .limit(max(1, min(limit, PAGE_MAX)))
    )
    return [TranscriptRow._make(row) for row in rows]


async def final_text(reader: PostgresReader, tenant: Scope, run_id: str) -> TranscriptRow | None:
    """The last `text` frame of a run: its final answer."""
    rows = await reader.fetch(
        select(transcript)
        .where(in_scope(transcript.c.tenant, tenant), transcript.c.run_id == run_id, transcript.c.type == "text")
        .order_by(transcript.c.seq.desc())
        .limit(1)
    )
    return TranscriptRow._make(rows[0]) if rows else None


async def read_stream_start(reader: PostgresReader, tenant: Scope, run_id: str) -> tuple[RunRow, FrameMemory] | None:
    """The stored run and the frame memory for the events after its `last_seq`, read consistently."""
    first = runs.c.memory_reply_seq * FRAMES_PER_EVENT
    rows = await reader.fetch(
        select(runs, transcript.c.event)
        .outerjoin(
            transcript,
            (transcript.c.run_id == runs.c.run_id)
            & (transcript.c.type == "tool_call")
            & transcript.c.seq.between(first, first + FRAMES_PER_EVENT - 1),
        )
        .where(in_scope(runs.c.tenant, tenant), runs.c.run_id == run_id)
    )
    if not rows:
        return None
    run = RunRow._make(rows[0][:-1])
    calls = open_calls([row[-1] for row in rows if row[-1] is not None])
    return run, replace(frame_memory(run), calls=calls)
