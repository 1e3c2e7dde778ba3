"""Two runs side by side: their definitions, what was said and done, and where they first differ.

A run is a list of steps: user texts, answers of the agent, results of its calls. Steps are compared by position,
including those a run shares with an earlier one; so two forks, a fork and its origin, or two runs of one request line
up until they diverge. Everything after that is shown as different, even where it is equal again a step later, because
the context differs.

What both used is counted from the event that they share: an origin has used more than its fork before they part, and
that says nothing about either.

Before: replay.py folded both. After: services/application/queries/history_json.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.run_events import ModelReplied, RunStarted
from loomlog.schemas.generated.values import AgentDefinition, ForkPoint
from loomlog.schemas.records import Value
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.history.replay import ReplayResult, run_status
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Absent, Refused, State


class CallStep(Value, frozen=True, kw_only=True):
    """A tool call, or its result."""

    name: str
    text: str
    """JSON arguments of a call, text of a result."""
    is_error: bool = False


class ConversationStep(Value, frozen=True, kw_only=True):
    """One message. Figures are 0 where it is not an answer of the run itself; `who` is user, agent or tools."""

    who: str
    text: str
    calls: tuple[CallStep, ...] = ()
    turn: int = 0
    seq: int = 0
    model: str = ""
    stop_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0


COMPARED = ("who", "text", "calls", "model", "stop_reason", "input_tokens", "output_tokens", "cost_micros")
"""Fields that make two steps differ. Turns do not: a fork counts its own turns from 1."""
ONLY_IN_ONE, AFTER_DIVERGENCE = "only in one", "after they parted"
CONTENT = frozenset({"who", "text", "calls", ONLY_IN_ONE})
"""Fields that make the rest diverge; other figures do not."""
OWN = ("model", "stop_reason", "input_tokens", "output_tokens", "cost_micros")
"""Figures that only a run's own answers have; a shared answer has them on one side only."""


class Difference(Value, frozen=True, kw_only=True):
    """A named value that differs."""

    name: str
    a: Any
    b: Any


class StepPair(Value, frozen=True, kw_only=True):
    """The steps at one position, None where a run has none; `differs` names the fields that differ."""

    place: int
    a: ConversationStep | None
    b: ConversationStep | None
    differing_fields: tuple[str, ...]


class Figures(Value, frozen=True, kw_only=True):
    """What a run used."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_errors: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def __sub__(self, other: "Figures") -> "Figures":
        return Figures(**{name: getattr(self, name) - getattr(other, name) for name in self.__struct_fields__})


class CommonPoint(Value, frozen=True, kw_only=True):
    """The last event that both runs share. `extra_a`, `extra_b` are added to what each run used itself, so that both
    are counted from there: of the origin what it had used by then is taken off, and a fork made later has also what its
    origin used in between.
    """

    run_id: str
    seq: int
    extra_a: Figures = Figures()
    extra_b: Figures = Figures()


class Comparison(Value, frozen=True, kw_only=True):
    """`first_difference` is the position of the first step that differs, None if none does. The figures of both are
    counted from the common point.
    """

    figures_a: Figures
    figures_b: Figures
    common: CommonPoint | None

    definition: tuple[Difference, ...]
    system: tuple[Difference, ...]
    outcome: tuple[Difference, ...]
    steps: tuple[StepPair, ...]
    first_difference: int | None

    @property
    def is_same(self) -> bool:
        return not (self.definition or self.system or self.outcome) and self.first_difference is None


def compare_runs(a: ReplayResult, b: ReplayResult, *, common: CommonPoint | None = None) -> Comparison:
    """Compare both runs as far as they were folded."""
    facts_a, facts_b = accepted_facts(a.state), accepted_facts(b.state)
    extra_a, extra_b = (Figures(), Figures()) if common is None else (common.extra_a, common.extra_b)
    figures_a, figures_b = figures_of(a) + extra_a, figures_of(b) + extra_b
    steps = tuple(_pairs(steps_of(a), steps_of(b)))
    return Comparison(
        figures_a=figures_a,
        figures_b=figures_b,
        common=common,
        definition=_definitions(facts_a, facts_b),
        system=_differences(
            ("system", () if facts_a is None else facts_a.system, () if facts_b is None else facts_b.system)
        ),
        outcome=_differences(*_outcome(a.state, b.state), *_used(a.state, b.state, figures_a, figures_b)),
        steps=steps,
        first_difference=next((pair.place for pair in steps if pair.differing_fields), None),
    )


def accepted_facts(state: State) -> RunFacts | None:
    """Return the facts of an accepted run; None for one that is absent or was refused."""
    return None if isinstance(state, Absent | Refused) else state.facts


def figures_of(run: ReplayResult) -> Figures:
    """Return what a run has used since its own first event."""
    facts = accepted_facts(run.state)
    if facts is None:
        return Figures()
    return Figures(
        turns=facts.turns,
        input_tokens=facts.usage.input_tokens,
        output_tokens=facts.usage.output_tokens,
        cost_micros=facts.cost_micros,
        model_errors=facts.model_errors,
    )


def fork_point_of(run: ReplayResult) -> ForkPoint | None:
    """Return where a run was forked from; None when it is no fork."""
    first = run.entries[0].event if run.entries else None
    return first.forked_from if isinstance(first, RunStarted) else None


def steps_of(run: ReplayResult) -> list[ConversationStep]:
    """Return the conversation of a run as steps, its own answers with their figures."""
    facts = accepted_facts(run.state)
    inherited = 0 if facts is None else facts.inherited_messages
    # An answer without text and calls is not a message, so it has no step.
    own = [
        (entry.seq, entry.event)
        for entry in run.entries
        if isinstance(entry.event, ModelReplied)
        and (entry.event.text or entry.event.text_blob or entry.event.tool_calls)
    ]
    steps = [_step(message) for message in build_conversation(run.state)]
    # From the end: a compaction leaves out the beginning.
    places = [number for number, step in enumerate(steps) if step.who == "agent" and number >= inherited]
    for number, answer in zip(reversed(places), reversed(own), strict=False):
        steps[number] = _with_figures(steps[number], *answer)
    return steps


def _step(message: Message) -> ConversationStep:
    texts: list[str] = []
    calls: list[CallStep] = []
    who = "agent" if message.role == "assistant" else "user"
    for block in message.blocks:
        match block:
            case TextBlock():
                texts.append(block.text if block.blob is None else f"blob {block.blob.sha256}")
            case ImageBlock():
                texts.append(f"image {block.blob.sha256 if block.blob is not None else block.data}")
            case ToolUseBlock():
                calls.append(CallStep(name=block.name, text=block.input))
            case ToolResultBlock():
                who = "tools"
                text = block.text if block.blob is None else f"blob {block.blob.sha256}"
                calls.append(CallStep(name=block.name, text=text, is_error=block.is_error))
    return ConversationStep(who=who, text="\n".join(texts), calls=tuple(calls))


def _with_figures(step: ConversationStep, seq: int, event: ModelReplied) -> ConversationStep:
    return ConversationStep(
        who=step.who,
        text=step.text,
        calls=step.calls,
        turn=event.turn,
        seq=seq,
        model=f"{event.provider}/{event.model}",
        stop_reason=event.stop_reason,
        input_tokens=event.usage.input_tokens,
        output_tokens=event.usage.output_tokens,
        cost_micros=event.cost_micros,
    )


def _pairs(a: Sequence[ConversationStep], b: Sequence[ConversationStep]) -> Iterator[StepPair]:
    have_parted = False
    for place in range(max(len(a), len(b))):
        one = a[place] if place < len(a) else None
        other = b[place] if place < len(b) else None
        differs = _differing_fields(one, other)
        if not differs and have_parted:
            differs = (AFTER_DIVERGENCE,)
        have_parted = have_parted or not CONTENT.isdisjoint(differs)
        yield StepPair(place=place, a=one, b=other, differing_fields=differs)


def _differing_fields(a: ConversationStep | None, b: ConversationStep | None) -> tuple[str, ...]:
    if a is None or b is None:
        return (ONLY_IN_ONE,)
    both_own = bool(a.seq and b.seq)
    return tuple(name for name in COMPARED if (both_own or name not in OWN) and getattr(a, name) != getattr(b, name))


def _definitions(a: RunFacts | None, b: RunFacts | None) -> tuple[Difference, ...]:
    if a is None or b is None:
        return _differences(("definition", a and a.definition.sha256, b and b.definition.sha256))
    names = AgentDefinition.__struct_fields__
    return _differences(*((name, getattr(a.definition, name), getattr(b.definition, name)) for name in names))


def _outcome(a: State, b: State) -> Iterator[tuple[str, Any, Any]]:
    yield "status", run_status(a), run_status(b)
    yield "reason", getattr(a, "reason", ""), getattr(b, "reason", "")


def _used(a: State, b: State, figures_a: Figures, figures_b: Figures) -> Iterator[tuple[str, Any, Any]]:
    if accepted_facts(a) is not None and accepted_facts(b) is not None:
        for name in Figures.__struct_fields__:
            yield name, getattr(figures_a, name), getattr(figures_b, name)


def _differences(*named: tuple[str, Any, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(name=name, a=a, b=b) for name, a, b in named if a != b)
