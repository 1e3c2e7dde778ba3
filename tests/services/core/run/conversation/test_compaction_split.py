import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.conversation.compaction_split import (
    CompactionSplit,
    apply_split,
    estimate_tokens,
    is_summary_only,
    is_user_input,
    omitted_messages,
    plan_split,
)
from tests.services.core.run.given import assert_legal


def user(text: str = "please") -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def agent(text: str = "gladly") -> Message:
    return Message(role="assistant", blocks=(TextBlock(text=text),))


def turn(number: int, calls: int = 1, size: int = 4) -> tuple[Message, Message]:
    """An answer with calls, and their results."""
    asked: tuple[Block, ...] = tuple(ToolUseBlock(id=f"{number}.{at}", name="Read", input="{}") for at in range(calls))
    results = tuple(ToolResultBlock(tool_use_id=f"{number}.{at}", name="Read", text="x" * size) for at in range(calls))
    return Message(role="assistant", blocks=asked), Message(role="user", blocks=results)


CHAT = (user("task"), agent("a0"), user("u1"), agent("a1"), user("u2"), agent("a2"), user("u3"), agent("a3"))
LONG_TASK = (user("task"), *turn(1), *turn(2), *turn(3), *turn(4))


def cut(messages: tuple[Message, ...], **more: object) -> int | None:
    """The first message that is kept; None when nothing is left out."""
    how = plan_split(messages, **{"keep_last_n": 4, "keep_first": True, **more})  # type: ignore[arg-type]
    return None if how is None else len(messages) - how.keep_n


# --- the rules of the reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep_last_n", "first_kept"),
    [(4, 4), (3, 4), (2, 6), (1, 6), (0, 8)],
)
def test_the_tail_begins_with_a_text_of_a_person(keep_last_n: int, first_kept: int) -> None:
    assert cut(CHAT, keep_last_n=keep_last_n) == first_kept


def test_results_of_calls_are_no_text_of_a_person() -> None:
    messages = (user("task"), agent(), user("again"), *turn(1), *turn(2))
    assert cut(messages, keep_last_n=3) == 2


def test_the_result_is_a_pinned_text_with_the_summary_a_word_of_thanks_and_the_tail() -> None:
    how = plan_split(CHAT, keep_last_n=4, keep_first=True)
    assert how == CompactionSplit(keep_n=4, keep_first=True)
    messages = apply_split(CHAT, "they <talked>", how)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert messages[0].blocks[0] == TextBlock(text="task")
    block = messages[0].blocks[1]
    assert isinstance(block, TextBlock)
    assert "<summary>\nthey &lt;talked>\n</summary>" in block.text
    assert messages[2:] == CHAT[4:]


def test_without_keep_first_only_the_summary_is_in_front() -> None:
    how = plan_split(CHAT, keep_last_n=4, keep_first=False)
    assert how is not None
    (only,) = apply_split(CHAT, "s", how)[0].blocks
    assert isinstance(only, TextBlock)
    assert only.is_summary
    assert omitted_messages(CHAT, how) == CHAT[:4]


def test_the_kept_tail_is_capped_before_it_is_chosen() -> None:
    """Lesson of the reference: a tail that is larger than the window makes the compaction useless."""
    large = (user("task"), agent(), user("u1"), agent("x" * 4_000), user("u2"), agent("short"))
    assert cut(large, keep_last_n=4) == 2
    assert cut(large, keep_last_n=4, tail_tokens_max=100) == 4


def test_a_long_chain_of_calls_is_divided_between_its_turns() -> None:
    """Lesson of the reference: one task with many calls has no second text to begin a tail with."""
    assert cut(LONG_TASK) == 5
    how = plan_split(LONG_TASK, keep_last_n=4, keep_first=True)
    assert how is not None
    messages = apply_split(LONG_TASK, "s", how)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert_legal(messages)


def test_what_has_to_be_answered_stays_however_large_it_is() -> None:
    messages = (user("task"), *turn(1), *turn(2, size=100_000))
    assert cut(messages, keep_last_n=1, tail_tokens_max=100) == 3


@pytest.mark.parametrize("messages", [CHAT[:3], (), CHAT[:1]])
def test_under_four_messages_nothing_is_done(messages: tuple[Message, ...]) -> None:
    assert cut(messages, keep_last_n=0) is None


def test_more_kept_than_there_is_leaves_nothing_to_do() -> None:
    assert cut(CHAT, keep_last_n=100) is None


def test_a_second_compaction_pins_the_task_and_not_the_summary() -> None:
    how = plan_split(CHAT, keep_last_n=4, keep_first=True)
    assert how is not None
    once = apply_split(CHAT, "first summary", how)
    longer = (*once, user("u4"), agent("a4"), user("u5"), agent("a5"))
    again = plan_split(longer, keep_last_n=4, keep_first=True)
    assert again is not None
    twice = apply_split(longer, "second summary", again)
    assert twice[0].blocks[0] == TextBlock(text="task")
    assert len(twice[0].blocks) == 2
    assert "first summary" in str(omitted_messages(longer, again))
    assert "first summary" not in str(twice)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (TextBlock(text=""), 0),
        (TextBlock(text="12345"), 2),
        (TextBlock(text="", blob=BlobRef(sha256="x", size_bytes=400)), 100),
        (ToolResultBlock(tool_use_id="1", name="Read", text="12345678"), 2),
        (ToolUseBlock(id="1", name="Read", input="{}"), 2),
        (ImageBlock(media_type="image/png", data="x" * 1_000_000), limits.IMAGE_TOKENS),
    ],
)
def test_tokens_are_estimated_by_characters(block: Block, tokens: int) -> None:
    assert estimate_tokens((Message(role="user", blocks=(block,)),)) == tokens


# --- any conversation ------------------------------------------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """What a fold can make: texts of persons, answers, calls with all their results."""
    messages: list[Message] = [user(draw(st.text(max_size=40)) or "go")]
    for number in range(draw(st.integers(min_value=0, max_value=12))):
        match draw(st.sampled_from(["user", "users", "answer", "calls", "calls", "image"])):
            case "user":
                messages.append(user("u" * draw(st.integers(min_value=1, max_value=400))))
            case "users":
                messages += [user("one"), user("two")]
            case "answer" if messages[-1].role == "user":
                messages.append(replace(agent("a" * draw(st.integers(1, 400))), reasoning="because"))
            case "calls" if messages[-1].role == "user":
                messages += turn(number, draw(st.integers(1, 3)), draw(st.integers(0, 900)))
            case "image":
                messages.append(Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),)))
            case _:
                pass
    return tuple(messages)


PARAMETERS = {
    "keep_last_n": st.integers(min_value=0, max_value=12),
    "keep_first": st.booleans(),
    "tail_tokens_max": st.integers(min_value=0, max_value=400),
}


@settings(max_examples=400, deadline=None)
@given(messages=conversations(), **PARAMETERS)
def test_any_compaction_is_legal_keeps_pairs_and_loses_nothing_silently(
    messages: tuple[Message, ...], keep_last_n: int, keep_first: bool, tail_tokens_max: int
) -> None:
    assert_legal(messages)
    how = plan_split(messages, keep_last_n=keep_last_n, keep_first=keep_first, tail_tokens_max=tail_tokens_max)
    if how is None:
        return
    actual = apply_split(messages, "s", how)
    assert_legal(actual)
    # Whoever is to be answered still ends the list, so a model that is called next has something to answer.
    assert actual[-1].role == messages[-1].role
    assert actual[len(actual) - how.keep_n :] == messages[len(messages) - how.keep_n :]
    # Every message is kept, pinned, or stood for by the summary.
    gone = len(messages) - how.keep_n - len(omitted_messages(messages, how))
    assert gone == (1 if how.keep_first else 0)
    assert omitted_messages(messages, how)
    first = next(message for message in messages if is_user_input(message))
    assert (actual[0].blocks[: len(first.blocks)] == first.blocks) or not keep_first or first in actual
    assert not any(is_summary_only(message) for message in actual[2:])


@settings(max_examples=400, deadline=None)
@given(messages=conversations(), **PARAMETERS)
def test_the_tail_is_within_its_bound_unless_a_shorter_one_could_not_be(
    messages: tuple[Message, ...], keep_last_n: int, keep_first: bool, tail_tokens_max: int
) -> None:
    how = plan_split(messages, keep_last_n=keep_last_n, keep_first=keep_first, tail_tokens_max=tail_tokens_max)
    if how is None or not tail_tokens_max:
        return
    tail = messages[len(messages) - how.keep_n :]
    starts = [at for at, message in enumerate(tail) if message.role == "assistant" or is_user_input(message)]
    assert estimate_tokens(tail) <= tail_tokens_max or starts == [0]


@settings(max_examples=300, deadline=None)
@given(messages=conversations(), **PARAMETERS)
def test_doing_it_twice_changes_nothing(
    messages: tuple[Message, ...], keep_last_n: int, keep_first: bool, tail_tokens_max: int
) -> None:
    wishes = {"keep_last_n": keep_last_n, "keep_first": keep_first, "tail_tokens_max": tail_tokens_max}
    how = plan_split(messages, **wishes)  # type: ignore[arg-type]
    if how is None:
        return
    once = apply_split(messages, "s", how)
    assert plan_split(once, **wishes) is None  # type: ignore[arg-type]
