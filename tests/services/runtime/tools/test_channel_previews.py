"""Beginnings of messages for the frames of a run."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.values import ChannelUse
from loomlog.services.runtime.tools.channel_previews import PREVIEW_CHARACTERS, preview_of, with_previews

PUBLISH = ChannelUse(kind="publish", channel="news", scope="user", message_id="msg_1")
DELIVERY = ChannelUse(kind="delivery", channel="news", scope="user", message_id="msg_1")


def previews(*uses: ChannelUse, arguments: Any = None, result: Any = None) -> list[str]:
    return [use.preview for use in with_previews(uses, json.dumps(arguments), json.dumps(result))]


def test_a_published_message_shows_the_value_of_the_call() -> None:
    broadcast = ChannelUse(kind="publish", channel="alarms", scope="global", message_id="msg_2")
    assert previews(PUBLISH, broadcast, arguments={"op": "broadcast", "value": {"n": 1}}) == ['{"n":1}'] * 2


def test_a_delivered_message_shows_its_own_value() -> None:
    other = ChannelUse(kind="delivery", channel="news", scope="user", message_id="msg_2")
    messages = [{"id": "msg_2", "value": "two"}, {"id": "msg_1", "value": [1]}]
    assert previews(DELIVERY, other, result={"messages": messages}) == ["[1]", '"two"']


@pytest.mark.parametrize("result", [None, "text", {"messages": "none"}, {"messages": ["x"]}, {"messages": []}])
def test_a_result_that_a_hook_withheld_shows_nothing(result: Any) -> None:
    assert previews(DELIVERY, result=result) == [""]


def test_what_is_no_json_shows_nothing() -> None:
    assert [use.preview for use in with_previews((PUBLISH, DELIVERY), "{", "[" * 100_000)] == ["", ""]


def test_a_preview_that_the_tool_made_stays() -> None:
    made = ChannelUse(kind="publish", channel="news", scope="user", message_id="msg_1", preview="mine")
    assert previews(made, arguments={"value": 1}) == ["mine"]


def test_a_long_value_is_cut_and_a_secret_masked_before_that() -> None:
    assert preview_of("x" * 1_000) == '"' + "x" * (PREVIEW_CHARACTERS - 1)
    secret = "ghp_" + "a1B2c3D4e5" * 4
    shown = preview_of("x" * (PREVIEW_CHARACTERS - 20) + " " + secret)
    assert "ghp_a1B2" not in shown
