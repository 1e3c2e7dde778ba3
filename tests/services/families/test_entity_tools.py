"""The tool of a family: one call is one command over all attempts, and what it wrote is seen by later reads."""

import json
from dataclasses import replace as changed
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.models.tool_schema import flatten_schema
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.tools.server_info import ServerInfo
from loomlog.connectors.tools.tool_guide import ToolGuide
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.values import ResultDetails
from loomlog.schemas.records import replace
from loomlog.services.core.command_fields import field_names, fields_schema
from loomlog.services.core.entity_operations import LIST, PAGE_MAX, SHOW, entity_operations, entity_tool
from loomlog.services.core.families import Command
from loomlog.services.core.run.commands import ToolCompleted
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.families.entity_handlers import EntityHandlers
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.operation_tools import OperationTool
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.entities.answers import CommandInvalid
from tests.services.core.run.given import DEFINITION, NOW, RUN, at_tools
from tests.services.entities import COUNTER, UNANSWERED, MemoryEntities
from tests.services.stream.encryption.test_subject_keys import TOPIC as KEYS_TOPIC
from tests.services.stream.encryption.test_subject_keys import keys_over

CONTEXT = ToolContext(
    run_id="r_1",
    session_id="s_1",
    agent_id="a_1",
    agent="soaker",
    tenant="acme",
    subject="token",
    user_id="ada",
    user_tier="",
    provider="mock",
    model="m",
    tools=("Counter",),
    idempotency_key="r_1:1.0",
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unavailable is asked again for a moment only."""
    monkeypatch.setattr("loomlog.services.runtime.tools.operation_calls.ANSWER_S", 0.2)


class Here:
    """The tool of counters."""

    def __init__(self, encryption: ContentEncryption = PLAINTEXT, family: Any = COUNTER) -> None:
        self.entities = MemoryEntities(family)
        handlers = EntityHandlers(self.entities, self.entities, decrypt=encryption.decrypt_json).by_operation([family])
        self.tool = OperationTool(
            entity_tool(family),
            entity_operations(family),
            handlers,
            is_isolated=lambda tenant, subject: False,
            clock_ms=lambda: NOW,
        )

    async def call(self, context: ToolContext = CONTEXT, **arguments: Any) -> ToolResult:
        return await self.tool.call(arguments, context)

    async def json(self, context: ToolContext = CONTEXT, **arguments: Any) -> Any:
        result = await self.call(context, **arguments)
        assert not result.is_error, result.text
        return json.loads(result.text)


async def test_a_command_is_given_in_the_name_of_the_runs_user() -> None:
    here = Here()
    result = await here.call(op="increment", name="a", by=2)
    assert (json.loads(result.text), result.is_error) == ({"by": 2, "value": 2}, False)
    assert result.positions == ("loom.entity.events/1:1",)
    (command,) = here.entities.asked
    envelope = command.envelope
    assert (envelope.command_id, envelope.tenant, envelope.subject) == ("r_1:1.0", "acme", "ada")
    assert envelope.issued_at_ms == NOW


async def test_a_repeated_call_is_the_same_command_with_the_same_reply() -> None:
    here = Here()
    first = await here.call(op="increment", name="a", by=1)
    again = await here.call(replace(CONTEXT, attempt=2), op="increment", name="a", by=1)
    assert again == first
    assert {command.envelope.command_id for command in here.entities.asked} == {"r_1:1.0"}
    assert here.entities.asked[1].envelope.issued_at_ms == 0
    assert (await here.json(op=SHOW, id="a"))["state"]["value"] == 1
    other = await here.call(replace(CONTEXT, idempotency_key="r_1:1.1"), op="increment", name="a", by=1)
    assert json.loads(other.text)["value"] == 2


async def test_a_command_without_an_effect_says_so() -> None:
    assert await Here().json(op="increment", name="a", by=0) == {"changed": False}


async def test_reads_have_plain_json_and_wait_for_the_runs_writes() -> None:
    here = Here()
    for number, name in enumerate(("a/1", "a/2", "b/1")):
        await here.call(replace(CONTEXT, idempotency_key=str(number)), op="increment", name=name, by=number)
    later = replace(CONTEXT, positions=("loom.entity.events/1:3",))
    assert await here.json(later, op=SHOW, id="a/2") == {"id": "a/2", "state": {"value": 1, "stamp": "AP8="}}
    page = await here.json(later, op=LIST, prefix="a/", limit=1)
    assert ([row["id"] for row in page["items"]], page["more"]) == (["a/1"], True)
    page = await here.json(later, op=LIST, after="a/1", prefix=None)
    assert ([row["id"] for row in page["items"]], page["more"]) == (["a/2", "b/1"], False)
    assert await here.json(later, op="remaining", id="a/2", of="10") == {"remaining": 9}
    assert here.entities.waited == [later.positions] * 4
    here.entities.unread = frozenset(later.positions)
    result = await here.call(later, op=SHOW, id="a/2")
    assert result.is_error
    assert "is not read yet" in result.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "expected one of increment, ls, show, remaining"),
        ({"op": "shwo"}, "did you mean show?"),
        ({"op": ["ls"]}, "expected one of increment"),
        ({"op": "increment"}, "name is required: text"),
        ({"op": "increment", "name": "a", "by": 1, "bye": 1}, "'bye' is unknown; did you mean by?"),
        ({"op": "increment", "name": "a", "by": "x"}, "by must be a whole number"),
        ({"op": "increment", "name": "", "by": 1}, "the id has 0 bytes"),
        ({"op": "increment", "name": "a", "by": -1}, "was refused (invalid_step): a counter only grows"),
        ({"op": "increment", "name": "a", "by": 5_000}, "was refused (counter_full): it counts to 1000"),
        ({"op": "show"}, "id is missing"),
        ({"op": "show", "id": 1}, "id: expected text of 1 to 512 characters"),
        ({"op": "show", "id": "none"}, "there is no counter 'none'"),
        ({"op": "ls", "limit": PAGE_MAX + 1}, "limit: expected a whole number from 1 to 200, not 201"),
        ({"op": "ls", "limit": 1.5}, "limit: expected a whole number"),
        ({"op": "ls", "limit": True}, "limit: expected a whole number"),
    ],
)
async def test_a_refusal_tells_the_model_what_to_do(arguments: Any, text: str) -> None:
    result = await Here().call(**arguments)
    assert (result.is_error, result.is_unknown, result.positions) == (True, False, ())
    assert text in result.text


async def test_nulls_for_the_fields_of_other_operations_are_no_mistake() -> None:
    here = Here()
    assert await here.json(op="increment", name="a", by=1, also=None, id=None, prefix=None) == {"by": 1, "value": 1}
    assert (await here.json(op=SHOW, id="a", name=None))["id"] == "a"


@pytest.mark.parametrize("error", [UNANSWERED, Transient("no broker", kind="network")])
async def test_a_command_without_an_answer_is_of_unknown_outcome(error: Exception) -> None:
    here = Here()
    here.entities.error = error
    result = await here.call(op="increment", name="a", by=1)
    assert (result.is_error, result.is_unknown) == (True, True)


async def test_a_command_that_cannot_be_is_an_error() -> None:
    here = Here()
    here.entities.error = CommandInvalid("the id is too long")
    result = await here.call(op="increment", name="a", by=1)
    assert (result.is_error, result.is_unknown) == (True, False)
    assert "the id is too long" in result.text


def test_effect_classes_follow_from_the_operation() -> None:
    tool = Here().tool
    assert tool.effect_class({"op": "increment"}) is EffectClass.IDEMPOTENT
    assert tool.effect_class({"op": "ls"}) is EffectClass.READ
    assert tool.effect_class({"op": "remaining"}) is EffectClass.READ
    assert tool.effect_class({"op": "nothing"}) is EffectClass.PURE
    assert tool.effect_class({"op": []}) is EffectClass.PURE


def test_one_schema_has_the_fields_of_all_operations() -> None:
    schema = Here().tool.input_schema
    assert flatten_schema(schema) == schema
    assert schema["properties"]["op"]["enum"] == ["increment", "ls", "show", "remaining"]
    assert set(schema["properties"]) == {"op", *field_names(IncrementCounter), "prefix", "after", "limit", "id", "of"}
    assert schema["properties"]["by"]["type"] == "integer"
    assert (
        schema["properties"]["by"]["description"]
        == f"{fields_schema(IncrementCounter)['properties']['by']['description']} For op increment."
    )
    assert schema["properties"]["id"]["description"].endswith("For op show, remaining.")


def test_what_agents_may_not_do_is_no_operation() -> None:
    (row,), (query,) = COUNTER.commands, COUNTER.queries
    inner = changed(COUNTER, commands=[changed(row, in_tool=False)], queries=[changed(query, in_tool=False)])
    schema = Here(family=inner).tool.input_schema
    assert schema["properties"]["op"]["enum"] == ["ls", "show"]
    assert set(schema["properties"]) == {"op", "prefix", "after", "limit", "id"}


async def test_an_answer_for_a_model_has_a_hundred_aggregates_at_most() -> None:
    here = Here()
    for number in range(101):
        await here.call(replace(CONTEXT, idempotency_key=str(number)), op="increment", name=f"{number:03}", by=1)
    page = await here.json(op=LIST, limit=PAGE_MAX)
    assert (len(page["items"]), page["more"]) == (100, True)
    assert len((await here.json(op=LIST))["items"]) == 20


def test_the_context_of_a_run_lists_the_operations() -> None:
    tool = Here().tool
    (entry,) = ToolGuide({"Counter": tool}, ServerInfo()).tools(("Counter",))
    assert entry["ops"] == {
        "increment": "Add to a counter.",
        "ls": "List what there is of counter, by id.",
        "show": "Show one counter.",
        "remaining": "Tell how far a counter can still go.",
    }
    assert "op increment (name, by" in tool.description


async def test_content_is_decrypted_for_the_model() -> None:
    keys = keys_over(MemoryLog({KEYS_TOPIC: 1}))
    token = (await keys.cipher_for("acme", "ada")).text("a secret")
    row: Command[Any] = changed(COUNTER.commands[0], reply=lambda events: {"note": [token], "value": 1})
    here = Here(ContentEncryption(keys), changed(COUNTER, commands=[row]))
    result = await here.call(op="increment", name="a", by=1)
    assert json.loads(result.text) == {"note": ["a secret"], "value": 1}
    refusal = CommandRefused(code="no", message=token)
    (key,) = here.entities.answers
    here.entities.answers[key] = replace(here.entities.answers[key], events=(refusal,))
    again = await here.call(op="increment", name="a", by=1)
    assert again.text == "Counter was refused (no): a secret"


# --- in a run --------------------------------------------------------------------------------------------------------


def completed_by(here: Here, state: AwaitingTools, arguments: dict[str, Any]) -> Any:
    calls = ToolCalls(
        ProcessToolset({"Counter": here.tool}),
        volumes={},
        operator_hosts=(),
        parallelism=4,
        blobs=MemoryBlobs(),
        tracing=NO_TRACING,
        clock_ms=lambda: NOW,
    )
    effect = CallTool(
        run_id=RUN,
        turn=state.turn,
        index=0,
        attempt=1,
        call_id="c0",
        name="Counter",
        input=json.dumps(arguments),
        effect_class="idempotent",
    )
    return calls.run(effect, state, "acme")


async def test_the_positions_of_a_call_are_in_its_event_and_known_to_the_next_call() -> None:
    here = Here()
    run = at_tools("Counter", definition=replace(DEFINITION, tools=("Counter",)))
    assert isinstance(run.state, AwaitingTools)
    result = await completed_by(here, run.state, {"op": "increment", "name": "a", "by": 1})
    assert isinstance(result, ToolCompleted)
    assert result.positions == ("loom.entity.events/1:1",)
    returned = run.give(result)[0]
    assert isinstance(returned, ToolReturned)
    assert returned.details == ResultDetails(positions=result.positions)
    assert run.state.facts.positions == result.positions
    awaiting = replace(
        at_tools("Counter", definition=replace(DEFINITION, tools=("Counter",))).state, facts=run.state.facts
    )
    assert isinstance(awaiting, AwaitingTools)
    await completed_by(here, awaiting, {"op": SHOW, "id": "a"})
    assert here.entities.waited == [result.positions]
