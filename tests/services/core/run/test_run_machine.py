"""Random orders in any order that the outside can give them, also late, twice and in the wrong state.

Whatever happens, the invariants of a run hold after every step. Orders that were given once are kept and given again
later, which is what redelivery, a late call of a lost owner and a zombie look like from in here.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loomlog.schemas.generated.run_events import (
    CallWaiting,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    ModelCallRequested,
    ModelReplied,
    RunPauseRequested,
    RunResumed,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import Compaction, ModelChoice, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run.commands import (
    CANNOT_TELL,
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    Alternative,
    RunCommand,
    RunTimerFired,
)
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import CallModel, CallTool, ReconcileTool, Summarise
from loomlog.services.core.run.run_facts import add_usage
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Paused,
    Refused,
    State,
    has_only_waiting_calls,
)
from loomlog.services.core.run.tools.unknown_outcome import open_call_keys
from loomlog.services.core.run.turns.completion import iteration_cap
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    RUN,
    Run,
    answered,
    assert_legal,
    calls,
    cancel,
    compact,
    erred,
    not_summarised,
    obey,
    pause,
    reconciled,
    recover,
    resolve,
    resume,
    returned,
    says,
    start,
    summarised,
)
from tests.services.core.run.waiting import counts, waits

CODEC = StateCodec(State)
CLASSES = st.sampled_from(["pure", "read", "idempotent", "unsafe"])
FAILURES = st.sampled_from(
    [
        *[("invalid", False), ("overloaded", True), ("rate_limited", True), ("unavailable", True)],
        *[("deprecated", False), ("context_exceeded", False)],
    ]
)

SWITCHES = 2
OTHERS = st.lists(
    st.builds(
        Alternative,
        choice=st.builds(ModelChoice, provider=st.sampled_from(["acme", "other"]), model=st.just("large")),
        sees_images=st.booleans(),
        sibling=st.sampled_from(["", "chat"]),
    ),
    max_size=2,
).map(tuple)


class RunMachine(RuleBasedStateMachine):
    """One run and all the orders it was ever given."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run()
        self.at_ms = NOW
        self.times: list[int] = []
        self.given: list[RunCommand] = []

    def give(self, order: RunCommand) -> None:
        before = self.run.state
        first = decide(before, order)
        assert decide(before, order) == first, "the same order on the same state gives other events"
        assert self.run.give(order) == first
        self.times += [order.at_ms] * len(first)
        self.given.append(order)
        if isinstance(before, Ended | Refused):
            assert first == [], "a run that is over says something"
            assert self.run.state == before

    @initialize(
        interactive=st.booleans(),
        cap=st.integers(min_value=0, max_value=4),
        retries=st.integers(min_value=0, max_value=3),
        policy=st.sampled_from(["tell", "ask", "fail"]),
        falls_back=st.booleans(),
        compaction=st.sampled_from([None, Compaction(enabled=True, keep_last_n=1), Compaction(keep_first=False)]),
    )
    def begin(
        self,
        interactive: bool,
        cap: int,
        retries: int,
        policy: str,
        falls_back: bool,
        compaction: Compaction | None,
    ) -> None:
        definition = replace(
            DEFINITION,
            max_iterations=cap,
            retry_attempts=retries,
            unknown_outcome=policy,
            fallback_on_error=falls_back,
            max_fallback_attempts=SWITCHES,
            compaction=compaction,
        )
        self.give(start(definition=definition, interactive=interactive, prompt="go " * 200))

    @rule(ms=st.integers(min_value=1, max_value=100_000))
    def time_passes(self, ms: int) -> None:
        self.at_ms += ms

    @precondition(lambda self: isinstance(self.run.state, AwaitingModel))
    @rule(text=st.sampled_from(["", "said"]), classes=st.lists(CLASSES, max_size=3).map(tuple), askable=st.booleans())
    def model_answers(self, text: str, classes: tuple[str, ...], askable: bool) -> None:
        asked = calls(*(f"T{at}" for at in range(len(classes))))
        asked = tuple(replace(call, id=f"{len(self.given)}.{call.id}") for call in asked)
        reconcilable = (askable,) * len(classes)
        order = answered(self.run.state, text, *asked, classes=classes, reconcilable=reconcilable, at_ms=self.at_ms)
        self.give(order)

    @precondition(lambda self: isinstance(self.run.state, AwaitingModel))
    @rule(failure=FAILURES, asked_ms=st.sampled_from([0, 1_000, 400_000]), waits=st.booleans(), others=OTHERS)
    def model_fails(
        self, failure: tuple[str, bool], asked_ms: int, waits: bool, others: tuple[Alternative, ...]
    ) -> None:
        kind, transient = failure
        self.give(
            erred(
                self.run.state,
                kind,
                transient=transient,
                retry_after_ms=asked_ms,
                retries_rate_limits=waits,
                alternatives=others,
                at_ms=self.at_ms,
            )
        )

    @precondition(lambda self: isinstance(self.run.state, AwaitingTools))
    @rule(data=st.data(), is_error=st.booleans(), asks=st.booleans())
    def a_tool_returns(self, data: st.DataObject, is_error: bool, asks: bool) -> None:
        assert isinstance(self.run.state, AwaitingTools)
        index = data.draw(st.sampled_from([call.index for call in self.run.state.open]))
        text = f"result {len(self.given)}"
        order = returned(self.run.state, index, text, is_error=is_error, asks_compaction=asks, at_ms=self.at_ms)
        self.give(order)

    @precondition(lambda self: isinstance(self.run.state, AwaitingTools))
    @rule(data=st.data(), mode=st.sampled_from(["subscribe", "any", "all"]), ms=st.sampled_from([0, 1_000, 100_000]))
    def a_tool_waits(self, data: st.DataObject, mode: str, ms: int) -> None:
        assert isinstance(self.run.state, AwaitingTools)
        opened = data.draw(st.sampled_from(self.run.state.open))
        place = {"turn": self.run.state.turn, "attempt": opened.attempt}
        until_ms = self.at_ms + ms
        self.give(replace(waits(opened.index, **place, mode=mode, until_ms=until_ms), at_ms=self.at_ms))

    @precondition(lambda self: isinstance(self.run.state, AwaitingTools))
    @rule(index=st.integers(min_value=0, max_value=2), count=st.integers(min_value=0, max_value=3))
    def a_queue_reports(self, index: int, count: int) -> None:
        assert isinstance(self.run.state, AwaitingTools)
        self.give(counts(count, index, turn=self.run.state.turn, at_ms=self.at_ms))

    @rule()
    def the_timer_fires(self) -> None:
        self.give(RunTimerFired(at_ms=self.at_ms))

    @rule()
    def somebody_wants_it_compacted(self) -> None:
        self.give(replace(compact(), at_ms=self.at_ms))

    @precondition(lambda self: isinstance(self.run.state, Compacting))
    @rule(summary=st.sampled_from(["", "s", "they talked at length"]))
    def a_summary_comes(self, summary: str) -> None:
        self.give(summarised(self.run.state, summary, at_ms=self.at_ms))

    @precondition(lambda self: isinstance(self.run.state, Compacting))
    @rule()
    def no_summary_comes(self) -> None:
        self.give(not_summarised(self.run.state, at_ms=self.at_ms))

    @precondition(lambda self: any(call.is_reconciling for call in getattr(self.run.state, "open", ())))
    @rule(data=st.data(), verdict=st.sampled_from([HAPPENED, DID_NOT_HAPPEN, CANNOT_TELL, FAILED]))
    def a_tool_is_asked(self, data: st.DataObject, verdict: str) -> None:
        assert isinstance(self.run.state, AwaitingTools)
        index = data.draw(st.sampled_from([call.index for call in self.run.state.open if call.is_reconciling]))
        self.give(reconciled(self.run.state, index, verdict, at_ms=self.at_ms))

    @precondition(lambda self: isinstance(self.run.state, AwaitingTools))
    @rule(index=st.integers(min_value=0, max_value=2))
    def somebody_says_that_a_call_is_done(self, index: int) -> None:
        assert isinstance(self.run.state, AwaitingTools)
        self.give(replace(resolve(self.run.state.turn, index), at_ms=self.at_ms))

    @rule(text=st.sampled_from(["hello", "and?"]))
    def somebody_says(self, text: str) -> None:
        self.give(replace(says(text), at_ms=self.at_ms))

    @rule()
    def somebody_cancels(self) -> None:
        self.give(replace(cancel(), at_ms=self.at_ms))

    @rule()
    def somebody_pauses(self) -> None:
        self.give(replace(pause(), at_ms=self.at_ms))

    @rule()
    def somebody_resumes(self) -> None:
        self.give(replace(resume(), at_ms=self.at_ms))

    @rule(scopes=st.sets(st.sampled_from(["agent", "tenant", "all"])))
    def something_wider_is_paused_or_resumed(self, scopes: set[str]) -> None:
        self.give(replace(obey(*sorted(scopes)), at_ms=self.at_ms))
        facts = getattr(self.run.state, "facts", None)
        if facts is not None and not isinstance(self.run.state, Ended):
            assert {held.scope for held in facts.pauses} - {"run"} == scopes

    @rule(data=st.data())
    def the_owner_is_lost(self, data: st.DataObject) -> None:
        keys = [e.key for e in self.run.effects if isinstance(e, CallModel | CallTool | ReconcileTool | Summarise)]
        still = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
        expected = data.draw(st.none() | st.sets(st.sampled_from(["tenant", "all"])))
        pauses = None if expected is None else replace(obey(*sorted(expected)), at_ms=self.at_ms)
        self.give(replace(recover(*still, at_ms=self.at_ms), wide_pauses=pauses))

    @rule(data=st.data())
    def an_old_order_comes_again(self, data: st.DataObject) -> None:
        self.give(data.draw(st.sampled_from(self.given)))

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def folding_the_recorded_events_gives_the_state(self) -> None:
        state: State = Absent(run_id=RUN)
        for event, at_ms in zip(self.run.events, self.times, strict=True):
            state = evolve(state, event, at_ms)
        assert state == self.run.state

    @invariant()
    def every_state_can_be_written_down(self) -> None:
        assert CODEC.decode(CODEC.encode(self.run.state)) == self.run.state

    @invariant()
    def turns_are_dense_and_bounded(self) -> None:
        turns = [event.turn for event in self.run.events if isinstance(event, ModelReplied)]
        assert turns == list(range(1, len(turns) + 1))
        facts = getattr(self.run.state, "facts", None)
        if facts is not None:
            assert facts.turns == len(turns)
            assert facts.turns + facts.retries <= iteration_cap(facts)
            assert facts.switches <= SWITCHES

    @invariant()
    def attempts_of_a_turn_are_dense(self) -> None:
        attempts: dict[Any, int] = {}
        for event in self.run.events:
            if isinstance(event, ModelCallRequested):
                assert event.attempt == attempts.get(event.turn, 0) + 1
                attempts[event.turn] = event.attempt
            elif isinstance(event, ToolCallRequested):
                place = (event.turn, event.index)
                assert event.attempt == attempts.get(place, 0) + 1
                attempts[place] = event.attempt

    @invariant()
    def a_tool_call_is_answered_at_most_once(self) -> None:
        answers = [(event.turn, event.index) for event in self.run.events if isinstance(event, ToolReturned)]
        assert len(answers) == len(set(answers))

    @invariant()
    def an_unsafe_call_that_nobody_can_be_asked_about_is_made_at_most_once(self) -> None:
        asked = [
            (event.turn, event.index)
            for event in self.run.events
            if isinstance(event, ToolCallRequested) and event.effect_class == "unsafe" and not event.reconcilable
        ]
        assert len(asked) == len(set(asked))

    @invariant()
    def a_call_that_waits_is_neither_made_again_nor_lost(self) -> None:
        waiting: dict[tuple[int, int], tuple[str, int]] = {}
        for event in self.run.events:
            if isinstance(event, CallWaiting):
                wait = waiting.setdefault((event.turn, event.index), (event.wait_id, event.attempt))
                assert wait == (event.wait_id, event.attempt), "only the same wait may be recorded again"
            elif isinstance(event, ToolCallRequested):
                assert (event.turn, event.index) not in waiting
        if isinstance(self.run.state, AwaitingTools):
            opened = {call.index for call in self.run.state.open if call.wait is not None}
            due = {key[2] for key in open_call_keys(self.run.state)}
            assert not opened & due
            assert bool(self.run.state.idle_since_ms) == has_only_waiting_calls(self.run.state)
            assert not opened or next_timer_at(self.run.state), "nothing would end it if its queue were gone"

    @invariant()
    def every_intent_gives_one_call(self) -> None:
        asked = ModelCallRequested | ToolCallRequested | CompactionRequested
        intents = [event for event in self.run.events if isinstance(event, asked)]
        keys = [effect.key for effect in self.run.effects if isinstance(effect, CallModel | CallTool | Summarise)]
        assert len(keys) == len(set(keys)) == len(intents)

    @invariant()
    def the_conversation_is_legal(self) -> None:
        assert_legal(build_conversation(self.run.state))
        if isinstance(self.run.state, AwaitingModel):
            assert_legal(self.run.state.facts.messages)  # this very list is what the model is shown
            assert self.run.state.facts.messages[-1].role == "user"  # there is something to answer

    @invariant()
    def the_sums_are_right(self) -> None:
        facts = getattr(self.run.state, "facts", None)
        if facts is None:
            return
        total = Usage()
        for event in self.run.events:
            if isinstance(event, ModelReplied | ContextCompacted | CompactionFailed):
                total = add_usage(total, event.usage)
        assert facts.usage == total

    @invariant()
    def something_is_always_due_in_a_run_that_works(self) -> None:
        """A live run that waits for nothing would hang for ever."""
        if isinstance(self.run.state, AwaitingTools):
            assert self.run.state.open
        if isinstance(self.run.state, AwaitingModel):
            assert self.run.state.attempt > 0
        if isinstance(self.run.state, Compacting):
            assert self.run.state.attempt > 0

    @invariant()
    def a_run_stands_still_only_while_something_holds_it(self) -> None:
        if isinstance(self.run.state, Paused):
            assert self.run.state.facts.pauses

    @invariant()
    def no_model_call_begins_while_something_holds_the_run(self) -> None:
        held: set[str] = set()
        for event in self.run.events:
            if isinstance(event, RunPauseRequested):
                held.add(event.scope)
            elif isinstance(event, RunResumed):
                held.remove(event.scope)
            elif isinstance(event, ModelCallRequested | CompactionRequested):
                assert not held


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
