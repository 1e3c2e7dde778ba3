"""Tasks: a run that any process finds, its questions and its end; the same questions in a call that waits."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.services.api.mcp.messages import (
    CAPABILITIES_KEY,
    INVALID_PARAMETERS,
    MISSING_CAPABILITY,
    REVISION_KEY,
    TASKS,
)
from loomlog.services.api.mcp.routes import PATH
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.error_codes import SERVER_ERROR
from loomlog.services.core.run.state import AwaitingModel
from tests.services.api.serving import Served, Wire
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, STARTER

REVISION = "2026-07-28"
WITH_TASKS = {"extensions": {TASKS: {}}}


def message(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    known = {REVISION_KEY: REVISION, CAPABILITIES_KEY: capabilities, **meta}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": known}}


def headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    name = params.get("name", params.get("taskId"))
    return {"mcp-protocol-version": REVISION, "mcp-method": method} | ({"mcp-name": name} if name else {})


async def ask(
    here: Served,
    method: str,
    params: Mapping[str, Any],
    *,
    caller: Caller = ADMIN_CALLER,
    capabilities: Mapping[str, Any] = WITH_TASKS,
    **meta: Any,
) -> Any:
    sent = message(method, params, capabilities, **meta)
    answer = await here.client(caller).post(PATH, json=sent, headers=headers(method, params))
    return answer.json()


async def begun(here: Served, agent: str = "silent", **more: Any) -> str:
    """A task whose model has not answered yet."""
    params = {"name": "spawn_run", "arguments": {"agent": agent, "prompt": "go", **more}}
    result = (await ask(here, "tools/call", params))["result"]
    assert (result["resultType"], result["status"], result["ttlMs"]) == ("task", "working", None)
    task_id: str = result["taskId"]
    return task_id


def run_of(task_id: str) -> str:
    return task_id.partition(".")[0]


async def state(here: Served, task_id: str) -> Any:
    result = (await ask(here, "tasks/get", {"taskId": task_id}))["result"]
    assert result["resultType"] == "complete"
    return result


async def test_a_task_is_a_run_in_the_log_and_its_result_that_of_the_call(here: Served) -> None:
    task_id = await begun(here)
    assert run_of(task_id) == here.world.commands()[-1].run_id
    assert (await state(here, task_id))["status"] == "working"
    here.world.reply(run_of(task_id), "done")
    ended = await state(here, task_id)
    assert ended["status"] == "completed"
    assert ended["result"]["structuredContent"]["final_text"] == "done"
    assert ended["result"]["isError"] is False


async def test_a_task_whose_rows_lag_is_not_denied(here: Served) -> None:
    here.world.projecting = False
    task_id = await begun(here)
    error = (await ask(here, "tasks/get", {"taskId": task_id}))["error"]
    assert (error["code"], error["data"]["code"]) == (SERVER_ERROR, "not_yet")
    here.world.projecting = True
    here.world.project()
    assert (await state(here, task_id))["status"] == "working"


async def test_a_task_that_is_cancelled_says_so(here: Served) -> None:
    task_id = await begun(here)
    assert (await ask(here, "tasks/cancel", {"taskId": task_id}))["result"]["resultType"] == "complete"
    ended = await state(here, task_id)
    assert (ended["status"], "result" in ended) == ("cancelled", False)
    assert "result" in await ask(here, "tasks/cancel", {"taskId": task_id})


async def test_a_question_is_answered_through_the_task(here: Served) -> None:
    task_id = await begun(here)
    [question] = here.world.ask(run_of(task_id), {"question": "Shall I?", "options": ["yes", "no"]})
    asked = await state(here, task_id)
    assert asked["status"] == "input_required"
    params = asked["inputRequests"][question]["params"]
    assert (params["message"], params["requestedSchema"]["properties"]["answer"]["enum"]) == ("Shall I?", ["yes", "no"])
    answers = {question: {"action": "accept", "content": {"answer": "yes"}}, "intr_unknown": {"action": "decline"}}
    result = await ask(here, "tasks/update", {"taskId": task_id, "inputResponses": answers})
    assert result["result"]["resultType"] == "complete"
    assert (await state(here, task_id))["status"] == "working"


async def test_an_interactive_task_asks_for_the_next_text(here: Served) -> None:
    task_id = await begun(here, interactive=True)
    here.world.reply(run_of(task_id), "and now?")
    asked = await state(here, task_id)
    assert asked["status"] == "input_required"
    [key] = asked["inputRequests"]
    stale = {"next-text-1": {"action": "accept", "content": {"answer": "old"}}}
    await ask(here, "tasks/update", {"taskId": task_id, "inputResponses": stale})
    assert (await state(here, task_id))["status"] == "input_required"
    answers = {key: {"action": "accept", "content": {"answer": "go on"}}}
    assert "result" in await ask(here, "tasks/update", {"taskId": task_id, "inputResponses": answers})
    assert (await state(here, task_id))["status"] == "working"


@pytest.mark.parametrize(
    "answers",
    [{"q": 1}, {"q": {"action": "dance"}}, {"q": {"action": "accept"}}, {"q": {"action": "accept", "content": {}}}, 7],
)
async def test_answers_of_another_form_are_refused(here: Served, answers: Any) -> None:
    task_id = await begun(here)
    error = (await ask(here, "tasks/update", {"taskId": task_id, "inputResponses": answers}))["error"]
    assert error["code"] == INVALID_PARAMETERS
    assert "inputResponses" in error["message"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_forged_and_foreign_tasks_are_not_found(here: Served, method: str) -> None:
    task_id = await begun(here)
    run_id, partition, offset = task_id.split(".")
    more = {"inputResponses": {}} if method == "tasks/update" else {}
    forged = (run_id, f"{run_id}.{partition}", f"{run_id}.99.{offset}", f"{run_id}.{partition}.{10**17}", "x" * 190)
    for bad in (*forged, f"r_none.{partition}.{offset}"):
        error = (await ask(here, method, {"taskId": bad, **more}))["error"]
        assert error["code"] == INVALID_PARAMETERS, bad
    error = (await ask(here, method, {"taskId": task_id, **more}, caller=GLOBEX))["error"]
    assert error["code"] == INVALID_PARAMETERS
    assert (await state(here, task_id))["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_client_without_tasks_has_none(here: Served, method: str) -> None:
    error = (await ask(here, method, {"taskId": "r_a.0.1"}, capabilities={}))["error"]
    assert error["code"] == MISSING_CAPABILITY
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_the_same_key_is_the_same_task(here: Served) -> None:
    params = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    key = {"io.loomlog/idempotencyKey": "once"}
    first, second = [(await ask(here, "tools/call", params, **key))["result"]["taskId"] for _ in range(2)]
    assert first == second


async def test_a_call_that_waits_ends_with_the_question_and_goes_on_with_the_answer(here: Served) -> None:
    params = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    asks = {"elicitation": {"form": {}}}
    waiting = asyncio.create_task(ask(here, "tools/call", params, capabilities=asks))
    run_id = await started(here)
    [question] = here.world.ask(run_id, {"question": "Shall I?"})
    async with asyncio.timeout(WAIT_S):
        result = (await waiting)["result"]
    assert result["resultType"] == "input_required"
    assert list(result["inputRequests"]) == [question]
    answer = {question: {"action": "accept", "content": {"answer": "yes"}}}
    again = {**params, "inputResponses": answer, "requestState": result["requestState"]}
    waiting = asyncio.create_task(ask(here, "tools/call", again, capabilities=asks))
    await closed(here, run_id)
    here.world.reply(run_id, "so be it")
    async with asyncio.timeout(WAIT_S):
        result = (await waiting)["result"]
    assert (result["resultType"], result["structuredContent"]["final_text"]) == ("complete", "so be it")
    assert result["structuredContent"]["run_id"] == run_id


async def test_a_call_of_a_caller_who_may_not_read_shows_no_question_and_goes_on_with_none(here: Served) -> None:
    params = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    asks = {"elicitation": {}}
    waiting = asyncio.create_task(ask(here, "tools/call", params, caller=STARTER, capabilities=asks))
    run_id = await started(here)
    [question] = here.world.ask(run_id, {"question": "Shall I?"})
    async with asyncio.timeout(WAIT_S):
        first = (await waiting)["result"]
    answer = {question: {"action": "accept", "content": {"answer": "yes"}}}
    again = {**params, "inputResponses": answer, "requestState": run_id}
    async with asyncio.timeout(WAIT_S):
        second = (await ask(here, "tools/call", again, caller=STARTER, capabilities=asks))["result"]
    for result in (first, second):
        refused = json.loads(result["content"][0]["text"])
        assert (refused["code"], refused["scope"]) == ("insufficient_scope", "runs:read")


async def test_two_questions_of_one_keyed_call_are_both_answered(here: Served) -> None:
    params: dict[str, Any] = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    run_id = ""
    for text in ("first", "second"):
        call = ask(here, "tools/call", params, capabilities={"elicitation": {}}, **{"io.loomlog/idempotencyKey": "k"})
        waiting = asyncio.create_task(call)
        run_id = await started(here)
        await closed(here, run_id)
        here.world.ask(run_id, {"question": text})
        async with asyncio.timeout(WAIT_S):
            result = (await waiting)["result"]
        [(question, asked)] = result["inputRequests"].items()
        assert asked["params"]["message"] == text
        answer = {question: {"action": "accept", "content": {"answer": "yes"}}}
        params = {**params, "inputResponses": answer, "requestState": result["requestState"]}
    call = ask(here, "tools/call", params, capabilities={"elicitation": {}}, **{"io.loomlog/idempotencyKey": "k"})
    waiting = asyncio.create_task(call)
    await closed(here, run_id)
    here.world.reply(run_id, "so be it")
    async with asyncio.timeout(WAIT_S):
        assert (await waiting)["result"]["structuredContent"]["final_text"] == "so be it"


async def started(here: Served) -> str:
    """The run of the newest command, once its owner has started it."""
    async with asyncio.timeout(WAIT_S):
        while not here.world.commands() or here.world.commands()[-1].run_id not in here.world.states:
            await asyncio.sleep(0)
    run_id: str = here.world.commands()[-1].run_id
    return run_id


async def closed(here: Served, run_id: str) -> None:
    """Wait until the run has got its answer."""
    async with asyncio.timeout(WAIT_S):
        while not isinstance(here.world.states[run_id], AwaitingModel):
            await asyncio.sleep(0)


async def test_a_session_puts_the_question_to_its_user_while_the_call_waits(here: Served) -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    session = (await here.client(ACME).post(PATH, json=begin)).headers["mcp-session-id"]
    params = {
        "name": "spawn_run",
        "arguments": {"agent": "silent", "prompt": "go"},
        "_meta": {"progressToken": "p"},
    }
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    wire = Wire(here.app, "POST", PATH, caller=ACME, body=call).header("mcp-session-id", session).begin()
    run_id = await started(here)
    [question] = here.world.ask(run_id, {"question": "Shall I?"})
    await wire.until("elicitation/create")
    asked = next(one for one in messages(wire.body) if one.get("method") == "elicitation/create")
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"answer": "yes"}}}
    response = await here.client(ACME).post(PATH, json=answer, headers={"mcp-session-id": session})
    assert (response.status_code, question in asked["id"]) == (202, True)
    here.world.reply(run_id, "so be it")
    last = messages((await wire.done()).encode())[-1]
    assert last["result"]["structuredContent"]["final_text"] == "so be it"
    progress = [one["params"] for one in messages(wire.body) if one.get("method") == "notifications/progress"]
    assert [one["progress"] for one in progress] == list(range(1, len(progress) + 1))
    assert {one["progressToken"] for one in progress} == {"p"}


def messages(body: bytes) -> list[Any]:
    lines = body.decode().split("\n")
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
