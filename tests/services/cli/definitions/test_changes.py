"""`loomlog defs create, fork, promote, rollback, retire, restore`."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomlog.services.cli.errors import FAILED, NOT_FOUND, USAGE_ERROR
from tests.services.cli.definitions.rows import AT, Definitions, defs, line, ok, version

AGENT = "/v1/_agentdef"
POSITION = AT["X-Loomlog-Position"]
ONE, TWO, THREE = (version(number)["def_id"] for number in (1, 2, 3))


def changes(number: int, before: list[Any], after: list[Any], fake: Definitions, **row: Any) -> None:
    """Script the answer of a write that gives a version, and the line before and after it."""
    fake.answers_with(AGENT, {**version(number), **row})
    fake.lines = [before, after]


def test_the_first_version_of_a_name_is_taken_back_by_retiring_it(fake: Definitions) -> None:
    changes(1, [], [line(1)], fake, promoted=True)
    arguments = (
        "--set",
        "provider=mock",
        "--set",
        "sampling.top_p=0.5",
        "--description",
        "a start",
        "--tenant",
        "acme",
    )
    assert ok(defs("create", "researcher", *arguments)) == [
        f"researcher@1 {ONE} is active",
        "was active nothing",
        f"is active researcher@1 {ONE}",
        f"event {POSITION}",
        "take back loomlog defs retire researcher@1 --tenant acme",
    ]
    overlay = {"provider": "mock", "sampling": {"top_p": 0.5}}
    assert fake.sent() == [{"op": "create", "name": "researcher", "overlay": overlay, "description": "a start"}]
    write = next(request for request in fake.asked if request.method == "POST")
    assert write.url.params["tenant"] == "acme"
    assert len(write.headers["idempotency-key"]) == 36


def test_a_further_version_is_taken_back_by_a_rollback(fake: Definitions) -> None:
    changes(2, [line(1)], [line(2, 2)], fake, promoted=True)
    assert ok(defs("create", "researcher", "--set", "model=m"))[1:] == [
        f"was active researcher@1 {ONE}",
        f"is active researcher@2 {TWO}",
        f"event {POSITION}",
        "take back loomlog defs rollback researcher",
    ]


@pytest.mark.parametrize(
    ("row", "was"),
    [
        ({"source": "file", "static_def_id": "def_00000000000000aa", "count": 0}, "the configuration file"),
        ({"source": "shared", "tenant_id": "", "active": 1}, f"researcher@1 {version(tenant_id='')['def_id']}"),
    ],
)
def test_over_a_file_or_a_shared_version_there_is_nothing_to_roll_back_to(
    fake: Definitions, row: dict[str, Any], was: str
) -> None:
    changes(2, [line(**row)], [line(2, 2)], fake, promoted=True)
    shown = ok(defs("fork", "researcher", "--promote", "--set", "model=m"))
    assert shown[1] == f"was active {was}"
    assert shown[-1] == "take back loomlog defs retire researcher@2"


def test_a_shared_version_is_rolled_back_for_all_tenants(fake: Definitions) -> None:
    shared: dict[str, Any] = {"source": "shared", "tenant_id": ""}
    changes(2, [line(1, **shared)], [line(2, 2, **shared)], fake, promoted=True, tenant_id="")
    shown = ok(defs("fork", "researcher", "--promote", "--set", "model=m", "--tenant", "_shared"))
    assert shown[-1] == "take back loomlog defs rollback researcher --tenant _shared"


def test_a_fork_that_is_not_active_says_how_to_compare_and_activate_it(fake: Definitions) -> None:
    changes(3, [line(2, 2)], [line(2, 3)], fake)
    fake.has(version(1))
    assert ok(defs("fork", ONE, "--set", "tools=[Read, Write]", "--no-promote", "--expect-active", "researcher@2")) == [
        f"researcher@3 {THREE} is made, and not active",
        f"was active researcher@2 {TWO}",
        f"is active researcher@2 {TWO}",
        f"event {POSITION}",
        "compare loomlog defs diff researcher@3",
        "activate loomlog defs promote researcher@3",
    ]
    assert fake.sent() == [
        {
            "op": "fork",
            "name": "researcher",
            "parent_def_id": ONE,
            "overlay": {"tools": ["Read", "Write"]},
            "promote": False,
            "expect_active": TWO,
        }
    ]


def test_a_fork_of_a_name_leaves_the_parent_to_the_api(fake: Definitions) -> None:
    changes(2, [line(1)], [line(2, 2)], fake, promoted=True)
    ok(defs("fork", "researcher", "--expect-active", "none", "--expires-at", "2027-01-01T00:00:00Z"))
    body = {
        "op": "fork",
        "name": "researcher",
        "overlay": {},
        "expect_active": "",
        "expires_at": "2027-01-01T00:00:00Z",
    }
    assert fake.sent() == [body]


def test_the_same_content_makes_no_version(fake: Definitions) -> None:
    changes(1, [line(1)], [line(1)], fake, promoted=True, deduplicated=True)
    shown = ok(defs("create", "researcher", "--set", "model=m"))
    assert shown[0] == f"researcher@1 {ONE} says the same: no version was made"
    assert not any(text.startswith("take back") for text in shown)


@pytest.mark.parametrize("name", ["researcher@2", TWO])
def test_a_promotion_says_what_was_active_and_the_way_back(fake: Definitions, name: str) -> None:
    fake.has(version(2))
    fake.lines = [*([line(1, 2)] for _ in range(1 if name == TWO else 2)), [line(2, 2)]]
    fake.answers_with(AGENT, {"def_id": TWO, "name": "researcher", "version": 2, "promoted": True})
    assert ok(defs("promote", name, "--why", "better answers", "--expect-active", "none")) == [
        f"researcher@2 {TWO} is active",
        f"was active researcher@1 {ONE}",
        f"is active researcher@2 {TWO}",
        f"event {POSITION}",
        "take back loomlog defs rollback researcher",
    ]
    assert fake.sent() == [{"op": "promote", "def_id": TWO, "why": "better answers", "expect_active": ""}]


def test_what_was_active_already_has_no_way_back(fake: Definitions) -> None:
    fake.lines = [[line(2, 2)]]
    fake.answers_with(AGENT, {"def_id": TWO, "name": "researcher", "version": 2, "promoted": True})
    shown = ok(defs("promote", "researcher@2"))
    assert shown[0] == f"researcher@2 {TWO} was active already"
    assert not any(text.startswith("take back") for text in shown)


def test_a_rollback_is_taken_back_by_promoting_what_it_undid(fake: Definitions) -> None:
    fake.lines = [[line(2, 2)], [line(1, 2)]]
    answer = {"def_id": ONE, "name": "researcher", "version": 1, "promoted": True, "undone_def_id": TWO}
    fake.answers_with(AGENT, answer)
    assert ok(defs("rollback", "researcher", "--why", "wrong answers")) == [
        f"researcher@1 {ONE} is active again",
        f"was active researcher@2 {TWO}",
        f"is active researcher@1 {ONE}",
        f"event {POSITION}",
        f"take back loomlog defs promote {TWO}",
    ]
    assert fake.sent() == [{"op": "rollback", "name": "researcher", "why": "wrong answers"}]
    assert json.loads(defs("rollback", "researcher", "--json").stdout) == {**answer, "position": POSITION}


def test_a_rollback_after_the_active_version_was_retired_is_taken_back_by_retiring(fake: Definitions) -> None:
    fake.lines = [[line(0, 2)], [line(1, 2)]]
    answer = {"def_id": ONE, "name": "researcher", "version": 1, "promoted": True, "undone_def_id": ONE}
    fake.answers_with(AGENT, answer)
    assert ok(defs("rollback", "researcher"))[-1] == "take back loomlog defs retire researcher@1"


def test_to_retire_the_active_version_is_taken_back_in_two_steps(fake: Definitions) -> None:
    fake.lines = [[line(2, 2)], [line(2, 2)], [line(0, 2)]]
    fake.answers_with(AGENT, {"def_id": TWO, "retired": True})
    assert ok(defs("retire", "researcher", "--why", "harmful")) == [
        f"researcher@2 {TWO} is retired",
        f"was active researcher@2 {TWO}",
        "is active nothing",
        f"event {POSITION}",
        "take back loomlog defs restore researcher@2",
        "loomlog defs promote researcher@2",
    ]
    assert fake.sent() == [{"op": "retire", "def_id": TWO, "retired": True, "why": "harmful"}]


def test_to_restore_a_version_does_not_activate_it(fake: Definitions) -> None:
    fake.lines = [[line(2, 2)]]
    fake.answers_with(AGENT, {"def_id": ONE, "retired": False})
    shown = ok(defs("restore", "researcher@1"))
    assert shown[0] == f"researcher@1 {ONE} is restored"
    assert shown[-1] == "take back loomlog defs retire researcher@1"
    assert fake.sent() == [{"op": "retire", "def_id": ONE, "retired": False}]


def test_the_kind_of_an_id_needs_no_option_and_is_in_what_is_printed(fake: Definitions) -> None:
    pdf = version(1, kind="skill", name="pdf")
    pdf["def_id"] = version(1, kind="skill", name="pdf")["def_id"]
    fake.has(pdf)
    fake.lines = [[], [line(1, kind="skill", name="pdf")]]
    fake.answers_with("/v1/_skilldef", {"def_id": pdf["def_id"], "name": "pdf", "version": 1, "promoted": True})
    shown = ok(defs("promote", pdf["def_id"]))
    assert shown[0] == f"skill pdf@1 {pdf['def_id']} is active"
    assert shown[-1] == "take back loomlog defs retire pdf@1 --kind skill"


def test_a_change_that_cannot_be_read_back_is_done_all_the_same(fake: Definitions) -> None:
    fake.lines = [[line(1, 2)], [line(1, 2)], httpx.ConnectError("reset")]
    fake.answers_with(AGENT, {"def_id": TWO, "name": "researcher", "version": 2, "promoted": True})
    shown = ok(defs("promote", "researcher@2"))
    assert shown[0] == f"researcher@2 {TWO} is active"
    assert shown[2].startswith("is active unknown (The API at http://api.test does not answer")
    assert shown[-1] == "take back loomlog defs rollback researcher"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("create", "researcher"), USAGE_ERROR, "Give --file FILE, or --set KEY=VALUE"),
        (("create", "researcher", "--set", "model"), USAGE_ERROR, "expected KEY=VALUE"),
        (("create", "researcher", "--set", "a..b=1"), USAGE_ERROR, "expected KEY=VALUE"),
        (("create", "researcher", "--set", "a=1", "--set", "a.b=2"), USAGE_ERROR, "a has a value already"),
        (("create", "researcher", "--set", "a=[1"), FAILED, "--set a:1: not YAML"),
        (
            ("create", "researcher", "--set", "model=m", "--description", "\udc80"),
            USAGE_ERROR,
            "cannot be written as JSON",
        ),
        (("create", "researcher", "--file", "nowhere.md"), NOT_FOUND, "There is no file nowhere.md."),
        (
            ("promote", "researcher"),
            USAGE_ERROR,
            "Which version of researcher? Give NAME@VERSION, such as researcher@3",
        ),
        (("restore", "nope"), USAGE_ERROR, "such as nope@1"),
        (("promote", "nope@1"), NOT_FOUND, "There is no agent nope."),
        (("retire", "static"), NOT_FOUND, "static comes from a configuration file"),
        (("rollback", "researcher@1"), USAGE_ERROR, "`loomlog defs promote researcher@1` makes that version active."),
        (("create", "x", "--set", "a=1", "--kind", "volume"), USAGE_ERROR, "--kind is 'volume'"),
    ],
)
def test_wrong_use_is_a_sentence_and_nothing_is_sent(
    fake: Definitions, arguments: tuple[str, ...], code: int, text: str
) -> None:
    static = line(name="static", source="file", count=0, static_def_id="def_00000000000000aa")
    fake.lines = [[line(2, 3), static]]
    result = defs(*arguments)
    assert (result.exit_code, text in result.output) == (code, True), result.output
    assert not fake.sent()


def test_as_json_the_answer_has_the_position(fake: Definitions, tmp_path: Path) -> None:
    file = tmp_path / "researcher.md"
    file.write_text("---\nmodel: mock-generic\nprovider: mock\n---\nYou search.\n")
    changes(1, [], [line(1)], fake, promoted=True)
    shown = json.loads(defs("create", "researcher", "--file", str(file), "--set", "model=m", "--json").stdout)
    assert shown == {**version(1, promoted=True), "position": POSITION}
    assert fake.sent()[0]["overlay"] == {"model": "m", "provider": "mock", "system_prompt": "You search."}
