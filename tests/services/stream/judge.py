"""Judges a log from its content alone, by the one reading rule that everybody uses (loomlog.schemas.reader).

    story = judged(log, "loom.run.events", partitions)

Raises when an aggregate's seq is not dense from 1, when a hash chain is broken, when an event cannot follow, when a run
says anything after its end, when a command was handled twice, or when an unsafe call was asked for twice.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import Undecodable, digest, local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import (
    CallNotBegun,
    ModelReplied,
    RunRefused,
    RunStarted,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
)
from loomlog.schemas.generated.stream_records import DeadLetter
from loomlog.schemas.reader import SequenceCheck, TermReader
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.state import Absent, Ended, Refused, State


@dataclass(slots=True)
class RunStory:
    """One run as the log tells it."""

    state: State
    events: list[Any] = field(default_factory=list)
    tail: bytes = bytes(16)
    offsets: list[int] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Ended | Refused)


@dataclass(slots=True)
class Story:
    """All runs of a topic, and what was not accepted."""

    runs: dict[str, RunStory] = field(default_factory=dict)
    stale: int = 0
    claims: int = 0
    undecodable: int = 0

    @property
    def live(self) -> list[str]:
        return [name for name, run in self.runs.items() if not run.is_over]


def judged(log: MemoryLog, topic: str, partitions: int) -> Story:
    """What the log says happened. Raises AssertionError, BrokenSequence or ValueError."""
    story = Story()
    for partition in range(partitions):
        _partition(story, log, topic, partition)
    return story


def _partition(story: Story, log: MemoryLog, topic: str, partition: int) -> None:
    reader, check = TermReader(), SequenceCheck()
    handled: Counter[int] = Counter()
    for record in log.records[topic, partition]:
        try:
            raw = reader.read(record.offset, record.value)
            if raw is None:
                continue
            decoded = raw.decode()
        except Undecodable:
            story.undecodable += 1
            continue
        assert decoded.envelope is not None
        check.check(raw)
        run = story.runs.get(raw.aggregate)
        if run is None:
            assert raw.seq == 1, f"{raw.aggregate} begins with seq {raw.seq}"
            run = story.runs[raw.aggregate] = RunStory(state=Absent(run_id=raw.aggregate))
        assert decoded.envelope.prev == run.tail, f"{raw.aggregate} seq {raw.seq} does not continue the chain"
        assert not run.is_over, f"{raw.aggregate} says {type(decoded.record).__name__} after its end"
        run.tail = digest(raw.value)
        run.state = evolve(run.state, decoded.record, decoded.envelope.at_ms)
        run.events.append(decoded.record)
        run.offsets.append(record.offset)
        if decoded.envelope.cause_offset >= 0 and isinstance(decoded.record, RunStarted | RunRefused):
            handled[decoded.envelope.cause_offset] += 1
    assert all(count == 1 for count in handled.values()), f"commands handled twice: {handled}"
    story.stale += reader.stale
    story.claims += reader.claims
    for name, run in story.runs.items():
        _no_unsafe_call_twice(name, run)
        turns = [event.turn for event in run.events if isinstance(event, ModelReplied)]
        assert turns == list(range(1, len(turns) + 1)), f"{name} has the turns {turns}"


def _no_unsafe_call_twice(name: str, run: RunStory) -> None:
    """Unless its tool, an operator or its owner said that the first one did not happen."""
    asked = {
        (e.turn, e.index) for e in run.events if isinstance(e, ToolReconcileRequested | ToolOutcomeAsked | CallNotBegun)
    }
    unsafe = Counter(
        (event.turn, event.index)
        for event in run.events
        if isinstance(event, ToolCallRequested) and event.effect_class == "unsafe"
    )
    twice = {place: count for place, count in unsafe.items() if count > 1 and place not in asked}
    assert not twice, f"{name} asked twice for an unsafe call: {twice}"


def every_start_has_its_run(log: MemoryLog, story: Story, commands: str, letters: str, partitions: int) -> None:
    """Each StartRun has exactly one run, or a dead letter says why not; nothing is dropped silently."""
    parked = {(letter.topic, letter.partition, letter.offset) for letter in dead_letters(log, letters)}
    for partition in range(partitions):
        for record in log.records[commands, partition]:
            try:
                command = local_codec().decode(record.value or b"").record
            except Undecodable:
                assert (commands, partition, record.offset) in parked
                continue
            if isinstance(command, StartRun) and command.run_id not in story.runs:
                assert (commands, partition, record.offset) in parked, f"{command.run_id} was lost"


def dead_letters(log: MemoryLog, topic: str) -> list[DeadLetter]:
    """The letters in the log."""
    return [local_codec().decode(record.value or b"").record for record in log.records[topic, 0]]
