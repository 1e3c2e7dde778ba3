"""`loomlog repair` shows the state that an aggregate would get, and restates it with --yes."""

import json
from functools import partial

import pytest

from tests.services.cli import fake_api
from tests.services.cli.fake_api import Scripted

NAME = "budget:/installation"
KNOWN = {"aggregate": NAME, "seq": 7, "quarantine": "offset 9: it does not follow", "state": {"month": "2026-11"}}
STATED = {"aggregate": NAME, "position": "loom.entity.events/0:12"}
AT = {"X-Loomlog-Position": "loom.entity.events/0:12"}


invoke = partial(fake_api.invoke, "repair", NAME)


def test_a_repair_is_a_preview_unless_it_is_said_otherwise(fake):
    fake.answers["GET", "/v1/_repair"] = Scripted(body=KNOWN)
    shown = invoke().stdout
    assert shown.startswith(f"{NAME} at event 7: offset 9: it does not follow\n")
    assert '"month": "2026-11"' in shown
    assert shown.endswith("Nothing was changed. --yes does it.\n")
    assert json.loads(invoke("--json").stdout) == KNOWN
    assert {(request.method, dict(request.url.params)["aggregate"]) for request in fake.asked} == {("GET", NAME)}


def test_an_aggregate_without_a_known_state_says_what_would_be_stated(fake):
    fake.answers["GET", "/v1/_repair"] = Scripted(body={**KNOWN, "state": None})
    assert "the last one that its owner could fold" in invoke().stdout


@pytest.mark.parametrize("whole", [False, True])
def test_another_state_is_shown_and_then_stated(fake, tmp_path, whole):
    other = {"month": "2026-12"}
    file = tmp_path / "state.json"
    file.write_text(json.dumps({**KNOWN, "state": other} if whole else other))
    fake.answers["GET", "/v1/_repair"] = Scripted(body=KNOWN)
    fake.answers["POST", "/v1/_repair"] = Scripted(body=STATED, headers=AT)
    assert '"month": "2026-12"' in invoke("--state", str(file)).stdout
    said = invoke("--state", str(file), "--reason", "forged", "--yes").stdout
    assert said == f"{NAME} is restated  event loom.entity.events/0:12\n"
    assert [request.method for request in fake.asked] == ["GET", "POST"]
    assert json.loads(fake.asked[1].content) == {"aggregate": NAME, "reason": "forged", "state": other}


def test_the_last_known_state_is_stated_without_a_file(fake):
    fake.answers["POST", "/v1/_repair"] = Scripted(body=STATED, headers=AT)
    assert json.loads(invoke("--yes", "--json").stdout) == STATED
    assert fake.bodies("/v1/_repair") == [{"aggregate": NAME, "reason": ""}]


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("{", "is not JSON")])
def test_a_file_without_a_state_is_refused(fake, tmp_path, content, said):
    file = tmp_path / "state.json"
    if content is not None:
        file.write_text(content)
    result = invoke("--state", str(file), "--yes")
    assert (result.exit_code, said in " ".join(result.stderr.split()), fake.asked) == (1, True, [])
