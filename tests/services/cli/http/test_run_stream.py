import asyncio

import httpx
import pytest

from loomlog.connectors.client.errors import LASTING_CODES
from loomlog.connectors.client.run_stream import (
    INITIAL_BACKOFF_S,
    MAX_BACKOFF_S,
    RECONNECTED,
    WAITING,
    Frame,
    RunStream,
)
from loomlog.services.cli.errors import UNREACHABLE, CliError, Unreachable
from loomlog.services.cli.http.api import ApiClient, ApiError
from tests.services.cli.fake_api import IDS, POSITION, FakeApi, Scripted, broken, frame, frames, refused, row
from tests.sleeps import noted_sleeps

TEXT = frame("text", {"type": "text", "text": "hello"}, 513)
PREVIEW = frame("text", {"type": "text", "text": "hel"})
DONE = frame("done", {"type": "done", "stop_reason": "end_turn"}, 1024)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Pauses between connections are waited for in no time; how long they would have been is kept."""
    pauses: list[float] = []
    noted_sleeps(monkeypatch, "loomlog.connectors.client.run_stream", pauses.append)
    return pauses


async def seen(followed: RunStream) -> list[str]:
    return [frame.name async for frame in followed.frames()]


def new_run(api, **more) -> RunStream:
    return RunStream(api, body={"agent": "assistant", "prompt": "hi"}, idempotency_key="k1", **more)


def held_up(release: asyncio.Event, waiting: list[str]) -> ApiClient:
    """An API that answers a start when it is let go, and never before. `waiting` are the requests it holds."""
    fake = FakeApi()
    fake.streams.append(frames(DONE))

    async def answer(request: httpx.Request) -> httpx.Response:
        waiting.append(request.url.path)
        try:
            await release.wait()
        finally:
            waiting.remove(request.url.path)
        return fake._answer(request)

    return ApiClient("http://api.test", transport=httpx.MockTransport(answer))


async def test_a_new_run_is_started_with_a_key_and_followed_to_its_end():
    fake = FakeApi()
    fake.streams.append(frames(TEXT, DONE))
    async with fake.client() as api:
        followed = new_run(api)
        assert await seen(followed) == ["session", "agent", "text", "done"]
    assert (followed.ids.run_id, followed.ids.session_id, followed.ids.position) == ("r_1", "s_1", POSITION)
    assert followed.final_frame == Frame(name="done", data={"type": "done", "stop_reason": "end_turn"}, seq=1024)
    assert fake.asked[0].headers["idempotency-key"] == "k1"
    assert fake.bodies("/v1/runs") == [{"agent": "assistant", "prompt": "hi"}]


async def test_a_lost_stream_goes_on_after_the_last_id():
    fake = FakeApi()
    fake.streams += [broken(frames(TEXT, PREVIEW)), frames(DONE, started=False)]
    async with fake.client() as api:
        assert await seen(new_run(api)) == ["session", "agent", "text", "text", RECONNECTED, "agent", "done"]
    again = fake.asked[1]
    assert (again.method, again.url.path) == ("GET", "/v1/runs/r_1/stream")
    assert again.headers["last-event-id"] == "513"


async def test_a_stream_that_just_ends_before_the_run_is_resumed_too():
    fake = FakeApi()
    fake.streams += [frames(TEXT), frames(DONE, started=False)]
    async with fake.client() as api:
        assert (await seen(new_run(api)))[-1] == "done"
    assert len(fake.asked) == 2


async def test_a_start_whose_answer_was_lost_is_repeated_under_the_same_key():
    fake = FakeApi()
    fake.streams += [Scripted(breaks=True), frames(DONE)]
    async with fake.client() as api:
        assert (await seen(new_run(api)))[-1] == "done"
    assert [request.method for request in fake.asked] == ["POST", "POST"]
    assert {request.headers["idempotency-key"] for request in fake.asked} == {"k1"}


async def test_a_run_that_no_runtime_has_taken_up_is_waited_for_under_its_id():
    fake = FakeApi()
    fake.streams += [
        refused(503, "run_pending", "the run is in the log", position=POSITION, **IDS),
        refused(404, "not_found", "there is no run r_1"),
        refused(503, "not_yet", "the read models are behind"),
        frames(DONE, started=False),
    ]
    async with fake.client() as api:
        followed = new_run(api)
        assert await seen(followed) == [WAITING, "agent", "done"]
    assert followed.ids.position == POSITION
    assert [request.method for request in fake.asked] == ["POST", "GET", "GET", "GET"]


async def test_a_refused_start_is_not_repeated():
    fake = FakeApi()
    fake.streams += [refused(400, "unknown_agent", "there is no agent nobody"), frames(DONE)]
    async with fake.client() as api:
        with pytest.raises(ApiError, match="no agent nobody"):
            await seen(new_run(api))
    assert len(fake.asked) == 1


@pytest.mark.parametrize("code", sorted(LASTING_CODES))
async def test_what_waiting_does_not_cure_is_said_at_once(code, no_pauses):
    fake = FakeApi()
    fake.streams += [refused(503, code, "all is paused: deploy"), frames(DONE)]
    async with fake.client() as api:
        with pytest.raises(ApiError, match=r"^All is paused: deploy\.$") as refusal:
            await seen(new_run(api))
    assert (refusal.value.exit_code, no_pauses) == (1, [])


async def test_an_api_that_is_away_for_more_than_a_moment_is_said_once():
    fake = FakeApi()
    times: list[float] = []

    def clock() -> float:
        times.append(0.5 * len(times))
        if len(times) == 6:
            fake.streams.append(frames(DONE))
        return times[-1]

    async with fake.client() as api:
        found = [frame async for frame in new_run(api, clock=clock).frames()]
    assert [frame.name for frame in found] == [WAITING, "session", "agent", "done"]
    assert "does not answer" in found[0].data["error"]


async def test_a_lost_stream_is_waited_for_however_long_it_was_silent_before():
    fake = FakeApi()
    fake.streams += [broken(frames(TEXT)), frames(DONE, started=False)]
    names: list[str] = []
    async with fake.client() as api:
        async for one in new_run(api, clock=lambda: 100.0 * len(names)).frames():
            names.append(one.name)
    assert names == ["session", "agent", "text", RECONNECTED, "agent", "done"]


async def test_an_api_that_takes_its_time_is_said_to(monkeypatch):
    monkeypatch.setattr("loomlog.connectors.client.run_stream.REPORT_WAIT_AFTER_S", 0.0)
    release = asyncio.Event()
    names = []
    async with held_up(release, []) as api:
        async for one in new_run(api).frames():
            names.append(one.name)
            release.set()
    assert names == [WAITING, "session", "agent", "done"]


async def test_one_that_is_left_before_anything_has_come_is_left_clean(monkeypatch):
    monkeypatch.setattr("loomlog.connectors.client.run_stream.REPORT_WAIT_AFTER_S", 0.0)
    waiting: list[str] = []
    async with held_up(asyncio.Event(), waiting) as api:
        left = new_run(api).frames()
        assert (await anext(left)).name == WAITING
        assert waiting == ["/v1/runs"]
        await left.aclose()
        assert waiting == []


async def test_following_a_run_that_does_not_exist_ends_at_once():
    fake = FakeApi()
    fake.streams.append(refused(404, "not_found", "there is no run r_x"))
    async with fake.client() as api:
        with pytest.raises(ApiError, match="no run r_x"):
            await seen(RunStream(api, run_id="r_x"))


async def test_an_api_that_stays_away_is_given_up_with_what_to_do(no_pauses):
    fake = FakeApi()
    fake.streams.append(broken(frames(TEXT)))
    times = iter(range(0, 1_000, 10))
    async with fake.client() as api:
        with pytest.raises(Unreachable, match=r"does not answer.*Retried for 60 s.*loomlog runs follow r_1") as failure:
            await seen(new_run(api, clock=lambda: float(next(times))))
    assert failure.value.exit_code == UNREACHABLE
    assert no_pauses[0] == INITIAL_BACKOFF_S
    assert no_pauses == sorted(no_pauses), "pauses grow"
    assert no_pauses[-1] == MAX_BACKOFF_S


async def test_every_frame_begins_the_patience_anew(no_pauses):
    fake = FakeApi()
    fake.streams += [broken(frames(TEXT)) if not n else broken(frames(PREVIEW, started=False)) for n in range(20)]
    fake.streams.append(frames(DONE, started=False))
    times = iter(range(0, 10_000, 10))
    async with fake.client() as api:
        assert (await seen(new_run(api, clock=lambda: float(next(times)))))[-1] == "done"
    assert set(no_pauses) == {INITIAL_BACKOFF_S}


async def test_a_quarantined_run_is_not_waited_for():
    fake = FakeApi()
    fake.streams.append(frames(frame("quarantined", {"type": "quarantined", "error": "bad record"}, 2048)))
    async with fake.client() as api:
        followed = new_run(api)
        assert (await seen(followed))[-1] == "quarantined"


async def test_one_that_was_released_since_is_followed_to_its_end():
    fake = FakeApi()
    parked = frame("quarantined", {"type": "quarantined", "error": "bad record"}, 2048)
    for known in (row(status="running"), row(status="completed")):
        fake.rows["r_1"] = known
        fake.streams.append(frames(parked, frame("released", {"type": "released"}, 2304), DONE))
        async with fake.client() as api:
            assert (await seen(new_run(api)))[-2:] == ["released", "done"]
    fake.rows["r_1"] = row(status="running", quarantined=True)
    fake.streams.append(frames(parked, DONE))
    async with fake.client() as api:
        assert (await seen(new_run(api)))[-1] == "quarantined"


async def test_data_that_is_no_json_is_shown_and_not_fatal():
    fake = FakeApi()
    fake.streams.append(frames(b"event: odd\ndata: not json\n\n", DONE))
    async with fake.client() as api:
        found = [frame async for frame in new_run(api).frames()]
    assert found[2] == Frame(name="odd", data={"text": "not json"})


async def test_an_endless_frame_is_a_failure_with_the_run_in_it(monkeypatch):
    monkeypatch.setattr("loomlog.connectors.client.run_stream.MAX_FRAME_BYTES", 200)
    fake = FakeApi()
    fake.streams.append(frames(b"data: " + b"x" * 500))
    async with fake.client() as api:
        with pytest.raises(CliError, match="stream of r_1 has an event of more than"):
            await seen(new_run(api))
