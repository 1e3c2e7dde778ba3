"""Children begin under the limits that any run begins under, and a call whose children may not begin hears why."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply
from loomlog.connectors.tools.agent import AgentTool
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.run_events import ChildReturned, RunCompleted, RunFailed, RunStarted, ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.stream.partition import lookups
from tests.services.runtime.budget_world import BudgetWorld
from tests.services.runtime.fakes import AGENT, OneAgent, Scripted
from tests.services.stream.families import drop_local_effects
from tests.waiting import until

CHILD = replace(AGENT, name="child", tools=(), max_tokens=3_000)
COST = 20
"""What each turn uses, in tokens and in millionths."""


class Families(OneAgent):
    """helper has the tool Agent; child has nothing."""

    def __init__(self, width: int = 4) -> None:
        self.helper = replace(AGENT, tools=("Agent",), max_tokens=10, max_concurrent_children=width)

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        return {"helper": self.helper, "child": CHILD}[agent]


class Parental(Scripted):
    """Who has the tool asks for what `call` says and then is done; who has none is done at once."""

    def __init__(self, **call: Any) -> None:
        super().__init__()
        self.call = ToolCall(id="call-1", name="Agent", input=json.dumps(call))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        heard = any(isinstance(block, ToolResultBlock) for message in request.messages for block in message.blocks)
        usage = Usage(input_tokens=COST - 5, output_tokens=5)
        if request.tools and not heard:
            yield Reply(text="", tool_calls=(self.call,), stop_reason="tool_use", usage=usage, model="m-1")
        else:
            yield Reply(text="done", stop_reason="end_turn", usage=usage, model="m-1")


def families(*, width: int = 4, **call: Any) -> BudgetWorld:
    world = BudgetWorld()
    world.model = Parental(**call)
    world.parts = {"definitions": Families(width), "tools": {"Agent": AgentTool()}}
    return world


def spawns(count: int) -> list[dict[str, str]]:
    return [{"name": "child", "prompt": f"part {number}"} for number in range(count)]


def of(world: BudgetWorld, *kinds: type[Any]) -> list[Any]:
    return [event for _, event in world.events() if isinstance(event, kinds)]


def begun(world: BudgetWorld) -> int:
    """Children."""
    return sum(event.parent is not None for event in of(world, RunStarted))


def entries(world: BudgetWorld) -> list[dict[str, Any]]:
    [result] = of(world, ToolReturned)
    actual = json.loads(result.text)["results"]
    assert isinstance(actual, list)
    return actual


@pytest.mark.parametrize("op", ["spawn", "open"])
async def test_a_child_for_which_nothing_is_left_is_not_begun_and_its_call_says_why(op: str) -> None:
    world = families(op=op, name="child", prompt="go")
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=COST)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    assert begun(world) == 0
    [result] = of(world, ToolReturned)
    assert result.is_error
    assert result.text.startswith("token_limit_exceeded: the hard limit of the tenant acme")
    [end] = of(world, RunFailed)  # its own next turn may not be made either
    assert end.code == "token_limit_exceeded"


async def test_of_a_fan_out_those_begin_for_which_something_is_left() -> None:
    world = families(width=1, op="parallel_spawn", spawns=spawns(4))
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=3 * COST)
        world.start("r_one")
        await until(lambda: bool(of(world, RunFailed)))
    assert [entry["ok"] for entry in entries(world)] == [True, True, False, False]
    assert {entry["error"][:20] for entry in entries(world)[2:]} == {"token_limit_exceeded"}
    assert begun(world) == 2


async def test_children_that_fit_one_after_the_other_wait_for_each_other_and_none_for_its_parent() -> None:
    world = families(op="parallel_spawn", spawns=spawns(4))
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=5_000)  # one child's worst case, or one turn of the parent
        world.start("r_one")
        await until(lambda: any(run == "r_one" for run, event in world.events() if isinstance(event, RunCompleted)))
    assert all(entry["ok"] for entry in entries(world))
    assert "BudgetRefused" in world.kinds()  # the books had no room for a second child beside the first
    assert world.account().used_micros == 6 * COST


async def test_a_child_begins_once_its_process_has_read_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LOOKUP_RETRY_S", 0.001)
    world = families(op="spawn", name="child", prompt="go")
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=100_000)
        caught_up, asked = books.accounts.caught_up, 0

        async def late() -> None:
            nonlocal asked
            asked += 1
            if asked in (2, 3):  # the first is the start of the parent
                raise Transient("the books are behind", kind="unavailable")
            await caught_up()

        books.accounts.caught_up = late  # type: ignore[method-assign]
        world.start("r_one")
        await until(lambda: world.ends()["RunCompleted"] == 2)
    assert (asked, begun(world)) == (4, 1)


async def test_a_child_that_was_named_and_not_begun_is_looked_at_by_the_next_owner_under_the_limits_of_then() -> None:
    world = families(op="spawn", name="child", prompt="go")
    async with world.owner_of_the_books("books"):
        async with AsyncExitStack() as first:
            runtime, books = await first.enter_async_context(world.runtime("a"))
            await world.limit(books, hard_tokens=2 * COST)
            drop_local_effects(runtime.host.owners[0])
            world.start("r_one")
            await until(lambda: any(type(event).__name__ == "ChildRequested" for _, event in world.events()))
            await world.limit(books, hard_tokens=COST)
        async with world.runtime("b"):
            await until(lambda: world.ends().total() == 1)
    assert begun(world) == 0
    [returned] = of(world, ChildReturned)
    assert returned.status == "refused"
