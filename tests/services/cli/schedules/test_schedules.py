"""`loomlog schedules`: tables, names and ids, patterns that are only shown, and times."""

import json
from functools import partial
from typing import Any

import pytest

from loomlog.services.cli.errors import NOT_FOUND, USAGE_ERROR
from tests.services.cli.fake_api import FakeApi, Scripted, invoke, refused

PATH = "/v1/_schedules"
NEXT = "2027-01-15T09:00:00.000000000Z"


def entry(name: str, def_id: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "tenant_id": "acme", "source": "dynamic-only", "active_def_id": def_id, **more}


ENTRIES = [entry("report-a", "def_a"), entry("report-b", "def_b"), entry("nightly", "def_n"), entry("gone", "")]


schedules = partial(invoke, "schedules")


def ok(result: Any) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(text.split()) for text in result.stdout.splitlines()]


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    fake.answers["GET", f"{PATH}/list-all"] = Scripted(body={"entries": ENTRIES})
    return fake


def test_a_list_has_the_next_time_and_the_last_run(fake: FakeApi) -> None:
    fake.answers["GET", f"{PATH}/def_a/state"] = Scripted(
        body={"next_run_at": NEXT, "last_run_at": NEXT, "last_status": "failed", "running": []}
    )
    fake.answers["GET", f"{PATH}/def_b/state"] = Scripted(
        body={"next_run_at": NEXT, "paused_until": NEXT, "running": ["r_1"]}
    )
    fake.answers["GET", f"{PATH}/def_n/state"] = refused(404, "not_found", "no active schedule")
    assert ok(schedules("ls")) == [
        "NAME TENANT SOURCE NEXT LAST RUN STATUS VERSION",
        f"report-a acme dynamic-only {NEXT} {NEXT} failed def_a",
        "report-b acme dynamic-only paused - running def_b",
        "nightly acme dynamic-only not active - - def_n",
        "gone acme dynamic-only not active - - -",
    ]
    assert [row.split()[0] for row in ok(schedules("ls", "report-?"))[1:]] == ["report-a", "report-b"]
    assert ok(schedules("ls", "no*")) == ["No schedules."]


def test_one_is_shown_by_its_name_or_by_the_id_of_a_version(fake: FakeApi) -> None:
    state = {
        "def_id": "def_n",
        "name": "nightly",
        "tenant_id": "acme",
        "next_run_at": NEXT,
        "overlap": "skip",
        "fires": 2,
        "max_fires": 5,
        "running": ["r_9"],
        "queued": [],
        "last_run_at": NEXT,
        "last_run_id": "r_9",
    }
    fake.answers["GET", f"{PATH}/def_n/state"] = Scripted(body=state)
    fake.answers["GET", f"{PATH}/def_old/state"] = refused(
        404, "not_found", "no active schedule has the version def_old"
    )
    shown = ok(schedules("show", "nightly"))
    assert shown == ok(schedules("show", "def_n"))
    assert "fires 2 of 5" in shown
    assert "running r_9" in shown
    assert f"last run {NEXT} r_9 still works" in shown
    assert json.loads(schedules("show", "nightly", "--json").stdout) == state
    result = schedules("show", "def_old")
    assert result.exit_code == NOT_FOUND
    assert "o active schedule has the version def_old" in result.stderr
    result = schedules("show", "gone")
    assert result.exit_code == NOT_FOUND
    assert "no active version" in result.stderr


def test_what_is_ahead_and_what_was(fake: FakeApi) -> None:
    instant = {"local": "2027-01-15T10:00:00+01:00", "fires_at": NEXT, "instant": NEXT, "jitter_ms": 12}
    answer = {"times": "0 10 * * *", "timezone": "Europe/Berlin", "instants": [instant]}
    fake.answers["GET", f"{PATH}/def_n/preview"] = Scripted(body=answer)
    assert ok(schedules("preview", "nightly", "--count", "1")) == [
        "times 0 10 * * * Europe/Berlin",
        "LOCAL TIME FIRES AT JITTER MS",
        f"2027-01-15T10:00:00+01:00 {NEXT} 12",
    ]
    assert fake.asked[-1].url.params["count"] == "1"
    fires = [
        {"instant": NEXT, "status": "failed", "late_ms": 7, "run_id": "r_1", "error": "no", "is_manual": True},
        {"instant": NEXT, "status": "skipped", "count": 3, "reason": "overlap", "is_at_least": True},
    ]
    fake.answers["GET", f"{PATH}/def_n/fires"] = Scripted(body={"fires": fires, "next": "more"})
    assert ok(schedules("fires", "nightly")) == [
        "INSTANT STATUS LATE MS RUN NOTE",
        f"{NEXT} failed 7 r_1 run-now no",
        f"{NEXT} skipped - - at least 3 times passed: overlap",
        "There are more: --cursor more",
    ]


def test_one_is_fired_at_once_and_several_only_with_yes(fake: FakeApi) -> None:
    for def_id in ("def_n", "def_a", "def_b"):
        fake.answers["POST", f"{PATH}/{def_id}/run-now"] = Scripted(body={"def_id": def_id, "run_id": f"r_{def_id}"})
    assert ok(schedules("run-now", "nightly", "--idempotency-key", "once")) == ["nightly fires, run r_def_n"]
    assert fake.asked[-1].headers["idempotency-key"] == "once"
    before = len(fake.asked)
    assert ok(schedules("run-now", "report-*")) == [
        "report-a would be: run-now",
        "report-b would be: run-now",
        "2 schedules; with --yes it is done.",
    ]
    assert [request.method for request in fake.asked[before:]] == ["GET"]
    assert ok(schedules("run-now", "report-*", "--yes")) == [
        "report-a fires, run r_def_a",
        "report-b fires, run r_def_b",
        "2 schedules.",
    ]
    assert ok(schedules("run-now", "no*", "--yes")) == ["0 schedules."]


def test_a_pause_and_its_end(fake: FakeApi) -> None:
    fake.answers["POST", f"{PATH}/def_n/pause"] = Scripted(body={"def_id": "def_n", "paused": True})
    fake.answers["POST", f"{PATH}/def_n/resume"] = Scripted(body={"def_id": "def_n", "paused": False})
    assert ok(schedules("pause", "nightly")) == ["nightly is paused"]
    assert "until" not in fake.asked[-1].url.params
    ok(schedules("pause", "nightly", "--until", "2027-02-01T00:00:00Z"))
    assert fake.asked[-1].url.params["until"] == "2027-02-01T00:00:00.000Z"
    ok(schedules("pause", "nightly", "--until", "24h"))
    assert fake.asked[-1].url.params["until"] > "2026"
    assert ok(schedules("resume", "nightly")) == ["nightly goes on"]
    result = schedules("pause", "nightly", "--until", "soon")
    assert result.exit_code == USAGE_ERROR


def test_a_name_of_two_tenants_is_not_guessed(fake: FakeApi) -> None:
    both = [entry("nightly", "def_1"), entry("nightly", "def_2", tenant_id="globex")]
    fake.answers["GET", f"{PATH}/list-all"] = Scripted(body={"entries": both})
    result = schedules("run-now", "nightly")
    assert result.exit_code == NOT_FOUND
    assert "--tenant" in result.stderr
