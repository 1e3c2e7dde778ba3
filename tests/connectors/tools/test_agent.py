"""The Agent tool reads what a model wants, strictly, and does nothing."""

from typing import Any

import pytest

from loomlog.connectors.protocols import ChildrenPlan, EffectClass, ToolResult
from loomlog.connectors.tools.agent import IDLE_TTL_S, RESIDENTS_MAX, SPAWNS_MAX, AgentTool
from loomlog.schemas.generated.values import Spawn
from loomlog.services.core.run import limits

ONE = {"name": "helper", "prompt": "go"}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (ONE, ChildrenPlan(op="spawn", spawns=(Spawn(agent="helper", prompt="go"),))),
        (
            {"op": "parallel_spawn", "spawns": [ONE, {**ONE, "def_id": "d1", "compaction": {"keep_last_n": 2}}]},
            ChildrenPlan(
                op="parallel_spawn",
                spawns=(
                    Spawn(agent="helper", prompt="go"),
                    Spawn(agent="helper", prompt="go", def_id="d1", compaction='{"keep_last_n": 2}'),
                ),
            ),
        ),
        (
            {"op": "open", **ONE},
            ChildrenPlan(
                op="open",
                spawns=(Spawn(agent="helper", prompt="go"),),
                idle_ttl_s=IDLE_TTL_S,
                residents_max=RESIDENTS_MAX,
            ),
        ),
        (
            {"op": "send", "child_run_id": "r_x", "prompt": "more", "timeout_ms": 5},
            ChildrenPlan(op="send", child_run_id="r_x", prompt="more", timeout_ms=5),
        ),
        ({"op": "poll", "child_run_id": "r_x"}, ChildrenPlan(op="poll", child_run_id="r_x")),
        ({"op": "cancel", "child_run_id": "r_x"}, ChildrenPlan(op="cancel", child_run_id="r_x")),
        ({"op": "close", "child_run_id": "r_x"}, ChildrenPlan(op="close", child_run_id="r_x")),
    ],
)
def test_what_a_call_wants(arguments: dict[str, Any], wanted: ChildrenPlan) -> None:
    assert AgentTool().plan(arguments) == wanted


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "name"),
        ({"name": "helper"}, "prompt"),
        ({**ONE, "prompt": ""}, "prompt"),
        ({**ONE, "spawns": [ONE]}, "spawns"),
        ({"op": "divide"}, "divide"),
        ({"op": "parallel_spawn"}, "spawns"),
        ({"op": "parallel_spawn", "spawns": []}, "spawns"),
        ({"op": "parallel_spawn", "spawns": [ONE] * (SPAWNS_MAX + 1)}, "33 entries"),
        ({"op": "parallel_spawn", "spawns": [{"name": "helper"}]}, "spawns[0]"),
        ({"op": "parallel_spawn", "spawns": ["helper"]}, "spawns[0]"),
        ({**ONE, "compaction": {"target_percentage": 99}}, "target_percentage"),
        ({**ONE, "compaction": {"target": 20}}, "target"),
        ({"op": "send", "child_run_id": "r_x"}, "prompt"),
        ({"op": "poll", "child_run_id": "r_x", "timeout_ms": -1}, "timeout_ms"),
        ({"op": "close"}, "child_run_id"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_what_was_expected(arguments: dict[str, Any], named: str) -> None:
    actual = AgentTool().plan(arguments)
    assert isinstance(actual, ToolResult)
    assert actual.is_error
    assert named in actual.text


def test_reading_a_call_has_no_effect_and_the_bounds_are_those_of_the_core() -> None:
    assert AgentTool().effect_class(ONE) is EffectClass.PURE
    assert (SPAWNS_MAX, RESIDENTS_MAX) == (limits.SPAWNS_MAX, limits.RESIDENTS_MAX)


def test_the_operator_says_how_many_residents_there_are_and_how_long_they_idle() -> None:
    actual = AgentTool(residents_max=2, idle_ttl_s=7).plan({"op": "open", **ONE})
    assert isinstance(actual, ChildrenPlan)
    assert (actual.residents_max, actual.idle_ttl_s) == (2, 7)
    actual = AgentTool(idle_ttl_s=7).plan({"op": "open", **ONE, "idle_ttl_seconds": 9})
    assert isinstance(actual, ChildrenPlan)
    assert actual.idle_ttl_s == 9
