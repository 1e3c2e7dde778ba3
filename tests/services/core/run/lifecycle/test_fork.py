"""Forks: where one may leave its origin, what it shares, and with which definition it goes on."""

import hashlib
from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import ModelCallRequested, RunRefused, RunStarted
from loomlog.schemas.generated.values import (
    AgentGrants,
    BlobRef,
    ContentBlock,
    DefinitionOverrides,
    DefinitionPin,
    ForkPoint,
    ImportOrigin,
    RunPosition,
    Sampling,
    Segment,
    SkillPin,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, ForkCommand, ForkOrigin
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle.fork import (
    content_sha256,
    conversation_origin,
    fork_point_error,
    needs_text,
    override_definition,
)
from loomlog.services.core.run.react import CallModel, react
from loomlog.services.core.run.state import Absent, AwaitingModel, State
from tests.services.core.run.given import (
    DEFINITION,
    ENVELOPE,
    NOW,
    RUN,
    Run,
    answered,
    assert_legal,
    at_tools,
    begun,
    calls,
    cancel,
    cancelled,
    completed,
    failed,
    kinds,
    parked,
    refused,
    returned,
    says,
)

FORK = "r_tok-f"


def origin(run: Run, at: int = 0) -> ForkOrigin:
    """The run as it was after its event `at`; 0 is its newest."""
    seq = at or len(run.events)
    state: State = Absent(run_id=RUN)
    for event in run.events[:seq]:
        state = evolve(state, event, NOW)
    started = run.events[0]
    assert isinstance(started, RunStarted)
    point = ForkPoint(run_id=RUN, first_offset=1, last_offset=seq, seq=seq, digest="ab" * 16)
    return ForkOrigin(started=started, state=state, point=point)


def fork(found: ForkOrigin | None, prompt: str = "", *, definition: Any = DEFINITION, **more: Any) -> ForkCommand:
    order = {
        name: more.pop(name) for name in ("definition_refusal", "origin_refusal", "handle_live_run") if name in more
    }
    at = 1 if found is None else found.point.seq
    command = ForkRun(envelope=ENVELOPE, origin_run_id=RUN, at_seq=at, run_id=FORK, prompt=prompt, **more)
    return ForkCommand(
        at_ms=NOW,
        command=command,
        session_id="s_tok-f",
        agent_id="a_tok-f",
        origin=found,
        definition=definition,
        **order,
    )


def forked(found: ForkOrigin, prompt: str = "", **more: Any) -> Run:
    """The fork, folded from its origin's prefix as a reader would."""
    run = Run(state=Absent(run_id=FORK, history=build_conversation(found.state)))
    run.give(fork(found, prompt, **more))
    return run


def refusal(order: ForkCommand) -> RunRefused:
    events = decide(Absent(run_id=FORK), order)
    assert kinds(events) == ["RunRefused"]
    assert isinstance(events[0], RunRefused)
    return events[0]


def through_tools() -> Run:
    """Two calls answered and the next turn due."""
    run = at_tools("Read", "Read")
    run.give(returned(run.state, 1))
    run.give(returned(run.state, 0))
    return run


@pytest.mark.parametrize("hosts", [None, (), ("docs.example",)])
def test_a_fork_reaches_the_hosts_of_its_origin_and_no_others(hosts: tuple[str, ...] | None) -> None:
    run = begun(allowed_hosts=hosts)
    run.give(answered(run.state, "done"))
    assert forked(origin(run), "again").live.facts.options.allowed_hosts == hosts


def test_what_happens_at_the_end_of_the_origin_does_not_happen_at_that_of_its_fork() -> None:
    run = begun(on_complete=('{"type": "http"}',), trigger="schedule:t/nightly")
    assert run.live.facts.options.trigger == "schedule:t/nightly"
    run.give(answered(run.state, "done"))
    options = forked(origin(run), "again").live.facts.options
    assert (options.on_complete, options.trigger) == ((), "")


# --- where -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [begun, parked, completed, failed, cancelled, through_tools])
def test_a_run_can_be_forked_wherever_no_call_is_open(make: Any) -> None:
    assert fork_point_error(make().state) == ""


@pytest.mark.parametrize(("seq", "missing"), [(3, 2), (4, 2), (5, 2), (6, 1)])
def test_a_turn_whose_results_are_not_all_in_cannot_be_shared(seq: int, missing: int) -> None:
    run = through_tools()
    assert kinds(run.events[2:8]) == [
        "ModelReplied",
        "ToolCallRequested",
        "ToolCallRequested",
        "ToolReturned",
        "ToolReturned",
        "ModelCallRequested",
    ]
    event = refusal(fork(origin(run, seq), "go on"))
    assert event.code == "bad_fork_point"
    assert f"{missing} of 2 tool calls of turn 1 have no result yet" in event.message


def test_after_the_last_result_of_a_turn_the_fork_needs_no_word() -> None:
    made = forked(origin(through_tools(), 7))
    assert kinds(made.events) == ["RunStarted", "ModelCallRequested"]
    assert_legal(made.live.facts.messages)
    assert made.live.facts.messages == through_tools().live.facts.messages


def test_a_refused_run_and_an_event_that_is_not_there_cannot_be_forked() -> None:
    run = refused()
    point = ForkPoint(run_id=RUN, first_offset=1, last_offset=1, seq=1, digest="")
    other = begun().events[0]
    assert isinstance(other, RunStarted)
    assert refusal(fork(ForkOrigin(started=other, state=run.state, point=point), "x")).code == "bad_fork_point"
    assert fork_point_error(Absent(run_id=RUN)) != ""
    assert refusal(fork(None, "x")).code == "not_found"


def test_an_origin_that_cannot_be_read_is_told_as_it_is() -> None:
    event = refusal(fork(None, "x", origin_refusal=CommandRefusal(code="run_quarantined", message="a gap")))
    assert (event.code, event.message) == ("run_quarantined", "a gap")


# --- what ------------------------------------------------------------------------------------------------------------


def test_a_fork_after_an_answer_needs_a_text_and_one_before_it_does_not() -> None:
    run = completed()
    assert "needs a prompt" in refusal(fork(origin(run))).message
    assert [m.role for m in forked(origin(run), "And now?").live.facts.messages] == ["user", "assistant", "user"]
    assert [m.role for m in forked(origin(run, 2)).live.facts.messages] == ["user"]


def test_a_failed_run_is_tried_again_by_a_fork_of_its_end() -> None:
    made = forked(origin(failed()))
    assert made.live.facts.messages == begun().live.facts.messages
    assert made.live.facts.model_errors == 0


def test_texts_that_wait_for_the_next_turn_are_shared() -> None:
    run = begun()
    run.give(says("and be quick"))
    texts = [block.text for m in forked(origin(run)).live.facts.messages for block in m.blocks]  # type: ignore[union-attr]
    assert texts == ["go", "and be quick"]


def test_a_run_that_was_cancelled_among_its_calls_is_shared_with_what_is_known_of_them() -> None:
    run = at_tools("Read", "Read")
    run.give(returned(run.state, 0, "one"))
    run.give(cancel())
    made = forked(origin(run), "go on")
    assert_legal(made.live.facts.messages)
    results = made.live.facts.messages[-2].blocks
    assert [block.text[:9] for block in results] == ["one", "no result"]  # type: ignore[union-attr]


def test_turns_tokens_and_cost_begin_at_zero_and_only_the_next_model_call_is_made() -> None:
    made = forked(origin(through_tools()))
    facts = made.live.facts
    assert (facts.turns, facts.usage.input_tokens, facts.cost_micros) == (0, 0, 0)
    assert facts.inherited_messages == len(facts.messages)
    assert [type(effect) for effect in made.effects] == [CallModel]


def test_the_first_event_names_where_it_left_and_carries_on_in_the_name_of_the_same_user() -> None:
    run = begun(user_id="ada", user_tier="gold", metadata={"k": '"v"'}, allowed_hosts=("a.example",))
    fork_origin = origin(run)
    started = forked(fork_origin).events[0]
    assert isinstance(started, RunStarted)
    assert started.forked_from == fork_origin.point
    assert (started.continues, conversation_origin(started)) == (None, fork_origin.point)
    assert (started.user_id, started.options.user_tier, started.options.allowed_hosts) == (
        "ada",
        "gold",
        ("a.example",),
    )
    assert started.options.metadata == {"k": '"v"'}
    assert (started.session_id, started.agent_id, started.subject) == ("s_tok-f", "a_tok-f", "someone")


def test_system_texts_of_the_origin_stay_and_its_own_prompt_may_change() -> None:
    system = Segment(role="system", content=(ContentBlock(type="trusted-text", text="Speak French."),))
    segment = Segment(role="user", content=(ContentBlock(type="trusted-text", text="go"),))
    run = begun(segments=(system, segment))
    assert run.live.facts.system == ("Be kind.", "Speak French.")
    stern = override_definition(DEFINITION, DefinitionOverrides(system_prompt="Be stern."), tools=DEFINITION.tools)
    made = forked(origin(run), definition=stern)
    assert made.live.facts.system == ("Be stern.", "Speak French.")
    again = Run(state=Absent(run_id="r_tok-g", history=build_conversation(made.state)))
    first = made.events[0]
    assert isinstance(first, RunStarted)
    again.give(fork(ForkOrigin(started=first, state=made.state, point=origin(run).point)))
    assert again.live.facts.system == ("Be kind.", "Speak French.")


def test_a_fork_brings_no_system_texts_and_nothing_unknown() -> None:
    system = Segment(role="system", content=(ContentBlock(type="trusted-text", text="x"),))
    assert "user segments only" in refusal(fork(origin(begun()), segments=(system,))).message
    odd = Segment(role="tool", content=())
    assert refusal(fork(origin(begun()), segments=(odd,))).code == "bad_request"


def test_whether_it_parks_is_as_in_the_origin_unless_said_otherwise() -> None:
    assert forked(origin(parked()), "x").live.facts.options.interactive is True
    assert forked(origin(parked()), "x", interactive=False).live.facts.options.interactive is False


# --- admission -------------------------------------------------------------------------------------------------------


def test_the_same_fork_again_changes_nothing() -> None:
    made = forked(origin(begun()))
    assert decide(made.state, fork(origin(begun()))) == []


def test_a_handle_in_use_and_a_definition_that_is_not_there_refuse_the_fork() -> None:
    assert refusal(fork(origin(begun()), handle_live_run="r_x")).code == "agent_id_in_use"
    gone = CommandRefusal(code="unknown_agent", message="there is none")
    assert refusal(fork(origin(begun()), definition=None, definition_refusal=gone)).code == "unknown_agent"


# --- definitions -----------------------------------------------------------------------------------------------------


def test_overrides_change_what_they_name_and_the_hash_tells() -> None:
    definition = replace(DEFINITION, sha256="cd" * 32, sampling=Sampling(temperature=0.5, top_k=3))
    wished = DefinitionOverrides(model="small", sampling=Sampling(temperature=0.0), max_iterations=2)
    agent_definition = override_definition(replace(definition, unbounded_iterations=True), wished, tools=("Read",))
    assert (agent_definition.model, agent_definition.provider, agent_definition.max_iterations) == (
        "small",
        definition.provider,
        2,
    )
    assert agent_definition.unbounded_iterations is False
    assert agent_definition.sampling == Sampling(temperature=0.0, top_k=3)
    assert agent_definition.sha256 == content_sha256(agent_definition) != definition.sha256


def test_overrides_that_change_nothing_leave_the_definition_and_its_hash() -> None:
    definition = replace(DEFINITION, sha256="cd" * 32)
    same = DefinitionOverrides(model=definition.model)
    assert override_definition(definition, same, tools=definition.tools) is definition
    assert override_definition(definition, None, tools=()) is definition
    assert override_definition(definition, same, tools=()).sha256 != definition.sha256


# --- any run, anywhere -----------------------------------------------------------------------------------------------


@st.composite
def stories(draw: st.DrawFn) -> Run:
    """A run that took any way through turns, calls, texts, failures and ends."""
    run = begun(interactive=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 6))):
        state = run.state
        if isinstance(state, AwaitingModel):
            names = draw(st.lists(st.just("Read"), max_size=3))
            run.give(answered(state, draw(st.sampled_from(["", "well"])) or ("x" if not names else ""), *calls(*names)))
        elif hasattr(state, "open") and state.open:
            run.give(returned(state, draw(st.sampled_from([call.index for call in state.open]))))
        if draw(st.integers(0, 3)) == 0:
            run.give(says("more"))
    return run


@given_any(stories(), st.data())
def test_folding_to_any_seq_and_forking_there_shares_exactly_the_prefix(run: Run, data: st.DataObject) -> None:
    seq = data.draw(st.integers(1, len(run.events)))
    fork_origin = origin(run, seq)
    if fork_point_error(fork_origin.state):
        assert refusal(fork(fork_origin, "x")).code == "bad_fork_point"
        return
    shared: tuple[Message, ...] = build_conversation(fork_origin.state)
    prompt = "x" if needs_text(shared) else ""
    made = forked(fork_origin, prompt)
    messages = made.live.facts.messages
    assert messages[: len(shared)] == shared
    assert len(messages) == len(shared) + bool(prompt)
    assert_legal(messages)
    assert kinds(made.events) == ["RunStarted", "ModelCallRequested"]
    # It goes on, and can be forked itself.
    made.give(answered(made.state, "done"))
    first = made.events[0]
    assert isinstance(first, RunStarted)
    again = Run(state=Absent(run_id="r_tok-g", history=build_conversation(made.state)))
    again.give(fork(ForkOrigin(started=first, state=made.state, point=fork_origin.point), "and?"))
    assert again.live.facts.messages[: len(messages)] == messages


def test_the_intent_of_a_fork_asks_for_the_model_of_its_definition() -> None:
    made = forked(origin(begun()), definition=replace(DEFINITION, provider="other", model="tiny"))
    intent = made.events[1]
    assert isinstance(intent, ModelCallRequested)
    assert (intent.provider, intent.model, intent.turn) == ("other", "tiny", 1)
    assert react(made.state, intent)[0].run_id == FORK


def test_where_a_run_begins_is_read_off_its_first_event() -> None:
    first = begun().events[0]
    assert isinstance(first, RunStarted)
    earlier = RunPosition(run_id="r_0", first_offset=0, last_offset=1)
    assert conversation_origin(replace(first, continues=earlier)) == earlier
    assert conversation_origin(first) is None
    assert conversation_origin(begun().events[1]) is None


# --- long prompts and pins -------------------------------------------------------------------------------------------

LONG_PROMPT = "Be kind. " * 4_000
LONG_REF = BlobRef(sha256=hashlib.sha256(LONG_PROMPT.encode()).hexdigest(), size_bytes=len(LONG_PROMPT))
EARLIER_SHA256 = "2b6d16b6773062b1f5358a9a740b31912696565cf713edfb0a3c3c88fe59cc60"
"""Of a definition before it could have grants, a pin and a prompt by reference."""
SKILL = SkillPin(name="tidy", def_id="sdf_1", version=3, content_sha256="sha256:ab")


def test_a_prompt_of_its_own_takes_the_place_of_a_long_one() -> None:
    base = replace(DEFINITION, system_prompt="", system_prompt_blob=LONG_REF)
    actual = override_definition(base, DefinitionOverrides(system_prompt="Be brief."), tools=base.tools)
    assert (actual.system_prompt, actual.system_prompt_blob) == ("Be brief.", None)
    kept = override_definition(base, DefinitionOverrides(max_tokens=7), tools=base.tools)
    assert (kept.system_prompt, kept.system_prompt_blob) == ("", LONG_REF)


def test_a_long_text_counts_by_its_hash_wherever_it_is() -> None:
    inline = replace(DEFINITION, system_prompt=LONG_PROMPT, code_body=LONG_PROMPT)
    by_reference = replace(DEFINITION, system_prompt="", system_prompt_blob=LONG_REF, code_body="", code_blob=LONG_REF)
    assert content_sha256(inline) == content_sha256(by_reference)
    assert content_sha256(replace(inline, system_prompt=LONG_PROMPT + "!")) != content_sha256(inline)


def test_a_definition_without_the_later_fields_keeps_its_hash_and_grants_count() -> None:
    assert content_sha256(replace(DEFINITION, tools=("Read", "Write"))) == EARLIER_SHA256
    pin = DefinitionPin(def_id="def_1", version=2, content_sha256="sha256:ab")
    assert content_sha256(replace(DEFINITION, pin=pin)) == content_sha256(DEFINITION)
    assert content_sha256(replace(DEFINITION, grants=AgentGrants(skills=("x",)))) != content_sha256(DEFINITION)


def with_skill() -> Run:
    run = at_tools("Read")
    run.give(replace(returned(run.state, 0), skill_pin=SKILL))
    return run


def test_a_fork_keeps_to_the_skills_that_its_prefix_has_used() -> None:
    assert forked(origin(with_skill())).live.facts.skill_pins == (SKILL,)
    assert forked(origin(with_skill(), 2), "go on").live.facts.skill_pins == ()


def test_a_fork_of_an_import_does_not_keep_to_what_its_file_names() -> None:
    found = origin(with_skill())
    there = ImportOrigin(
        topic="t", partition=0, first_offset=1, tenant="there", events=4, tail_digest="ab", bundle_sha256="cd"
    )
    for restored, expected in ((False, ()), (True, (SKILL,))):
        started = replace(found.started, imported_from=replace(there, restored=restored))
        fork_origin = ForkOrigin(started=started, state=found.state, point=found.point)
        assert forked(fork_origin).live.facts.skill_pins == expected
