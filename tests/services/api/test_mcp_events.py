"""Events: each once and in order from any cursor, polled or as a stream, of those that a caller may see."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from loomlog.services.api.mcp.event_operations import TYPES
from loomlog.services.api.mcp.events import NOT_FOUND
from loomlog.services.api.mcp.messages import INVALID_PARAMETERS
from loomlog.services.api.mcp.routes import PATH
from loomlog.services.core.access.decide import Caller
from tests.services.api.serving import Served, Wire
from tests.services.api.test_mcp_tasks import REVISION, ask, message, messages
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, until


async def poll(
    here: Served, name: str, cursor: str | None, *, caller: Caller = ACME, max_events: int = 100, **arguments: str
) -> Any:
    params = {"name": name, "arguments": arguments, "cursor": cursor, "maxEvents": max_events}
    return await ask(here, "events/poll", params, caller=caller)


async def now(here: Served) -> str:
    result = (await poll(here, "run.ended", None))["result"]
    assert (result["events"], result["hasMore"], result["truncated"]) == ([], False, False)
    cursor: str = result["cursor"]
    return cursor


async def seen(here: Served) -> None:
    """Wait until this process has read all events."""
    hub, window = here.world.layer.hub, here.world.layer.run_feed._window
    ends = {number: await window.end_offset(number) for number in hub.partitions}
    await until(lambda: all(hub.position(number) >= end for number, end in ends.items()))


def runs(result: Mapping[str, Any]) -> list[str]:
    return [event["data"]["run_id"] for event in result["result"]["events"]]


async def test_types_are_listed_with_their_schemas(here: Served) -> None:
    result = (await ask(here, "events/list", {}))["result"]
    assert {event["name"] for event in result["events"]} == set(TYPES)
    for event in result["events"]:
        assert event["inputSchema"]["type"] == event["payloadSchema"]["type"] == "object"
        assert set(event["delivery"]) >= {"poll", "push"}
    discovered = (await ask(here, "server/discover", {}))["result"]
    assert "io.modelcontextprotocol/events" in discovered["capabilities"]["extensions"]


async def test_a_subscriber_that_was_away_gets_everything_once(here: Served) -> None:
    cursor: str | None = await now(here)
    for _ in range(7):
        await here.run(caller=ACME)
    seen: list[str] = []
    has_more = True
    while has_more:
        page = await poll(here, "run.ended", cursor, max_events=2)
        seen += runs(page)
        cursor, has_more = page["result"]["cursor"], page["result"]["hasMore"]
    assert sorted(seen) == sorted({command.run_id for command in here.world.commands()})
    assert runs(await poll(here, "run.ended", cursor)) == []


async def test_an_event_has_the_same_id_and_form_from_every_cursor(here: Served) -> None:
    cursor = await now(here)
    await here.run(caller=ACME)
    first, again = [(await poll(here, "run.ended", cursor))["result"]["events"] for _ in range(2)]
    assert first == again
    [event] = first
    assert event["eventId"].startswith("loom.run.events/")
    assert (event["name"], event["data"]["status"], event["data"]["agent"]) == ("run.ended", "completed", "soaker")
    assert "cursor" not in event


async def test_arguments_narrow_and_tenants_are_apart(here: Served) -> None:
    cursor = await now(here)
    await here.run(caller=ACME)
    [run_id] = runs(await poll(here, "run.started", cursor))
    assert runs(await poll(here, "run.started", cursor, run_id=run_id)) == [run_id]
    assert runs(await poll(here, "run.started", cursor, agent="soaker")) == [run_id]
    assert runs(await poll(here, "run.started", cursor, agent="another")) == []
    assert runs(await poll(here, "run.started", cursor, caller=GLOBEX)) == []
    assert runs(await poll(here, "run.started", cursor, caller=ADMIN_CALLER)) == [run_id]


async def test_questions_are_events(here: Served) -> None:
    cursor = await now(here)
    wire = Wire(here.app, "POST", "/v1/runs", body=b'{"agent":"silent","prompt":"go"}', caller=ACME).begin()
    await wire.until("event: started")
    wire.leave()
    run_id = here.world.commands()[-1].run_id
    [question] = here.world.ask(run_id, {"question": "Shall I?", "options": ["yes", "no"]})
    await seen(here)
    [event] = (await poll(here, "question.asked", cursor))["result"]["events"]
    assert (event["data"]["interrupt_id"], event["data"]["options"]) == (question, ["yes", "no"])
    body = {"answer": "yes"}
    await here.client(ACME).post(f"/v1/runs/{run_id}/interrupts/{question}/resolve", json=body)
    await seen(here)
    [event] = (await poll(here, "question.closed", cursor))["result"]["events"]
    assert event["data"]["status"] == "resolved"


async def test_an_event_whose_run_has_no_row_yet_comes_later_and_not_never(here: Served) -> None:
    cursor = await now(here)
    here.world.projecting = False
    wire = Wire(here.app, "POST", "/v1/runs", body=b'{"agent":"silent","prompt":"go"}', caller=ACME).begin()
    await wire.until("event: started")
    wire.leave()
    run_id = here.world.commands()[-1].run_id
    here.world.reply(run_id)
    await seen(here)
    page = await poll(here, "run.ended", cursor)
    assert (runs(page), page["result"]["hasMore"]) == ([], True)
    here.world.projecting = True
    here.world.project()
    assert runs(await poll(here, "run.ended", page["result"]["cursor"])) == [run_id]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "ä",
        "a" * 30_000,
        base64.urlsafe_b64encode(msgspec.msgpack.encode([(0, 10**12, 0)])).decode(),
        base64.urlsafe_b64encode(msgspec.msgpack.encode([(n, 10**12, 0) for n in range(4)])).decode(),
        base64.urlsafe_b64encode(msgspec.msgpack.encode([(n, -1, 0) for n in range(4)])).decode(),
        base64.urlsafe_b64encode(msgspec.msgpack.encode({"a": 1})).decode(),
    ],
    ids=lambda value: value[:12],
)
async def test_forged_cursors_are_refused(here: Served, cursor: str) -> None:
    error = (await poll(here, "run.ended", cursor))["error"]
    assert error["code"] == INVALID_PARAMETERS
    assert "cursor" in error["message"]


@pytest.mark.parametrize(
    ("params", "code", "text"),
    [
        ({"name": "moon.rose"}, NOT_FOUND, "run.ended"),
        ({"name": "run.ended", "arguments": {"colour": "red"}}, INVALID_PARAMETERS, "colour"),
        ({"name": "run.ended", "arguments": {"agent": 1}}, INVALID_PARAMETERS, "arguments.agent"),
        ({"name": "run.ended", "arguments": []}, INVALID_PARAMETERS, "arguments"),
        ({"name": "run.ended", "maxEvents": 0}, INVALID_PARAMETERS, "maxEvents"),
        ({"name": "channel.message"}, INVALID_PARAMETERS, "arguments.channel"),
        ({}, INVALID_PARAMETERS, "name"),
    ],
)
async def test_what_is_wrong_is_named(here: Served, params: Any, code: int, text: str) -> None:
    for method in ("events/poll", "events/stream"):
        error = (await ask(here, method, params))["error"]
        assert (error["code"], text in error["message"]) == (code, True)


def streaming(here: Served, params: Mapping[str, Any], caller: Caller = ACME) -> Wire:
    body = json.dumps(message("events/stream", params, {})).encode()
    wire = Wire(here.app, "POST", PATH, caller=caller, body=body)
    return wire.header("mcp-protocol-version", REVISION).header("mcp-method", "events/stream").begin()


async def test_a_stream_begins_where_the_cursor_is_and_goes_on(here: Served) -> None:
    cursor = await now(here)
    await here.run(caller=ACME)
    wire = streaming(here, {"name": "run.ended", "cursor": cursor})
    await wire.until("notifications/events/event")
    await here.run(caller=ACME)
    await wire.until(here.world.commands()[-1].run_id)
    wire.leave()
    active, *events = messages(wire.body)
    assert (active["method"], active["params"]["cursor"]) == ("notifications/events/active", cursor)
    assert [event["params"]["data"]["run_id"] for event in events] == [one.run_id for one in here.world.commands()]
    assert {event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for event in events} == {7}
    assert runs(await poll(here, "run.ended", events[0]["params"]["cursor"])) == [events[1]["params"]["data"]["run_id"]]
    assert runs(await poll(here, "run.ended", events[1]["params"]["cursor"])) == []


async def test_a_stream_ends_with_a_result_when_the_process_does(here: Served) -> None:
    wire = streaming(here, {"name": "run.ended"})
    await wire.until("notifications/events/active")
    here.world.layer.end_streams()
    last = messages((await wire.done()).encode())[-1]
    assert (last["id"], last["result"]["resultType"]) == (7, "complete")
