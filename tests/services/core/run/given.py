"""A run that is driven by orders in memory, and short ways to say orders. Time stands still unless a test moves it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.schemas.conversation import Message, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CompactRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResumeRun,
    StartRun,
)
from loomlog.schemas.generated.run_events import Event
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, Compaction, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import (
    ApplyWidePauses,
    CallKey,
    CancelCommand,
    CompactCommand,
    InputCommand,
    ModelAnswered,
    ModelFailed,
    PauseCommand,
    QuarantineCommand,
    RecoverCommand,
    ReleaseCommand,
    ResolveCallCommand,
    ResumeCommand,
    RunCommand,
    StartCommand,
    SummaryCompleted,
    SummaryFailed,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.react import Effect, react
from loomlog.services.core.run.run_facts import Pause
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    LiveState,
    Parked,
    Paused,
    State,
)
from tests.run_options import grouped
from tests.services.core.run import diagram

NOW = 1_700_000_000_000
RUN = "r_tok"
DEFINITION = AgentDefinition(name="helper", provider="acme", model="large", system_prompt="Be kind.", tools=("Read",))
USAGE = Usage(input_tokens=10, output_tokens=5)
LONG = "long words " * 40
ENVELOPE = CommandEnvelope(command_id="c1", tenant="t", subject="someone")


def start(
    *, definition: AgentDefinition = DEFINITION, prompt: str = "go", interactive: bool = False, **more: Any
) -> StartCommand:
    """A start that is right in every way; `more` are fields of StartRun."""
    command = StartRun(
        envelope=ENVELOPE, agent="helper", prompt=prompt, **grouped({"interactive": interactive, **more})
    )
    return StartCommand(at_ms=NOW, command=command, session_id="s_tok", agent_id="a_tok", definition=definition)


def cancel(reason: str = "enough") -> CancelCommand:
    return CancelCommand(at_ms=NOW, command=CancelRun(envelope=ENVELOPE, run_id=RUN, reason=reason))


def says(text: str, source: str = "api", input_id: str = "") -> InputCommand:
    """Every text is a command of its own, unless `input_id` says that it was sent before."""
    envelope = replace(ENVELOPE, command_id=input_id or f"say {text}")
    return InputCommand(at_ms=NOW, command=PostInput(envelope=envelope, run_id=RUN, text=text, source=source))


def resolve(turn: int = 1, index: int = 0, *, done: bool = True, result: str = "") -> ResolveCallCommand:
    command = ResolveCall(envelope=ENVELOPE, run_id=RUN, turn=turn, index=index, done=done, result=result)
    return ResolveCallCommand(at_ms=NOW, command=command)


def pause(reason: str = "look first") -> PauseCommand:
    return PauseCommand(at_ms=NOW, command=PauseRun(envelope=ENVELOPE, run_id=RUN, reason=reason))


def resume() -> ResumeCommand:
    return ResumeCommand(at_ms=NOW, command=ResumeRun(envelope=ENVELOPE, run_id=RUN))


def compact() -> CompactCommand:
    return CompactCommand(at_ms=NOW, command=CompactRun(envelope=ENVELOPE, run_id=RUN))


def summarised(state: State, summary: str = "they talked", **more: Any) -> SummaryCompleted:
    """The summary that the state awaits."""
    assert isinstance(state, Compacting)
    values: dict[str, Any] = {
        "at_ms": NOW,
        "number": state.number,
        "attempt": state.attempt,
        "summary": summary,
        "usage": Usage(input_tokens=7, output_tokens=2),
        "provider": "acme",
        "model": "large",
        "cost_micros": 4,
        "currency": "USD",
        "duration_ms": 1,
    }
    return SummaryCompleted(**{**values, **more})


def not_summarised(state: State, kind: str = "overloaded", **more: Any) -> SummaryFailed:
    """The failure of the summary call that the state awaits."""
    assert isinstance(state, Compacting)
    values: dict[str, Any] = {"at_ms": NOW, "number": state.number, "attempt": state.attempt, "kind": kind}
    return SummaryFailed(**{**values, "message": f"acme 529: {kind}", "duration_ms": 1, **more})


def quarantine(reason: str = "it looks wrong", **more: Any) -> QuarantineCommand:
    return QuarantineCommand(at_ms=NOW, command=QuarantineRun(envelope=ENVELOPE, run_id=RUN, reason=reason), **more)


def release(reason: str = "mended", **more: Any) -> ReleaseCommand:
    return ReleaseCommand(at_ms=NOW, command=ReleaseRun(envelope=ENVELOPE, run_id=RUN, reason=reason), **more)


def wider(*scopes: str) -> tuple[Pause, ...]:
    """Pauses of something wider than the run."""
    return tuple(Pause(scope=scope, reason=f"the {scope} waits", by="op") for scope in scopes)


def obey(*scopes: str) -> ApplyWidePauses:
    """What is wanted of the run now, from something wider than it."""
    return ApplyWidePauses(at_ms=NOW, pauses=wider(*scopes), by="op")


def recover(*still_running: CallKey, at_ms: int = NOW) -> RecoverCommand:
    return RecoverCommand(at_ms=at_ms, still_running=frozenset(still_running))


def calls(*names: str) -> tuple[ToolCall, ...]:
    """Tool calls with ids c0, c1 and so on."""
    return tuple(ToolCall(id=f"c{at}", name=name, input="{}") for at, name in enumerate(names))


def answered(
    state: State,
    text: str = "",
    *tool_calls: ToolCall,
    classes: tuple[str, ...] | None = None,
    stop_reason: str = "",
    **more: Any,
) -> ModelAnswered:
    """The answer to the call that the state awaits."""
    assert isinstance(state, AwaitingModel)
    values: dict[str, Any] = {
        "at_ms": NOW,
        "turn": state.turn,
        "attempt": state.attempt,
        "text": text,
        "text_blob": None,
        "reasoning": "",
        "reasoning_signature": "",
        "tool_calls": tool_calls,
        "effect_classes": ("read",) * len(tool_calls) if classes is None else classes,
        "stop_reason": stop_reason or ("tool_use" if tool_calls else "end_turn"),
        "usage": USAGE,
        "provider": "acme",
        "model": "large",
        "max_context_tokens": 1_000,
        "cost_micros": 3,
        "currency": "USD",
        "duration_ms": 1,
    }
    return ModelAnswered(**{**values, **more})


def erred(state: State, kind: str = "invalid", *, transient: bool = False, **more: Any) -> ModelFailed:
    """The failure of the call that the state awaits."""
    assert isinstance(state, AwaitingModel)
    values: dict[str, Any] = {
        "at_ms": NOW,
        "turn": state.turn,
        "attempt": state.attempt,
        "kind": kind,
        "transient": transient,
        "message": f"acme 500: {kind}",
        "retry_after_ms": 0,
        "retries_rate_limits": True,
        "duration_ms": 1,
    }
    return ModelFailed(**{**values, **more})


def returned(state: State, index: int, text: str = "found", **more: Any) -> ToolCompleted:
    """The result of one open call of the state."""
    assert isinstance(state, AwaitingTools)
    attempt = next((call.attempt for call in state.open if call.index == index), 1)
    values: dict[str, Any] = {
        "at_ms": NOW,
        "turn": state.turn,
        "index": index,
        "attempt": attempt,
        "text": text,
        "text_blob": None,
        "is_error": False,
        "outcome": "ok",
        "duration_ms": 1,
    }
    return ToolCompleted(**{**values, **more})


def reconciled(state: State, index: int, verdict: str, text: str = "found out", **more: Any) -> ToolReconciled:
    """What the tool says to the open question about a call."""
    assert isinstance(state, AwaitingTools)
    opened = next(call for call in state.open if call.index == index)
    values: dict[str, Any] = {"at_ms": NOW, "turn": state.turn, "index": index, "attempt": opened.attempt}
    return ToolReconciled(**{**values, "ask": opened.reconcile_attempts, "verdict": verdict, "text": text, **more})


@dataclass(slots=True)
class Run:
    """A run in memory: gives orders, keeps events and effects."""

    state: State = field(default_factory=lambda: Absent(run_id=RUN))
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def give(self, order: RunCommand) -> list[Event]:
        """Decide, fold, react; the events of this order."""
        events = decide(self.state, order)
        for event in events:
            before, self.state = self.state, evolve(self.state, event, order.at_ms)
            diagram.take(before, self.state, event)
            self.effects += react(self.state, event)
        self.events += events
        return events

    @property
    def live(self) -> LiveState:
        assert isinstance(self.state, AwaitingModel | AwaitingTools | Parked | Paused | Compacting)
        return self.state


def begun(definition: AgentDefinition = DEFINITION, *, interactive: bool = False, **more: Any) -> Run:
    """A run that awaits its first answer."""
    run = Run()
    run.give(start(definition=definition, interactive=interactive, **more))
    return run


def at_tools(
    *names: str, classes: tuple[str, ...] | None = None, reconcilable: tuple[bool, ...] = (), **more: Any
) -> Run:
    """A run that awaits the results of its first turn's calls."""
    run = begun(**more)
    run.give(answered(run.state, "let me see", *calls(*names), classes=classes, reconcilable=reconcilable))
    return run


def parked() -> Run:
    """An interactive run that waits for input."""
    run = begun(interactive=True)
    run.give(answered(run.state, "what next?"))
    return run


def paused() -> Run:
    """A run that stands still before its second turn."""
    run = at_tools("A")
    run.give(pause())
    run.give(returned(run.state, 0))
    return run


def talked(more: int = 4, **wishes: Any) -> Run:
    """A parked run after `more` further texts and answers."""
    definition = replace(DEFINITION, compaction=Compaction(**wishes)) if wishes else DEFINITION
    run = begun(definition, interactive=True, prompt=f"task {LONG}")
    for number in range(more):
        run.give(answered(run.state, f"answer {number} {LONG}"))
        run.give(says(f"text {number} {LONG}"))
    run.give(answered(run.state, "and now?"))
    return run


def compacting(**wishes: Any) -> Run:
    """A parked run whose summary call is under way."""
    run = talked(**wishes)
    run.give(compact())
    assert isinstance(run.state, Compacting)
    return run


def failed() -> Run:
    run = begun()
    run.give(erred(run.state))
    return run


def completed() -> Run:
    run = begun()
    run.give(answered(run.state, "done"))
    return run


def cancelled() -> Run:
    run = begun()
    run.give(cancel())
    return run


def refused() -> Run:
    run = Run()
    run.give(replace(start(), session_exists=False))
    return run


def kinds(events: list[Event]) -> list[str]:
    """Names of events, for short comparisons."""
    return [type(event).__name__ for event in events]


def assert_legal(messages: Sequence[Message]) -> None:
    """Begins with the user; nothing is empty; every call has exactly one result, in the next message, in order."""
    if messages:
        assert messages[0].role == "user"
    for number, message in enumerate(messages):
        assert message.blocks, f"message {number} is empty"
        asked = [block.id for block in message.blocks if isinstance(block, ToolUseBlock)]
        answered_ids = [block.tool_use_id for block in message.blocks if isinstance(block, ToolResultBlock)]
        if asked:
            assert message.role == "assistant"
            following = messages[number + 1]
            assert following.role == "user"
            assert [b.tool_use_id for b in following.blocks if isinstance(b, ToolResultBlock)] == asked
        if answered_ids:
            assert message.role == "user"
            before = messages[number - 1]
            assert [b.id for b in before.blocks if isinstance(b, ToolUseBlock)] == answered_ids
            assert len(answered_ids) == len(set(answered_ids))
