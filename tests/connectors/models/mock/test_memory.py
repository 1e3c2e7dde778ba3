"""The script of memory: four calls a turn, keys of its own for each text, the same whoever asks."""

import json
from typing import Any

import pytest

from loomlog.connectors.models.mock.memory import MEMORY_TURNS, MEMORY_TURNS_MAX, own_key, turns_of
from loomlog.connectors.protocols import Reply
from loomlog.schemas.conversation import Message, ToolUseBlock
from tests.connectors.models.mock.test_circuit import turn
from tests.connectors.models.samples import request, results, user
from tests.services.families.memory.calls import parse_call


async def played(prompt: str, *, answer: str = "x") -> tuple[list[list[dict[str, Any]]], Reply]:
    """The calls of each turn of a run, and its last answer."""
    conversation, turns = [user(prompt)], []
    while (reply := await turn(request(*conversation, model="mock-memory"))).tool_calls:
        turns.append([json.loads(call.input) for call in reply.tool_calls])
        blocks = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls)
        answers = ((call.id, f"{answer} {call.input}") for call in reply.tool_calls)
        conversation += [Message(role="assistant", blocks=blocks), results(*answers, name="Memory")]
    return turns, reply


async def test_a_turn_counts_sets_gets_and_appends() -> None:
    turns, reply = await played("memory 3 of ada")
    key = own_key("memory 3 of ada")
    assert [[call["op"] for call in calls] for calls in turns] == [["incr", "set", "get", "append_dedupe"]] * 3
    assert [[call["key"] for call in calls] for calls in turns] == [
        ["count", f"own/{key}", f"own/{key}", f"turns/{key}"]
    ] * 3
    assert [calls[1]["value"] for calls in turns] == [{"run": key, "turn": number} for number in (1, 2, 3)]
    assert {call["scope"] for calls in turns for call in calls} == {"user"}
    assert reply.text.startswith("3 turns of memory: ")
    assert '"op":"incr"' in reply.text
    assert '"op":"get"' in reply.text


async def test_its_calls_are_ones_that_the_tool_takes() -> None:
    for call in (await played("go"))[0][0]:
        parsed = parse_call(call.pop("op"), call)
        assert (parsed.input.key, parsed.input.scope) == (call["key"], "user")


async def test_runs_with_the_same_text_are_the_same_and_others_have_other_keys() -> None:
    assert (await played("run 1"))[0] == (await played("run 1"))[0]
    assert (await played("run 1"))[0] != (await played("run 2"))[0]


@pytest.mark.parametrize(
    ("prompt", "turns"),
    [
        ("", MEMORY_TURNS),
        ("memory", MEMORY_TURNS),
        ("memory of ada", MEMORY_TURNS),
        ("memory -1", MEMORY_TURNS),
        ("memory 0", 0),
        ("memory ²", MEMORY_TURNS),
        ("memory 4", 4),
        ("memory 999999 x", MEMORY_TURNS_MAX),
    ],
)
def test_the_text_says_how_many_turns_there_are(prompt: str, turns: int) -> None:
    assert turns_of(prompt) == turns


def test_half_a_surrogate_pair_has_a_key_too() -> None:
    assert len(own_key("\ud800")) == 16
