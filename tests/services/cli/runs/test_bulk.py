import json
from functools import partial
from typing import Any

import httpx
import pytest

from loomlog.services.cli.runs import bulk
from tests.services.cli import fake_api
from tests.services.cli.fake_api import FakeApi, let_commands_use, row

WHERE = "status=running,agent=assistant"


def result(run_id: str, outcome: str = "changed", **more: Any) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "outcome": outcome,
        "position": "loom.run.events/2:21",
        "code": None,
        "error": None,
        **more,
    }


class Installation(FakeApi):
    """Has runs to be ordered about: `results` page by page."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        super().__init__()
        self.results = pages
        self.pages[bulk.PATH] = self.answer

    def answer(self, request: httpx.Request) -> dict[str, Any]:
        asked = json.loads(request.content)
        if asked["dry_run"]:
            count = sum(map(len, self.results))
            runs = [row(one["run_id"]) for page in self.results for one in page][:1]
            return {**asked, "matched": count, "more": False, "runs": runs}
        at = int(asked.get("cursor") or 0)
        following = str(at + 1) if at + 1 < len(self.results) else None
        return {**asked, "results": self.results[at], "next": following}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*pages: list[dict[str, Any]]) -> Installation:
        fake = Installation(*pages)
        let_commands_use(monkeypatch, fake.client)
        return fake

    return make


invoke = partial(fake_api.invoke, "runs")


def test_a_dry_run_says_how_many_and_which_and_does_nothing(made: Any) -> None:
    fake = made([result("r_1"), result("r_2")])
    found = invoke("pause", "--where", WHERE, "--dry-run")
    assert found.exit_code == 0
    assert "r_1" in found.stdout
    assert found.stdout.splitlines()[-1] == "2 runs, 1 of them not shown"
    assert [body["dry_run"] for body in fake.bodies(bulk.PATH)] == [True]
    assert json.loads(invoke("pause", "--where", WHERE, "--dry-run", "--json").stdout)["matched"] == 2


def test_with_yes_every_page_is_done_and_each_position_is_shown(made: Any) -> None:
    fake = made([result("r_1")], [result("r_2", "unchanged", position=None, error="it is paused already")])
    found = invoke("quarantine", "--where", WHERE, "--reason", "look", "--yes")
    assert found.exit_code == 0, found.output
    assert "r_1 changed  event loom.run.events/2:21" in found.stdout
    assert "r_2 unchanged  it is paused already" in found.stdout
    assert found.stdout.splitlines()[-1] == "1 changed, 1 unchanged, 0 failed"
    assert [(body["dry_run"], body.get("cursor"), body.get("reason")) for body in fake.bodies(bulk.PATH)] == [
        (True, None, None),
        (False, None, "look"),
        (False, "1", "look"),
    ]


def test_one_that_failed_makes_the_exit_code_1(made: Any) -> None:
    made([result("r_1"), result("r_2", "failed", position=None, code="run_quarantined", error="still broken")])
    found = invoke("release", "--where", "status=quarantined", "--yes")
    assert found.exit_code == 1
    assert "still broken" in found.stdout
    found = invoke("release", "--where", "status=quarantined", "--yes", "--json")
    assert found.exit_code == 1
    assert [one["outcome"] for one in json.loads(found.stdout)["results"]] == ["changed", "failed"]


def test_without_a_terminal_nothing_is_done_unless_yes_is_said(made: Any) -> None:
    fake = made([result("r_1")])
    found = invoke("cancel", "--where", WHERE, "--reason", "enough")
    assert found.exit_code == 2
    assert "--yes" in found.stderr
    assert fake.bodies(bulk.PATH) == []


@pytest.mark.parametrize(("said", "done"), [("y\n", 1), ("n\n", 0)])
def test_on_a_terminal_it_asks_first(made: Any, monkeypatch: pytest.MonkeyPatch, said: str, done: int) -> None:
    fake = made([result("r_1")])
    monkeypatch.setattr(bulk, "is_interactive", lambda: True)
    found = invoke("cancel", "--where", WHERE, "--reason", "enough", stdin=said)
    assert "Cancel 1 run?" in found.stdout
    assert sum(not body["dry_run"] for body in fake.bodies(bulk.PATH)) == done
    assert found.exit_code == 1 - done


@pytest.mark.parametrize(
    "arguments", [("pause",), ("pause", "r_1", "--where", WHERE), ("resume", "r_1", "--dry-run"), ("release",)]
)
def test_one_run_or_a_filter_has_to_be_named_and_not_both(made: Any, arguments: tuple[str, ...]) -> None:
    fake = made([result("r_1")])
    assert invoke(*arguments).exit_code == 2
    assert fake.asked == []
