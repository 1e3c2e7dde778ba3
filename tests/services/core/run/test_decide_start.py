import pytest

from loomlog.schemas.generated.run_events import ModelCallRequested, RunRefused, RunStarted
from loomlog.schemas.generated.values import BlobRef, ContentBlock, RunPosition, Segment
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, StartCommand
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.state import Absent, AwaitingModel, Refused
from tests.services.core.run.given import DEFINITION, Run, begun, completed, kinds, refused, start

USER = Segment(role="user", content=(ContentBlock(type="trusted-text", text="hello"),))


def code_of(order: StartCommand) -> str:
    """The code with which a start is refused."""
    events = Run().give(order)
    assert kinds(events) == ["RunRefused"]
    assert isinstance(events[0], RunRefused)
    assert events[0].message
    return events[0].code


def test_a_start_is_accepted_and_asks_for_the_first_turn_in_one_decision() -> None:
    run = Run()
    events = run.give(
        replace(
            start(user_id="u", metadata={"k": '"v"'}),
            traceparent="00-x",
            continues=RunPosition(run_id="r_before", first_offset=3, last_offset=9),
        )
    )
    assert kinds(events) == ["RunStarted", "ModelCallRequested"]
    accepted, intent = events
    assert isinstance(accepted, RunStarted)
    assert accepted.definition == DEFINITION
    assert (accepted.session_id, accepted.agent_id, accepted.user_id) == ("s_tok", "a_tok", "u")
    assert (accepted.subject, accepted.traceparent, accepted.options.metadata) == ("someone", "00-x", {"k": '"v"'})
    assert accepted.continues == RunPosition(run_id="r_before", first_offset=3, last_offset=9)
    assert intent == ModelCallRequested(turn=1, attempt=1, provider="acme", model="large")
    assert isinstance(run.state, AwaitingModel)
    assert (run.state.turn, run.state.attempt) == (1, 1)


def test_a_prompt_is_short_for_one_trusted_user_text() -> None:
    events = Run().give(start(prompt="go"))
    assert isinstance(events[0], RunStarted)
    assert events[0].segments == (Segment(role="user", content=(ContentBlock(type="trusted-text", text="go"),)),)


def test_segments_stand_for_themselves_and_the_prompt_is_not_added() -> None:
    events = Run().give(start(prompt="go", segments=(USER,)))
    assert isinstance(events[0], RunStarted)
    assert events[0].segments == (USER,)


@pytest.mark.parametrize("run", [begun(), completed(), refused()], ids=["live", "ended", "refused"])
def test_the_same_start_again_changes_nothing(run: Run) -> None:
    assert run.give(start()) == []


def test_a_refusal_says_what_was_asked() -> None:
    run = Run()
    events = run.give(replace(start(), session_exists=False))
    assert events == [
        RunRefused(
            session_id="s_tok",
            agent_id="a_tok",
            agent="helper",
            code="not_found",
            message="session s_tok does not exist",
        )
    ]
    assert run.state == Refused(code="not_found", message="session s_tok does not exist")
    assert run.effects == []


def test_a_refusal_names_what_has_to_be_told_of_it() -> None:
    order = replace(start(prompt="", trigger="schedule:t/nightly"), definition=DEFINITION)
    [refused] = Run().give(order)
    assert isinstance(refused, RunRefused)
    assert refused.trigger == "schedule:t/nightly"


def test_an_unknown_agent_is_refused_with_the_reason_that_was_found() -> None:
    order = replace(
        start(), definition=None, definition_refusal=CommandRefusal(code="unknown_agent", message="no such agent")
    )
    assert code_of(order) == "unknown_agent"


def test_a_busy_session_is_refused_and_the_live_run_named() -> None:
    events = Run().give(replace(start(), session_live_run="r_other"))
    assert isinstance(events[0], RunRefused)
    assert events[0].code == "session_busy"
    assert "r_other" in events[0].message


def test_a_handle_in_use_is_refused_and_the_live_run_not_named_because_it_may_be_another_users() -> None:
    events = Run().give(replace(start(), handle_live_run="r_other"))
    assert isinstance(events[0], RunRefused)
    assert events[0].code == "agent_id_in_use"
    assert "r_other" not in events[0].message


def test_the_first_thing_wrong_in_the_order_of_admission_is_told() -> None:
    order = replace(
        start(prompt=""),
        session_exists=False,
        session_live_run="r_1",
        handle_live_run="r_2",
        definition=None,
        definition_refusal=CommandRefusal(code="unknown_agent", message="no"),
    )
    seen = [code_of(order)]
    order = replace(order, session_exists=True)
    seen.append(code_of(order))
    order = replace(order, session_live_run="")
    seen.append(code_of(order))
    order = replace(order, handle_live_run="")
    seen.append(code_of(order))
    order = replace(order, definition_refusal=None, definition=DEFINITION)
    seen.append(code_of(order))
    assert seen == ["not_found", "session_busy", "agent_id_in_use", "unknown_agent", "bad_request"]


@pytest.mark.parametrize(
    "segments",
    [
        (),
        (Segment(role="user", content=()),),
        (Segment(role="system", content=(ContentBlock(type="trusted-text", text="be brief"),)),),
    ],
    ids=["nothing", "an empty user segment", "system only"],
)
def test_a_run_without_input_is_refused(segments: tuple[Segment, ...]) -> None:
    assert code_of(start(prompt="", segments=segments)) == "bad_request"


def test_a_prompt_beside_system_segments_alone_is_refused_instead_of_dropped() -> None:
    """The prompt is used only when there are no segments, so here the run would have no input."""
    system = Segment(role="system", content=(ContentBlock(type="trusted-text", text="be brief"),))
    assert code_of(start(prompt="go", segments=(system,))) == "bad_request"


@pytest.mark.parametrize(
    "segment",
    [
        Segment(role="assistant", content=(ContentBlock(type="trusted-text", text="I did"),)),
        Segment(role="user", content=(ContentBlock(type="untrusted_block", text="typo"),)),
        Segment(role="user", content=(ContentBlock(type="", text="no type"),)),
        Segment(role="system", content=(ContentBlock(type="image", media_type="image/png", data="aaaa"),)),
        Segment(
            role="system",
            content=(ContentBlock(type="trusted-text", blob=BlobRef(sha256="0" * 64, size_bytes=1)),),
        ),
    ],
    ids=["role", "type", "no type", "system image", "system blob"],
)
def test_words_that_would_be_misread_or_dropped_are_refused(segment: Segment) -> None:
    assert code_of(start(prompt="", segments=(USER, segment))) == "bad_request"


def test_an_absent_run_keeps_its_history_for_the_first_turn() -> None:
    earlier = completed()
    run = Run(state=Absent(run_id="r_tok", history=build_conversation(earlier.state)))
    run.give(start(prompt="and now?"))
    assert isinstance(run.state, AwaitingModel)
    assert [message.role for message in run.state.facts.messages] == ["user", "assistant", "user"]
    assert run.state.facts.inherited_messages == 2
