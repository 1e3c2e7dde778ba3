import json

import pytest

from tests.services.cli.fake_api import Scripted, invoke

AT = {"X-Loomlog-Position": "loom.entity.events/0:7"}
PAUSED = {"state": "paused", "duration_ms": 5, "force_cancelled_count": 0, "paused_runs_count": 2, "warnings": []}


@pytest.mark.parametrize(
    ("arguments", "target", "named"),
    [
        ((), {"scope": "all"}, "everything"),
        (("--tenant", "acme"), {"scope": "tenant", "tenant": "acme"}, "tenant acme"),
        (("--agent", "helper"), {"scope": "agent", "agent": "helper"}, "agent helper"),
        (
            ("--agent", "helper", "--tenant", "acme"),
            {"scope": "agent", "tenant": "acme", "agent": "helper"},
            "agent helper of tenant acme",
        ),
    ],
)
def test_a_pause_and_its_end_name_what_they_mean_and_show_their_position(fake, arguments, target, named):
    fake.answers["POST", "/v1/_pause"] = Scripted(body=PAUSED, headers=AT)
    fake.answers["POST", "/v1/_resume"] = Scripted(body={"state": "running", "resumed_runs_count": 2}, headers=AT)
    result = invoke("pause", *arguments, "--reason", "deploy", "--timeout-ms", "50")
    assert result.stdout.splitlines()[0] == f"{named} is paused, 2 paused runs  event loom.entity.events/0:7"
    assert fake.bodies("/v1/_pause") == [{**target, "reason": "deploy", "timeout_ms": 50}]
    result = invoke("resume", *arguments)
    assert result.stdout == f"{named} is resumed, 2 runs go on  event loom.entity.events/0:7\n"
    assert fake.bodies("/v1/_resume") == [target]


def test_runs_that_do_not_stand_still_yet_are_named(fake):
    body = {**PAUSED, "state": "pausing", "warnings": ["r_1 does not stand still yet"]}
    fake.answers["POST", "/v1/_pause"] = Scripted(body=body, headers=AT)
    assert "r_1 does not stand still yet" in invoke("pause").stdout
    assert json.loads(invoke("pause", "--json").stdout) == {**body, "position": "loom.entity.events/0:7"}


def test_the_state_tells_who_paused_what_and_why(fake):
    entry = {"scope": "tenant", "tenant": "acme", "agent": None, "reason": "bill", "by": "op", "at": "2026-01-01"}
    body = {"state": "running", "paused_runs_count": 1, "pauses": [entry]}
    fake.answers["GET", "/v1/_state"] = Scripted(body=body)
    assert invoke("state").stdout == "running, 1 paused run\ntenant acme since 2026-01-01 by op: bill\n"
    assert json.loads(invoke("state", "--json").stdout) == body
