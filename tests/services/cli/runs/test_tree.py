"""`loomlog runs tree`: who started whom."""

import json

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.main import app
from tests.services.cli.fake_api import FakeApi, row

FAMILY = [
    {"run_id": "r_1", "parent_run_id": None, "agent": "lead"},
    {"run_id": "r_1-a", "parent_run_id": "r_1", "agent": "worker"},
    {"run_id": "r_1-b", "parent_run_id": "r_1", "agent": "worker", "resident": True, "status": "running"},
    {"run_id": "r_1-c", "parent_run_id": "r_1-a", "agent": "helper", "status": "failed", "error": "it broke"},
]


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    rows = [row(**{"root_run_id": "r_1", "resident": False, "error": None, **member}) for member in FAMILY]
    fake.rows |= {member["run_id"]: member for member in rows}

    def page(request):
        prefix = request.url.params.get("prefix", "")
        return {"runs": [one for one in rows[::-1] if one["run_id"].startswith(prefix)], "next": None}

    fake.pages["/v1/runs"] = page
    return fake


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["runs", "tree", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_tree_shows_children_under_their_parents(fake):
    lines = shown("r_1").splitlines()
    assert [line.strip("│├└─ ").split()[0] for line in lines] == ["r_1", "r_1-a", "r_1-c", "r_1-b", "4"]
    assert "it broke" in lines[2]
    assert "resident" in lines[3]
    assert fake.asked[-1].url.params["root_run_id"] == "r_1"


def test_a_run_in_the_middle_shows_what_is_below_it(fake):
    assert json.loads(shown("r_1-a", "--json"))["runs"][1]["run_id"] == "r_1-c"
    assert "r_1-b" not in shown("r_1-a")
