"""`loomlog webhooks`: deliveries as a table, dry runs, and deliveries once more."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.errors import NOT_FOUND, USAGE_ERROR
from loomlog.services.cli.main import app
from tests.services.cli.fake_api import FakeApi, Scripted, let_commands_use, refused

PATH = "/v1/_webhooks"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["webhooks", *arguments])


def ok(result: Any) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(text.split()) for text in result.stdout.splitlines()]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    let_commands_use(monkeypatch, fake.client)
    monkeypatch.setenv("COLUMNS", "200")
    return fake


def test_deliveries_are_a_table(fake: FakeApi) -> None:
    rows = [
        {
            "delivery_id": "d1",
            "verdict": "accepted",
            "received_at": "2027-01-15T09:00:00Z",
            "run_id": "r_1",
            "status": "failed",
        },
        {"verdict": "rejected_sig", "received_at": "2027-01-15T09:00:01Z", "count": 40},
    ]
    fake.answers["GET", f"{PATH}/acme/issues/recent-deliveries"] = Scripted(body={"deliveries": rows})
    head, first, second = ok(run("recent", "acme/issues"))
    assert head.startswith("RECEIVED VERDICT DELIVERY")
    assert first == "2027-01-15 09:00:00 accepted d1 r_1 failed -"
    assert second == "2027-01-15 09:00:01 rejected_sig 40 requests - - -"


def test_a_webhook_without_deliveries_is_not_there(fake: FakeApi) -> None:
    fake.answers["GET", f"{PATH}/issues/recent-deliveries"] = refused(404, "unknown_webhook", "there was none")
    assert run("recent", "issues").exit_code == NOT_FOUND
    assert run("recent", "a/b/c").exit_code == USAGE_ERROR


def test_a_dry_run_tells_what_would_become_of_a_request(fake: FakeApi, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"goal": "x"}')
    preview = {"agent": "helper", "goal": "x"}
    answer = {"would_accept": True, "verdict": "accepted", "delivery_id": "d1", "run_input_preview": preview}
    fake.answers["POST", f"{PATH}/issues/test"] = Scripted(body=answer)
    assert (
        ok(run("test", "issues", str(body), "--header", "X-Hub-Signature-256=sha256=0"))[0]
        == "It would be taken as d1."
    )
    assert run("test", "issues", str(body), "--header", "wrong").exit_code == USAGE_ERROR
    refusal = {"would_accept": False, "verdict": "rejected_sig", "run_input_preview": None}
    fake.answers["POST", f"{PATH}/issues/test"] = Scripted(body=refusal)
    assert ok(run("test", "issues", str(body))) == ["It would be refused, rejected_sig."]


def test_a_delivery_is_given_again(fake: FakeApi) -> None:
    answer = {"delivery_id": "replay:d1:2", "run_id": "r_2", "channel": ""}
    fake.answers["POST", f"{PATH}/issues/replay"] = Scripted(body=answer)
    assert ok(run("replay", "issues", "d1")) == ["replay:d1:2: run r_2"]
