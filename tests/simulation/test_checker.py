"""What the checker sees in a log written by hand. That it sees enough is what the mutations prove."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import ModelCallRequested, RunStarted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import CommandEnvelope, Envelope
from tests.simulation.answers import AGENT
from tests.simulation.checker import INTRUDER, Checker
from tests.simulation.log import TOPICS, SimulatedLog
from tests.simulation.loop import VirtualLoop
from tests.simulation.store import Store

RUN, KEY = "r_one", b"one"
STARTED = RunStarted(session_id="s", agent_id="a", definition=AGENT, segments=())
ASKED = ModelCallRequested(turn=1, attempt=1, provider="acme", model="large")
CALL = ("model", 1, 0, 1)


class Bench:
    """A log under the eyes of a checker."""

    def __init__(self, make: Callable[[], VirtualLoop]) -> None:
        self.log = SimulatedLog(lambda: 0)
        self.checker = Checker(self.log, Store(make()), 1, lambda: 0.0, lambda: None)
        self.log.landed = self.checker.landed
        self.tail = bytes(16)

    @property
    def found(self) -> str:
        """The kind of the violation; empty when there is none."""
        return self.checker.violation.kind if self.checker.violation is not None else ""

    def order(self) -> None:
        command = StartRun(envelope=CommandEnvelope(command_id="c"), agent="helper", prompt="go", run_id=RUN)
        self.log.append(TOPICS.commands, 0, [ProducerRecord(key=KEY, value=local_codec().encode(command))], "client")

    def claim(self, owner: str) -> int:
        envelope = Envelope(term=-1, seq=0, aggregate="", tenant="", at_ms=0, prev=bytes(16))
        return self._put(local_codec().encode_event(envelope, Claim(owner=owner, reason="assigned")), owner)

    def event(self, event: Any, *, seq: int, term: int, writer: str = "a") -> None:
        envelope = Envelope(
            term=term, seq=seq, aggregate=RUN, tenant="t", at_ms=0, cause_offset=0 if seq == 1 else -1, prev=self.tail
        )
        value = local_codec().encode_event(envelope, event)
        self._put(value, writer)
        if writer != INTRUDER:
            self.tail = digest(value)

    def _put(self, value: bytes, writer: str) -> int:
        return self.log.append(TOPICS.events, 0, [ProducerRecord(key=KEY, value=value)], writer)


@pytest.fixture
def bench() -> Bench:

    made = Bench(lambda: VirtualLoop(Random(1)))  # type: ignore[abstract]  # it has no I/O
    made.order()
    return made


def begun(bench: Bench) -> int:
    term = bench.claim("a")
    bench.event(STARTED, seq=1, term=term)
    bench.event(ASKED, seq=2, term=term)
    return term


def test_a_run_that_does_what_it_should_is_left_in_peace(bench: Bench) -> None:
    begun(bench)
    bench.checker.call_began("a", RUN, CALL)
    bench.checker.call_ended("a", RUN, CALL)
    assert bench.found == ""


def test_a_call_without_an_accepted_intent_is_found(bench: Bench) -> None:
    term = bench.claim("a")
    bench.event(STARTED, seq=1, term=term)
    bench.claim("b")
    bench.event(ASKED, seq=2, term=term)  # stale: it changes nothing
    bench.checker.call_began("a", RUN, CALL)
    assert bench.found == "no intent"


def test_a_call_by_somebody_else_than_the_owner_of_its_intent_is_found(bench: Bench) -> None:
    begun(bench)
    bench.checker.call_began("b", RUN, CALL)
    assert bench.found == "no intent"


def test_the_same_attempt_twice_is_found(bench: Bench) -> None:
    begun(bench)
    bench.checker.call_began("a", RUN, CALL)
    bench.checker.call_ended("a", RUN, CALL)
    bench.checker.call_began("a", RUN, CALL)
    assert bench.found == "doubled effect"


def test_a_gap_is_found_and_one_by_an_intruder_marks_the_run_as_damaged(bench: Bench) -> None:
    term = begun(bench)
    bench.event(ASKED, seq=4, term=term, writer=INTRUDER)
    assert bench.found == ""
    assert bench.checker.runs[RUN].damaged_at == 3
    bench.event(ASKED, seq=5, term=term)
    assert bench.found == "gap"


def test_a_term_that_nobody_claimed_is_found(bench: Bench) -> None:
    begun(bench)
    bench.event(ASKED, seq=3, term=77)
    assert bench.found == "illegal writer"


def test_a_run_without_its_command_is_found(bench: Bench) -> None:
    bench.checker._commands.clear()
    begun(bench)
    assert bench.found == "out of nothing"


def test_a_run_that_is_not_over_is_an_open_end(bench: Bench) -> None:
    begun(bench)
    assert bench.checker.open_ends() == f"run {RUN} has no end"
