"""Secrets in tool calls are masked in every row."""

import orjson
import pytest

from loomlog.projections.frames.masking import mask_frame
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import Partition, asked, call, replied, requested, returned, started
from tests.projections.twin import Twin, projected

SECRET = "sk-abcdefghijklmnop1234"
ARGUMENTS = orjson.dumps({"value": {"text": SECRET}, "key": "k"}).decode()
MASKED = {"value": {"text": "[redacted:key]"}, "key": "k"}


@pytest.fixture(params=[False, True], ids=["in one go", "with a restart after each event"])
def rows(request: pytest.FixtureRequest) -> Twin:
    partition = Partition()
    partition.claim()
    partition.add("r_1", started(), requested(1), replied(1, "", call("c1", "Memory", ARGUMENTS)), asked(1, 0, "c1"))
    partition.add("r_1", returned(1, 0, "c1", f"the key is {SECRET}"))
    records = records_of(partition)
    polls = [[record] for record in records] if request.param else [records]
    return projected(polls, restart_after=range(len(polls)) if request.param else ())


def test_the_rows_of_a_call_and_its_result_have_its_arguments_masked(rows: Twin) -> None:
    stored = {row.type: orjson.loads(row.event) for row in rows.tables["transcript"].values()}
    assert stored["tool_call"]["tool_use"]["input"] == MASKED
    assert stored["tool_result"]["tool_use"]["input"] == MASKED


def test_a_result_that_was_appended_unmasked_is_masked_when_it_is_stored(rows: Twin) -> None:
    stored = {row.type: orjson.loads(row.event) for row in rows.tables["transcript"].values()}
    assert stored["tool_result"]["text"] == "the key is [redacted:key]"


def test_a_frame_with_nothing_to_mask_is_the_same_object() -> None:
    for event in (
        {"type": "text", "text": f"the model said {SECRET}"},
        {"type": "tool_call", "tool_use": {"id": "c", "name": "Read", "input": {"path": "a"}}},
        {"type": "tool_result", "tool_use": {"id": "c"}, "text": "ok"},
    ):
        assert mask_frame(event) is event


def test_arguments_that_are_no_json_and_those_hooks_gave_are_masked() -> None:
    assert (
        mask_frame({"type": "tool_call", "tool_use": {"id": "c", "name": "x", "input": f"{{{SECRET}"}})["tool_use"][
            "input"
        ]
        == "{[redacted:key]"
    )
    acted = mask_frame({"type": "hook_acted", "hook_acted": {"input": {"password": "hunter2hunter2"}}})
    assert acted["hook_acted"]["input"] == {"password": "[redacted:value]"}
