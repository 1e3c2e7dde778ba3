"""Bundles: what was written comes back and is proven; what was cut, altered or bent is told."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from loomlog.connectors.protocols import ConsumerRecord
from loomlog.connectors.storage.blobs import blob_ref
from loomlog.schemas.codec import UnknownSchema, local_codec
from loomlog.schemas.conversation import Message
from loomlog.services.core.run.evolve import REDUCER_VERSION
from loomlog.services.core.run.history.replay import RunFold
from loomlog.services.stream.archive import bundle
from loomlog.services.stream.archive.bundle import (
    BlobPart,
    BrokenBundle,
    BundledRun,
    BundleHeader,
    BundleReader,
    BundleWriter,
    FoldedRun,
    blob_refs,
)
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from loomlog.services.stream.archive.run_log import LineageSegment
from tests.projections.stories import Partition, replied
from tests.services.stream.archive.test_run_log import family, lineage

BLOB = b"a long text " * 100_000


async def written(*, blob: bytes = b"", reducer: int = REDUCER_VERSION) -> bytes:
    """The bundle of a fork of a run that goes on with another."""
    partition, at = family()
    log, links = await lineage(partition, "r_1-c", at)
    writer = BundleWriter(local_codec())
    out = writer.begin(header(links, reducer))
    history: tuple[Message, ...] = ()
    for link in links:
        folding = RunFold(link.run_id, history=history)
        async for recorded in log.accepted(link):
            folding.apply(recorded.event)
            out += writer.event(link.run_id, recorded.record)
        result = folding.result()
        history = result.history
        out += writer.folded(
            FoldedRun(
                run_id=link.run_id,
                seq=result.seq,
                tail_digest=result.tail_digest.hex(),
                state_sha256=result.state_sha256,
            )
        )
    if blob:
        out += b"".join(writer.blob(blob_ref(blob, "text/plain"), blob))
    return out + writer.end()


def header(links: list[LineageSegment], reducer: int) -> BundleHeader:
    return BundleHeader(
        run_id=links[-1].run_id,
        tenant="default",
        topic="loom.run.events",
        partition=0,
        reducer_version=reducer,
        exported_at="2026-01-31T12:00:00.000Z",
        runs=tuple(
            BundledRun(
                run_id=link.run_id,
                role=link.role,
                until_seq=link.until_seq,
                first_offset=link.first_offset,
                end_offset=link.end_offset,
            )
            for link in links
        ),
    )


def bent(data: bytes, change: Callable[[list[Any]], None]) -> io.BytesIO:
    """The bundle with its lines changed and its hash made right again: somebody knew what they did."""
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    change(lines)
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    lines[-1]["sha256"] = hashlib.sha256(whole).hexdigest()
    return io.BytesIO(gzip.compress(whole + json.dumps(lines[-1]).encode() + b"\n"))


async def test_a_bundle_replays_alone() -> None:
    replay = replay_bundle(io.BytesIO(await written()))
    assert (replay.drift, replay.not_compared, replay.ancestors) == ((), "", 2)
    assert (replay.replayed.run_id, replay.replayed.seq, replay.replayed.status) == ("r_1-c", 3, "running")
    assert [entry.type for entry in replay.replayed.entries] == ["RunStarted", "ModelCallRequested", "ModelReplied"]


async def test_it_is_replayed_up_to_a_seq() -> None:
    replay = replay_bundle(io.BytesIO(await written()), to_seq=2)
    assert (replay.drift, replay.replayed.seq) == ((), 2)


async def test_any_tool_can_read_it_and_its_schemas_are_in_it() -> None:
    lines = [json.loads(line) for line in gzip.decompress(await written()).splitlines()]
    assert (lines[0]["format"], lines[0]["version"]) == ("loomlog.run-bundle", 1)
    known: set[int] = set()
    for line in lines:
        if line["kind"] == "schema":
            assert line["schema"]["name"] == line["name"].rsplit(".", 1)[1]
            known.add(line["id"])
        elif line["kind"] == "event":
            raw = bundle.b64decode(line["value"])
            assert int.from_bytes(raw[1:5], "big") in known
    assert lines[-1]["kind"] == "end"


async def test_other_schema_ids_than_ours_are_no_hindrance() -> None:
    """As of an installation with a registry of its own."""

    def renumber(lines: list[Any]) -> None:
        for line in lines:
            if line["kind"] == "schema":
                line["id"] += 100_000
            elif line["kind"] == "event":
                raw = bundle.b64decode(line["value"])
                other = raw[:1] + (int.from_bytes(raw[1:5], "big") + 100_000).to_bytes(4, "big") + raw[5:]
                line["value"] = bundle.b64encode(other).decode()

    replay = replay_bundle(bent(await written(), renumber))
    assert replay.replayed.seq == 3
    # The bytes are others now, so the chain says so; but every one of them could be read.
    assert not any("Undecodable" in sentence or "Unknown" in sentence for sentence in replay.drift)


async def test_a_payload_comes_back_in_parts() -> None:
    reader = BundleReader(io.BytesIO(await written(blob=BLOB)))
    parts = [item for item in reader if isinstance(item, BlobPart)]
    assert len(parts) == 3
    assert b"".join(part.data for part in parts) == BLOB
    assert [part.is_last for part in parts] == [False, False, True]


@pytest.mark.parametrize("kept", [0.2, 0.7, 0.99])
async def test_a_file_that_was_cut_short_is_told(kept: float) -> None:
    data = await written()
    with pytest.raises(BrokenBundle):
        replay_bundle(io.BytesIO(data[: int(len(data) * kept)]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not gzip",
        gzip.compress(b"{}\n", mtime=0),
        gzip.compress(b"x" * 100, mtime=0),
        gzip.compress(b"[1]\n", mtime=0),
        gzip.compress(b"[" * 100_000 + b"\n", mtime=0),
    ],
)
def test_what_is_no_bundle_is_told(data: bytes) -> None:
    with pytest.raises(BrokenBundle):
        replay_bundle(io.BytesIO(data))


async def test_a_line_that_was_altered_breaks_the_hash() -> None:
    plain = gzip.decompress(await written()).replace(b'"tenant":"default"', b'"tenant":"another"')
    with pytest.raises(BrokenBundle, match="altered"):
        replay_bundle(io.BytesIO(gzip.compress(plain, mtime=0)))


async def test_an_event_that_was_altered_with_care_breaks_the_chain_of_its_run() -> None:
    def alter(lines: list[Any]) -> None:
        line = next(one for one in lines if one["kind"] == "event")
        raw = bundle.b64decode(line["value"])
        line["value"] = bundle.b64encode(raw.replace(b"one", b"uno")).decode()

    replay = replay_bundle(bent(await written(), alter))
    assert replay.drift[0].startswith("r_1: seq 2")
    assert replay.first_drift_seq == 2


async def test_a_state_that_is_folded_otherwise_than_it_was_said_is_drift() -> None:
    def lie(lines: list[Any]) -> None:
        [line for line in lines if line["kind"] == "folded"][-1]["state_sha256"] = "00"

    replay = replay_bundle(bent(await written(), lie))
    assert replay.first_drift_seq == 3
    assert "the bundle says the state has sha256 00" in replay.drift[0]


async def test_states_of_another_fold_are_not_compared() -> None:
    replay = replay_bundle(io.BytesIO(await written(reducer=REDUCER_VERSION + 1)))
    assert replay.drift == ()
    assert "folded by version" in replay.not_compared


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[0].update(version=2),
        lambda lines: lines[0].update(runs=[]),
        lambda lines: lines[0].pop("topic"),
        lambda lines: lines[0].update(topic=7),
        lambda lines: lines[0].update(topic="no \ud800 character"),
        lambda lines: lines[0].update(topic="t" * 1_000_000),
        lambda lines: lines[0].update(partition="first"),
        lambda lines: lines[0].update(partition=2**70),
        lambda lines: lines[0]["runs"][0].update(first_offset=None),
        lambda lines: lines[2].update(offset=2**70),
        lambda lines: lines[2].update(timestamp="now"),
        lambda lines: lines[-1].update(events=1),
        lambda lines: lines.insert(1, {"kind": "surprise"}),
        lambda lines: lines[2].update(value="not base64!"),
        lambda lines: lines[2].update(value=""),
        lambda lines: lines[2].pop("offset"),
        lambda lines: lines[2].update(run_id="r_9"),
        lambda lines: lines.pop(-2),
    ],
)
async def test_a_bundle_that_was_bent_is_told(change: Callable[[list[Any]], None]) -> None:
    with pytest.raises(BrokenBundle):
        replay_bundle(bent(await written(), change))


async def test_a_run_that_left_its_origin_elsewhere_than_the_bundle_has_it_is_drift() -> None:
    def shorter(lines: list[Any]) -> None:
        # One event less of the run it was forked from.
        places = [at for at, line in enumerate(lines) if line.get("run_id") == "r_1-b" and line["kind"] == "event"]
        lines.pop(places[-1])
        lines[-1]["events"] -= 1

    replay = replay_bundle(bent(await written(), shorter))
    assert any("left r_1-b at another event" in sentence for sentence in replay.drift)


async def test_more_than_is_taken_is_refused() -> None:
    with pytest.raises(BrokenBundle, match="larger than what is taken"):
        replay_bundle(io.BytesIO(await written()), bytes_max=1_000)


def test_a_schema_of_a_record_nobody_knows_is_told() -> None:
    with pytest.raises(UnknownSchema):
        local_codec().for_foreign_records().add_schema(7, "loom.other.Thing", 1, {})


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "null"},
        {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]},
    ],
)
async def test_a_schema_by_which_a_few_bytes_would_never_end_is_told(kind: Any) -> None:
    def forge(lines: list[Any]) -> None:
        schema = next(line for line in lines if line["kind"] == "schema")["schema"]
        schema["fields"].append({"name": "more", "type": kind})

    with pytest.raises(BrokenBundle, match=r"the schema of loom\.run\.events\.RunStarted: UnsafeSchema"):
        replay_bundle(bent(await written(), forge))


def test_payloads_are_found_wherever_a_record_refers_to_them() -> None:
    ref = blob_ref(b"x", "text/plain")
    assert list(blob_refs(replied(1, text_blob=ref))) == [ref]
    assert list(blob_refs(replied(1, "x"))) == []


def test_writing_the_same_again_gives_the_same_bytes() -> None:
    partition = Partition()
    partition.claim()
    partition.add("r_1", replied(1, "x"))
    record = ConsumerRecord("t", 0, 1, 5, b"1", partition.records[1], ())
    one, other = BundleWriter(local_codec()), BundleWriter(local_codec())
    assert one.event("r_1", record) + one.end() == other.event("r_1", record) + other.end()
