"""Runs that are over, read from the log by their place in it, with everything they continue."""

from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog, MemoryRange
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.records import replace
from loomlog.services.core.run.state import Ended
from loomlog.services.stream.partition import ended_aggregates as past_module
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.partition import Aggregate, Partition
from tests.services.core.run.given import NOW, answered, start
from tests.services.stream.given import CODEC, EVENTS, FAMILY, aggregate, claimed, flushed, replaced, started


class CountingLog(MemoryLog):
    """Counts how many ranges were read."""

    reads = 0

    async def read(self, topic: str, partition: int, start: int, end: int) -> MemoryRange:
        self.reads += 1
        return await super().read(topic, partition, start, end)


@pytest.fixture
def log() -> CountingLog:
    return CountingLog({EVENTS: 1})


def past(log: MemoryLog) -> EndedAggregates:
    return EndedAggregates(FAMILY, CODEC, log, EVENTS)


def position(run: Aggregate) -> RunPosition:
    return RunPosition(run_id=run.id, first_offset=run.first_offset, last_offset=run.last_offset)


def run_through(owned: Partition, log: MemoryLog, name: str, continues: RunPosition | None = None) -> RunPosition:
    """A run with one question and one answer, from its start to its end."""
    made = aggregate(name)
    owned.submit(made, replace(start(prompt=f"ask {name}"), continues=continues), at_ms=NOW)
    flushed(owned, log)
    owned.submit(made, answered(made.state, f"say {name}"), at_ms=NOW)
    flushed(owned, log)
    return position(made)


def said(state: Any) -> list[str]:
    assert isinstance(state, Ended)
    return [block.text for message in state.facts.messages for block in message.blocks if isinstance(block, TextBlock)]


async def test_a_run_comes_back_with_its_last_state_among_the_records_of_others(log: CountingLog) -> None:
    owned = claimed(log)
    first = started(owned, "r_a")
    other = started(owned, "r_b")
    flushed(owned, log)
    owned.submit(other, answered(other.state, "b"), at_ms=NOW)
    owned.submit(first, answered(first.state, "a"), at_ms=NOW)
    flushed(owned, log)
    loaded = await past(log).load(0, position(first))
    assert loaded.state == first.state
    assert (loaded.seq, loaded.digest, loaded.key, loaded.tenant) == (first.seq, first.digest, b"a", "t")


async def test_records_of_a_zombie_inside_the_range_are_not_part_of_it(log: CountingLog) -> None:
    zombie = claimed(log)
    run = started(zombie, "r_a")
    flushed(zombie, log)
    term = len(log.records[EVENTS, 0])
    owner = claimed(log)
    taken_over = replace(run)
    zombie.submit(run, answered(run.state, "from the zombie"), at_ms=NOW)
    log.put(EVENTS, 0, zombie.next_batch(900_000))
    owner.skip_to(len(log.records[EVENTS, 0]))
    owner.submit(taken_over, answered(taken_over.state, "from the owner"), at_ms=NOW)
    flushed(owner, log)
    assert owner.term == term
    assert said((await past(log).load(0, position(taken_over))).state) == ["go", "from the owner"]


async def test_bytes_of_others_inside_the_range_do_no_harm(log: CountingLog) -> None:
    owned = claimed(log)
    run = started(owned, "r_a")
    flushed(owned, log)
    log.put(EVENTS, 0, [ProducerRecord(key=None, value=b"garbage"), ProducerRecord(key=None, value=None)])
    owned.skip_to(len(log.records[EVENTS, 0]))
    owned.submit(run, answered(run.state, "done"), at_ms=NOW)
    flushed(owned, log)
    assert said((await past(log).load(0, position(run))).state) == ["go", "done"]


async def test_a_chain_of_runs_is_one_conversation(log: CountingLog) -> None:
    owned = claimed(log)
    at: RunPosition | None = None
    for number in range(4):
        at = run_through(owned, log, f"r_{number}", at)
    assert at is not None
    state = await past(log).state(0, at)
    assert said(state) == [f"{word} r_{number}" for number in range(4) for word in ("ask", "say")]


async def test_a_chat_of_a_thousand_runs_is_read_without_recursion(log: CountingLog) -> None:
    owned = claimed(log)
    at: RunPosition | None = None
    for number in range(1_000):
        at = run_through(owned, log, f"r_{number}", at)
    assert at is not None
    assert len(said(await past(log).state(0, at))) == 2_000
    assert log.reads == 1_000


async def test_what_was_read_is_kept_for_the_next_run_of_the_chat(log: CountingLog) -> None:
    owned = claimed(log)
    one = run_through(owned, log, "r_1")
    two = run_through(owned, log, "r_2", one)
    kept = past(log)
    await kept.state(0, two)
    assert log.reads == 2
    three = run_through(owned, log, "r_3", two)
    await kept.state(0, three)
    assert log.reads == 3
    await kept.state(0, three)
    assert log.reads == 3


async def test_the_last_state_of_a_run_that_just_ended_needs_no_reading(log: CountingLog) -> None:
    kept = past(log)
    state = object()
    kept.cache("r_x", state)
    assert await kept.state(0, RunPosition(run_id="r_x", first_offset=5, last_offset=9)) is state
    assert log.reads == 0


async def test_only_the_last_states_are_kept(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_module, "CACHED_STATES_MAX", 2)
    kept = past(log)
    for name in ("r_a", "r_b", "r_a", "r_c"):
        kept.cache(name, name)
    assert [kept.cached(name) for name in ("r_a", "r_b", "r_c")] == ["r_a", None, "r_c"]


async def test_the_history_of_a_first_event_is_the_conversation_it_continues(log: CountingLog) -> None:
    owned = claimed(log)
    one = run_through(owned, log, "r_1")
    made = aggregate("r_2")
    owned.submit(made, replace(start(), continues=one), at_ms=NOW)
    first = owned._pending[0].events[0]
    history = await past(log).history_for(0, first)
    assert [message.role for message in history] == ["user", "assistant"]
    assert await past(log).history_for(0, replace(first, continues=None)) is None


# --- what is not all there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"last_offset": 3}, {"last_offset": 5}, {"run_id": "r_other"}, {"first_offset": 2}])
async def test_a_place_that_is_not_the_runs_is_broken(log: CountingLog, wrong: dict[str, Any]) -> None:
    owned = claimed(log)
    at = run_through(owned, log, "r_a")
    run_through(owned, log, "r_b")
    with pytest.raises(BrokenHistory):
        await past(log).load(0, replace(at, **wrong))


async def test_an_altered_record_is_broken(log: CountingLog) -> None:
    owned = claimed(log)
    at = run_through(owned, log, "r_a")
    value = bytearray(log.records[EVENTS, 0][2].value or b"")
    value[-1] ^= 2
    replaced(log, 2, bytes(value))
    with pytest.raises(BrokenHistory, match="hash chain"):
        await past(log).load(0, at)


async def test_a_run_that_names_itself_or_a_later_one_is_broken_and_no_endless_loop(log: CountingLog) -> None:
    owned = claimed(log)
    later = RunPosition(run_id="r_a", first_offset=1, last_offset=4)
    at = run_through(owned, log, "r_a", later)
    assert at == later
    with pytest.raises(BrokenHistory, match="ended later"):
        await past(log).load(0, at)


async def test_a_chain_longer_than_the_bound_is_broken(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_module, "CHAIN_LENGTH_MAX", 3)
    owned = claimed(log)
    at: RunPosition | None = None
    for number in range(4):
        at = run_through(owned, log, f"r_{number}", at)
    assert at is not None
    with pytest.raises(BrokenHistory, match="more than 3"):
        await past(log).load(0, at)
