"""Questions and stopped turns over HTTP: shapes and statuses."""

from typing import Any

from loomlog.services.core.access.decide import Caller
from tests.services.api.serving import Served, Wire
from tests.services.application.world import ADMIN_CALLER


async def begun(here: Served, *, caller: Caller = ADMIN_CALLER, interactive: bool = False) -> str:
    """A run whose model has not answered yet."""
    body = b'{"agent":"silent","prompt":"go","interactive":%s}' % (b"true" if interactive else b"false")
    wire = Wire(here.app, "POST", "/v1/runs", body=body, caller=caller).begin()
    await wire.until("event: started")
    wire.leave()
    wire.task.cancel()  # type: ignore[union-attr]
    run_id: str = here.world.commands()[-1].run_id
    return run_id


async def asked(here: Served, *, caller: Caller = ADMIN_CALLER, **more: Any) -> tuple[str, str, str]:
    """Run, question, and where it is answered."""
    run_id = await begun(here, caller=caller)
    [question] = here.world.ask(run_id, {"question": "Shall I?", "options": ["yes", "no"], **more})
    return run_id, question, f"/v1/runs/{run_id}/interrupts/{question}/resolve"


async def test_an_answer_is_acknowledged_in_the_known_shape(here: Served) -> None:
    _, question, path = await asked(here)
    answer = await here.client().post(path, json={"answer": "yes", "resolved_by": "me"})
    assert answer.status_code == 200
    assert answer.json() == {
        "interrupt_id": question,
        "status": "resolved",
        "resolved_at": "2026-05-28T20:26:40.000Z",
    }
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")


async def test_lists_have_the_known_shape(here: Served) -> None:
    run_id, question, _ = await asked(here, context="c", priority="high")
    for path in (f"/v1/runs/{run_id}/interrupts", "/v1/users/default/interrupts", "/v1/interrupts?status=all"):
        actual = (await here.client().get(path)).json()
        assert actual["total"] == 1
        [row] = actual["interrupts"]
        assert (row["interrupt_id"], row["run_id"], row["kind"]) == (question, run_id, "question")
        assert (row["status"], row["question"], row["options"]) == ("pending", "Shall I?", ["yes", "no"])
        assert (row["context"], row["priority"], row["user_id"]) == ("c", "high", "default")
        assert row["expires_at"] > row["created_at"]
        events = (await here.client().get("/v1/events", params={"run_id": run_id})).json()["events"]
        assert [event["type"] for event in events if event["seq"] == row["seq"]] == ["InterruptionOpened"]
        assert (row["answer"], row["resolved_at"], row["resolved_by"]) == (None, None, None)
    nobody = (await here.client().get("/v1/users/nobody/interrupts?status=all")).json()
    assert nobody == {"interrupts": [], "total": 0, "next": None}
    assert (await here.client().get("/v1/interrupts?status=odd")).status_code == 400


async def test_a_stopped_turn_is_acknowledged_in_the_known_shape(here: Served) -> None:
    run_id = await begun(here, interactive=True)
    answer = await here.client().post(f"/v1/runs/{run_id}/cancel", json={"reason": "stop talking"})
    assert (answer.status_code, answer.json()) == (200, {"run_id": run_id, "stopped": True, "parked": True})
    again = await here.client().post(f"/v1/runs/{run_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "not_mid_turn")


async def test_the_states_of_a_users_runs_are_a_stream(here: Served) -> None:
    wire = Wire(here.app, "GET", "/v1/users/default/agents/stream?status=completed&agent=soaker").begin()
    text = await wire.until("event: stream_open")
    assert '"filter_status":["completed"]' in text
    await here.run()
    await wire.until('"status":"completed"')
    wire.leave()
    wire.task.cancel()  # type: ignore[union-attr]
