"""Runs as records of the log, encoded by the codec: a partition with its claims, terms and envelopes."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import Codec, local_codec
from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    PersonNotified,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
    TurnCancelled,
)
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import AgentDefinition, ContentBlock, Envelope, Segment, ToolCall, Usage
from tests.run_options import grouped

TOPIC = "loom.run.events"
START_MS = 1_780_000_000_000


COMPACTED = ContextCompacted(
    number=1,
    attempt=1,
    turn=2,
    trigger="auto",
    summary="they talked",
    before_tokens=900,
    after_tokens=300,
    keep_n=4,
    keep_first=True,
    usage=Usage(input_tokens=800, output_tokens=50),
    provider="mock",
    model="small",
    cost_micros=7,
    currency="USD",
    duration_ms=12,
)
COMPACTING = CompactionRequested(
    number=1,
    turn=2,
    trigger="auto",
    keep_n=4,
    keep_first=True,
    before_tokens=900,
    provider="mock",
    model="small",
)
NOT_COMPACTED = CompactionFailed(
    number=1,
    attempt=1,
    turn=2,
    trigger="auto",
    kind="overloaded",
    message="mock 529: busy",
    usage=Usage(),
    provider="mock",
    model="small",
)


@dataclass(slots=True)
class Partition:
    """One partition being written: tracks its term and the last seq and digest of each run."""

    records: list[bytes] = field(default_factory=list)
    term: int = -1
    seqs: dict[str, int] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)
    clock_ms: int = START_MS
    codec: Codec = field(default_factory=local_codec)

    def claim(self, owner: str = "owner") -> int:
        """Begins a new term."""
        envelope = Envelope(term=self.term, seq=0, aggregate="", tenant="", at_ms=self.clock_ms, prev=bytes(16))
        self.term = len(self.records)
        self.records.append(self.codec.encode_event(envelope, Claim(owner=owner)))
        return self.term

    def add(
        self, run_id: str, *events: Any, tenant: str = "default", term: int | None = None, cause_id: str = ""
    ) -> None:
        """Adds events of a run; a `term` other than the current one makes them stale."""
        stale = term is not None and term != self.term
        for event in events:
            self.clock_ms += 3
            seq = self.seqs.get(run_id, 0) + 1
            envelope = Envelope(
                term=self.term if term is None else term,
                seq=seq,
                aggregate=run_id,
                tenant=tenant,
                at_ms=self.clock_ms,
                cause_id=cause_id,
                prev=self.digests.get(run_id, bytes(16)),
            )
            value = self.codec.encode_event(envelope, event)
            self.records.append(value)
            if not stale:
                self.seqs[run_id] = seq
                self.digests[run_id] = hashlib.sha256(value).digest()[:16]

    def outgoing(self, start: int = 0) -> list[ProducerRecord]:
        """The records from `start` on, to put into a MemoryLog."""
        return [ProducerRecord(key=b"k", value=value) for value in self.records[start:]]


def started(run_id: str = "r_1", *, prompt: str = "hello", user_id: str = "ada", **more: Any) -> RunStarted:
    """The first event of a run."""
    fields: dict[str, Any] = {
        "session_id": "s_" + run_id[2:],
        "agent_id": "a_" + run_id[2:],
        "user_id": user_id,
        "definition": AgentDefinition(
            name="writer", provider="mock", model="mock-generic", system_prompt="You write.", sha256="ab" * 32
        ),
        "segments": (user(prompt),),
    }
    return RunStarted(**grouped(fields | more))


def user(text: str) -> Segment:
    return Segment(role="user", content=(ContentBlock(type="trusted-text", text=text),))


def requested(turn: int, attempt: int = 1, **more: Any) -> ModelCallRequested:
    return ModelCallRequested(turn=turn, attempt=attempt, provider="mock", model="mock-generic", **more)


def replied(turn: int, text: str = "", *calls: ToolCall, attempt: int = 1, **more: Any) -> ModelReplied:
    fields: dict[str, Any] = {
        "turn": turn,
        "attempt": attempt,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": Usage(input_tokens=100 + turn, output_tokens=20),
        "provider": "mock",
        "model": "mock-generic",
        "duration_ms": 12,
        "text": text,
        "tool_calls": tuple(calls),
        "cost_micros": 7,
        "currency": "USD",
    }
    return ModelReplied(**(fields | more))


def failed(turn: int, attempt: int = 1, **more: Any) -> ModelCallFailed:
    fields: dict[str, Any] = {"kind": "rate_limited", "message": "mock 429: slow down"}
    return ModelCallFailed(turn=turn, attempt=attempt, provider="mock", model="mock-generic", **(fields | more))


def call(call_id: str, name: str = "Lookup", text: str = '{"city": "Paris"}') -> ToolCall:
    return ToolCall(id=call_id, name=name, input=text)


def asked(turn: int, index: int, call_id: str, attempt: int = 1) -> ToolCallRequested:
    return ToolCallRequested(turn=turn, index=index, call_id=call_id, attempt=attempt, effect_class="read")


def returned(turn: int, index: int, call_id: str, text: str = "sunny", **more: Any) -> ToolReturned:
    return ToolReturned(turn=turn, index=index, call_id=call_id, text=text, duration_ms=4, **more)


def opened(turn: int, index: int, call_id: str, interrupt_id: str, **more: Any) -> InterruptionOpened:
    fields: dict[str, Any] = {"question": "Shall I?", "options": ("yes", "no"), "expires_at_ms": START_MS + 60_000}
    return InterruptionOpened(turn=turn, index=index, call_id=call_id, interrupt_id=interrupt_id, **(fields | more))


def closed(turn: int, index: int, call_id: str, interrupt_id: str, status: str, **more: Any) -> InterruptionClosed:
    return InterruptionClosed(turn=turn, index=index, call_id=call_id, interrupt_id=interrupt_id, status=status, **more)


def completed(stop_reason: str = "end_turn", **more: Any) -> RunCompleted:
    fields: dict[str, Any] = {"usage": Usage(input_tokens=300, output_tokens=60), "iterations": 3}
    return RunCompleted(stop_reason=stop_reason, **(fields | more))


A_TEXT = ("The quick brown fox jumps over the lazy dog; " * 23)[:1_000]


def a3x2(run_id: str, *, user_id: str = "ada") -> list[Any]:
    """The common workload: three model turns and two tool calls of 1,000 characters each; 12 events."""
    events: list[Any] = [started(run_id, user_id=user_id), requested(1)]
    for turn in (1, 2):
        call_id = f"call_{turn}"
        events += [
            replied(turn, A_TEXT, call(call_id)),
            asked(turn, 0, call_id),
            returned(turn, 0, call_id, A_TEXT),
            requested(turn + 1),
        ]
    return [*events, replied(3, A_TEXT), completed()]


def many_runs(partition: Partition, run_ids: Iterable[str], *, at_once: int = 20) -> None:
    """A3x2 runs, interleaved as an owner with that many live runs would write them."""
    live: list[tuple[str, list[Any]]] = []
    waiting = iter(run_ids)
    while True:
        while len(live) < at_once and (run_id := next(waiting, None)) is not None:
            live.append((run_id, a3x2(run_id)))
        if not live:
            return
        for run_id, events in live:
            partition.add(run_id, events.pop(0))
        live = [(run_id, events) for run_id, events in live if events]


def eventful(partition: Partition) -> Sequence[str]:
    """Writes everything once: tools, retries, input, a cancel, a failure, a refusal, two owners, stale records.

    Returns the ids of the runs.
    """
    from loomlog.schemas.generated.run_events import CommandRefused, RunQuarantined, RunRefused

    partition.claim("first")
    partition.add("r_tools", started("r_tools"), requested(1))
    partition.add("r_talk", started("r_talk", interactive=True, segments=(user("hi"),)), requested(1))
    partition.add("r_tools", replied(1, "Let me look.", call("c1"), call("c2", "Search", '{"q": 1.50, "a": []}')))
    partition.add("r_tools", asked(1, 0, "c1"), asked(1, 1, "c2"))
    partition.add("r_talk", failed(1, retry_after_ms=700), requested(1, 2, not_before_ms=partition.clock_ms + 700))
    partition.add("r_tools", returned(1, 1, "c2", "nothing", is_error=True, outcome="error"))
    partition.add("r_talk", replied(1, "Hi!", attempt=2, reasoning="They greet."), RunParked(since_turn=1))
    partition.claim("second")
    partition.add("r_tools", asked(1, 0, "c1", attempt=2))
    partition.add("r_talk", InputReceived(text="and now?"), requested(2), term=0)
    partition.add("r_talk", InputReceived(text="more\x00", source="webui"), requested(2))
    partition.add("r_tools", returned(1, 0, "c1", attempt=2), requested(2))
    partition.add("r_lost", started("r_lost", metadata={"ticket": '"7"'}), requested(1))
    partition.add("r_lost", failed(1, kind="permanent", message="mock 400: no"))
    partition.add(
        "r_lost", RunFailed(code="model_error", error="mock 400: no", usage=Usage(), iterations=0, currency="")
    )
    partition.add("r_no", RunRefused(code="unknown_agent", message="no agent", session_id="s_no", agent="ghost"))
    partition.add("r_tools", replied(2, "It is sunny.", currency="", cost_micros=0), completed(iterations=2))
    partition.add("r_talk", CommandRefused(code="queue_full", message="wait"))
    partition.add("r_talk", RunQuarantined(error="bad fold", record_offset=3, record_topic="loom.run.commands"))
    partition.add("r_talk", RunCancelled(reason="enough", usage=Usage(input_tokens=101, output_tokens=20)))
    return ("r_tools", "r_talk", "r_lost", "r_no")


def asking(partition: Partition, run_id: str = "r_asks") -> None:
    """A run that asks two questions, sends a notice, gets one answer, and loses its last turn."""
    asks = [call(f"i{at}", "Interruption", f'{{"op": "ask", "at": {at}}}') for at in range(3)]
    partition.add(run_id, started(run_id, interactive=True), requested(1), replied(1, "", *asks))
    partition.add(run_id, opened(1, 0, "i0", "intr_0", context="why", priority="high"), opened(1, 1, "i1", "intr_1"))
    notice = PersonNotified(turn=1, index=2, call_id="i2", interrupt_id="intr_2", message="Half done.")
    partition.add(run_id, notice, returned(1, 2, "i2", '{"status": "delivered"}'))
    answer = closed(1, 1, "i1", "intr_1", "resolved", answer="yes", resolved_by="Ada", by="ada")
    partition.add(run_id, answer, returned(1, 1, "i1", '{"answer": "yes"}'))
    timeout = returned(1, 0, "i0", "timed out", is_error=True, outcome="timeout")
    partition.add(run_id, closed(1, 0, "i0", "intr_0", "timed_out"), timeout, requested(2))
    partition.add(run_id, TurnCancelled(turn=2, attempt=1, reason="stop", text="I was"), RunParked(since_turn=2))
