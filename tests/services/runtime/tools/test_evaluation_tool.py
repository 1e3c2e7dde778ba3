"""The Evaluation tool: a call is one judgement over all attempts, and reads see what the run wrote."""

import json
from typing import Any

import pytest

from loomlog.connectors.models.tool_schema import flatten_schema
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.records import replace
from tests.services.entities import NOW_MS, TOPIC, UNANSWERED
from tests.services.families.definition.test_evaluations import RUN, Here

CONTEXT = ToolContext(
    run_id="r_judge",
    session_id="s_1",
    agent_id="a_judge",
    agent="judge",
    tenant="acme",
    subject="token",
    user_id="bob",
    user_tier="",
    provider="mock",
    model="m",
    tools=("Evaluation",),
    idempotency_key="r_judge:1.0",
    grants={"evaluation_scopes": ("submit_any", "read_any")},
)
READS = ("get", "list_for_run", "list_for_def", "aggregate")


@pytest.fixture
def here() -> Here:
    return Here()


async def call(here: Here, context: ToolContext = CONTEXT, **arguments: Any) -> ToolResult:
    return await here.opened.tools()["Evaluation"].call(arguments, context)


async def test_a_call_judges_a_run_once_however_often_it_is_made(here: Here) -> None:
    first = await call(here, op="submit", run_id=RUN.run_id, score=0.5)
    again = await call(here, replace(CONTEXT, attempt=2), op="submit", run_id=RUN.run_id, score=0.5)
    assert first == again
    assert (first.is_error, first.positions) == (False, (f"{TOPIC}/1:1",))
    assert json.loads(first.text)["emitter_role"] == "unrelated"
    envelopes = [command.envelope for command in here.entities.asked]
    assert [(one.command_id, one.issued_at_ms) for one in envelopes] == [("r_judge:1.0", NOW_MS), ("r_judge:1.0", 0)]


async def test_a_read_waits_for_what_the_run_wrote(here: Here) -> None:
    position = f"{TOPIC}/0:9"
    result = await call(here, replace(CONTEXT, positions=(position,)), op="list_for_run", run_id=RUN.run_id)
    assert json.loads(result.text) == {"run_id": RUN.run_id, "evaluations": []}
    assert here.entities.waited[-1] == (position,)


async def test_a_refusal_is_an_error_with_its_reason(here: Here) -> None:
    result = await call(here, replace(CONTEXT, grants={}), op="submit", run_id=RUN.run_id, score=1)
    assert result.is_error
    assert result.text.startswith("Evaluation was refused (scope_denied): the agent may not judge runs")


async def test_an_unanswered_judgement_is_unknown(here: Here) -> None:
    here.entities.error = UNANSWERED
    result = await call(here, op="submit", run_id=RUN.run_id, score=1)
    assert (result.is_error, result.is_unknown) == (True, True)


def test_the_tool_says_what_it_takes(here: Here) -> None:
    tool = here.opened.tools()["Evaluation"]
    assert flatten_schema(tool.input_schema)["properties"].keys() == tool.input_schema["properties"].keys()
    assert tool.effect_class({"op": "submit"}) is EffectClass.IDEMPOTENT
    assert {tool.effect_class({"op": op}) for op in READS} == {EffectClass.READ}
    assert "submit" in getattr(tool, "usage_hint", "")
