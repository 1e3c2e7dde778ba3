import orjson

from loomlog.projections.runs import RunRow
from loomlog.services.application.queries.audit_log import EventView
from loomlog.services.application.queries.run_json import event_json, frame_json, run_json, session_json
from loomlog.services.application.resources import TOPICS
from loomlog.services.application.runs.requests import RunRequest
from tests.services.application.world import ADMIN_CALLER, pieces_of, world

PARITY = {
    "agent_id", "run_id", "session_id", "agent", "user_id", "parent_agent_id", "status", "started_at", "completed_at",
    "stop_reason", "error", "usage", "last_heartbeat_at", "live", "interactive", "awaited_state", "awaited_on",
    "replica_id", "parent_context", "resident", "resident_state",
}  # fmt: skip
"""Reference surfaces 1.2."""


async def finished_row(**fields: object) -> RunRow:
    async with world() as made:
        request = RunRequest(agent="soaker", prompt="go", **fields)  # type: ignore[arg-type]
        accepted = await made.layer.runs.start(ADMIN_CALLER, request)
        await pieces_of(accepted.stream)
        return await made.layer.queries.run(ADMIN_CALLER, accepted.run_id)


def through_json(value: object) -> dict[str, object]:
    actual = orjson.loads(orjson.dumps(value))
    assert isinstance(actual, dict)
    return actual


async def test_a_run_has_every_field_existing_clients_read() -> None:
    shown = through_json(run_json(await finished_row(), TOPICS.events))
    assert set(shown) >= PARITY
    assert (shown["status"], shown["live"], shown["stop_reason"]) == ("completed", False, "end_turn")
    assert str(shown["started_at"]).endswith("Z")
    assert shown["completed_at"] is not None


async def test_what_nobody_said_is_null_and_never_left_out() -> None:
    shown = through_json(run_json(await finished_row(), TOPICS.events))
    for name in ("parent_agent_id", "parent_context", "metadata", "error", "awaited_state", "replica_id"):
        assert shown[name] is None, name


async def test_json_columns_come_out_as_values() -> None:
    shown = through_json(
        run_json(await finished_row(metadata={"n": 1, "s": "x"}, parent_context={"function_key": "f"}), TOPICS.events)
    )
    assert shown["metadata"] == {"n": 1, "s": "x"}
    assert shown["parent_context"] == {"function_key": "f"}


async def test_a_running_run_is_live_and_not_completed() -> None:
    row = (await finished_row())._replace(status="running", ended_at_ms=None)
    shown = run_json(row, TOPICS.events)
    assert (shown["live"], shown["completed_at"]) == (True, None)


async def test_a_context_that_nobody_has_counted_is_not_called_empty() -> None:
    row = (await finished_row())._replace(max_context_tokens=1_000, context_tokens=0)
    assert run_json(row, TOPICS.events)["context"] is None
    assert run_json(row._replace(context_tokens=10), TOPICS.events)["context"] == {
        "used_tokens": 10,
        "max_tokens": 1_000,
        "used_pct": 1.0,
    }


async def test_a_session_and_a_frame_as_the_transcript_shows_them() -> None:
    async with world() as made:
        accepted = await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent="soaker", prompt="go"))
        await pieces_of(accepted.stream)
        transcript = await made.layer.queries.transcript(ADMIN_CALLER, accepted.session_id)
    first = through_json(frame_json(transcript.rows[0]))
    assert first["type"] == "user_input"
    assert first["payload"] == [
        {"role": "system", "content": [{"type": "trusted-text", "text": "Be short.", "source": "definition"}]},
        {"role": "user", "content": [{"type": "trusted-text", "text": "go"}]},
    ]
    assert "payload" not in through_json(frame_json(transcript.rows[2]))
    assert session_json(accepted.session_id, transcript.newest)["last_run_id"] == accepted.run_id


def test_an_event_names_its_place_in_the_log() -> None:
    view = EventView(
        topic="loom.run.events", partition=3, offset=42, type="RunParked", run_id="r_1", tenant="acme", term=7, seq=2,
        at_ms=1_780_000_000_000, cause_id="", cause_offset=-1, payload={"since_turn": 1},
    )  # fmt: skip
    shown = through_json(event_json(view))
    assert shown["position"] == "loom.run.events/3:42"
    assert (shown["cause_id"], shown["cause_offset"], shown["stale"]) == (None, None, False)
    assert shown["at"] == "2026-05-28T20:26:40.000Z"
