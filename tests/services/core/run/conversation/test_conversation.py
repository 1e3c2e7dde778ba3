"""What a later run goes on with must be legal for every provider, however the earlier one ended."""

from collections.abc import Callable

import pytest

from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.state import Absent, State
from tests.services.core.run.given import (
    DEFINITION,
    Run,
    answered,
    assert_legal,
    at_tools,
    begun,
    calls,
    cancel,
    completed,
    erred,
    failed,
    parked,
    recover,
    refused,
    returned,
    says,
    start,
)


def cancelled_in_tools(*in_before: int) -> Run:
    run = at_tools("A", "B", "C")
    for index in in_before:
        run.give(returned(run.state, index, f"result {index}"))
    run.give(cancel())
    return run


ENDS: dict[str, Callable[[], Run]] = {
    "absent": Run,
    "refused": refused,
    "completed": completed,
    "failed before the first answer": failed,
    "cancelled before the first answer": lambda: _given(begun(), cancel()),
    "cancelled with no result in": cancelled_in_tools,
    "cancelled with one result in": lambda: cancelled_in_tools(1),
    "cancelled with two results in": lambda: cancelled_in_tools(2, 0),
    "cancelled with all in and the next turn under way": lambda: cancelled_in_tools(2, 0, 1),
    "cancelled while parked": lambda: _given(parked(), cancel()),
    "cancelled with input waiting": lambda: _given(at_tools("A"), says("and?"), cancel()),
    "live in the middle of tools": lambda: at_tools("A", "B"),
    "live and parked": parked,
    "live and awaiting the model": begun,
}


def _given(run: Run, *orders: object) -> Run:
    for order in orders:
        run.give(order)  # type: ignore[arg-type]  # orders of any kind
    return run


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS.keys())
def test_the_conversation_is_legal_however_the_run_stands(make: Callable[[], Run]) -> None:
    assert_legal(build_conversation(make().state))


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS.keys())
def test_a_run_that_goes_on_from_there_is_legal_in_every_turn(make: Callable[[], Run]) -> None:
    following = Run(state=Absent(run_id="r_tok-2", history=build_conversation(make().state)))
    following.give(start(prompt="and now?"))
    assert_legal(following.live.facts.messages)
    following.give(answered(following.state, "", *calls("A")))
    following.give(returned(following.state, 0))
    assert_legal(following.live.facts.messages)


def results(state: State) -> list[tuple[str, bool]]:
    """Text and error mark of the results in the last message."""
    return [
        (block.text, block.is_error)
        for block in build_conversation(state)[-1].blocks
        if isinstance(block, ToolResultBlock)
    ]


def test_a_result_that_was_in_when_the_run_ended_is_told_as_it_was() -> None:
    options = results(cancelled_in_tools(1).state)
    assert options[1] == ("result 1", False)
    assert [error for _, error in options] == [True, False, True]


def test_a_call_without_a_result_is_said_to_be_unknown_and_never_said_not_to_have_happened() -> None:
    text, _ = results(cancelled_in_tools(0).state)[1]
    assert "may or may not have had its effect" in text


def test_a_call_of_a_run_that_is_under_way_has_not_returned_yet_and_that_is_no_error() -> None:
    run = at_tools("A", "B")
    run.give(returned(run.state, 1, "result 1"))
    assert results(run.state) == [("not returned yet", False), ("result 1", False)]


def test_a_result_in_the_blob_store_is_kept_with_its_reference() -> None:
    ref = BlobRef(sha256="0" * 64, size_bytes=3)
    run = at_tools("A", "B")
    run.give(returned(run.state, 0, "", text_blob=ref))
    run.give(cancel())
    blocks = build_conversation(run.state)[-1].blocks
    assert getattr(blocks[0], "blob", None) == ref


def test_a_chain_of_runs_keeps_everything_that_was_said() -> None:
    history: tuple[Message, ...] = ()
    for number in range(3):
        run = Run(state=Absent(run_id=f"r_tok-{number}", history=history))
        run.give(start(prompt=f"question {number}"))
        run.give(answered(run.state, f"answer {number}"))
        history = build_conversation(run.state)
    texts = [block.text for message in history for block in message.blocks if isinstance(block, TextBlock)]
    assert texts == ["question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2"]


def test_a_run_that_failed_after_a_lost_owner_is_legal() -> None:
    run = at_tools("A", "Pay", classes=("read", "unsafe"), definition=replace(DEFINITION, retry_attempts=0))
    run.give(recover())
    run.give(returned(run.state, 0))
    run.give(erred(run.state))
    assert_legal(build_conversation(run.state))
