import asyncio
from pathlib import Path

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import ProducerRecord
from loomlog.projections.engine.cursors import CursorRow
from loomlog.projections.run_queries import ActiveRuns
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import ModelMarked, ProviderProbed
from loomlog.services.api import operator_endpoints as module
from loomlog.services.api import process_handlers
from loomlog.services.api.app import build_app
from loomlog.services.application import limits
from loomlog.services.application.errors import unavailable
from loomlog.services.application.resources import TOPICS
from tests.services.api.serving import Served, Wire, service_of
from tests.services.application.world import IVY, READER

# --- health ----------------------------------------------------------------------------------------------------------


async def test_health_has_the_fields_existing_probes_read(here: Served) -> None:
    actual = (await here.client(None).get("/healthz")).json()
    assert actual["ok"] is True
    assert (actual["version"], actual["replica_id"], actual["replicas"], actual["metrics_enabled"]) == (
        "1.2.3",
        "tests",
        [],
        True,
    )
    assert actual["uptime_seconds"] >= 0
    assert {"commit", "built"} <= set(actual)


async def test_readiness_is_good_when_both_neighbours_answer(here: Served) -> None:
    answer = await here.client(None).get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "missing": []})


async def test_readiness_names_what_is_missing_and_nothing_more(here: Served) -> None:
    here.world.postgres_is_away = True
    answer = await here.client(None).get("/readyz")
    assert answer.status_code == 503
    options = {
        "ready": False,
        "missing": ["postgres"],
        "code": "not_ready",
        "error": "the API does not reach: postgres",
    }
    assert answer.json() == options


async def test_readiness_tells_read_models_that_were_never_made(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_tables() -> list[CursorRow]:
        raise unavailable("projection", Permanent("no table", kind="not_found")) from Permanent(
            "no table", kind="not_found"
        )

    monkeypatch.setattr(here.world.layer.projection, "cursors", no_tables)
    assert (await here.client(None).get("/readyz")).json()["missing"] == ["read_models"]


async def test_readiness_is_bounded_when_the_broker_hangs(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_WAIT_S", 0.02)

    async def hang(topic: str, partition: int) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(here.world.log, "end_offset", hang)
    answer = await here.client(None).get("/readyz")
    assert answer.json()["missing"] == ["broker"]


async def test_a_probe_in_a_hurry_does_not_ask_the_neighbours_again(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def counting(topic: str, partition: int) -> int:
        nonlocal asked
        asked += topic == TOPICS.events  # the owner of entities asks for its own topic
        raise Transient("away", kind="unavailable")

    monkeypatch.setattr(here.world.log, "end_offset", counting)
    responses = await asyncio.gather(*(here.client(None).get("/readyz") for _ in range(10)))
    assert {answer.status_code for answer in responses} == {503}
    assert asked == 1


async def test_while_starting_readiness_tells_what_is_waited_for(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    service.readiness.missing["broker"] = "kafka://user:secret@host"
    text = await Wire(build_app(service), "GET", "/readyz", caller=None).begin().done()
    assert '"missing":["broker"]' in text
    assert "secret" not in text


# --- metrics ---------------------------------------------------------------------------------------------------------


async def test_metrics_speak_the_prometheus_text_format(here: Served) -> None:
    await here.run()
    answer = await here.client().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for name in (
        "loomcycle_process_rss_bytes",
        "loomcycle_concurrency_active",
        "loomcycle_concurrency_queued",
        "loomcycle_build_info",
    ):
        assert f"# TYPE {name} gauge" in answer.text
    assert 'loomcycle_build_info{commit="abc",version="1.2.3"} 1.0' in answer.text
    assert "loomlog_commands_appended 1.0" in answer.text
    assert "loomlog_events_seen 4.0" in answer.text
    assert "loomlog_run_start_seconds_count 1.0" in answer.text


async def test_the_gauge_of_active_runs_counts_open_runs_parked_ones_too(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.client().post(
        "/v1/runs:batch", json={"spawns": [{"agent": "parker", "prompt": "x", "interactive": True}]}
    )
    wire = Wire(here.app, "POST", "/v1/runs", body=b'{"agent":"silent","prompt":"x","user_id":"zoe"}').begin()
    await wire.until("event: started")
    assert "\nloomcycle_concurrency_active 2.0\n" in (await here.client().get("/metrics")).text

    async def no_answer() -> list[ActiveRuns]:
        raise unavailable("projection", Transient("no Postgres", kind="unavailable"))

    monkeypatch.setattr(here.world.layer.queries, "count_active", no_answer)
    assert "\nloomcycle_concurrency_active NaN\n" in (await here.client().get("/metrics")).text
    wire.task.cancel()  # type: ignore[union-attr]


async def test_metrics_that_are_switched_off_are_not_found(here: Served) -> None:
    here.service.metrics_enabled = False
    answer = await here.client().get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_metrics_work_before_anything_else_does(tmp_path: Path) -> None:
    wire = Wire(build_app(service_of(None, tmp_path)), "GET", "/metrics").begin()
    assert "loomcycle_process_rss_bytes" in await wire.done()


# --- views -----------------------------------------------------------------------------------------------------------


async def test_a_caller_learns_who_it_is(here: Served) -> None:
    actual = (await here.client(IVY).get("/v1/_me")).json()
    assert (actual["tenant_id"], actual["subject"], actual["scopes"]) == ("acme", "ivy", ["substrate:user"])
    assert (actual["is_admin"], actual["is_isolated"], actual["legacy"]) == (False, True, False)
    assert (await here.client().get("/v1/_me")).json()["is_admin"] is True


async def test_the_routing_view_shows_providers_and_plans(here: Served) -> None:
    actual = (await here.client().get("/v1/_routing")).json()
    assert {"mock", "anthropic"} <= {provider["provider"] for provider in actual["providers"]}
    assert {"default", "resilient"} <= {plan["name"] for plan in actual["user_tiers"]}
    (middle,) = (tier for tier in actual["user_tiers"][0]["tiers"] if tier["tier"] == "middle")
    assert middle["cascade"][0] == {
        "provider": "mock", "model": "mock-generic", "primary": True, "available": True, "selected": True,
        "stalled": False, "rate_limited": False, "reachable": True,
    }  # fmt: skip
    assert isinstance(actual["search"], list)


async def test_why_a_provider_cannot_be_used_is_for_administrators(here: Served) -> None:
    everybody = (await here.client(READER).get("/v1/_routing")).json()
    assert not any("why_not" in provider for provider in everybody["providers"])
    administrators = (await here.client().get("/v1/_routing")).json()
    (anthropic,) = (p for p in administrators["providers"] if p["provider"] == "anthropic")
    assert "ANTHROPIC_API_KEY" in anthropic["why_not"]


async def test_the_models_of_a_provider_are_asked_of_it(here: Served) -> None:
    actual = (await here.client().get("/v1/_providers/mock/models")).json()
    assert "mock-generic" in actual["models"]
    answer = await here.client().get("/v1/_providers/nobody/models")
    assert (answer.status_code, answer.json()["code"]) == (404, "provider_unknown")
    answer = await here.client().get("/v1/_providers/anthropic/models")
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Transient("mock 500: broken", kind="unavailable", status=500), 502, "provider_list_failed"),
        (Permanent("mock 401: no", kind="unauthorised", status=401), 503, "provider_unavailable"),
    ],
)
async def test_a_provider_that_fails_is_told_apart(here: Served, error: Exception, status: int, code: str) -> None:
    await here.client().get("/v1/_providers/mock/models")

    async def fail() -> list[str]:
        raise error

    here.service.models["mock"].list_models = fail  # type: ignore[method-assign]
    answer = await here.client().get("/v1/_providers/mock/models")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_provider_that_hangs_is_given_up(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_handlers, "LIST_MODELS_WAIT_S", 0.02)
    await here.client().get("/v1/_providers/mock/models")

    async def hang() -> list[str]:
        await asyncio.Event().wait()
        return []

    here.service.models["mock"].list_models = hang  # type: ignore[method-assign]
    answer = await here.client().get("/v1/_providers/mock/models")
    assert (answer.status_code, answer.json()["code"]) == (502, "provider_list_failed")


async def test_clients_that_ask_for_the_resolver_and_the_state_get_an_answer(here: Served) -> None:
    matrix = (await here.client().get("/v1/_resolver")).json()
    assert matrix["providers"]["mock"]["reachable"] is True
    assert (await here.client().get("/v1/_state")).json() == {
        "state": "running",
        "paused_runs_count": 0,
        "pauses": [],
    }
    assert (await here.client().get("/v1/_models")).json()["models"][0]["name"] == "quick"


async def test_the_marks_of_runtimes_show_in_the_matrix_and_the_cascade(here: Served) -> None:
    stalled = ModelMarked(provider="mock", model="mock-generic", mark="stalled", at_ms=1)
    here.world.layer.provider_table.apply_locally(stalled)
    matrix = (await here.client().get("/v1/_resolver")).json()
    assert matrix["providers"]["mock"]["models"]["mock-generic"]["stalled"] is True
    actual = (await here.client().get("/v1/_routing")).json()
    assert actual["user_tiers"][0]["tiers"][0]["cascade"][0]["stalled"] is True


async def test_a_probe_is_made_by_a_runtime_and_answers_with_the_matrix(here: Served) -> None:
    probing = asyncio.create_task(here.client().post("/v1/_resolve/probe", json={}))
    board = here.world.layer.provider_table
    assert await board.wait_for(lambda: bool(board.table.request_ids), timeout_s=30.0)
    for name, provider in here.service.providers.items():
        if provider.is_usable:
            actual = ProviderProbed(
                provider=name, reachable=True, models=("m",), request_id=board.table.request_ids[-1], at_ms=5
            )
            here.world.log.put(board.topic, 0, [ProducerRecord(key=None, value=local_codec().encode(actual))])
    answer = await probing
    assert answer.status_code == 200, answer.text
    assert answer.json()["providers"]["mock"]["models"]["m"]["listed"] is True
    assert answer.json()["providers"]["mock"]["last_check"] == "1970-01-01T00:00:00.005Z"
    assert answer.headers["x-loomlog-position"] == "loom.provider.events/0:0"


async def test_a_probe_that_no_runtime_answers_says_so(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBE_WAIT_S", 0.02)
    answer = await here.client().post("/v1/_resolve/probe", json={})
    assert (answer.status_code, answer.json()["code"]) == (503, "probe_unavailable")


async def test_a_probe_that_cannot_be_recorded_is_not_made(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.world.log, "lose_acks", 10**9)
    answer = await here.client().post("/v1/_resolve/probe", json={})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_unavailable")
    assert answer.json()["error"].startswith("nothing was done")


async def test_open_runs_are_counted_by_user_and_provider_and_those_at_work_apart(here: Served) -> None:
    await here.client().post(
        "/v1/runs:batch", json={"spawns": [{"agent": "parker", "prompt": "x", "interactive": True}]}
    )
    wire = Wire(here.app, "POST", "/v1/runs", body=b'{"agent":"silent","prompt":"x","user_id":"zoe"}').begin()
    await wire.until("event: started")
    actual = (await here.client().get("/v1/_concurrency/stats")).json()
    assert actual == {
        "active": 2,
        "at_work": 1,
        "queued": 0,
        "per_user": {"default": 1, "zoe": 1},
        "providers": {"mock": {"active": 2, "queued": None}},
    }
    wire.task.cancel()  # type: ignore[union-attr]


async def test_presets_are_listed_and_shown_to_administrators(here: Served) -> None:
    units = (await here.client().get("/v1/_presets")).json()["units"]
    assert [unit["name"] for unit in units] == ["base", "local", "memory"]
    assert {unit["kind"] for unit in units} == {"preset"}
    shown = (await here.client().get("/v1/_presets/local")).json()
    assert "!prepend [ollama-local]" in shown["content"]
    absent = await here.client().get("/v1/_presets/bse")
    assert (absent.status_code, absent.json()["code"]) == (404, "unknown_preset")
    assert "did you mean base?" in absent.json()["error"]
    assert (await here.client(READER).get("/v1/_presets")).status_code == 403


async def test_the_template_of_settings_is_text_for_administrators(here: Served) -> None:
    answer = await here.client().get("/v1/_env_template")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# LOOMLOG_LISTEN_ADDR=127.0.0.1:8787" in answer.text
    assert (await here.client(READER).get("/v1/_env_template")).status_code == 403


async def test_the_lag_of_the_read_models_is_for_administrators(here):
    answer = await here.client().get("/v1/_projections")
    assert answer.status_code == 200, answer.text
    lag = answer.json()
    assert lag["topic"] == "loom.run.events"
    assert [one["partition"] for one in lag["partitions"]] == sorted(here.service.application.barrier.log_ends())
    assert lag["lag"] == sum(one["lag"] for one in lag["partitions"])


async def test_what_the_read_models_lack_is_for_administrators(here: Served) -> None:
    answer = await here.client().get("/v1/_projections/problems")
    assert answer.json() == {"count": 0, "problems": [], "quarantined_count": 0, "quarantined": []}
    assert (await here.client().get("/v1/_projections/problems?limit=0")).status_code == 400
    assert (await here.client(READER).get("/v1/_projections/problems")).status_code == 403
