"""A script of runs that start runs: what an agent asks for is in the name of the agent, as `tree-31-31`.

tree-3-2    its first turn calls Agent for 3 children `tree-2`, its second one ends
pair        spawns one `leaf` twice in one turn, by two calls
leaf        ends at once
keeper      opens a resident `guest`, sends it a text, closes it
guest       stands still after each answer
"""

from collections.abc import Callable
from typing import Any

from loomlog.schemas.generated.values import AgentDefinition, Spawn, ToolCall, Usage
from loomlog.services.core.run.commands import ChildrenRequested, ModelAnswered
from loomlog.services.core.run.react import CallModel, CallTool
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools
from loomlog.services.stream.ownership.inbox import Message
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.partition.partition import ReadyEffect
from tests.services.stream.outside import Definitions

KEEPER_OPS = ("open", "send", "close")


def add_families(definitions: Definitions, *trees: str, retry_attempts: int = 0) -> None:
    """The agents of the script, with whatever the trees need below them."""
    names = {"pair", "leaf", "keeper", "guest"}
    for tree in trees:
        widths = tree.split("-")[1:]
        names |= {below(widths[place:]) for place in range(len(widths))}
    for name in names:
        definitions.known[name] = AgentDefinition(
            name=name, provider="acme", model="large", tools=("Agent",), retry_attempts=retry_attempts
        )


def below(widths: list[str]) -> str:
    """The agent that begins a tree of these widths."""
    return "-".join(["tree", *widths]) if widths else "leaf"


def family_script(effect: Any, state: Any, at_ms: int) -> Any:
    """The answer to a call, or None for agents that are not in the script."""
    agent = state.facts.definition.name
    match effect:
        case CallModel():
            assert isinstance(state, AwaitingModel)
            calls = _calls(agent, effect.turn)
            return _answered(effect, state, calls, at_ms) if calls is not None else None
        case CallTool(name="Agent"):
            assert isinstance(state, AwaitingTools)
            return _asked(agent, effect, state, at_ms)
    return None


def _calls(agent: str, turn: int) -> int | None:
    """How many calls of Agent the turn has."""
    if agent.startswith("tree"):
        return int(turn == 1)
    last = {"pair": 2 * (turn == 1), "leaf": 0, "guest": 0, "keeper": int(turn <= len(KEEPER_OPS))}
    return last.get(agent)


def _answered(effect: CallModel, state: AwaitingModel, calls: int, at_ms: int) -> ModelAnswered:
    return ModelAnswered(
        at_ms=at_ms,
        turn=effect.turn,
        attempt=effect.attempt,
        text=f"{state.facts.definition.name} turn {effect.turn}",
        text_blob=None,
        reasoning="",
        reasoning_signature="",
        tool_calls=tuple(ToolCall(id=f"t{effect.turn}c{at}", name="Agent", input="{}") for at in range(calls)),
        effect_classes=("pure",) * calls,
        stop_reason="tool_use" if calls else "end_turn",
        usage=Usage(input_tokens=10, output_tokens=5),
        provider="acme",
        model="large",
        max_context_tokens=0,
        cost_micros=1,
        currency="USD",
        duration_ms=1,
    )


def _asked(agent: str, effect: CallTool, state: AwaitingTools, at_ms: int) -> ChildrenRequested:
    place = {"at_ms": at_ms, "turn": effect.turn, "index": effect.index, "attempt": effect.attempt}
    if agent == "keeper":
        op = KEEPER_OPS[effect.turn - 1]
        if op == "open":
            return ChildrenRequested(**place, op=op, spawns=(Spawn(agent="guest", prompt="hello"),), idle_ttl_s=60)
        guest = state.facts.residents[0] if state.facts.residents else ""
        return ChildrenRequested(**place, op=op, child_run_id=guest, prompt="go on" if op == "send" else "")
    if agent == "pair":
        return ChildrenRequested(**place, op="spawn", spawns=(Spawn(agent="leaf", prompt="go"),))
    width, *rest = agent.split("-")[1:]
    spawns = tuple(Spawn(agent=below(rest), prompt="go") for _ in range(int(width)))
    return ChildrenRequested(**place, op="parallel_spawn", spawns=spawns)


def drop_local_effects(owner: PartitionOwner, drops: Callable[[Any], bool] = lambda effect: True) -> None:
    """The process of this owner dies before it starts the local effects that `drops` names."""
    deliver = owner.deliver

    def deliver_others(message: Message) -> None:
        if not (isinstance(message, ReadyEffect) and drops(message.effect)):
            deliver(message)

    owner.deliver = deliver_others  # type: ignore[method-assign]
