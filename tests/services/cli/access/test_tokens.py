"""`loomlog tokens`, and the words of the original for it."""

import pytest

from tests.services.cli.fake_api import FakeApi, Scripted, invoke

PATH = "/v1/_operatortokendef"
TEXT = "lct_of-the-token"
MADE = {
    "def_id": "tok_1",
    "name": "ci",
    "tenant_id": "acme",
    "subject": "tok-ci",
    "allowed_scopes": ["runs:read"],
    "created_at": "2026-01-31T12:00:00Z",
    "created_by": "root",
    "active": True,
    "retired": False,
    "token": TEXT,
    "warning": "Keep the text now.",
}
CREATE = ("--name", "ci", "--tenant", "acme", "--scopes", "runs:read, runs:create")
CREATED = {"op": "create", "name": "ci", "tenant_id": "acme", "scopes": ["runs:read", "runs:create"]}


@pytest.fixture
def fake(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake.answers["POST", PATH] = Scripted(body=MADE)
    monkeypatch.setenv("CI_TOKEN", "a-text-of-my-own")
    return fake


@pytest.mark.parametrize("group", ["tokens", "operator-token"])
@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("create", *CREATE), CREATED),
        (("create", *CREATE, "--copy-from-env", "CI_TOKEN"), {**CREATED, "import_token": "a-text-of-my-own"}),
        (("import", *CREATE, "--copy-from-env", "CI_TOKEN"), {**CREATED, "import_token": "a-text-of-my-own"}),
        (("rotate", "ci", "--grace-seconds", "0"), {"op": "rotate", "name": "ci", "grace_seconds": 0}),
        (("rotate", "--name", "ci"), {"op": "rotate", "name": "ci"}),
        (("rotate", "tok_1"), {"op": "rotate", "def_id": "tok_1"}),
        (("retire", "--def-id", "tok_1"), {"op": "retire", "def_id": "tok_1"}),
        (("retire", "ci", "--tenant", "acme"), {"op": "retire", "name": "ci", "tenant_id": "acme"}),
        (("show", "--def-id", "tok_1"), {"op": "get", "def_id": "tok_1"}),
    ],
)
def test_a_command_sends_what_it_says(fake: FakeApi, group: str, arguments: tuple[str, ...], body: object) -> None:
    result = invoke(group, *arguments)
    assert result.exit_code == 0, result.output
    assert fake.bodies(PATH) == [body]


def test_the_text_is_printed_once_and_one_that_was_given_is_not(fake: FakeApi) -> None:
    assert invoke("tokens", "create", *CREATE).stdout.splitlines()[-1] == TEXT
    assert invoke("tokens", "create", *CREATE, "--text-only").stdout == f"{TEXT}\n"
    assert TEXT not in invoke("tokens", "import", *CREATE, stdin="a-text-of-my-own\n").output


@pytest.mark.parametrize("arguments", [(), ("ci", "--name", "ci"), ("--name", "ci", "--def-id", "tok_1")])
def test_a_token_is_named_once(fake: FakeApi, arguments: tuple[str, ...]) -> None:
    result = invoke("tokens", "rotate", *arguments)
    assert result.exit_code == 2
    assert "name the token once" in result.stderr
    assert fake.asked == []


def test_the_list_has_the_name_of_the_original(fake: FakeApi) -> None:
    fake.answers["GET", f"{PATH}/names"] = Scripted(body={"names": []})
    assert invoke("operator-token", "list").stdout == invoke("tokens", "ls").stdout == "none\n"
