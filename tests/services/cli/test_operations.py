"""`loomlog <family>`: commands made from a declaration."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import typer

from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.services.cli import main
from loomlog.services.cli.errors import FAILED, NOT_FOUND, UNREACHABLE, USAGE_ERROR
from loomlog.services.cli.main import COMMANDS, app
from loomlog.services.core.access.scopes import RUNS_CREATE
from loomlog.services.core.families import Command
from loomlog.services.families import FamilyProblem
from tests.services.cli.fake_api import FakeApi, Scripted, invoke, refused
from tests.services.entities import COUNTER

AT = {"X-Loomlog-Position": "loom.entity.events/1:7"}
ROW = {
    "id": "a/b",
    "tenant_id": "acme",
    "state": {"value": 3, "tags": ["x"]},
    "quarantine": None,
    "created_at": "2026-11-21T12:00:00.000Z",
    "updated_at": "2026-11-22T12:00:00.000Z",
}
WIDE: Any = replace(
    COUNTER,
    name="wide",
    commands=[
        Command(record=StartRun, verb="begin", summary="Begin.", aggregate=lambda one: one.agent, scope=RUNS_CREATE),
        Command(
            record=RepairAggregate,
            verb="repair",
            summary="Repair.",
            aggregate=lambda one: one.aggregate,
            scope=RUNS_CREATE,
        ),
        replace(COUNTER.commands[0], verb="inner", in_transports=False),
    ],
    queries=[],
)
SILENT: Any = replace(COUNTER, name="silent", scope="", queries=[], commands=[WIDE.commands[2]])


@pytest.fixture
def fake(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr("loomlog.services.families.registry.all_families", lambda: (COUNTER, SILENT, WIDE))
    return fake


def answered(fake: FakeApi, path: str, body: dict[str, Any], method: str = "POST") -> None:
    fake.answers[method, path] = Scripted(body=body, headers=AT)


def test_options_are_the_fields_and_the_position_is_printed(fake: FakeApi) -> None:
    answered(fake, "/v1/_counter/increment", {"by": 2, "value": 5})
    result = invoke("counter", "increment", "--name", "a/b", "--by", "2")
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["by", "2", "value", "5", "event", "loom.entity.events/1:7"]
    assert fake.bodies("/v1/_counter/increment") == [{"name": "a/b", "by": 2}]
    (request,) = fake.asked
    assert request.headers["idempotency-key"]


def test_json_has_the_reply_and_the_position(fake: FakeApi) -> None:
    answered(fake, "/v1/_counter/increment", {"value": 5})
    result = invoke(
        "counter", "increment", "--name", "a", "--by", "1", "--tenant", "acme", "--idempotency-key", "k", "--json"
    )
    assert json.loads(result.output) == {"value": 5, "position": "loom.entity.events/1:7"}
    (request,) = fake.asked
    assert (request.url.params["tenant"], request.headers["idempotency-key"]) == ("acme", "k")
    # What is not given is left to the default of the field.
    assert fake.bodies("/v1/_counter/increment") == [{"name": "a", "by": 1}]


def test_nothing_changed_is_said(fake: FakeApi) -> None:
    fake.answers["POST", "/v1/_counter/increment"] = Scripted(pieces=(b"{}",), headers=AT)
    assert "nothing changed" in invoke("counter", "increment", "--name", "a", "--by", "1").output


def test_lists_by_repetition_and_records_as_json(fake: FakeApi) -> None:
    answered(fake, "/v1/_wide/begin", {"started": True})
    body = {"agent": "a", "sampling": {"top_p": 0.5}}
    result = invoke(
        "wide", "begin", "--tools", "Read", "--tools", "Write", "--session-id", "s_1", "--json-body", json.dumps(body)
    )
    assert result.exit_code == 0, result.output
    expected = {**body, "tools": ["Read", "Write"], "session_id": "s_1"}
    assert fake.bodies("/v1/_wide/begin") == [expected]
    result = invoke("wide", "begin", "--json-body", "-", stdin=json.dumps(body))
    assert fake.bodies("/v1/_wide/begin")[1] == body
    shown = invoke("wide", "begin", "--help").output
    assert "With --json-body only:" in shown
    assert "sampling" in shown
    assert "--envelope" not in shown


def test_bytes_are_base64_and_said_so(fake: FakeApi) -> None:
    answered(fake, "/v1/_wide/repair", {"done": True})
    assert invoke("wide", "repair", "--aggregate", "a", "--state", "AP8=").exit_code == 0
    assert fake.bodies("/v1/_wide/repair") == [{"aggregate": "a", "state": "AP8="}]
    assert "In base64" in invoke("wide", "repair", "--help").output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("counter", "increment"), "missing: --name, --by"),
        (("wide", "begin", "--json-body", "{"), "--json-body is not JSON"),
        (("wide", "begin", "--json-body", "[]"), "must be a JSON object"),
        (("counter", "increment", "--name", "a", "--json-body", '{"name": "b"}'), "name is given twice"),
        (("counter", "increment", "--name", "a", "--by", "x"), "--by"),
        (("counter", "increment", "--name", "a", "--by", str(2**63)), "--by"),
        (("counter", "increment", "--nam", "a"), "--nam"),
        (("counter", "reset"), "reset"),
        (("wide", "inner"), "inner"),
        (("silent", "ls"), "silent"),
    ],
)
def test_wrong_use_is_exit_code_2_and_nothing_is_sent(fake: FakeApi, arguments: tuple[str, ...], text: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, text in result.output) == (USAGE_ERROR, True), result.output
    assert not fake.asked


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "bad_request", FAILED),
        (404, "not_found", NOT_FOUND),
        (409, "command_refused", FAILED),
        (409, "aggregate_quarantined", FAILED),
        (422, "command_invalid", FAILED),
        (503, "command_pending", UNREACHABLE),
        (503, "log_unavailable", UNREACHABLE),
    ],
)
def test_a_refusal_is_a_sentence_and_an_exit_code(fake: FakeApi, status: int, code: str, exit_code: int) -> None:
    fake.answers["POST", "/v1/_counter/increment"] = refused(status, code, "it is so")
    result = invoke("counter", "increment", "--name", "a", "--by", "1", "--idempotency-key", "mykey")
    assert result.exit_code == exit_code
    assert "It is so." in result.output
    assert ("--idempotency-key mykey" in result.output) == (code == "command_pending")


def test_aggregates_are_listed_and_shown(fake: FakeApi) -> None:
    fake.pages["/v1/_counter"] = lambda request: {"items": [ROW], "next": "abc"}
    fake.pages["/v1/_counter/show"] = lambda request: ROW
    listed = invoke("counter", "ls", "--prefix", "a/", "--limit", "1")
    assert 'a/b  2026-11-22T12:00:00.000Z  {"value":3,"tags":["x"]}' in listed.output
    assert "--cursor abc" in listed.output
    assert dict(fake.asked[0].url.params) == {"prefix": "a/", "limit": "1"}
    shown = invoke("counter", "show", "a/b", "--position", "loom.entity.events/1:7")
    assert dict(fake.asked[1].url.params) == {"id": "a/b", "position": "loom.entity.events/1:7"}
    words = shown.output.split()
    assert words[:4] == ["id", "a/b", "tenant", "acme"]
    assert words[-4:] == ["value", "3", "tags", '["x"]']
    assert json.loads(invoke("counter", "show", "a/b", "--json").output) == ROW
    assert json.loads(invoke("counter", "ls", "--json").output) == {"items": [ROW], "next": "abc"}
    fake.pages["/v1/_counter"] = lambda request: {"items": [], "next": None}
    assert invoke("counter", "ls").output == "none\n"


def test_a_question_has_its_parameters(fake: FakeApi) -> None:
    fake.pages["/v1/_counter/remaining"] = lambda request: {"remaining": 7}
    assert invoke("counter", "remaining", "a", "--of", "10").output.split() == ["remaining", "7"]
    assert dict(fake.asked[0].url.params) == {"id": "a", "of": "10"}
    assert json.loads(invoke("counter", "remaining", "a", "--json").output) == {"remaining": 7}


def test_a_family_brings_its_commands_and_takes_them_away(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_FAMILIES", "one.of.ours")
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    assert group.list_commands(context) == [*COMMANDS, "counter", "wide"]
    assert "A counter that only grows." in invoke("--help").output
    monkeypatch.setattr("loomlog.services.families.registry.all_families", tuple)
    assert group.list_commands(context) == list(COMMANDS)
    assert group.get_command(context, "counter") is None


def test_a_command_of_the_table_keeps_its_name(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_FAMILIES", "one.of.ours")
    named = replace(COUNTER, name="runs")
    monkeypatch.setattr("loomlog.services.families.registry.all_families", lambda: (named,))
    group: Any = typer.main.get_command(app)
    assert group.list_commands(typer.Context(group)) == list(COMMANDS)
    assert "increment" not in invoke("runs", "--help").output


def test_families_are_not_imported_for_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[Any]:
        raise AssertionError("the families were loaded")

    monkeypatch.setattr(main, "_families", fail)
    assert invoke("presets", "--help").exit_code == 0
    assert "the families were loaded" in str(invoke("nothing").exception)


def test_a_family_that_cannot_be_used_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_FAMILIES", "one.of.ours")

    def broken() -> Any:
        raise FamilyProblem("the family nope cannot be imported")

    monkeypatch.setattr("loomlog.services.families.registry.all_families", broken)
    for arguments in (("nope", "ls"), ("--help",)):
        result = invoke(*arguments)
        assert result.exit_code == USAGE_ERROR
        assert "the family nope cannot be imported" in result.output
