"""One tool call in, one order out: whatever happens becomes a result that the model sees."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import (
    CallWait,
    EffectClass,
    NoEffect,
    ToolContext,
    ToolResult,
    UnknownEffect,
    VolumeBinding,
)
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.tools.read import build_read_tool
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.schemas.generated.values import (
    AgentGrants,
    BlobRef,
    ChannelUse,
    DefinitionPin,
    LeaseRef,
    Sampling,
    ToolCall,
    VolumeGrant,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CallWaits, ToolCompleted
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.core.shares import Holder, ShareLimits
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.run.context import MakeResult
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools import tool_calls, tool_result
from loomlog.services.runtime.tools.tool_calls import ToolCalls, parse_arguments
from loomlog.services.runtime.tools.tool_context import narrow_allowed_hosts
from loomlog.services.runtime.tools.tool_slots import ToolCallSlots
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.shared_slots import SharedSlots
from tests.services.core.run.given import DEFINITION, NOW, RUN, Run, answered, at_tools, begun, calls, recover
from tests.services.core.run.waiting import QUEUE
from tests.services.runtime.given import ToldTool
from tests.services.stream.encryption.test_subject_keys import TOPIC as KEYS_TOPIC
from tests.services.stream.encryption.test_subject_keys import keys_over
from tests.waiting import until

FOLDERS = {
    "notes": VolumeBinding(name="notes", path="/srv/notes", mode="rw"),
    "books": VolumeBinding(name="books", path="/srv/books", mode="ro"),
}


class Work:
    """Tool calls with one tool."""

    def __init__(
        self,
        tool: ToldTool | None = None,
        *,
        hosts: tuple[str, ...] = ("*",),
        parallelism: int = 8,
        blobs: MemoryBlobs | None = None,
        **more: Any,
    ) -> None:
        self.tool = tool or ToldTool()
        self.blobs = blobs or MemoryBlobs()
        self.calls = ToolCalls(
            ProcessToolset({self.tool.name: self.tool, "Other": ToldTool(name="Other")}),
            volumes=FOLDERS,
            operator_hosts=hosts,
            parallelism=parallelism,
            blobs=self.blobs,
            tracing=NO_TRACING,
            clock_ms=lambda: NOW,
            mask=lambda text: text.replace("known", "[known]"),
            mask_results=lambda text: text.replace("known", "[known]").replace("alike", "[alike]"),
            **more,
        )

    async def run(self, run: Run | None = None, **effect: Any) -> ToolCompleted:
        state = (run or at_tools("Read")).state
        assert isinstance(state, AwaitingTools)
        return await self.calls.run(replace(CALL, **effect), state, "t")


CALL = CallTool(run_id=RUN, turn=1, index=0, attempt=1, call_id="c0", name="Read", input="{}", effect_class="read")


def given(**definition: Any) -> Run:
    return at_tools("Read", definition=replace(DEFINITION, **definition))


# --- results ---------------------------------------------------------------------------------------------------------


async def test_a_result_becomes_the_order_of_its_call() -> None:
    order = await Work().run(attempt=2, index=3)
    assert (order.turn, order.index, order.attempt, order.at_ms) == (1, 3, 2, NOW)
    assert (order.text, order.text_blob, order.is_error, order.outcome) == ("found", None, False, "ok")


async def test_an_error_the_tool_reports_is_an_error_result() -> None:
    order = await Work(ToldTool(answer=ToolResult(text="no such file", is_error=True))).run()
    assert (order.text, order.is_error, order.outcome) == ("no such file", True, "error")


@pytest.mark.parametrize(
    "error", [Permanent("host not allowed", kind="refused"), Transient("connection reset", kind="network")]
)
async def test_an_error_of_the_outside_is_an_error_result(error: Exception) -> None:
    order = await Work(ToldTool(answer=error)).run()
    assert (order.text, order.is_error, order.outcome) == (str(error), True, "error")


async def test_a_crash_comes_out_for_whoever_runs_the_calls() -> None:
    """services/stream/effect_calls.py makes an order of it, so that it shows as a bug and the run goes on."""
    with pytest.raises(ZeroDivisionError):
        await Work(ToldTool(answer=ZeroDivisionError("a bug"))).run()


async def test_a_greedy_tenant_leaves_slots_for_calls_of_others_and_is_told_when_it_has_none() -> None:
    going_on = asyncio.Event()

    class Slow(ToldTool):
        works_in_threads = True

        async def call(self, arguments: Any, context: Any) -> ToolResult:
            await going_on.wait()
            return await super().call(arguments, context)

    slots = ToolCallSlots(4)
    for shares in (slots.calls.shares, slots.threads.shares):
        shares.meet("polite")  # a tenant that is alone has all
    work = Work(Slow(), slots=slots)
    state = at_tools("Read").state
    assert isinstance(state, AwaitingTools)
    tasks = [asyncio.create_task(work.calls.run(CALL, state, "greedy")) for _ in range(6)]
    await until(lambda: slots.calls.shares.waiting == 3)
    polite = asyncio.create_task(work.calls.run(CALL, state, "polite"))
    await until(lambda: slots.threads.shares.held_by("polite") == 1)
    assert slots.threads.shares.held_by("greedy") == 3
    going_on.set()
    outcomes = await asyncio.gather(*tasks, polite)
    assert {order.outcome for order in outcomes if isinstance(order, ToolCompleted)} == {"ok"}
    assert (slots.calls.shares.in_use, slots.threads.shares.in_use) == (0, 0)
    slots.calls = SharedSlots("tool calls", ShareLimits.of(1), waiting=ShareLimits.of(1))
    with slots.calls.try_acquire(Holder(tenant="t", principal="u")):
        slots.calls.queued.add(Holder(tenant="t", principal="u"))
        order = await work.run()
    assert (order.is_error, order.outcome) == (True, "error")
    assert "Read was not called: the tenant t has 1 places in the queue for tool calls" in order.text


async def test_a_call_that_takes_too_long_is_stopped_and_told_so() -> None:
    tool = ToldTool(timeout_s=0.001, before=asyncio.Event().wait)
    order = await Work(tool).run()
    assert (order.is_error, order.outcome) == (True, "timeout")
    assert "did not return within 0.001 s" in order.text


def overdue(effect: EffectClass, *answers: Any) -> tuple[Work, Run]:
    """A tool whose first call does not return; later ones give these answers, or do not return either."""
    left = list(answers)

    @dataclass
    class Slow(ToldTool):
        def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
            return effect

        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
            self.calls.append((arguments, context))
            if len(self.calls) == 1 or not left:
                await asyncio.Event().wait()
            return left.pop(0)

    return Work(Slow(timeout_s=0.001)), at_tools("Read")


async def test_a_write_that_does_not_return_in_time_is_of_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may happen after it was given up: to call it failed would make the model do it again."""
    monkeypatch.setattr(tool_calls, "OUTCOME_WAIT_S", 0.001)
    for effect, calls_made in ((EffectClass.UNSAFE, 1), (EffectClass.IDEMPOTENT, 2)):
        work, run = overdue(effect)
        order = await work.run(run)
        assert (order.is_error, order.outcome) == (True, "outcome_unknown")
        assert order.text.startswith(
            "outcome un[known]: Read did not return within 0.001 s, and may have had its effect"
        )
        assert len(work.tool.calls) == calls_made
        assert run.give(order)[0].outcome == "outcome_unknown"  # type: ignore[attr-defined]  # ToolReturned


async def test_a_write_that_may_be_repeated_is_looked_up_by_its_key_when_it_is_overdue() -> None:
    work, run = overdue(EffectClass.IDEMPOTENT, ToolResult(text="it is 3"))
    order = await work.run(run)
    assert (order.text, order.is_error, order.outcome) == ("it is 3", False, "ok")
    (_, first), (_, second) = work.tool.calls
    assert first.idempotency_key == second.idempotency_key != ""
    assert (first.attempt, second.attempt) == (1, 2)


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        (ToolResult(text="it happened"), "ok", "it happened"),
        (NoEffect(reason="It was not received"), "timeout", "was stopped and had no effect. It was not received"),
        (
            UnknownEffect(reason="nothing was heard"),
            "outcome_unknown",
            "nothing was heard. Check before you repeat it.",
        ),
        (Transient("away", kind="network"), "outcome_unknown", "away. Check before you repeat it."),
    ],
)
async def test_a_tool_that_can_tell_is_asked_what_became_of_an_overdue_call(
    answer: Any, outcome: str, text: str
) -> None:
    @dataclass
    class Telling(ToldTool):
        def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
            return EffectClass.UNSAFE

        async def reconcile(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    order = await Work(Telling(timeout_s=0.001, before=asyncio.Event().wait)).run()
    assert order.outcome == outcome
    assert text in order.text


async def test_a_tool_nobody_has_is_an_error_result_and_nothing_is_called() -> None:
    work = Work()
    order = await work.run(name="Nobody")
    assert (order.is_error, order.outcome) == (True, "error")
    assert order.text == "tool not found: Nobody; the tools of this run are: Read"


@pytest.mark.parametrize("name", ["read", "functions.Read", "Reed", "default_api:read"])
async def test_a_name_that_is_nearly_that_of_a_tool_is_answered_with_it(name: str) -> None:
    order = await Work().run(name=name)
    assert order.text == f"tool not found: {name}; did you mean Read? the tools of this run are: Read"


async def test_a_tool_the_run_was_not_given_is_not_found() -> None:
    """The process has it, the agent may not use it."""
    work = Work()
    assert (await work.run(name="Other")).text == "tool not found: Other; the tools of this run are: Read"
    work = Work()
    assert (await work.run(given(tools=()))).text == "tool not found: Read; the tools of this run are: none"
    assert work.tool.calls == []


@pytest.mark.parametrize("arguments", ["not json", '{"a":', "[1]", '"text"', "5", "null", "[" * 100_000])
async def test_arguments_that_are_no_object_are_an_error_result_and_nothing_is_called(arguments: str) -> None:
    work = Work()
    order = await work.run(input=arguments)
    assert (order.is_error, order.outcome) == (True, "error")
    assert "JSON" in order.text
    assert work.tool.calls == []


async def test_no_arguments_are_an_empty_object() -> None:
    work = Work()
    await work.run(input="")
    assert work.tool.calls[0][0] == {}


async def test_a_long_result_goes_to_the_blob_store() -> None:
    work = Work(ToldTool(answer=ToolResult(text="x" * 100_000)))
    order = await work.run(with_window(0))
    assert order.text == ""
    assert order.text_blob is not None
    assert await work.blobs.get(order.text_blob) == b"x" * 100_000


async def test_an_endless_result_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_result, "MAX_RESULT_CHARACTERS", 10)
    order = await Work(ToldTool(answer=ToolResult(text="x" * 11))).run()
    assert order.text == "x" * 10 + "\n[cut after 10 characters]"


async def test_a_result_that_utf8_cannot_hold_is_made_storable() -> None:
    assert (await Work(ToldTool(answer=ToolResult(text="half \ud83d"))).run()).text == "half \ufffd"


async def test_a_result_that_cannot_be_stored_says_that_the_call_was_made() -> None:
    work = Work(ToldTool(answer=ToolResult(text="x" * 100_000)))

    async def full(data: bytes, media_type: str = "") -> BlobRef:
        raise Transient("blobs: no space left", kind="unavailable")

    work.blobs.put = full  # type: ignore[method-assign]  # the fault is asked for
    order = await work.run()
    assert (order.is_error, order.outcome) == (True, "error")
    assert order.text == "Read returned, but its result could not be stored: blobs: no space left"


# --- calls that wait for channels ------------------------------------------------------------------------------------

LEASE = LeaseRef(queue=QUEUE, lease_id="l1", taken=1)
USE = ChannelUse(kind="delivery", channel="news", scope="user", message_id="msg_1")
MESSAGES = json.dumps({"messages": [{"id": "msg_1", "value": {"text": "a known secret"}}]})


def makes(result: ToolResult, asked: list[tuple[ToolCall, RunFacts]] | None = None) -> MakeResult:
    async def make(call: ToolCall, facts: RunFacts) -> ToolResult:
        if asked is not None:
            asked.append((call, facts))
        return result

    return make


def tools_state(**more: Any) -> AwaitingTools:
    state = at_tools("Read", **more).state
    assert isinstance(state, AwaitingTools)
    return state


async def test_a_tool_that_waits_says_for_what_and_nothing_is_kept_of_the_call() -> None:
    wait = CallWait(wait_id="k", until_ms=NOW + 1, queues=(QUEUE,), mode="at_least", needed=3)
    order: Any = await Work(ToldTool(answer=ToolResult(text="ignored", waiting=wait))).run(attempt=2)
    assert order == CallWaits(
        at_ms=NOW,
        turn=1,
        index=0,
        attempt=2,
        wait_id="k",
        until_ms=NOW + 1,
        queues=(QUEUE,),
        mode="at_least",
        needed=3,
    )


async def test_a_call_that_waited_is_completed_like_any_other() -> None:
    work = Work()
    asked: list[tuple[ToolCall, RunFacts]] = []
    result = ToolResult(text=MESSAGES, channels=(USE,), leases=(LEASE,), positions=("t/0:1",))
    order = await work.calls.complete(
        replace(CALL, input='{"op":"subscribe"}'), tools_state(), "t", makes(result, asked)
    )
    assert json.loads(order.text)["messages"][0]["value"] == {"text": "a [known] secret"}
    assert (order.outcome, order.leases, order.positions) == ("ok", (LEASE,), ("t/0:1",))
    assert [use.preview for use in order.channels] == ['{"text":"a [known] secret"}']
    [(call, facts)] = asked
    assert (call.id, call.name, call.input, facts.run_id) == ("c0", "Read", '{"op":"subscribe"}', RUN)
    assert work.tool.calls == [], "the tool is not called again"


async def test_messages_that_cannot_be_stored_are_not_taken() -> None:
    """Of a call that waited, the report is tried again; of any other, the lease goes back."""
    result = ToolResult(text="x" * 100_000, channels=(USE,), leases=(LEASE,))
    work = Work(ToldTool(answer=result))

    async def full(data: bytes, media_type: str = "") -> BlobRef:
        raise Transient("blobs: no space left", kind="unavailable")

    work.blobs.put = full  # type: ignore[method-assign]  # the fault is asked for
    with pytest.raises(Transient):
        await work.calls.complete(CALL, tools_state(), "t", makes(result))
    order = await work.run()
    assert (order.is_error, order.channels, order.leases) == (True, (), ())


async def test_content_of_a_call_that_waited_is_encrypted_and_its_arguments_are_decrypted() -> None:
    keys = keys_over(MemoryLog({KEYS_TOPIC: 1}))
    token = (await keys.cipher_for("t", "")).text('{"op":"subscribe"}')
    asked: list[tuple[ToolCall, RunFacts]] = []
    work = Work(encryption=ContentEncryption(keys))
    result = ToolResult(text=MESSAGES, channels=(USE,))
    order = await work.calls.complete(replace(CALL, input=token), tools_state(), "t", makes(result, asked))
    assert asked[0][0].input == '{"op":"subscribe"}'
    assert is_token(order.text, untrusted=False)
    assert is_token(order.channels[0].preview, untrusted=False)
    assert keys.decrypt(order.channels[0].preview, "t") == '{"text":"a [known] secret"}'


# --- what a tool is told ---------------------------------------------------------------------------------------------


async def test_a_tool_is_told_about_the_run_by_the_run_and_not_by_the_model() -> None:
    work = Work()
    run = at_tools(
        "Read",
        definition=replace(DEFINITION, sampling=Sampling(seed=1)),
        user_id="u",
        user_tier="gold",
        metadata={"k": "1"},
    )
    await work.run(run, input='{"tenant":"other"}')
    arguments, context = work.tool.calls[0]
    assert arguments == {"tenant": "other"}
    assert (context.tenant, context.run_id, context.session_id, context.agent_id) == ("t", RUN, "s_tok", "a_tok")
    assert (context.agent, context.subject, context.user_id, context.user_tier) == ("helper", "someone", "u", "gold")
    assert (context.provider, context.model, context.tools) == ("acme", "large", ("Read",))
    assert (context.started_at_ms, context.used_tokens, context.max_tokens) == (NOW, 15, 1_000)
    assert (context.sampling, context.metadata) == (Sampling(seed=1), {"k": "1"})


async def test_a_tool_knows_the_version_and_the_grants_of_its_agent() -> None:
    work = Work()
    pin = DefinitionPin(def_id="def_1", version=3, content_sha256="s")
    await work.run(given(pin=pin, grants=AgentGrants(agent_def_scopes=("self",), memory_quota_bytes=7)))
    await work.run(given())
    (_, pinned), (_, plain) = work.tool.calls
    assert pinned.agent_def_id == "def_1"
    assert (pinned.grants["agent_def_scopes"], pinned.grants["memory_quota_bytes"]) == (("self",), 7)
    assert (plain.agent_def_id, plain.grants) == ("", {})


async def test_a_tool_knows_the_patterns_of_its_agent() -> None:
    work = Work()
    await work.run(given(tools=("Read", "mcp__*"), grants=AgentGrants(skills=("pdf", "-team/*"))))
    await work.run(given())
    (_, granted), (_, plain) = work.tool.calls
    assert (granted.skills, granted.tool_grants) == (("pdf", "-team/*"), ("Read", "mcp__*"))
    assert plain.skills == ()


async def test_the_idempotency_key_is_that_of_the_call_over_all_its_attempts() -> None:
    work = Work()
    run = at_tools("Read")
    await work.run(run)
    run.give(recover())
    await work.run(run, attempt=2)
    await work.run(run, index=1)
    keys = [context.idempotency_key for _, context in work.tool.calls]
    assert keys == [f"{RUN}:1.0", f"{RUN}:1.0", f"{RUN}:1.1"]


@pytest.mark.parametrize(
    ("name", "granted", "bound"),
    [("notes", "rw", "rw"), ("notes", "ro", "ro"), ("books", "ro", "ro"), ("books", "rw", "ro"), ("notes", "", "ro")],
)
async def test_the_narrower_of_grant_and_folder_wins(name: str, granted: str, bound: str) -> None:
    work = Work()
    await work.run(given(volumes=(VolumeGrant(name=name, mode=granted, is_default=True),)))
    assert work.tool.calls[0][1].volumes == (
        VolumeBinding(name=name, path=f"/srv/{name}", mode=bound, is_default=True),
    )


async def test_a_volume_this_process_has_not_is_not_bound_and_no_other_is_added() -> None:
    work = Work()
    await work.run(given(volumes=(VolumeGrant(name="gone", mode="rw"),)))
    assert work.tool.calls[0][1].volumes == ()


@pytest.mark.parametrize(
    ("operator", "caller", "allowed"),
    [
        (("a.example",), None, ("a.example",)),
        (("a.example",), (), ()),
        (("a.example", "b.example"), ("b.example",), ("b.example",)),
        (("a.example",), ("b.example",), ()),
        (("a.example",), ("api.a.example",), ("api.a.example",)),
        (("api.a.example",), ("a.example",), ("api.a.example",)),
        (("a.example",), ("nota.example",), ()),
        (("A.Example.",), ("a.EXAMPLE",), ("a.EXAMPLE", "A.Example.")),
        (("*",), ("a.example",), ("a.example",)),
        (("*",), (), ()),
        (("*",), None, ("*",)),
        (("a.example",), ("*",), ("a.example",)),
        (("*",), ("*",), ("*",)),
        ((), None, ()),
        ((), ("*",), ()),
        (("10.0.0.1",), ("0.0.1",), ()),
    ],
)
def test_the_hosts_of_a_run_in_all_three_states(
    operator: tuple[str, ...], caller: tuple[str, ...] | None, allowed: tuple[str, ...]
) -> None:
    assert narrow_allowed_hosts(operator, caller) == allowed


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [
        (None, (("a.example",), "operator_default")),
        ((), (("a.example",), "operator_default")),
        (("b.example", "=c.example"), (("b.example", "=c.example"), "caller")),
        (("b.example", "*"), (("b.example", "a.example"), "caller")),
        (
            ("b.example", "LOCALHOST.", "x.localhost", "=127.0.0.9", "[::1]", "::ffff:127.0.0.1"),
            (("b.example",), "caller"),
        ),
        (("localhost",), ((), "caller")),
    ],
)
async def test_where_callers_choose_hosts_theirs_replace_the_operators_but_for_this_machine(
    caller: tuple[str, ...] | None, allowed: tuple[tuple[str, ...], str]
) -> None:
    work = Work(hosts=("a.example",), callers_choose_hosts=True)
    await work.run(at_tools("Read", allowed_hosts=caller))
    [(_, context)] = work.tool.calls
    assert (context.allowed_hosts, context.hosts_source) == allowed


async def test_a_tool_is_told_who_chose_its_hosts() -> None:
    work = Work(hosts=("a.example",))
    await work.run()
    await work.run(at_tools("Read", allowed_hosts=()))
    first, second = (context for _, context in work.tool.calls)
    assert (first.allowed_hosts, first.hosts_source) == (("a.example",), "operator_default")
    assert (second.allowed_hosts, second.hosts_source) == ((), "caller")


# --- at once ---------------------------------------------------------------------------------------------------------


async def test_calls_of_one_run_are_bounded_and_those_of_another_are_not_held_up() -> None:
    opened = asyncio.Event()
    work = Work(ToldTool(before=opened.wait), parallelism=2)
    loop = asyncio.get_running_loop()
    five = at_tools(*["Read"] * 5)
    tasks = [loop.create_task(work.run(five, index=index)) for index in range(5)]
    tasks.append(loop.create_task(work.run(run_id="r_other")))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(work.tool.calls) == 3
    opened.set()
    await asyncio.wait(tasks, timeout=30)
    assert len(work.tool.calls) == 6
    assert work.calls._slots == {}


async def test_a_stopped_call_gives_its_slot_back() -> None:
    work = Work(ToldTool(before=asyncio.Event().wait), parallelism=1)
    loop = asyncio.get_running_loop()
    two = at_tools("Read", "Read")
    first, second = loop.create_task(work.run(two)), loop.create_task(work.run(two, index=1))
    for _ in range(5):
        await asyncio.sleep(0)
    first.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(work.tool.calls) == 2
    second.cancel()
    await asyncio.wait([first, second])
    assert work.calls._slots == {}


@pytest.mark.parametrize(
    ("text", "arguments"), [('{"a":1}', {"a": 1}), ("", {}), ("[1]", {}), ("nonsense", {}), ("[" * 100_000, {})]
)
def test_arguments_are_read_as_far_as_they_can_be(text: str, arguments: dict[str, Any]) -> None:
    assert parse_arguments(text) == arguments


# --- asked about a lost call ------------------------------------------------------------------------------------------


class Asked(ToldTool):
    """A tool that can be asked; `says` is what it answers, or raises."""

    def __init__(self, says: Any, **more: Any) -> None:
        super().__init__(**more)
        self.says = says
        self.asked: list[str] = []

    async def reconcile(self, arguments: Any, context: Any) -> Any:
        self.asked.append(context.idempotency_key)
        if isinstance(self.says, Exception):
            raise self.says
        if self.says is None:
            await asyncio.Event().wait()
        return self.says


async def about(tool: ToldTool, **effect: Any) -> Any:
    run = at_tools("Read", classes=("unsafe",), reconcilable=(True,))
    run.give(recover())
    asked = run.effects[-1]
    assert isinstance(asked, ReconcileTool)
    assert isinstance(run.state, AwaitingTools)
    return await Work(tool).calls.reconcile(replace(asked, **effect), run.state, "t")


@pytest.mark.parametrize(
    ("says", "verdict", "text", "is_error"),
    [
        (ToolResult(text="done"), "happened", "done", False),
        (ToolResult(text="refused there", is_error=True), "happened", "refused there", True),
        (NoEffect(reason="no line"), "did_not_happen", "no line", False),
        (UnknownEffect(reason="who knows"), "cannot_tell", "who knows", False),
        (Transient("away", kind="network"), "failed", "away", False),
        (Permanent("no key", kind="refused"), "failed", "no key", False),
    ],
)
async def test_what_a_tool_says_of_a_lost_call(says: Any, verdict: str, text: str, is_error: bool) -> None:
    tool = Asked(says)
    order = await about(tool)
    assert (order.verdict, order.text, order.is_error, order.ask) == (verdict, text, is_error, 1)
    assert tool.asked == [f"{RUN}:1.0"]


async def test_a_tool_that_does_not_say_in_time_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "RECONCILE_GRACE_S", 0.0)
    assert (await about(Asked(None, timeout_s=0.0))).verdict == "failed"


async def test_a_tool_that_is_asked_may_take_a_little_longer_than_its_calls() -> None:
    class Waiting(Asked):
        async def reconcile(self, arguments: Any, context: Any) -> Any:
            await asyncio.sleep(0.001)  # the time of the call is over meanwhile
            return await super().reconcile(arguments, context)

    assert (await about(Waiting(UnknownEffect(reason="no answer"), timeout_s=0.0))).verdict == "cannot_tell"


async def test_a_tool_that_is_gone_or_cannot_be_asked_any_more_leaves_it_open() -> None:
    assert (await about(ToldTool())).verdict == "cannot_tell"
    assert (await about(Asked(NoEffect()), name="Gone")).verdict == "cannot_tell"


async def test_a_result_goes_to_the_log_without_secrets_and_what_looks_like_one() -> None:
    for answer in (ToolResult(text="known and alike"), Permanent("known and alike", kind="refused")):
        done = await Work(ToldTool(answer=answer)).run()
        assert done.text == "[known] and [alike]"


# --- results that are longer than their share of the window ----------------------------------------------------------


def with_window(tokens: int, **definition: Any) -> Run:
    run = begun(replace(DEFINITION, **definition))
    run.give(answered(run.state, "", *calls("Read"), max_context_tokens=tokens))
    return run


async def test_a_result_is_cut_to_its_share_of_the_window_and_read_on_in_parts() -> None:
    whole = "0123456789\n" * 80_000
    work = Work(ToldTool(answer=ToolResult(text=whole)))
    run = with_window(128_000)
    order = await work.run(run)
    assert order.text_blob is not None
    shown = (await work.blobs.get(order.text_blob)).decode()
    assert len(shown) < 128_200
    assert 'Read with path "result:c0" and offset 96000 returns them, in parts' in shown
    assert order.whole_blob is not None
    assert (await work.blobs.get(order.whole_blob)).decode() == whole

    run.give(order)
    run.give(answered(run.state, "", ToolCall(id="c1", name="Read", input="{}"), max_context_tokens=128_000))
    reader = Work(cast(Any, build_read_tool(ThreadPool())), blobs=work.blobs)
    again = json.dumps({"path": "result:c0", "offset": 96_000})
    part = await reader.run(run, turn=2, call_id="c1", input=again)
    assert part.text_blob is not None
    text = (await reader.blobs.get(part.text_blob)).decode()
    assert text.startswith(whole[96_000:127_000])
    assert text.endswith("bytes; offset 223900 reads on]")
    assert part.whole_blob is None
    other = await reader.run(run, turn=2, call_id="c1", input='{"path": "result:c9"}')
    assert (other.is_error, "there is no result of a call 'c9'" in other.text) == (True, True)


async def test_a_run_without_read_is_told_to_ask_for_less() -> None:
    work = Work(ToldTool(name="Glob", answer=ToolResult(text="x" * 9_000)))
    order = await work.run(with_window(1_000, tools=("Glob",)), name="Glob")
    assert "ask for less at a time" in order.text
    assert len(order.text) < 1_200


async def test_without_a_known_window_nothing_is_cut() -> None:
    order = await Work(ToldTool(answer=ToolResult(text="x" * 50_000))).run(with_window(0))
    assert (len(order.text), order.whole_blob) == (50_000, None)
