"""`loomlog blame`."""

import json
from typing import Any

import pytest

from loomlog.services.cli.errors import NOT_FOUND
from tests.services.cli.definitions.rows import MADE, Definitions, invoke, ok, version
from tests.services.cli.fake_api import Scripted, refused, row

PATH = "/v1/runs/r_1/blame"
ONE, TWO = (version(number)["def_id"] for number in (1, 2))


def chain(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": "r_1",
        "agent": "researcher",
        "def_id": TWO,
        "version": 2,
        "source": "tenant",
        "content_sha256": "sha256:aa",
        "definition_sha256": "bb",
        "created_at": MADE,
        "created_by": "ada",
        "created_by_agent_id": "a_7",
        "created_by_run_id": "r_7",
        "description": "shorter answers",
        "parent_def_id": ONE,
        "promoted_at": MADE,
        "promoted_by": "bob",
        "promoted_why": "it won",
        "promotion_position": "loom.entity.events/1:7",
        "is_active_now": True,
        "file": None,
        "skills": [{"name": "pdf", "def_id": "sdf_1", "version": 4, "content_sha256": "sha256:cc"}],
    } | changes


def blamed(fake: Definitions, **changes: Any) -> list[str]:
    fake.answers["GET", PATH] = Scripted(body=chain(**changes))
    return ok(invoke("blame", "r_1"))


@pytest.fixture(autouse=True)
def runs(fake: Definitions) -> None:
    fake.rows["r_1"] = fake.rows["a_1"] = row()


def test_the_chain_goes_from_the_run_to_who_promoted_its_version_and_back(fake: Definitions) -> None:
    assert blamed(fake) == [
        "run r_1 agent researcher",
        f"version researcher@2 {TWO} sha256:aa",
        'made 2026-11-25T14:12:12Z by ada (a_7) in run r_7: "shorter answers"',
        f"from {ONE}",
        'promoted 2026-11-25T14:12:12Z by bob: "it won" event loom.entity.events/1:7',
        "now active",
        "skill pdf@4 sdf_1",
        f"changes loomlog defs diff {TWO}",
        "take back loomlog defs rollback researcher",
    ]
    assert json.loads(invoke("blame", "r_1", "--json").stdout) == chain()


def test_a_version_that_is_no_longer_active_needs_no_way_back(fake: Definitions) -> None:
    shown = blamed(fake, is_active_now=False)
    assert "now no longer active" in shown
    assert shown[-1] == "history loomlog defs show researcher"


def test_a_first_version_without_reasons_that_was_never_promoted(fake: Definitions) -> None:
    nothing = {"parent_def_id": "", "description": "", "created_by_agent_id": "", "created_by_run_id": ""}
    shown = blamed(fake, **nothing, version=1, promoted_at=None, promoted_by=None, promoted_why=None, skills=[])
    assert "made 2026-11-25T14:12:12Z by ada, without a reason" in shown
    assert "promoted never: the run named the version by its id" in shown
    assert not any(text.startswith(("from", "skill")) for text in shown)
    assert shown[-1] == "take back loomlog defs retire researcher@1"


def test_a_file_that_says_something_else_is_named(fake: Definitions) -> None:
    says = "file the configuration file of this name says something else"
    for differs in (True, False):
        assert (says in blamed(fake, file={"def_id": "def_f", "differs_from_pin": differs})) == differs


@pytest.mark.parametrize(
    ("file", "is_active_now", "now"),
    [
        ({"def_id": "def_f", "differs_from_pin": None}, True, "active"),
        ({"def_id": "def_f", "differs_from_pin": None}, False, "a version made at run time is active instead"),
        ({"def_id": "def_g", "differs_from_pin": None}, True, "the file says something else"),
        (None, False, "no configuration file has it any more"),
    ],
)
def test_a_run_of_a_file_is_changed_in_the_file(fake: Definitions, file: Any, is_active_now: bool, now: str) -> None:
    static = {"def_id": "def_f", "version": 0, "source": "file", "content_sha256": None, "skills": None}
    assert blamed(fake, **static, file=file, is_active_now=is_active_now) == [
        "run r_1 agent researcher",
        "version researcher of a configuration file bb",
        f"now {now}",
        "change the file, and restart; or loomlog defs fork researcher --promote --set KEY=VALUE",
    ]


def test_a_handle_and_a_run_that_is_not_there(fake: Definitions) -> None:
    fake.answers["GET", PATH] = Scripted(body=chain())
    assert ok(invoke("blame", "a_1"))[0] == "run r_1 agent researcher"
    fake.answers["GET", PATH] = refused(404, "unknown_run", "there is no run r_1")
    result = invoke("blame", "r_1")
    assert (result.exit_code, result.stderr) == (NOT_FOUND, "There is no run r_1.\n")
