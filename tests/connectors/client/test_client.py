"""The client against an API that answers from a script."""

import httpx
import pytest

from loomlog.connectors.client import ApiError, ApiUnavailable, Client, Unauthorized, Unreachable
from tests.services.cli.fake_api import FakeApi, Scripted, broken, frame, frames, refused, row
from tests.sleeps import noted_sleeps

DONE = frame("done", {"type": "done", "stop_reason": "end_turn"}, 1024)


def text(words: str, seq: int | None = None) -> bytes:
    return frame("text", {"type": "text", "text": words}, seq)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    noted_sleeps(monkeypatch, "loomlog.connectors.client.run_stream", lambda seconds: None)


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi()
    fake.rows["r_1"] = row()
    return fake


def client_of(api: FakeApi, token: str = "") -> Client:
    return Client("http://api.test", token, transport=httpx.MockTransport(api._answer))


async def test_a_run_is_started_with_an_idempotency_key_and_has_its_ids(api: FakeApi) -> None:
    api.streams.append(frames(text("a term", 513), DONE))
    async with client_of(api, "secret") as client:
        run = await client.start_run("assistant", "What is a term?", user_id="ada", idempotency_key="order-17")
        assert (run.run_id, run.ids.session_id, run.ids.position) == ("r_1", "s_1", "loom.run.events/2:17")
        assert [frame.name async for frame in run.frames()] == ["session", "agent", "text", "done"]
    (request,) = api.asked
    assert request.headers["idempotency-key"] == "order-17"
    assert request.headers["authorization"] == "Bearer secret"
    assert api.bodies("/v1/runs") == [{"agent": "assistant", "prompt": "What is a term?", "user_id": "ada"}]


async def test_positions_of_earlier_writes_are_sent_with_starts_and_reads(api: FakeApi) -> None:
    api.streams.append(frames(text("a term", 513), DONE))
    async with client_of(api) as client:
        run = await client.start_run("assistant", "What?", position="loom.entity.events/0:7")
        await run.row(position="loom.run.events/2:17,loom.entity.events/0:1")
        await run.row()
    assert [request.headers.get("x-loomlog-position") for request in api.asked] == [
        "loom.entity.events/0:7",
        "loom.run.events/2:17,loom.entity.events/0:1",
        None,
    ]


async def test_a_session_is_continued_by_its_own_route(api: FakeApi) -> None:
    api.streams.append(frames(DONE))
    async with client_of(api) as client:
        await client.start_run("assistant", "And then?", session_id="s_1")
    assert api.asked[0].url.path == "/v1/sessions/s_1/messages"


async def test_the_result_has_the_text_of_the_last_turn_once(api: FakeApi) -> None:
    result_frame = frame("tool_result", {"type": "tool_result"}, 700)
    api.streams.append(frames(text("I look", 513), result_frame, text("a "), text("term", 900), DONE))
    async with client_of(api) as client:
        result = await (await client.start_run("assistant", "What?")).result()
    assert (result.status, result.text, result.error) == ("completed", "a term", "")
    assert result.row["cost_micros"] == 1234


async def test_previews_of_a_lost_connection_are_not_in_the_result_twice(api: FakeApi) -> None:
    api.streams.append(broken(frames(text("one, ", 513), text("tw"))))
    api.streams.append(frames(text("two", 514), DONE, started=False))
    async with client_of(api) as client:
        result = await (await client.start_run("assistant", "Count")).result()
    assert result.text == "one, two"


async def test_a_failed_run_has_its_error(api: FakeApi) -> None:
    api.rows["r_1"] = row(status="failed", error="the model is overloaded")
    api.streams.append(frames(frame("error", {"type": "error", "error": "the model is overloaded"}, 513)))
    async with client_of(api) as client:
        result = await (await client.start_run("assistant", "Hi")).result()
    assert (result.status, result.error) == ("failed", "the model is overloaded")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(404, "not_found", ApiError), (401, "unauthorized", Unauthorized), (503, "starting", ApiUnavailable)],
)
async def test_a_refusal_is_typed_and_has_code_request_id_and_retry_after(
    api: FakeApi, status: int, code: str, kind: type[ApiError]
) -> None:
    body = {"code": code, "error": "no run r_2", "request_id": "q_7"}
    api.answers["GET", "/v1/runs/r_2"] = Scripted(status=status, body=body, headers={"retry-after": "5"})
    async with client_of(api) as client:
        with pytest.raises(kind) as refusal:
            await client.run("r_2").row()
    assert type(refusal.value) is kind
    assert (refusal.value.code, refusal.value.request_id, refusal.value.retry_after_s) == (code, "q_7", 5.0)


async def test_a_start_that_is_refused_raises_at_once(api: FakeApi) -> None:
    api.streams.append(refused(400, "bad_request", "no agent nosuch"))
    async with client_of(api) as client:
        with pytest.raises(ApiError, match="No agent nosuch"):
            await client.start_run("nosuch", "Hi")


async def test_an_api_that_does_not_answer_is_unreachable() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    async with Client("http://api.test", transport=httpx.MockTransport(refuse)) as client:
        with pytest.raises(Unreachable, match=r"http://api\.test does not answer"):
            await client.runs()


async def test_a_run_is_steered_by_its_routes(api: FakeApi) -> None:
    for path in ("/v1/runs/r_1/input", "/v1/runs/r_1/interrupts/intr_1/resolve", "/v1/agents/a_1/cancel"):
        api.answers["POST", path] = Scripted(body={})
    async with client_of(api) as client:
        run = client.run("r_1")
        await run.send("and faster", idempotency_key="k1")
        await run.answer("intr_1", "yes")
        await run.cancel("enough")
    assert api.bodies("/v1/runs/r_1/input") == [{"text": "and faster"}]
    assert api.bodies("/v1/runs/r_1/interrupts/intr_1/resolve") == [{"answer": "yes"}]
    assert api.bodies("/v1/agents/a_1/cancel") == [{"reason": "enough"}]
    assert api.asked[0].headers["idempotency-key"] == "k1"
