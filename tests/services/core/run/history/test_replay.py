from typing import Any

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.run.history import replay as history_replay
from loomlog.services.core.run.history.replay import ReplayResult, replay
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from tests.projections.stories import Partition, a3x2, completed, eventful, replied, requested, returned, started


def accepted(partition: Partition, run_id: str) -> list[RawEvent]:
    reader = TermReader()
    events = [reader.read(offset, value) for offset, value in enumerate(partition.records)]
    return [event for event in events if event is not None and event.aggregate == run_id]


def run_of(*events: Any, run_id: str = "r_1") -> list[RawEvent]:
    partition = Partition()
    partition.claim()
    partition.add(run_id, *events)
    return accepted(partition, run_id)


def test_a_recorded_run_is_proven():
    events = run_of(*a3x2("r_1"))
    replayed = replay("r_1", events)
    assert replayed.drift == ()
    assert (replayed.status, replayed.seq, replayed.last_offset) == ("completed", 12, 12)
    assert [entry.type for entry in replayed.entries][:3] == ["RunStarted", "ModelCallRequested", "ModelReplied"]
    assert replay("r_1", events).state_sha256 == replayed.state_sha256
    assert len(replayed.state_sha256) == 64


def test_everything_that_can_happen_to_a_run_is_proven():
    partition = Partition()
    for run_id in eventful(partition):
        assert replay(run_id, accepted(partition, run_id)).drift == (), run_id


def test_a_gap_is_drift():
    events = run_of(*a3x2("r_1"))
    replayed = replay("r_1", [*events[:4], *events[5:]])
    assert any("a gap or a repetition" in sentence for sentence in replayed.drift)


def test_a_repetition_is_drift():
    events = run_of(started(), requested(1))
    assert "seq 2 at offset 2" in replay("r_1", [*events, events[-1]]).drift[0]


def test_a_record_that_was_altered_breaks_the_chain_at_the_next_one():
    events = run_of(started(), requested(1), replied(1, "Hi!"), completed())
    altered = events[2].value.replace(b"Hi!", b"Ho!")
    assert altered != events[2].value
    replayed = replay("r_1", [*events[:2], replace(events[2], value=altered), events[3]])
    assert replayed.drift == (
        "seq 4 at offset 4: it does not name the digest of the record before it, the chain is broken",
    )


def test_bytes_nobody_can_read_end_the_fold_with_the_place():
    events = run_of(started(), requested(1))
    broken = replace(events[1], value=events[1].value[:-2])
    replayed = replay("r_1", [events[0], broken])
    assert replayed.seq == 1
    assert replayed.drift[0].startswith("seq 2 at offset 2: Undecodable")


def test_an_event_that_cannot_follow_is_drift():
    assert "IllegalEvent" in replay("r_1", run_of(started(), returned(1, 0, "c1"))).drift[0]


def test_a_state_that_does_not_survive_its_bytes_is_drift(monkeypatch):
    events = run_of(started(), requested(1))
    real = history_replay.STATES.decode
    forgets = lambda data: real(data.replace(b'"hello"', b'"hallo"'))  # noqa: E731
    monkeypatch.setattr(history_replay, "STATES", _Codec(history_replay.STATES, forgets))
    assert "folding through the bytes" in replay("r_1", events).drift[0]


class _Codec:
    """A state codec that reads something else than was written."""

    def __init__(self, real: Any, decode: Any) -> None:
        self.encode, self.digest, self.decode = real.encode, real.digest, decode


def test_a_run_that_goes_on_begins_with_what_was_said_before():
    first = replay("r_1", run_of(started(prompt="What is a log?"), requested(1), replied(1, "A list."), completed()))
    where = RunPosition(run_id="r_1", first_offset=1, last_offset=4)
    events = run_of(started("r_2", prompt="And then?", continues=where), requested(1), run_id="r_2")
    assert conversation_origin(local_codec().decode(events[0].value).record) == where
    alone, together = replay("r_2", events), replay("r_2", events, history=first.history)
    assert alone.state_sha256 != together.state_sha256
    texts = [block.text for message in _messages(together) for block in message.blocks]
    assert texts == ["What is a log?", "A list.", "And then?"]


def test_a_run_of_its_own_continues_nothing():
    assert conversation_origin(started()) is None


def _messages(replayed: ReplayResult) -> tuple[Any, ...]:
    return replayed.history
