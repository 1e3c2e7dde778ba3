"""The rules of lists of tools, and which tools runs get."""

import pytest

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.mcp.tool_list import build_tool_list
from loomlog.connectors.protocols import EffectClass
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.mcp_events import ListingFailed, ToolsListed
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import At
from loomlog.services.families.mcp.decide import decide
from loomlog.services.families.mcp.effects import effect_of
from loomlog.services.families.mcp.state import ServerTools, evolve
from tests.services.families.mcp.examples import examples

ENVELOPE = CommandEnvelope(command_id="c", tenant="", subject="mcp", issued_at_ms=1)
LISTED, SAME, FAILED, FAILED_AGAIN, OTHERS, LARGE = examples(ENVELOPE)


def after(*commands) -> ServerTools:
    state = ServerTools()
    for at_ms, command in enumerate(commands, 1):
        for event in decide(state, command, At(at_ms)):
            state = evolve(state, event, at_ms)
    return state


def test_a_list_is_an_event_and_the_same_again_is_none():
    assert isinstance(decide(ServerTools(), LISTED, At(1))[0], ToolsListed)
    assert decide(after(LISTED), SAME, At(2)) == []


def test_a_failure_keeps_the_list_and_is_told_once():
    [failed] = decide(after(LISTED), FAILED, At(2))
    assert isinstance(failed, ListingFailed)
    state = after(LISTED, FAILED)
    assert (state.digest, state.error, state.listed_at_ms, state.failed_at_ms) == ("a", "no answer", 1, 2)
    assert decide(state, FAILED_AGAIN, At(3)) == []


def test_the_same_list_after_a_failure_says_that_the_server_is_there_again():
    assert after(LISTED, FAILED, SAME).error == ""


def test_other_tools_take_the_place_of_the_earlier_ones():
    assert after(LISTED, OTHERS).tools == '[{"name": "x"}]'


def test_a_list_that_no_state_can_hold_is_refused():
    [refused] = decide(ServerTools(), LARGE, At(1))
    assert isinstance(refused, CommandRefused)
    assert "at most 300000" in refused.message


@pytest.mark.parametrize(
    ("fields", "effect"),
    [
        ({}, EffectClass.UNSAFE),
        ({"trust_annotations": True}, EffectClass.READ),
        ({"trust_annotations": True, "effects": {"look": "idempotent"}}, EffectClass.IDEMPOTENT),
        ({"effects": {"look": "pure"}}, EffectClass.PURE),
        ({"effects": {"other": "pure"}}, EffectClass.UNSAFE),
    ],
)
def test_a_call_is_unsafe_unless_the_definition_says_otherwise(fields, effect):
    [tool] = build_tool_list("crm", [{"name": "look", "annotations": {"readOnlyHint": True}}]).tools
    assert effect_of(McpServerBlock(transport="http", url="http://x", **fields), tool) is effect
