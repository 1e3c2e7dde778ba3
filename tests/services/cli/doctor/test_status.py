import json
from dataclasses import replace

import httpx
import pytest
from typer.testing import CliRunner

from loomlog.services.cli.doctor import status
from loomlog.services.cli.doctor.status import collect_status
from loomlog.services.cli.errors import Unreachable
from loomlog.services.cli.log import projections
from loomlog.services.cli.main import app
from loomlog.services.cli.stack.runtime_role import RuntimeRole
from loomlog.services.cli.terminal.output import console
from tests.services.cli.fake_api import FakeApi, Scripted, refused
from tests.services.cli.log.test_projections import lag
from tests.services.cli.places import child, settings_in, wiring, with_stack

INSIGHTS = {
    "is_whole": False,
    "lag_records": 0,
    "windows": {
        "5m": {
            "runs": 3,
            "runs_per_minute": 0.6,
            "error_ratio": 0.5,
            "input_tokens_per_minute": 9.4,
            "duration_ms": {"p95": 98},
        }
    },
}


@pytest.fixture
def fake(monkeypatch) -> FakeApi:
    fake = FakeApi()
    fake.answers["GET", "/readyz"] = Scripted(body={"ready": True, "missing": []})
    fake.answers["GET", "/insights"] = Scripted(body=INSIGHTS)
    monkeypatch.setattr(status, "ApiClient", lambda *arguments: fake.client())

    async def given(cli):
        return lag()

    monkeypatch.setattr(projections, "read_lag", given)
    return fake


def running(tmp_path, *children):
    known = wiring(tmp_path, insights_url="http://127.0.0.1:2")
    return with_stack(settings_in(tmp_path), *(children or (child("api", url="http://127.0.0.1:1"),)), known=known)


async def test_a_stack_that_runs_is_told_with_all_its_parts(fake, tmp_path, capsys):
    actual = await collect_status(running(tmp_path))
    assert (actual["supervised"], actual["complete"], actual["api"]["ready"]) == (True, True, True)
    assert actual["volumes"] == {"source": str(tmp_path / "src"), "out": str(tmp_path / "results")}
    assert json.loads(json.dumps(actual)) == actual
    status._print_status(console(), actual)
    shown = capsys.readouterr().out
    assert "The stack runs in" in shown
    assert "open: no token is set" in shown
    assert "7 records behind, 1 partition" in shown
    assert "last 5m: 3 runs, 0.6 a minute, 50% failed\n" in shown
    assert "9 tokens a minute, 95% within 98 ms" in shown
    assert "still reading its history" in shown


async def test_every_line_fits_100_columns(fake, tmp_path, capsys, monkeypatch):
    async def given(pid):
        return RuntimeRole(name="spare", partitions=16, ingress_lag=1_234_567)

    async def moves(pid, *, listens):
        return None

    monkeypatch.setattr(status, "read_role", given)
    monkeypatch.setattr(status, "find_stall", moves)
    monkeypatch.setattr(status, "duration", lambda seconds: "999 h 59 min")
    monkeypatch.setattr(status, "_memory_bytes", lambda pid: 1_234_567_890)
    window = {
        "runs": 123_456,
        "runs_per_minute": 1_234.6,
        "error_ratio": 1.0,
        "input_tokens_per_minute": 123_456_789,
        "duration_ms": {"p95": 3_599_000},
    }
    fake.answers["GET", "/insights"] = Scripted(body={**INSIGHTS, "windows": {"5m": window}})
    projector = lag()["projectors"][0] | {"topic": "loom.entity.events", "state": "rebuilding", "lag_ms": 360_000}
    projector |= {"applied_events": 123_456_789, "owner": "host-12345"}
    fake.answers["GET", "/v1/_projections"] = Scripted(body=lag() | {"projectors": [projector]})
    children = [child(name, url="http://127.0.0.1:65535") for name in ("runtime-2", "insights", "projector")]
    status._print_status(console(), await collect_status(running(tmp_path, *children)))
    shown = capsys.readouterr().out.replace(str(tmp_path), "")
    assert "123.5M tokens" in shown
    assert [line for line in shown.splitlines() if len(line) > 100] == []


async def test_what_could_not_be_projected_is_told_with_where_to_look(fake, tmp_path, capsys, monkeypatch):
    async def given(cli):
        return lag(problems=1)

    monkeypatch.setattr(projections, "read_lag", given)
    status._print_status(console(), await collect_status(running(tmp_path)))
    assert "1 record could not be projected: `loomlog projections problems` lists them" in capsys.readouterr().out


async def test_a_part_that_does_not_answer_is_a_line_and_the_rest_is_shown(fake, tmp_path, capsys, monkeypatch):
    async def away(cli):
        raise Unreachable("Postgres is away.")

    monkeypatch.setattr(projections, "read_lag", away)
    fake.answers["GET", "/readyz"] = refused(503, "", "", missing=["broker"])
    del fake.answers["GET", "/insights"]
    actual = await collect_status(running(tmp_path))
    status._print_status(console(), actual)
    shown = capsys.readouterr().out
    assert "it waits for broker" in shown
    assert "Postgres is away." in shown
    assert "insights" in shown


async def test_a_child_that_died_with_its_supervisor_is_dead_and_has_no_numbers(fake, tmp_path, capsys):
    cli = running(tmp_path, child("kafka"), child("api"))
    half = replace(cli.stack, is_supervised=False, running_children=cli.stack.running_children[:1])
    actual = await collect_status(replace(cli, stack=half, services_record=None))
    assert [one["state"] for one in actual["children"]] == ["ready", "dead"]
    assert actual["children"][1]["pid"] is None
    status._print_status(console(), actual)
    shown = capsys.readouterr().out
    assert "What an earlier stack left behind still runs" in shown
    assert "loomlog down" in shown


def test_nothing_running_is_3_and_one_document(tmp_path, monkeypatch):
    transport = httpx.MockTransport(_nobody)
    real = status.ApiClient
    monkeypatch.setattr(status, "ApiClient", lambda url: real(url, transport=transport))
    environ = {"LOOMLOG_HOME": str(tmp_path / "home")}
    result = CliRunner().invoke(app, ["status"], env=environ)
    assert result.exit_code == 3
    assert "Nothing runs in" in result.stdout
    result = CliRunner().invoke(app, ["status", "--json"], env=environ)
    actual = json.loads(result.stdout)
    assert (actual["supervised"], actual["children"], actual["projection"], actual["insights"]) == (
        False,
        [],
        None,
        None,
    )


def test_an_api_elsewhere_is_0_although_nothing_runs_here(fake, tmp_path):
    environ = {"LOOMLOG_HOME": str(tmp_path / "home"), "LOOMLOG_BASE_URL": "http://loomlog.test"}
    result = CliRunner().invoke(app, ["status"], env=environ)
    assert result.exit_code == 0
    assert "http://loomlog.test  ready" in result.stdout


def _nobody(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)


async def test_the_lag_is_that_of_the_api_while_it_answers(fake, tmp_path):
    fake.answers["GET", "/v1/_projections"] = Scripted(body=lag(lag=3))
    assert (await collect_status(running(tmp_path)))["projection"]["lag"] == 3


async def test_the_owner_and_the_spare_are_shown_as_such(fake, tmp_path, capsys, monkeypatch):
    owner = RuntimeRole(name="owner", partitions=4, ingress_lag=2)
    roles = iter((owner, RuntimeRole(name="spare", partitions=4, ingress_lag=1)))

    async def given(pid):
        return next(roles)

    async def moves(pid, *, listens):
        return None

    monkeypatch.setattr(status, "read_role", given)
    monkeypatch.setattr(status, "find_stall", moves)
    actual = await collect_status(running(tmp_path, child("runtime"), child("runtime-2"), child("api")))
    assert [(one["role"], one["partitions"]) for one in actual["children"]] == [
        ("owner", 4),
        ("spare", 4),
        (None, None),
    ]
    status._print_status(console(), actual)
    shown = capsys.readouterr().out
    assert "owns 4 " in shown
    assert "spare for 4 " in shown
    assert actual["ingress"] == {"lag": 3}
    assert "deliveries   3 records behind" in shown


async def test_a_runtime_whose_clock_is_not_believed_is_a_line(fake, tmp_path, capsys, monkeypatch):
    async def given(pid):
        return RuntimeRole(name="idle", partitions=0, clock_offset_s=86_400.0)

    async def moves(pid, *, listens):
        return None

    monkeypatch.setattr(status, "read_role", given)
    monkeypatch.setattr(status, "find_stall", moves)
    actual = await collect_status(running(tmp_path, child("runtime-2"), child("api")))
    assert [one["clock_offset_s"] for one in actual["children"]] == [86_400.0, None]
    status._print_status(console(), actual)
    assert "runtime-2    its clock is 86,400 s ahead of the broker's, so it decides nothing" in capsys.readouterr().out
