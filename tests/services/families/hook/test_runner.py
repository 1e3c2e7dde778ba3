"""Hooks around a tool call: who is asked in which order, what their answers do, and what becomes of it in the order."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.http.signed_callbacks import callback_secrets, signature_headers
from loomlog.connectors.protocols import CallWait, ChildrenPlan, EffectClass, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.run_events import ChildRequested
from loomlog.schemas.generated.values import Spawn, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import (
    HAPPENED,
    CallWaits,
    ChildrenRequested,
    ChildReported,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.families.hook.runner import INPUT_BYTES_MAX, HookRunner
from loomlog.services.families.hook.state import Hook, HookTable, with_hook
from loomlog.services.runtime.run.context import MakeResult
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.core.run.given import DEFINITION, NOW, RUN, at_tools, recover
from tests.services.core.run.waiting import QUEUE
from tests.services.runtime.given import ToldTool

Answer = Any
"""JSON, None for nothing, or an exception."""
KEY = SecretKey(keys=(bytes(range(32)),))
CALL = CallTool(
    run_id=RUN, turn=1, index=0, attempt=1, call_id="c0", name="Read", input='{"path":"a"}', effect_class="read"
)


class Told:
    """The other side of all hooks: answers by the name of the hook, and remembers what it was asked."""

    def __init__(self, answers: Mapping[str, Answer | Callable[[Mapping[str, Any]], Answer]]) -> None:
        self.answers = answers
        self.asked: list[Mapping[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.timeouts: list[float] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes:
        options = orjson.loads(body)
        self.asked.append(options)
        self.bodies.append(body)
        self.headers.append(headers)
        self.timeouts.append(timeout_s)
        answer = self.answers.get(options["hook_name"])
        if callable(answer):
            answer = answer(options)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            return answer
        return b"" if answer is None else orjson.dumps(answer)

    @property
    def order(self) -> list[str]:
        return [f"{options['phase']} {options['hook_name']}" for options in self.asked]


def hook(name: str, phase: str = "pre", **more: Any) -> Hook:
    inputs = {"tenant": "t", "owner": "ops", "callback_url": f"https://hooks.example/{name}", **more}
    return Hook(hook_id=f"h_{name}", name=name, phase=phase, **inputs)


class Work:
    """Tool calls with one tool and some hooks."""

    def __init__(
        self,
        *hooks: Hook,
        answers: Mapping[str, Answer] | None = None,
        tool: ToldTool | None = None,
        permitted: tuple[str, ...] = (),
        mask: Callable[[str], str] = str,
    ) -> None:
        self.table = HookTable(entries=hooks)
        self.told = Told(answers or {})
        self.tool = tool or ToldTool()
        self.calls = ToolCalls(
            ProcessToolset({self.tool.name: self.tool}),
            volumes={},
            operator_hosts=("docs.example",),
            parallelism=8,
            blobs=MemoryBlobs(),
            tracing=NO_TRACING,
            clock_ms=lambda: NOW,
            mask=mask,
            hooks=HookRunner(
                lambda: self.table, self.told, clock_ms=lambda: NOW, permitted_owners=permitted, secret=KEY
            ),
        )

    async def run(self, **effect: Any) -> ToolCompleted:
        definition = replace(DEFINITION, tools=(self.tool.name,))
        state = at_tools(self.tool.name, definition=definition).state
        assert isinstance(state, AwaitingTools)
        return await self.calls.run(replace(CALL, **{"name": self.tool.name, **effect}), state, "t")


def acts(order: ToolCompleted | ToolReconciled) -> list[str]:
    return [f"{act.name} {act.act}" for act in order.hook_acts]


# --- what they are told ----------------------------------------------------------------------------------------------


async def test_a_pre_hook_is_told_everything_that_names_the_call() -> None:
    work = Work(hook("a"))
    order = await work.run(attempt=2)
    assert work.told.asked == [
        {
            "phase": "pre",
            "owner": "ops",
            "hook_name": "a",
            "hook_id": "h_a",
            "agent": "helper",
            "tenant_id": "t",
            "user_id": "",
            "agent_id": "a_tok",
            "run_id": RUN,
            "session_id": "s_tok",
            "turn": 1,
            "index": 0,
            "attempt": 2,
            "tool_call": {"id": "c0", "name": "Read", "input": {"path": "a"}},
        }
    ]
    assert (order.text, order.outcome, order.hook_acts) == ("found", "ok", ())


async def test_a_hook_judges_the_arguments_as_the_tool_will_get_them_however_they_were_written() -> None:
    written = '{"path": "harmless", "\\u0070ath": "/etc/shadow", "more": {"path": "{\\"path\\": \\"a\\"}"}}'
    work = Work(hook("a"))
    await work.run(input=written)
    (options,) = work.told.asked
    assert options["tool_call"]["input"] == {"path": "/etc/shadow", "more": {"path": '{"path": "a"}'}}
    assert work.tool.calls[0][0] == options["tool_call"]["input"]


async def test_a_post_hook_is_told_the_result_as_well() -> None:
    work = Work(hook("a", "post"))
    await work.run()
    assert work.told.asked[0]["tool_result"] == {"text": "found", "is_error": False}
    assert work.told.asked[0]["tool_call"]["input"] == {"path": "a"}


async def test_a_request_is_signed_and_names_its_delivery() -> None:
    work = Work(hook("a", timeout_ms=250))
    await work.run()
    headers = work.told.headers[0]
    secrets = callback_secrets(KEY, "t", "ops", "a")
    assert signature_headers(work.told.bodies[0], secrets, NOW // 1000).items() <= headers.items()
    assert headers["X-Loomlog-Delivery"] == f"{RUN}:1.0:1:h_a"
    assert work.told.timeouts == [0.25]


# --- order -----------------------------------------------------------------------------------------------------------


async def test_a_call_that_waits_is_shown_to_post_hooks_with_its_result() -> None:
    wait = CallWait(wait_id="k", until_ms=NOW + 1, queues=(QUEUE,))
    tool = ToldTool(answer=ToolResult(text="", waiting=wait))
    answers: dict[str, Answer] = {"a": {"input": {"path": "b"}}, "b": {"result": {"text": "withheld"}}}
    work = Work(hook("a"), hook("b", "post"), tool=tool, answers=answers)
    order: Any = await work.run()
    assert isinstance(order, CallWaits)
    assert [act.name for act in order.hook_acts] == ["a"]
    assert work.told.order == ["pre a"]
    state = at_tools("Read").state
    assert isinstance(state, AwaitingTools)
    done = await work.calls.complete(CALL, state, "t", given_result(ToolResult(text="a message")))
    assert work.told.order == ["pre a", "post b"]
    assert (done.text, acts(done)) == ("withheld", ["b rewrote_result"])


def given_result(result: ToolResult) -> MakeResult:
    async def make(call: ToolCall, facts: RunFacts) -> ToolResult:
        return result

    return make


async def test_pre_hooks_run_in_order_and_post_hooks_in_reverse_around_the_tool() -> None:
    tool = ToldTool()
    work = Work(hook("a"), hook("b"), hook("a2", "post"), hook("b2", "post"), tool=tool)

    async def called() -> None:
        work.told.asked.append({"phase": "tool", "hook_name": ""})

    tool.before = called
    await work.run()
    assert work.told.order == ["pre a", "pre b", "tool ", "post b2", "post a2"]


async def test_hooks_of_other_calls_are_not_asked() -> None:
    work = Work(hook("a", tools=("Write",)), hook("b", agents=("other",)), hook("c", tenant="u"), hook("d", tenant=""))
    await work.run()
    assert work.told.order == ["pre d"]


async def test_a_call_the_run_may_not_make_is_refused_without_asking_anybody() -> None:
    work = Work(hook("a"), hook("b", "post"))
    for effect in ({"name": "Gone"}, {"input": "not json"}, {"input": "[]"}):
        assert (await work.run(**effect)).is_error
    assert work.told.asked == []


async def test_a_hook_that_is_registered_during_a_call_looks_at_the_next_one() -> None:
    work = Work(hook("a"))

    def register(told: Mapping[str, Any]) -> None:
        work.table = with_hook(work.table, hook("b", "post"))

    work.told.answers = {"a": register}
    await work.run()
    assert work.told.order == ["pre a"]


# --- pre -------------------------------------------------------------------------------------------------------------


async def test_a_denial_ends_the_call_and_the_post_hooks_see_it() -> None:
    work = Work(hook("a"), hook("b"), hook("c"), hook("d", "post"), answers={"b": {"deny": {"text": "not today"}}})
    order = await work.run()
    assert (order.text, order.is_error, order.outcome) == ("not today", True, "denied")
    assert work.tool.calls == []
    assert work.told.order == ["pre a", "pre b", "post d"]
    assert work.told.asked[-1]["tool_result"] == {"text": "not today", "is_error": True}
    assert acts(order) == ["b denied"]


async def test_a_denial_may_be_no_error() -> None:
    order = await Work(hook("a"), answers={"a": {"deny": {"text": "cached", "is_error": False}}}).run()
    assert (order.text, order.is_error, order.outcome) == ("cached", False, "denied")


async def test_each_pre_hook_gets_the_input_as_the_one_before_left_it() -> None:
    answers = {"a": {"input": {"path": "b"}}, "b": {"input": {"path": "c"}}}
    work = Work(hook("a"), hook("b"), hook("c", "post"), answers=answers)
    order = await work.run()
    assert [options["tool_call"]["input"]["path"] for options in work.told.asked] == ["a", "b", "c"]
    assert work.tool.calls[0][0] == {"path": "c"}
    assert [(act.name, act.input) for act in order.hook_acts] == [("a", ""), ("b", '{"path":"c"}')]


async def test_the_same_input_again_is_no_change() -> None:
    assert (await Work(hook("a"), answers={"a": {"input": {"path": "a"}}}).run()).hook_acts == ()


async def test_an_input_may_not_become_a_stronger_call_than_its_intent() -> None:
    work = Work(hook("a"), answers={"a": {"input": {"write": True}}})
    order = await work.run()
    assert work.tool.calls == []
    assert "effect class unsafe out of one with read" in order.text
    assert (order.is_error, order.outcome, acts(order)) == (True, "denied", ["a denied"])


async def test_too_large_an_input_is_no_answer() -> None:
    order = await Work(hook("a"), answers={"a": {"input": {"path": "x" * INPUT_BYTES_MAX}}}).run()
    assert (order.text, acts(order)) == ("found", ["a unavailable"])


# --- hosts -----------------------------------------------------------------------------------------------------------


def fetch(**more: Any) -> ToldTool:
    return ToldTool(name="HTTP", **more)


async def test_a_permitted_owner_opens_hosts_for_this_call() -> None:
    answers = {"a": {"allow_hosts": ["API.example.", ".cdn.example"]}}
    work = Work(hook("a"), answers=answers, tool=fetch(), permitted=("t:ops",))
    order = await work.run(input='{"url":"https://api.example/x"}')
    assert work.tool.calls[0][1].allowed_hosts == ("docs.example", "=api.example", "cdn.example")
    (act,) = order.hook_acts
    assert (act.act, act.url, act.hosts_added) == (
        "widened_hosts",
        "https://api.example/x",
        ("API.example.", ".cdn.example"),
    )
    await Work(tool=work.tool).run()
    assert work.tool.calls[1][1].allowed_hosts == ("docs.example",)


@pytest.mark.parametrize("permitted", [(), ("ops",), ("u:ops",), ("t:other",)])
async def test_anybody_else_opens_nothing(permitted: tuple[str, ...]) -> None:
    work = Work(hook("a"), answers={"a": {"allow_hosts": ["api.example"]}}, tool=fetch(), permitted=permitted)
    order = await work.run()
    assert work.tool.calls[0][1].allowed_hosts == ("docs.example",)
    assert order.hook_acts == ()


async def test_what_was_opened_does_not_outlive_a_denial() -> None:
    answers = {"a": {"allow_hosts": ["api.example"]}, "b": {"deny": {"text": "no"}}}
    order = await Work(hook("a"), hook("b"), answers=answers, tool=fetch(), permitted=("t:ops",)).run()
    assert acts(order) == ["b denied"]


@pytest.mark.parametrize("host", ["*", "", "a b", "http://x/", "."])
async def test_what_is_no_host_opens_nothing(host: str) -> None:
    work = Work(hook("a"), answers={"a": {"allow_hosts": [host]}}, tool=fetch(), permitted=("t:ops",))
    assert acts(await work.run()) == ["a unavailable"]
    assert work.tool.calls[0][1].allowed_hosts == ("docs.example",)


# --- post ------------------------------------------------------------------------------------------------------------


async def test_post_hooks_rewrite_the_result_one_after_the_other() -> None:
    answers = {
        "a": lambda told: {"result": {"text": told["tool_result"]["text"] + "+a"}},
        "b": lambda told: {"result": {"text": told["tool_result"]["text"] + "+b", "is_error": True}},
    }
    order = await Work(hook("a", "post"), hook("b", "post"), answers=answers).run()
    assert (order.text, order.is_error, order.outcome) == ("found+b+a", True, "error")
    assert acts(order) == ["b rewrote_result", "a rewrote_result"]


@pytest.mark.parametrize(
    ("answer", "outcome"), [(ToolResult(text="no", is_error=True), "error"), (Permanent("no", kind="refused"), "error")]
)
async def test_post_hooks_see_failed_calls_too(answer: Any, outcome: str) -> None:
    work = Work(hook("a", "post"), tool=ToldTool(answer=answer))
    order = await work.run()
    assert work.told.asked[0]["tool_result"] == {"text": "no", "is_error": True}
    assert order.outcome == outcome


async def test_a_rewritten_result_still_asks_for_what_the_tool_asked() -> None:
    tool = ToldTool(answer=ToolResult(text="soon", asks_compaction=True))
    order = await Work(hook("a", "post"), answers={"a": {"result": {"text": "later"}}}, tool=tool).run()
    assert (order.text, order.asks_compaction) == ("later", True)


async def test_hooks_never_see_a_secret_that_is_masked_for_the_log() -> None:
    tool = ToldTool(answer=ToolResult(text="the key is hunter22"))
    work = Work(hook("a", "post"), tool=tool, mask=lambda text: text.replace("hunter22", "[redacted:K]"))
    await work.run()
    assert work.told.asked[0]["tool_result"]["text"] == "the key is [redacted:K]"


async def test_a_secret_that_a_hook_brings_is_masked_as_well() -> None:
    answers = {"a": {"input": {"path": "hunter22"}}, "b": {"result": {"text": "hunter22"}}}
    work = Work(
        hook("a"), hook("b", "post"), answers=answers, mask=lambda text: text.replace("hunter22", "[redacted:K]")
    )
    order = await work.run()
    assert work.tool.calls[0][0] == {"path": "hunter22"}
    assert (order.text, order.hook_acts[0].input) == ("[redacted:K]", '{"path":"[redacted:K]"}')


# --- no usable answer ------------------------------------------------------------------------------------------------

NO_ANSWER = [
    Transient("no answer within 5 s", kind="timeout"),
    Permanent("it answered 404", kind="refused"),
    b"not json",
    b"[1]",
    {"deny": "x"},
    {"input": 1},
]


@pytest.mark.parametrize("answer", NO_ANSWER)
async def test_an_open_hook_without_an_answer_is_passed_over_and_told(answer: Answer) -> None:
    work = Work(hook("a"), hook("b"), answers={"a": answer})
    order = await work.run()
    assert (order.text, work.told.order) == ("found", ["pre a", "pre b"])
    assert acts(order) == ["a unavailable"]
    assert order.hook_acts[0].reason


@pytest.mark.parametrize("answer", NO_ANSWER)
async def test_a_closed_hook_without_an_answer_denies_the_call(answer: Answer) -> None:
    work = Work(hook("a", fail_mode="closed"), hook("b"), hook("c", "post"), answers={"a": answer})
    order = await work.run()
    assert (order.text, order.is_error) == ("tool_call denied: hook ops/a unavailable", True)
    assert (work.tool.calls, work.told.order) == ([], ["pre a", "post c"])
    assert acts(order) == ["a unavailable"]


async def test_a_closed_post_hook_without_an_answer_withholds_the_result() -> None:
    answer = Transient("no answer within 5 s", kind="timeout")
    order = await Work(hook("a", "post", fail_mode="closed"), answers={"a": answer}).run()
    assert (order.text, order.is_error, order.outcome) == (
        "tool_result withheld: hook ops/a unavailable",
        True,
        "error",
    )
    open_order = await Work(hook("a", "post"), answers={"a": answer}).run()
    assert (open_order.text, acts(open_order)) == ("found", ["a unavailable"])


async def test_a_call_that_cannot_be_written_as_json_was_not_looked_at() -> None:
    deep = "[" * 400 + "]" * 400
    order = await Work(hook("a", fail_mode="closed")).run(input=f'{{"x":{deep}}}')
    assert order.text == "tool_call denied: hook ops/a unavailable"


# --- a lost call -----------------------------------------------------------------------------------------------------


class Remembering(ToldTool):
    """A tool that knows what became of a lost call."""

    remembered: ToolResult | UnknownEffect = ToolResult(text="it was done")

    async def reconcile(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult | UnknownEffect:
        return self.remembered


async def reconciled(work: Work) -> ToolReconciled:
    run = at_tools("Read", classes=(EffectClass.UNSAFE.value,), reconcilable=(True,))
    run.give(recover())
    assert isinstance(run.state, AwaitingTools)
    ask = ReconcileTool(run_id=RUN, turn=1, index=0, attempt=1, ask=1, name="Read", input="{}", not_before_ms=0)
    return await work.calls.reconcile(ask, run.state, "t")


async def test_what_a_tool_remembers_passes_the_post_hooks_and_no_pre_hook() -> None:
    answers = {"b": {"result": {"text": "hidden"}}}
    work = Work(hook("a"), hook("b", "post"), answers=answers, tool=Remembering())
    order = await reconciled(work)
    assert (order.verdict, order.text, acts(order)) == (HAPPENED, "hidden", ["b rewrote_result"])
    assert work.told.order == ["post b"]
    assert work.told.asked[0]["tool_call"]["id"] == "c0"


async def test_a_tool_that_cannot_tell_has_no_result_to_look_at() -> None:
    tool = Remembering()
    tool.remembered = UnknownEffect(reason="the book is lost")
    work = Work(hook("b", "post"), tool=tool)
    assert (await reconciled(work)).hook_acts == ()
    assert work.told.asked == []


# --- sub-agents ------------------------------------------------------------------------------------------------------


class Agentlike(ToldTool):
    """A tool whose calls are planned here and carried out elsewhere."""

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    def plan(self, arguments: Mapping[str, Any]) -> ChildrenPlan | ToolResult:
        if "prompt" not in arguments:
            return ToolResult(text="what shall it do?", is_error=True)
        return ChildrenPlan(op="spawn", spawns=(Spawn(agent="helper", prompt=str(arguments["prompt"])),))


async def planned(work: Work, given: str = '{"prompt":"go"}') -> Any:
    definition = replace(DEFINITION, tools=("Agent",))
    state = at_tools("Agent", definition=definition).state
    assert isinstance(state, AwaitingTools)
    return await work.calls.run(replace(CALL, name="Agent", input=given, effect_class="pure"), state, "t")


def agent(*hooks: Hook, answers: Mapping[str, Answer]) -> Work:
    return Work(*hooks, answers=answers, tool=Agentlike(name="Agent"))


async def test_hooks_look_at_calls_that_start_sub_agents_too() -> None:
    work = agent(hook("a"), hook("b", "post"), answers={"a": {"input": {"prompt": "stay"}}})
    order = await planned(work)
    assert isinstance(order, ChildrenRequested)
    assert (order.spawns[0].prompt, order.is_looked_at) == ("stay", True)
    assert [act.act for act in order.hook_acts] == ["rewrote_input"]
    assert work.told.order == ["pre a"]


async def test_a_denied_sub_agent_never_begins() -> None:
    work = agent(hook("a"), hook("b", "post"), answers={"a": {"deny": {"text": "alone"}}})
    order = await planned(work)
    assert isinstance(order, ToolCompleted)
    assert (order.text, order.outcome, work.told.order) == ("alone", "denied", ["pre a", "post b"])


async def test_without_hooks_the_core_puts_the_result_together() -> None:
    order = await planned(agent(answers={}))
    assert isinstance(order, ChildrenRequested)
    assert (order.is_looked_at, order.hook_acts) == (False, ())


async def test_what_sub_agents_said_passes_the_post_hooks() -> None:
    work = agent(hook("b", "post"), answers={"b": {"result": {"text": "hidden"}}})
    order = await planned(work)
    run = at_tools("Agent", definition=replace(DEFINITION, tools=("Agent",)))
    run.give(order)
    child = run.events[-1]
    assert isinstance(child, ChildRequested)
    run.give(ChildReported(at_ms=NOW, child_run_id=child.child_run_id, status="completed", text="said"))
    assert isinstance(run.state, AwaitingTools)
    assert [type(effect).__name__ for effect in run.effects][-1] == "CallTool"
    gathered = await work.calls.run(replace(CALL, name="Agent", effect_class="pure"), run.state, "t")
    assert isinstance(gathered, ToolCompleted)
    assert (gathered.text, acts(gathered)) == ("hidden", ["b rewrote_result"])
    assert "said" in work.told.asked[-1]["tool_result"]["text"]
    assert [type(event).__name__ for event in run.give(gathered)] == ["HookActed", "ToolReturned", "ModelCallRequested"]
