"""A run and its resident child over the real pieces of a runtime: which text has which answer."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply
from loomlog.connectors.tools.agent import AgentTool
from loomlog.schemas.conversation import TextBlock, ToolResultBlock
from loomlog.schemas.generated.run_events import ModelReplied, ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from tests.services.runtime.fakes import AGENT, OneAgent, Scripted
from tests.services.runtime.small_runtime import Stage

CHILD = replace(AGENT, name="child", tools=())
PARENT = replace(AGENT, tools=("Agent",))
OPEN = {"op": "open", "name": "child", "prompt": "hi"}
CHILD_RUN = re.compile(r"r_one[\w-]+")


class Pair(OneAgent):
    """helper has the tool Agent; child has nothing."""

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        return {"helper": PARENT, "child": CHILD}[agent]


class Talkative(Scripted):
    """Who has the tool makes these calls turn by turn, all but the first of the child it opened; the child says ok."""

    def __init__(self, *turns: list[dict[str, Any]]) -> None:
        super().__init__()
        self.calls = turns

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        blocks = [block for message in request.messages if message.role == "user" for block in message.blocks]
        if not request.tools:
            text = [block.text for block in blocks if isinstance(block, TextBlock)][-1]
            yield Reply(text=f"ok {text}", stop_reason="end_turn", usage=Usage(input_tokens=1), model="m-1")
            return
        opened = [CHILD_RUN.search(block.text) for block in blocks if isinstance(block, ToolResultBlock)]
        place = {"child_run_id": opened[0][0]} if opened and opened[0] else {}
        turn = sum(message.role == "assistant" for message in request.messages)
        calls = tuple(
            ToolCall(id=f"c-{turn}-{at}", name="Agent", input=json.dumps({**place, **call}))
            for at, call in enumerate(self.calls[turn] if turn < len(self.calls) else [])
        )
        stop_reason = "tool_use" if calls else "end_turn"
        yield Reply(
            text="" if calls else "bye",
            tool_calls=calls,
            stop_reason=stop_reason,
            usage=Usage(input_tokens=1),
            model="m-1",
        )


async def results(*turns: list[dict[str, Any]]) -> list[list[ToolReturned]]:
    """The results of each turn, in the order of its calls, of a run that makes these calls."""
    stage = Stage(tools={"Agent": AgentTool()})
    stage.definitions, stage.model = Pair(), Talkative(*turns)
    stage.start()
    async with stage.owner("one"):
        await stage.until(lambda: any(isinstance(one, ModelReplied) and one.text == "bye" for one in stage.events()))
    events = [event for event in stage.events() if isinstance(event, ToolReturned)]
    events.sort(key=lambda event: (event.turn, event.index))
    return [[event for event in events if event.turn == turn] for turn in range(1, len(turns) + 1)]


def texts_for(*prompts: str) -> list[dict[str, Any]]:
    return [{"op": "send", "prompt": prompt} for prompt in prompts]


async def test_two_texts_of_a_turn_have_each_their_own_answer() -> None:
    _, answers = await results([OPEN], texts_for("one", "two"))
    assert [json.loads(answer.text)["output"] for answer in answers] == ["ok one", "ok two"]


async def test_a_text_for_a_closed_child_is_not_delivered_and_that_is_an_error() -> None:
    *_, (answer,) = await results([OPEN], texts_for("one"), [{"op": "close"}], texts_for("two"))
    assert answer.is_error
    assert answer.text.startswith("not delivered: the sub-agent r_")
    assert "closed" in answer.text
    assert "ok" not in answer.text
