import orjson
import pytest

from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.projections.frames.frames import build_frames
from loomlog.projections.frames.output import replay_frames
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.projections.transcript import (
    TranscriptRow,
    final_text,
    frames_of_run,
    read_stream_start,
    transcript,
    transcript_of_session,
)
from loomlog.schemas.codec import local_codec
from loomlog.services.application.queries.run_json import transcript_json
from tests.projections.stories import (
    Partition,
    a3x2,
    call,
    completed,
    eventful,
    failed,
    replied,
    requested,
    returned,
    started,
)


@pytest.fixture
async def eventful_log(project) -> Partition:
    partition = Partition()
    eventful(partition)
    for run_id in ("r_s1", "r_s2"):
        partition.add(run_id, *[*a3x2(run_id)[:1]])
    await project(partition)
    return partition


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(TranscriptRow._fields) == [column.name for column in transcript.columns]


async def test_the_first_row_of_a_session_is_the_user_input_with_the_prompt(reader, eventful_log):
    page = await transcript_of_session(reader, "default", "s_tools")
    first = page.rows[0]
    assert first.type == "user_input"
    texts = [c["text"] for seg in orjson.loads(first.payload) if seg["role"] == "user" for c in seg["content"]]
    assert texts == ["hello"]
    assert orjson.loads(first.event) == {"type": "user_input"}


async def test_a_transcript_is_what_was_streamed_and_its_last_seq_ends_the_stream(reader, eventful_log):
    page = await transcript_of_session(reader, "default", "s_tools")
    assert [row.type for row in page.rows if row.type not in ("user_input", "system_prompt")] == [
        "started",
        "text",
        "tool_call",
        "tool_call",
        "usage",
        "tool_result",
        "tool_result",
        "text",
        "usage",
        "done",
    ]
    assert await frames_of_run(reader, "default", "r_tools", from_seq=page.rows[-1].seq) == []


async def test_a_stream_can_be_resumed_at_every_frame(reader, eventful_log):
    rows = await frames_of_run(reader, "default", "r_tools")
    for number, row in enumerate(rows):
        assert await frames_of_run(reader, "default", "r_tools", from_seq=row.seq) == rows[number + 1 :]


async def test_only_the_tenant_of_a_run_reads_its_frames(reader, eventful_log):
    assert await frames_of_run(reader, "acme", "r_tools") == []
    assert (await transcript_of_session(reader, "acme", "s_tools")).rows == ()
    assert await final_text(reader, "acme", "r_tools") is None
    assert await read_stream_start(reader, "acme", "r_tools") is None
    assert len(await frames_of_run(reader, EVERY_TENANT, "r_tools")) > 5


async def test_a_nul_character_of_a_model_is_kept(reader, eventful_log):
    (row,) = [r for r in await frames_of_run(reader, "default", "r_talk") if r.type == "user_input" and r.seq > 256]
    assert orjson.loads(row.event)["user_input"]["text"] == "more\x00"
    assert next(iter(replay_frames([row]))).type == "steer"


async def test_the_final_text_is_the_last_one(reader, eventful_log):
    assert orjson.loads((await final_text(reader, "default", "r_tools")).event)["text"] == "It is sunny."
    assert await final_text(reader, "default", "r_lost") is None


async def test_a_session_of_several_runs_is_read_run_by_run_and_in_pages(project, reader):
    partition = Partition()
    partition.claim()
    for run_id in ("r_b", "r_a"):
        partition.add(run_id, started(run_id, session_id="s_1"))
    for run_id in ("r_a", "r_b"):
        partition.add(run_id, replied(1, f"from {run_id}"), completed())
    partition.add("r_c", started("r_c"))
    await project(partition)
    whole = await transcript_of_session(reader, "default", "s_1")
    assert whole.next == ""
    assert [row.run_id for row in whole.rows] == ["r_b"] * 6 + ["r_a"] * 6
    seen, seqs, after = [], [], ""
    for _ in range(10):
        page = await transcript_of_session(reader, "default", "s_1", limit=5, after=after)
        seen += page.rows
        seqs += [frame["seq"] for frame in transcript_json(page.rows, page.runs_before)]
        if not (after := page.next):
            break
    assert tuple(seen) == whole.rows
    assert seqs == sorted(set(seqs)) == [frame["seq"] for frame in transcript_json(whole.rows, 0)]
    with pytest.raises(InvalidPageToken):
        await transcript_of_session(reader, "default", "s_1", after="x")


@pytest.mark.parametrize("known", range(1, 9))
async def test_a_reader_that_joins_in_the_middle_sees_the_same_frames(project, reader, known):
    events = [
        started("r_1"),
        requested(1),
        replied(1, "", call("c1"), call("c2", "Search", "[1, 2.50]"), model="mock-large"),
        returned(1, 1, "c2"),
        failed(2, retry_after_ms=5),
        requested(2, 2),
        returned(1, 0, "c1"),
        replied(2, "bye", attempt=2),
        completed(),
    ]
    partition = Partition()
    partition.claim()
    partition.add("r_1", *events[:known])
    await project(partition)
    run, memory = await read_stream_start(reader, "default", "r_1")
    assert run.last_seq == known
    partition.add("r_1", *events[known:])
    all_frames, late_frames = [], []
    from loomlog.projections.frames.frame import FrameMemory

    whole = FrameMemory()
    for value in partition.records[1:]:
        decoded = local_codec().decode(value)
        frames, whole = build_frames(whole, decoded.envelope, decoded.record)
        all_frames += frames
        if decoded.envelope.seq > known:
            frames, memory = build_frames(memory, decoded.envelope, decoded.record)
            late_frames += frames
    assert late_frames == [frame for frame in all_frames if frame.seq >= (known + 1) * FRAMES_PER_EVENT]
