"""Erasing somebody whose runs wait for each other, over the real rules: nothing more is said for them."""

from collections.abc import AsyncGenerator
from typing import Any

from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply
from loomlog.connectors.tools.agent import AgentTool
from loomlog.connectors.tools.interruption import InterruptionTool
from loomlog.projections.run_queries import RunFilter
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.run_events import RunCompleted
from loomlog.schemas.generated.values import InterruptionTerms, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.application.runs.control import CancelResult
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from tests.services.application.world import ADMIN_CALLER, IVY, declined, pieces_of, until
from tests.services.runtime.fakes import AGENT
from tests.services.test_secrecy import Stage, stage

ASKING = InterruptionTerms(
    enabled=True, kinds=("question",), max_pending=1, default_timeout_ms=3_600_000, max_timeout_ms=3_600_000
)
TREE = replace(AGENT, tools=("Agent", "Interruption"), interruption=ASKING)
TOOLS: Any = {"Agent": AgentTool(), "Interruption": InterruptionTool()}


class Delegating:
    """A model that starts a sub-agent; that one asks a person."""

    provider = "mock"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        self.requests.append(request)
        calls: tuple[ToolCall, ...] = ()
        if not any(isinstance(block, ToolResultBlock) for message in request.messages for block in message.blocks):
            is_child = "the errand" in repr(request.messages)
            ask = ToolCall(id="c1", name="Interruption", input='{"op": "ask", "question": "which one?"}')
            spawn = ToolCall(id="c1", name="Agent", input='{"name": "helper", "prompt": "the errand"}')
            calls = (ask if is_child else spawn,)
        yield Reply(
            text="so far",
            tool_calls=calls,
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(input_tokens=1, output_tokens=1),
        )

    async def list_models(self) -> list[str]:
        return []

    async def probe(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is open."""


async def waiting_tree(on: Stage) -> tuple[str, str]:
    """A run that waits for its child, which waits for a person: their ids."""
    accepted = await on.layer.runs.start(IVY, RunRequest(agent="helper", prompt="go"))
    accepted.stream.close()

    def is_asked() -> bool:
        on.world.project()
        return any(accepted.run_id in repr(row) for row in on.world.twin.tables["interrupts"].values())

    await until(is_asked)
    rows = await on.layer.queries.runs(ADMIN_CALLER, RunFilter(), tenant="acme")
    (child,) = [row.run_id for row in rows.rows if row.parent_run_id == accepted.run_id]
    return accepted.run_id, child


async def test_a_tree_is_cancelled_from_its_root_so_no_parent_goes_on_with_what_its_child_was_told() -> None:
    model = Delegating()
    async with stage(model, agent=TREE, tools=TOOLS) as on:
        root, child = await waiting_tree(on)
        asked = len(model.requests)
        erased = await on.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy")
        assert set(erased.cancelled) == {root, child}
        rows = [await on.layer.queries.run(IVY, run_id) for run_id in (root, child)]
        assert [row.status for row in rows] == ["cancelled", "cancelled"]
        assert len(model.requests) == asked


async def test_a_subject_whose_sub_agent_was_cancelled_can_be_erased_whole() -> None:
    async with stage(Delegating(), agent=TREE, tools=TOOLS) as on:
        _, child = await waiting_tree(on)
        await on.layer.control.cancel_run(ADMIN_CALLER, child, "not needed")
        await until(lambda: any(isinstance(event, RunCompleted) for event in on.events()))
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy")
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
        assert (report.findings.frames_in_clear, report.findings.live_runs) == (0, 0)


async def test_nothing_is_erased_while_runs_of_the_subject_go_on_beginning() -> None:
    model = Delegating()
    async with stage(model, agent=TREE, tools=TOOLS) as on:
        cancel_run = on.layer.control.cancel_run

        async def another_begins(caller: Caller, run_id: str, reason: str = "") -> CancelResult:
            await waiting_tree(on)
            return await cancel_run(caller, run_id, reason)

        await waiting_tree(on)
        on.layer.control.cancel_run = another_begins  # type: ignore[method-assign]
        refused = await declined(on.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy"))
        assert refused.code == "cancel_pending"
        assert "nothing was erased: " in refused.message
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
        assert [key.erasure for key in report.keys] == [None]
        assert report.erasures == ()


async def test_nothing_is_erased_while_the_read_models_do_not_know_which_runs_are_under_way() -> None:
    async with stage() as on:
        accepted = await on.layer.runs.start(IVY, RunRequest(agent="helper", prompt="go"))
        await pieces_of(accepted.stream)
        await on.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
        on.world.projecting = False
        on.model.go_on.clear()
        more = await on.layer.runs.start(IVY, RunRequest(agent="helper", prompt="more"))
        more.stream.close()
        refused = await declined(on.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy"))
        assert (refused.code, "nothing was erased" in refused.message) == ("not_yet", True)
