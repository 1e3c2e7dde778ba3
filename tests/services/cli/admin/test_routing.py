import json
from functools import partial

import pytest

from tests.services.cli import fake_api
from tests.services.cli.fake_api import FakeApi, Scripted


def step(provider, **states):
    shown = {"primary": False, "available": False, "selected": False, "stalled": False, "rate_limited": False}
    return {"provider": provider, "model": "m", "reachable": True, **shown, **states}


CASCADE = [
    step("a", stalled=True),
    step("b", rate_limited=True),
    step("c", reachable=False),
    step("d"),
    step("e", available=True, selected=True),
    step("f", available=True),
    step("g", reachable=False),
]
VIEW = {
    "generated_at": "2026-01-01T00:00:00.000Z",
    "admin": True,
    "providers": [
        {"provider": "c", "available": True, "reachable": False, "why_not": None},
        {"provider": "g", "available": False, "reachable": False, "why_not": "G_KEY is not set"},
        {"provider": "built-in", "available": True, "reachable": False, "why_not": None},
        {"provider": "e", "available": True, "reachable": True, "why_not": None},
    ],
    "user_tiers": [{"name": "default", "tiers": [{"tier": "low", "cascade": CASCADE}]}],
}


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    fake.answers["GET", "/v1/_routing"] = Scripted(body=VIEW)
    return fake


invoke = partial(fake_api.invoke, "routing")


def test_every_step_says_what_runs_find_there(fake):
    lines = [line.split() for line in invoke().stdout.splitlines()]
    assert lines[1:8] == [
        ["default", "low", "a/m", "stalled"],
        ["b/m", "rate", "limited"],
        ["c/m", "not", "reachable"],
        ["d/m", "not", "listed"],
        ["e/m", "selected"],
        ["f/m", "available"],
        ["g/m", "not", "reachable"],
    ]


def test_providers_that_are_away_or_cannot_be_used_are_named(fake):
    assert invoke().stdout.splitlines()[8:] == ["c does not answer", "g cannot be used: G_KEY is not set"]


def test_a_program_gets_the_view_as_it_is(fake):
    assert json.loads(invoke("--json").stdout) == VIEW


def test_a_probe_comes_first_when_it_is_asked_for(fake):
    fake.answers["POST", "/v1/_resolve/probe"] = Scripted(body={})
    assert invoke("--probe").exit_code == 0
    assert fake.bodies("/v1/_resolve/probe") == [{}]


def test_without_tiers_there_is_nothing_to_show(fake):
    fake.answers["GET", "/v1/_routing"] = Scripted(body={**VIEW, "user_tiers": [], "providers": []})
    assert invoke().stdout == "No tier is configured: agents name their models themselves.\n"
