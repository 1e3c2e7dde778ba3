from loomlog.connectors.models.mock.script import results_since_user, strip_fence
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock
from loomlog.services.core.run.conversation.prompt import fence_tool_result
from tests.connectors.models.samples import called, results, user


def ids(*messages: Message) -> list[str]:
    return [result.tool_use_id for result in results_since_user(messages)]


def test_the_position_is_the_results_after_the_last_user_text_in_order() -> None:
    assert ids(
        user("a"), called("x"), results(("x", "")), user("b"), called("y", "z"), results(("y", ""), ("z", ""))
    ) == [
        "y",
        "z",
    ]
    assert ids(user("a"), called("x"), results(("x", "")), called("y"), results(("y", ""))) == ["x", "y"]
    assert ids(user("a")) == []
    assert ids() == []


def test_a_text_beside_results_begins_anew_from_there() -> None:
    result = ToolResultBlock(tool_use_id="x", name="n", text="")
    assert ids(user("a"), Message(role="user", blocks=(result, TextBlock(text="b")))) == []
    assert ids(user("a"), Message(role="user", blocks=(TextBlock(text="b"), result))) == ["x"]


def test_a_provenance_label_is_taken_off() -> None:
    text = "a <b> &lt;c> </tool_output > d"
    assert strip_fence(fence_tool_result(text, "Read")) == text
    assert strip_fence("a &lt; b") == "a &lt; b"
