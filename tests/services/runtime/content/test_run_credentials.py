"""Credentials of a run on their way to a tool, and out of what the tool gives back."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.connectors.tools.references import mask_credentials
from loomlog.schemas.generated.run_events import RunCompleted, ToolReturned
from loomlog.schemas.generated.values import ParentCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import FAILED, ToolCompleted
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.runtime.content import run_credentials as module
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.connectors.storage.memory import MemoryCredentialRows
from tests.run_options import grouped
from tests.services.core.run.given import NOW, RUN, at_tools, recover
from tests.services.runtime.given import ToldTool
from tests.services.runtime.small_runtime import RUN as STAGE_RUN
from tests.services.runtime.small_runtime import Stage

CALL = CallTool(run_id=RUN, turn=1, index=0, attempt=1, call_id="c0", name="Read", input="{}", effect_class="read")
CHILD_OF = ParentCall(run_id="r_middle", agent_id="a", root_run_id="r_parent", turn=1, index=0, number=0, depth=2)
GIVEN = {"default": "hunter2-hunter2", "git": "hunter2", "pin": "123"}


class Store:
    """A store of one run's credentials."""

    def __init__(self, given: Mapping[str, str] = GIVEN) -> None:
        self.given = given
        self.asked: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.sweeps = 0
        self.failures: list[Exception] = []

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.given = credentials

    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]:
        self.asked.append((tenant, run_id))
        if self.failures:
            raise self.failures.pop()
        return self.given

    async def delete(self, run_ids: Sequence[str]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.deleted += run_ids

    async def sweep(self) -> int:
        self.sweeps += 1
        if self.failures:
            raise self.failures.pop()
        return 1


def awaiting(**facts: Any) -> AwaitingTools:
    state = at_tools("Read").state
    assert isinstance(state, AwaitingTools)
    return replace(
        state,
        facts=replace(
            state.facts, **facts, options=replace(state.facts.options, credentials=("default", "git", "pin"))
        ),
    )


def calls(store: Store, tool: ToldTool) -> ToolCalls:
    return ToolCalls(
        ProcessToolset({tool.name: tool}),
        volumes={},
        operator_hosts=(),
        parallelism=8,
        blobs=MemoryBlobs(),
        tracing=NO_TRACING,
        clock_ms=lambda: NOW,
        credentials=Credentials(store),
    )


async def called(store: Store, tool: ToldTool, state: AwaitingTools | None = None) -> ToolCompleted:
    return await calls(store, tool).run(CALL, state or awaiting(), "acme")


async def test_a_tool_gets_the_credentials_of_its_run_and_they_do_not_show() -> None:
    store, tool = Store(), ToldTool()
    await called(store, tool)
    context = tool.calls[0][1]
    assert (dict(context.credentials), store.asked) == (GIVEN, [("acme", RUN)])
    assert "hunter2" not in repr(context)


async def test_a_run_without_credentials_asks_for_none() -> None:
    store, tool = Store(), ToldTool()
    await called(
        store,
        tool,
        replace(awaiting(), facts=replace(awaiting().facts, options=replace(awaiting().facts.options, credentials=()))),
    )
    assert (tool.calls[0][1].credentials, store.asked) == ({}, [])


async def test_a_child_has_those_of_the_run_they_came_with() -> None:
    store, tool = Store(), ToldTool()
    await called(store, tool, awaiting(parent=CHILD_OF))
    assert store.asked == [("acme", "r_parent")]


@pytest.mark.parametrize(
    "answer",
    [
        ToolResult(text="Authorization: hunter2-hunter2, git hunter2, pin 123", is_error=False),
        Permanent("Authorization: hunter2-hunter2, git hunter2, pin 123", kind="refused"),
    ],
)
async def test_what_echoes_a_credential_is_masked_longest_first_and_short_ones_are_left(answer: Any) -> None:
    order = await called(Store(), ToldTool(answer=answer))
    assert order.text == "Authorization: [redacted:credential], git [redacted:credential], pin 123"


async def test_masking_a_result_takes_nothing_else_from_it() -> None:
    answer = ToolResult(text="hunter2", asks_compaction=True)
    assert (await called(Store(), ToldTool(answer=answer))).asks_compaction


def test_only_credentials_of_four_characters_and_more_are_masked() -> None:
    assert mask_credentials(["abc", "abcd"], "abc abcd") == "abc [redacted:credential]"


async def test_credentials_are_read_once_for_a_run() -> None:
    store, tool = Store(), ToldTool()
    work = calls(store, tool)
    for _ in range(3):
        await work.run(CALL, awaiting(), "acme")
    assert len(store.asked) == 1


async def test_a_call_is_not_made_without_the_credentials_that_an_echo_would_have_to_be_masked_by() -> None:
    store, tool = Store(), ToldTool()
    store.failures = [Transient("the store is away", kind="unavailable")]
    order = await called(store, tool)
    assert (order.text, order.is_error, tool.calls) == ("the store is away", True, [])


class Remembering(ToldTool):
    async def reconcile(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls.append((arguments, context))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(ToolResult(text="sent with hunter2"), "happened"), (Permanent("sent with hunter2", kind="refused"), FAILED)],
)
async def test_a_tool_that_is_asked_about_a_lost_call_has_them_and_its_answer_is_masked(
    answer: Any, verdict: str
) -> None:
    run = at_tools("Read", classes=("unsafe",), reconcilable=(True,))
    run.give(recover())
    assert isinstance(run.state, AwaitingTools)
    state = replace(run.state, facts=awaiting().facts)
    tool = Remembering(answer=answer)
    ask = ReconcileTool(run_id=RUN, turn=1, index=0, attempt=1, ask=1, name="Read", input="{}", not_before_ms=0)
    order = await calls(Store(), tool).reconcile(ask, state, "acme")
    assert (order.verdict, order.text) == (verdict, "sent with [redacted:credential]")
    assert dict(tool.calls[0][1].credentials) == GIVEN


# --- the end of a run ------------------------------------------------------------------------------------------------


def facts(run_id: str = RUN, **more: Any) -> RunFacts:
    return replace(awaiting().facts, run_id=run_id, **grouped(more))


@contextlib.asynccontextmanager
async def working(store: Store):
    made = Credentials(store)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(true: Any) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)


async def test_the_end_of_a_run_deletes_its_credentials_here_and_there() -> None:
    store = Store()
    async with working(store) as made:
        await made.load_values(facts(), "acme")
        made.on_run_ended(facts())
        await until(lambda: store.deleted)
        assert store.deleted == [RUN]
        await made.load_values(facts(), "acme")
        assert len(store.asked) == 2


async def test_the_end_of_a_child_or_of_a_run_without_any_deletes_nothing() -> None:
    store = Store()
    async with working(store) as made:
        made.on_run_ended(facts("r_child", parent=CHILD_OF))
        made.on_run_ended(facts("r_bare", credentials=()))
        made.on_run_ended(facts("r_last"))
        await until(lambda: store.deleted)
        assert store.deleted == ["r_last"]


async def test_what_cannot_be_deleted_now_is_deleted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    store = Store()
    store.failures = [Transient("away", kind="unavailable")] * 2
    async with working(store) as made:
        made.on_run_ended(facts())
        await until(lambda: store.deleted)
    assert store.deleted == [RUN]


async def test_what_was_left_behind_is_swept_and_a_store_that_is_away_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SWEEP_INTERVAL_S", 0.0)
    store = Store()
    store.failures = [Transient("away", kind="unavailable")]
    async with working(store):
        await until(lambda: store.sweeps >= 3)


async def test_without_a_store_a_run_has_none_whatever_it_says() -> None:
    made = Credentials()
    await made.run()
    assert await made.load_values(facts(), "acme") == {}


async def test_only_so_many_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_MAX", 2)
    store = Store()
    made = Credentials(store)
    for name in ("r_1", "r_2", "r_1", "r_3", "r_1", "r_2"):
        await made.load_values(facts(name), "acme")
    assert [run_id for _, run_id in store.asked] == ["r_1", "r_2", "r_3", "r_2"]


# --- over the pieces of a runtime ------------------------------------------------------------------------------------


class Showing:
    """A tool that tells what it was given."""

    name = "Echo"
    description = "Tells."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=f"{sorted(context.credentials)} {context.credentials.get('git')}")


async def test_the_next_owner_has_the_credentials_the_log_never_has_them_and_the_end_deletes_them() -> None:
    rows = MemoryCredentialRows()
    store = RunCredentials(rows, SecretKey(keys=(bytes(32),)))
    await store.put("acme", STAGE_RUN, {"git": "hunter2-hunter2"})
    stage = Stage(tools={"Echo": Showing()})
    stage.model.held = True
    async with stage.owner("one", credentials=Credentials(store)):
        stage.start(credentials=("git",))
        async with asyncio.timeout(30):
            await stage.model.holding.wait()
    stage.model.let_go.set()
    stage.model.turns = (stage.model.turns[0], stage.model.turns[0], stage.model.turns[1])
    async with working(store) as credentials:  # type: ignore[arg-type]  # the real one
        async with stage.owner("two", credentials=credentials):
            await stage.until(lambda: stage.has(RunCompleted))
            await stage.until(lambda: not rows.rows)
    results = [event.text for event in stage.events() if isinstance(event, ToolReturned)]
    assert results == ["['git'] [redacted:credential]"] * 2
    assert all(b"hunter2" not in (record.value or b"") for records in stage.log.records.values() for record in records)
