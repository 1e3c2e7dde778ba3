"""What hooks did is told with the result, in one decision, and changes nothing else."""

import pytest

from loomlog.schemas.conversation import ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.run_events import ChildrenPlanned, HookActed
from loomlog.schemas.generated.values import HookAct, Spawn
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CANNOT_TELL, HAPPENED, ChildrenRequested
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.react import react
from loomlog.services.core.run.state import AwaitingTools, IllegalEvent
from loomlog.services.core.run.subagents import delegation
from loomlog.services.core.run.subagents.children import child_start_command
from tests.services.core.run.given import DEFINITION, NOW, Run, at_tools, begun, kinds, reconciled, recover, returned

DENIED = HookAct(hook_id="h1", owner="ops", name="guard", phase="pre", act="denied")
REWROTE = HookAct(hook_id="h2", owner="ops", name="tidy", phase="pre", act="rewrote_input", input='{"a":1}')


def test_acts_come_before_the_result_in_one_decision_and_in_their_order() -> None:
    run = at_tools("A")
    events = run.give(returned(run.state, 0, "no", hook_acts=(REWROTE, DENIED), outcome="denied"))
    assert kinds(events) == ["HookActed", "HookActed", "ToolReturned", "ModelCallRequested"]
    assert [event.act for event in events if isinstance(event, HookActed)] == [REWROTE, DENIED]
    assert {(e.turn, e.index, e.call_id, e.attempt) for e in events if isinstance(e, HookActed)} == {(1, 0, "c0", 1)}


def test_a_call_without_hooks_says_nothing_of_them() -> None:
    run = at_tools("A")
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_the_conversation_keeps_the_call_as_the_model_wrote_it() -> None:
    run = at_tools("A")
    run.give(returned(run.state, 0, "after the hook", hook_acts=(REWROTE,)))
    *_, call, result = run.live.facts.messages
    assert [block.input for block in call.blocks if isinstance(block, ToolUseBlock)] == ["{}"]
    assert [block.text for block in result.blocks if isinstance(block, ToolResultBlock)] == ["after the hook"]


def test_a_late_result_tells_nothing_of_its_hooks() -> None:
    run = at_tools("A", "B")
    late = returned(run.state, 0, hook_acts=(DENIED,))
    run.give(recover())
    assert run.give(late) == []


def asked_again() -> Run:
    run = at_tools("A", classes=("unsafe",), reconcilable=(True,))
    run.give(recover())
    return run


def test_the_result_that_a_tool_remembers_has_its_hooks_too() -> None:
    run = asked_again()
    events = run.give(reconciled(run.state, 0, HAPPENED, hook_acts=(REWROTE,)))
    assert kinds(events) == ["HookActed", "ToolReturned", "ModelCallRequested"]


def test_a_question_without_an_answer_has_no_hooks() -> None:
    run = asked_again()
    assert kinds(run.give(reconciled(run.state, 0, CANNOT_TELL))) == ["ToolReturned", "ModelCallRequested"]


@pytest.mark.parametrize("wrong", [{"turn": 2}, {"index": 1}, {"attempt": 2}])
def test_an_act_about_a_call_that_is_not_open_is_illegal(wrong: dict[str, int]) -> None:
    event = HookActed(**{"turn": 1, "index": 0, "call_id": "c0", "attempt": 1, **wrong}, act=DENIED)
    with pytest.raises(IllegalEvent, match="HookActed"):
        evolve(at_tools("A").state, event, NOW)


def test_an_act_asks_nothing_of_the_outside() -> None:
    state = at_tools("A").state
    event = HookActed(turn=1, index=0, call_id="c0", attempt=1, act=DENIED)
    assert isinstance(state, AwaitingTools)
    assert evolve(state, event, NOW) is state
    assert react(state, event) == ()


def test_what_hooks_did_about_sub_agents_comes_before_the_plan() -> None:
    run = at_tools("Agent")
    asked = ChildrenRequested(
        at_ms=NOW,
        turn=1,
        index=0,
        attempt=1,
        op="spawn",
        spawns=(Spawn(agent="helper", prompt="go"),),
        hook_acts=(REWROTE,),
    )
    assert kinds(run.give(asked)) == ["HookActed", "ChildrenPlanned", "ChildRequested"]


def test_a_child_has_the_credentials_of_its_tree() -> None:
    run = begun()
    facts = replace(run.live.facts, options=replace(run.live.facts.options, credentials=("git",)))
    plan = ChildrenPlanned(turn=1, index=0, call_id="c0", spawns=(Spawn(agent="helper", prompt="go"),))
    expected = delegation.begin_delegation(plan, NOW)
    order = child_start_command(
        facts,
        tenant="t",
        turn=1,
        index=0,
        plan=expected,
        child=expected.children[0],
        definition=DEFINITION,
        pauses=(),
        at_ms=NOW,
    )
    assert order.command.options.credentials == ("git",)
    assert order.parent is not None
    assert order.parent.root_run_id == facts.run_id
