from urllib.parse import unquote

import httpx
import pytest

from loomlog.services.cli.errors import UNREACHABLE, CliError, Unreachable, UsageError
from loomlog.services.cli.http.api import ApiClient, ApiError, ApiUnavailable, quote_segment
from tests.services.cli.fake_api import FakeApi, Scripted, refused


async def test_a_read_gives_its_json_and_shows_the_token():
    fake = FakeApi()
    fake.rows["r_1"] = {"run_id": "r_1"}
    async with fake.client("secret") as api:
        assert await api.get("/v1/runs/r_1", {"limit": 2, "cursor": ""}) == {"run_id": "r_1"}
    assert fake.asked[0].headers["authorization"] == "Bearer secret"
    assert dict(fake.asked[0].url.params) == {"limit": "2"}


async def test_no_token_means_no_header():
    fake = FakeApi()
    fake.rows["r_1"] = {}
    async with fake.client() as api:
        await api.get("/v1/runs/r_1")
    assert "authorization" not in fake.asked[0].headers


async def test_a_write_gives_the_position_of_its_event():
    fake = FakeApi()
    answer = Scripted(body={"cancelled": True}, headers={"X-Loomlog-Position": "loom.run.events/1:9"})
    fake.answers["POST", "/v1/agents/a_1/cancel"] = answer
    async with fake.client() as api:
        found = await api.post("/v1/agents/a_1/cancel", {"reason": "x"})
    assert (found.value, found.position) == ({"cancelled": True}, "loom.run.events/1:9")


@pytest.mark.parametrize("typed", ["..", ".", "../x", "a/b", "a?b#c", "ü %41"])
async def test_what_somebody_types_for_an_id_stays_one_segment_of_the_path(typed):
    fake = FakeApi()
    async with fake.client() as api:
        with pytest.raises(ApiError):
            await api.get(f"/v1/runs/{quote_segment(typed)}/state")
    path = fake.asked[0].url.raw_path.decode()
    assert path.count("/") == 4
    assert unquote(path) == f"/v1/runs/{typed}/state"


async def test_a_refusal_is_a_sentence_with_its_code_and_details():
    fake = FakeApi()
    fake.answers["POST", "/x"] = refused(409, "agent_id_in_use", "the handle a_1 is in use", run_id="r_9")
    async with fake.client() as api:
        with pytest.raises(ApiError, match=r"^The handle a_1 is in use\.$") as refusal:
            await api.post("/x", {})
    assert (refusal.value.code, refusal.value.details["run_id"], refusal.value.exit_code) == (
        "agent_id_in_use",
        "r_9",
        1,
    )


@pytest.mark.parametrize("said", ["r_01 cannot be forked.", "overrides.tools: 3 of them", "spawns[2]: no agent"])
async def test_a_sentence_that_begins_with_a_name_keeps_it_as_it_is(said):
    fake = FakeApi()
    fake.answers["POST", "/x"] = refused(400, "bad_request", said)
    async with fake.client() as api:
        with pytest.raises(ApiError) as refusal:
            await api.post("/x", {})
    assert str(refusal.value).rstrip(".") == said.rstrip(".")


async def test_something_that_is_away_behind_the_api_counts_as_not_reachable():
    fake = FakeApi()
    fake.answers["GET", "/x"] = refused(503, "log_unavailable", "the log cannot be reached")
    async with fake.client() as api:
        with pytest.raises(ApiUnavailable) as refusal:
            await api.get("/x")
    assert isinstance(refusal.value, Unreachable)
    assert refusal.value.exit_code == UNREACHABLE


@pytest.mark.parametrize(("token", "said"), [("", "a token is required"), ("old", "the token is unknown")])
async def test_a_missing_or_wrong_token_says_where_to_put_one(token, said):
    fake = FakeApi()
    fake.answers["GET", "/x"] = refused(401, "unauthorized", "no token")
    async with fake.client(token) as api:
        with pytest.raises(UsageError, match=f"{said}.*LOOMLOG_TOKEN"):
            await api.get("/x")


async def test_an_api_that_does_not_answer_says_what_to_do():
    async with FakeApi().client() as api:
        with pytest.raises(Unreachable, match=r"http://api\.test does not answer \(ConnectError.*loomlog up"):
            await api.post("/v1/runs", {})


@pytest.mark.parametrize("status", [200, 404, 501])
async def test_another_server_at_the_address_is_recognised(status):
    transport = httpx.MockTransport(lambda request: httpx.Response(status, text="<html>hello</html>"))
    async with ApiClient("http://api.test", transport=transport) as api:
        with pytest.raises(CliError, match="LOOMLOG_BASE_URL") as failure:
            await api.get("/v1/runs")
    assert "<html>" not in str(failure.value)


async def test_a_refused_stream_is_a_refusal_too():
    fake = FakeApi()
    fake.streams.append(refused(400, "unknown_agent", "there is no agent nobody"))
    async with fake.client() as api:
        with pytest.raises(ApiError, match="There is no agent nobody"):
            async with api.stream("POST", "/v1/runs", body={}):
                raise AssertionError("it was refused")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8787", "http://localhost:1", "http://[::1]:1"])
def test_this_machine_is_not_asked_through_a_proxy(url, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:3128")
    assert ApiClient(url).http._mounts == {}
    assert ApiClient("http://loomlog.test").http._mounts != {}
