"""Hand-made logs for the checker's own tests: one run as it should be, and every way to spoil it.

Written with the product's codec, read by the checker's own, so that the two meet in every test.
"""

from dataclasses import dataclass, field
from typing import Any

from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import (
    CompactionRequested,
    ContextCompacted,
    ModelCallRequested,
    ModelReplied,
    RunCompleted,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, Envelope, ToolCall, Usage
from loomlog.schemas.records import Record as Avro
from tests.chaos.evidence import Evidence, Promise, Record, Row
from tests.chaos.history import NO_DIGEST

RUN = "r_one"
KEY = b"one"
CODEC = local_codec()
USAGE = Usage(input_tokens=30, output_tokens=7)
"""Of each turn."""
CALL = ToolCall(id="c1", name="Ledger", input="{}")


@dataclass
class Log:
    """A commands and an events partition being written, with what else there is to find."""

    commands: list[Record] = field(default_factory=list)
    events: list[Record] = field(default_factory=list)
    dead_letters: list[Record] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    term: int = -1
    seqs: dict[str, int] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)
    first_offsets: dict[str, int] = field(default_factory=dict)
    last_offsets: dict[str, int] = field(default_factory=dict)

    def evidence(self) -> Evidence:
        return Evidence(
            commands={0: self.commands},
            events={0: self.events},
            dead_letters={0: self.dead_letters},
            promises=self.promises,
            effects=self.effects,
            rows=self.rows,
        )

    def claim(self, owner: str = "runtime-1", reason: str = "assigned") -> int:
        self.term = len(self.events)
        envelope = Envelope(term=-1, seq=0, aggregate="", tenant="", at_ms=0, prev=NO_DIGEST)
        self._put(b"claim", CODEC.encode_event(envelope, Claim(owner=owner, reason=reason)))
        return self.term

    def order(self, run_id: str = RUN, *, key: bytes = KEY, command_id: str = "k1") -> int:
        """A StartRun; its offset."""
        command = StartRun(envelope=CommandEnvelope(command_id=command_id), agent="a", prompt="p", run_id=run_id)
        offset = len(self.commands)
        self.commands.append(Record(partition=0, offset=offset, key=key, value=CODEC.encode(command)))
        return offset

    def event(self, event: Avro, *, run_id: str = RUN, key: bytes = KEY, keep: bool = True, **changes: Any) -> None:
        """The next event of a run. `keep` False: written, but the run goes on as if it were not there."""
        seq = self.seqs.get(run_id, 0) + 1
        values: dict[str, Any] = {
            "term": self.term,
            "seq": seq,
            "aggregate": run_id,
            "tenant": "default",
            "at_ms": 0,
            "prev": self.digests.get(run_id, NO_DIGEST),
        }
        value = CODEC.encode_event(Envelope(**(values | changes)), event)
        self._put(key, value)
        if keep:
            self.seqs[run_id], self.digests[run_id] = seq, digest(value)
            self.last_offsets[run_id] = len(self.events) - 1
            self.first_offsets.setdefault(run_id, self.last_offsets[run_id])

    def _put(self, key: bytes, value: bytes) -> None:
        self.events.append(Record(partition=0, offset=len(self.events), key=key, value=value))


def begin(log: Log, *, cause: int = 0, run_id: str = RUN, key: bytes = KEY) -> None:
    started = RunStarted(session_id="s", agent_id="a", definition=definition(), segments=())
    log.event(started, run_id=run_id, key=key, cause_offset=cause)
    log.event(asked(1), run_id=run_id, key=key)


def definition() -> AgentDefinition:
    return AgentDefinition(name="a", provider="mock", model="mock-ledger")


def asked(turn: int, attempt: int = 1) -> ModelCallRequested:
    return ModelCallRequested(turn=turn, attempt=attempt, provider="mock", model="m")


def replied(turn: int, *calls: ToolCall, attempt: int = 1) -> ModelReplied:
    return ModelReplied(
        turn=turn,
        attempt=attempt,
        tool_calls=calls,
        stop_reason="tool_use" if calls else "end_turn",
        usage=USAGE,
        provider="mock",
        model="m",
        duration_ms=1,
    )


def tool(turn: int = 1, attempt: int = 1, effect_class: str = "unsafe") -> ToolCallRequested:
    return ToolCallRequested(turn=turn, index=0, call_id="c1", attempt=attempt, effect_class=effect_class)


def returned(turn: int = 1, attempt: int = 1, outcome: str = "ok") -> ToolReturned:
    return ToolReturned(turn=turn, index=0, call_id="c1", attempt=attempt, outcome=outcome)


def shrinking(number: int, attempt: int = 1) -> CompactionRequested:
    """Before turn 2."""
    return CompactionRequested(
        number=number,
        attempt=attempt,
        turn=2,
        trigger="auto",
        keep_n=1,
        keep_first=True,
        before_tokens=9,
        provider="mock",
        model="m",
    )


def shrunk(number: int, attempt: int = 1) -> ContextCompacted:
    return ContextCompacted(
        number=number,
        attempt=attempt,
        turn=2,
        trigger="auto",
        summary="short",
        before_tokens=9,
        after_tokens=3,
        keep_n=1,
        keep_first=True,
        usage=USAGE,
        provider="mock",
        model="m",
    )


def completed(iterations: int = 2) -> RunCompleted:
    """The end of a run of so many turns."""
    return RunCompleted(stop_reason="end_turn", iterations=iterations, usage=turns(iterations))


def turns(count: int) -> Usage:
    """What that many turns spend."""
    return Usage(input_tokens=count * USAGE.input_tokens, output_tokens=count * USAGE.output_tokens)


def row(log: Log, run_id: str = RUN, **changes: Any) -> Row:
    """The row of a run that completed after two turns with one call; `changes` for any other."""
    values: dict[str, Any] = {
        "status": "completed",
        "stop_reason": "end_turn",
        "error_code": "",
        "iterations": 2,
        "input_tokens": 2 * USAGE.input_tokens,
        "output_tokens": 2 * USAGE.output_tokens,
        "tool_calls": 1,
        "tool_errors": 0,
        "model_errors": 0,
        "partition": 0,
        "first_offset": log.first_offsets[run_id],
        "last_offset": log.last_offsets[run_id],
        "last_seq": log.seqs[run_id],
    }
    return Row(**(values | changes))


def until_the_call(log: Log) -> None:
    """A claim, a StartRun, and its run up to the tool call that is under way."""
    log.claim()
    log.order()
    log.promises.append(Promise(sender="topic", name="k1", partition=0, offset=0))
    begin(log)
    log.event(replied(1, CALL))
    log.event(tool())


def to_its_end(log: Log, outcome: str = "ok", attempt: int = 1) -> None:
    """The rest of that run, with its line in the ledger and its row."""
    log.effects.append(f"{RUN}:1.0 {RUN}")
    log.event(returned(outcome=outcome, attempt=attempt))
    log.event(asked(2))
    log.event(replied(2))
    log.event(completed())
    log.rows[RUN] = row(log)


def good() -> Log:
    """A log in which everything is right."""
    log = Log()
    until_the_call(log)
    to_its_end(log)
    return log
