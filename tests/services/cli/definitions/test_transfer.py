"""`loomlog defs apply, import, export`."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from loomlog.services.cli.definitions import transfer
from loomlog.services.cli.errors import FAILED, USAGE_ERROR
from tests.services.cli.definitions.rows import AT, PATH, Definitions, defs, line, ok, version
from tests.services.cli.fake_api import Scripted, refused

APPLY = f"{PATH}/apply"
POSITION = AT["X-Loomlog-Position"]
ONE, TWO = (version(number)["def_id"] for number in (1, 2))
NEW = version(1, name="new")
FILE = """\
agents:
  researcher: {model: mock-9}
  new: {provider: mock, model: mock-hello, system_prompt: "You search.\\nYou answer."}
  same: {model: mock-1}
"""


@pytest.fixture
def file(tmp_path: Path, fake: Definitions) -> Path:
    """Agents of which one changes, one is new, one stays."""
    fake.lines = [[line(1), line(1, name="same")]]
    fake.has(version(1), version(1, name="same"))
    fake.answers_with(APPLY, {"batch": "b1", "status": "applied", "definitions": [version(2), NEW]})
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    return path


SENT = [
    {"kind": "agent", "name": "researcher", "overlay": {"model": "mock-9"}, "expect_active": ONE},
    {
        "kind": "agent",
        "name": "new",
        "overlay": {"provider": "mock", "model": "mock-hello", "system_prompt": "You search.\nYou answer."},
        "expect_active": "",
    },
]
PREVIEW = [
    f"agent researcher now researcher@1 {ONE}",
    "model",
    "- mock-1",
    "+ mock-9",
    "agent new new",
    "provider",
    "+ mock",
    "model",
    "+ mock-hello",
    "system_prompt",
    "+ You search.",
    "+ You answer.",
    f"agent same now same@1 {version(1, name='same')['def_id']} unchanged",
]


def test_a_dry_run_shows_the_difference_of_each_and_sends_nothing(fake: Definitions, file: Path) -> None:
    assert sorted(ok(defs("apply", str(file), "--dry-run"))) == sorted(PREVIEW)
    shown = json.loads(defs("apply", str(file), "--dry-run", "--json").stdout)
    assert [(one["name"], bool(one["changes"])) for one in shown["definitions"]] == [
        ("researcher", True),
        ("new", True),
        ("same", False),
    ]
    assert not fake.sent()


def test_what_changes_is_applied_at_once_as_it_was_shown(fake: Definitions, file: Path) -> None:
    shown = ok(defs("apply", str(file), "--yes", "--description", "release 7", "--tenant", "acme"))
    assert shown[len(PREVIEW) :] == [
        "2 definitions became active at once",
        f"agent researcher@2 {TWO}",
        "take back loomlog defs rollback researcher --tenant acme",
        f"agent new@1 {NEW['def_id']}",
        "take back loomlog defs retire new@1 --tenant acme",
        f"event {POSITION}",
    ]
    assert fake.sent() == [{"definitions": SENT, "description": "release 7"}]
    assert all(request.url.params["tenant"] == "acme" for request in fake.asked)


def test_as_json_the_answer_is_the_only_output(fake: Definitions, file: Path) -> None:
    shown = json.loads(defs("apply", str(file), "--yes", "--json", "--idempotency-key", "mine").stdout)
    assert (shown["status"], shown["position"], len(shown["definitions"])) == ("applied", POSITION, 2)
    assert fake.asked[-1].headers["idempotency-key"] == "mine"


def test_without_a_terminal_or_with_json_yes_is_needed(fake: Definitions, file: Path) -> None:
    for more in ((), ("--json",)):
        result = defs("apply", str(file), *more)
        assert (result.exit_code, "give --yes" in result.stderr) == (USAGE_ERROR, True)
    assert not fake.asked


@pytest.mark.parametrize(("answer", "sent"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_the_question_is_asked_after_the_differences(
    fake: Definitions, file: Path, monkeypatch: pytest.MonkeyPatch, answer: str, sent: bool
) -> None:
    from typer.testing import CliRunner

    from loomlog.services.cli.main import app

    monkeypatch.setattr(transfer, "is_interactive", lambda: True)
    result = CliRunner().invoke(app, ["defs", "apply", str(file)], input=answer)
    assert "Apply 2 definitions? [y/N]" in result.stdout
    assert (result.exit_code, bool(fake.sent())) == (0 if sent else FAILED, sent)


def test_a_file_that_says_what_is_active_applies_nothing(fake: Definitions, tmp_path: Path) -> None:
    fake.lines = [[line(1)]]
    fake.has(version(1))
    path = tmp_path / "a.yaml"
    path.write_text("agent: {researcher: {model: mock-1}}")
    assert ok(defs("apply", str(path), "--yes")) == [f"agent researcher now researcher@1 {ONE} unchanged"]
    shown = json.loads(defs("apply", str(path), "--yes", "--json").stdout)
    assert shown == {"batch": None, "status": "unchanged", "definitions": [], "position": None}
    assert not fake.sent()


def test_a_static_agent_is_merged_over_its_file_and_an_older_version_over_its_content(
    fake: Definitions, tmp_path: Path
) -> None:
    static = version(0, name="static", def_id="def_00000000000000aa", definition={"provider": "mock", "model": "m"})
    fake.lines = [[line(name="static", source="file", static_def_id=static["def_id"], count=0), line(2, 2)]]
    fake.has(static, version(1), version(2))
    fake.answers_with(APPLY, {"batch": "b1", "status": "applied", "definitions": [version(1, name="static")]})
    path = tmp_path / "a.yaml"
    path.write_text(
        "- {kind: agent, name: static, overlay: {model: other}}\n"
        f"- {{kind: agent, name: researcher, parent_def_id: {ONE}}}\n"
    )
    assert ok(defs("apply", str(path), "--dry-run")) == [
        "agent static now the configuration file",
        "model",
        "- m",
        "+ other",
        f"agent researcher now researcher@2 {TWO}",
        "model",
        "- mock-2",
        "+ mock-1",
    ]
    fake.answers_with(
        APPLY, {"batch": "b1", "status": "applied", "definitions": [version(1, name="static"), version(3)]}
    )
    ok(defs("apply", str(path), "--yes"))
    static_change, fork = fake.sent()[0]["definitions"]
    assert static_change["expect_active"] == ""
    assert (fork["parent_def_id"], fork["expect_active"]) == (ONE, TWO)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("agent: {researcher: {modell: x}}", FAILED, 'agent researcher: unknown field "modell" in overlay; did you'),
        ("agent: {'../x': {model: x}}", FAILED, "agent ../x: name: expected"),
        ("agent: {" + ", ".join(f"a{n}: {{model: m}}" for n in range(33)) + "}", USAGE_ERROR, "at most 32"),
        ("providers: {}", FAILED, "providers is no kind of definition"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_applied_is_a_sentence_and_nothing_is_sent(
    fake: Definitions, tmp_path: Path, text: str, code: int, message: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    result = defs("apply", str(path), "--yes")
    assert (result.exit_code, message in result.stderr) == (code, True), result.output
    assert not fake.sent()


def many(count: int) -> str:
    return "agent:\n" + "".join(f"  a{number:02}: {{model: 'm'}}\n" for number in range(count))


def made_in_turn(fake: Definitions, fails_after: int = 99) -> None:
    """Script an API that makes what it is sent, and refuses batches after the first ones."""

    def answer(request: httpx.Request) -> Any:
        batches = [one for one in fake.asked if one.url.path == APPLY]
        if len(batches) == fails_after:
            fake.answers["POST", APPLY] = refused(422, "tool_refused", "a40: too long")
        names = [one["name"] for one in json.loads(request.content)["definitions"]]
        return {"batch": "b", "status": "applied", "definitions": [version(1, name=name) for name in names]}

    fake.pages[APPLY] = answer


def test_an_export_of_any_length_is_imported_in_batches(fake: Definitions, tmp_path: Path) -> None:
    made_in_turn(fake)
    path = tmp_path / "a.yaml"
    path.write_text(many(70))
    shown = ok(defs("import", str(path), "--description", "moved"))
    assert shown[0] == f"agent a00@1 {version(1, name='a00')['def_id']} is active"
    assert shown[-1] == "70 definitions imported, 0 unchanged"
    assert [len(batch["definitions"]) for batch in fake.sent()] == [32, 32, 6]
    assert {batch["description"] for batch in fake.sent()} == {"moved"}
    shown = json.loads(defs("import", str(path), "--json").stdout)
    assert (len(shown["definitions"]), shown["unchanged"]) == (70, 0)


def test_long_definitions_are_imported_in_smaller_batches(
    fake: Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "BATCH_BYTES_MAX", 30)
    made_in_turn(fake)
    path = tmp_path / "a.yaml"
    path.write_text(many(5))
    ok(defs("import", str(path)))
    assert [len(batch["definitions"]) for batch in fake.sent()] == [2, 2, 1]


def test_an_import_that_stops_says_what_is_done_and_goes_on_when_repeated(fake: Definitions, tmp_path: Path) -> None:
    made_in_turn(fake, fails_after=1)
    path = tmp_path / "a.yaml"
    path.write_text(many(40))
    result = defs("import", str(path))
    assert result.exit_code == FAILED
    assert result.stderr == "a40: too long. 32 of 40 are imported; the same command goes on.\n"
    fake.answers.pop(("POST", APPLY))
    made_in_turn(fake)
    fake.lines = [[line(1, name=f"a{number:02}") for number in range(32)]]
    fake.has(*(version(1, name=f"a{number:02}", definition={"model": "m"}) for number in range(32)))
    assert ok(defs("import", str(path)))[-1] == "8 definitions imported, 32 unchanged"


def test_a_dry_import_shows_the_differences(fake: Definitions, file: Path) -> None:
    assert sorted(ok(defs("import", str(file), "--dry-run"))) == sorted(PREVIEW)
    assert len(json.loads(defs("import", str(file), "--dry-run", "--json").stdout)["definitions"]) == 3
    assert not fake.sent()


@pytest.fixture
def exported(fake: Definitions) -> Definitions:
    pdf = version(1, kind="skill", name="pdf", definition={"body": "Read.\nThen answer.\n"})
    fake.lines = [
        [
            line(2, 2),
            line(1, name="shared", source="shared", tenant_id=""),
            line(name="static", source="file", static_def_id="def_00000000000000aa"),
            line(1, kind="skill", name="pdf"),
        ]
    ]
    fake.has(version(2), pdf)
    return fake


DOCUMENT = {
    "agent": {"researcher": {"provider": "mock", "model": "mock-2"}},
    "skill": {"pdf": {"body": "Read.\nThen answer.\n"}},
}


def test_what_is_active_is_exported_and_is_unchanged_when_applied(exported: Definitions, tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    assert ok(defs("export", str(path))) == [f"2 definitions in {path}"]
    assert yaml.safe_load(path.read_text()) == DOCUMENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert exported.asked[0].url.params["active"] == "true"
    assert all("unchanged" in text for text in ok(defs("apply", str(path), "--yes")))
    result = defs("export", str(path))
    assert (result.exit_code, "--force replaces it" in result.stderr) == (USAGE_ERROR, True)
    shown = json.loads(defs("export", str(path), "--force", "--json").stdout)
    assert shown == {"file": str(path), "definitions": 2}


def test_an_export_to_stdout_is_the_file_alone(exported: Definitions, tmp_path: Path) -> None:
    assert yaml.safe_load(defs("export").stdout) == DOCUMENT
    items = json.loads(defs("export", "-", "--json").stdout)["definitions"]
    assert items == [
        {"kind": kind, "name": name, "overlay": overlay}
        for kind, block in DOCUMENT.items()
        for name, overlay in block.items()
    ]


def test_the_shared_definitions_are_exported_by_their_name(exported: Definitions) -> None:
    exported.lines = [[line(1, name="shared", source="shared", tenant_id="")]]
    exported.has(version(1, name="shared", tenant_id=""))
    assert list(yaml.safe_load(defs("export", "--tenant", "_shared").stdout)["agent"]) == ["shared"]


def test_a_folder_that_is_not_there_is_a_sentence(exported: Definitions, tmp_path: Path) -> None:
    result = defs("export", str(tmp_path / "nowhere" / "a.yaml"))
    assert (result.exit_code, "cannot be written" in result.stderr) == (FAILED, True)


def test_all_pages_are_exported(fake: Definitions) -> None:
    pages = {"": ([line(1)], "c1"), "c1": ([line(1, name="b")], None)}

    def listing(request: httpx.Request) -> Any:
        rows, following = pages[request.url.params.get("cursor", "")]
        return {"definitions": rows, "next": following}

    fake.pages[PATH] = listing
    fake.has(version(1), version(1, name="b"))
    assert list(yaml.safe_load(defs("export").stdout)["agent"]) == ["researcher", "b"]


def test_an_answer_without_a_body_is_no_success(fake: Definitions, file: Path) -> None:
    fake.answers["POST", APPLY] = Scripted(status=500, body={"code": "internal", "error": "a bug"})
    assert defs("apply", str(file), "--yes").exit_code == FAILED
