"""`loomlog defs ls, show, diff, lineage, runs, at`."""

import json
from typing import Any

import pytest

from loomlog.services.cli.errors import NOT_FOUND, USAGE_ERROR
from tests.services.cli.definitions.rows import MADE, PATH, Definitions, defs, line, ok, version
from tests.services.cli.fake_api import Scripted, refused, row

ONE, TWO, THREE = (version(number)["def_id"] for number in (1, 2, 3))
LIST = "/v1/_agentdef"


def test_the_list_shows_what_is_active_and_where_it_comes_from(fake: Definitions) -> None:
    judged = {"count": 4, "mean": 0.5}
    fake.lines = [
        [
            line(2, 3, live_version_count=2, judgements=judged, made_by_agent="breeder"),
            line(kind="skill", name="pdf", source="file", static_def_id="sdf_0000000000000000", version_count=0,
                 last_updated=None, static_differs=True),
            line(1, kind="team", name="duo", source="shared", tenant_id=""),
        ]
    ]  # fmt: skip
    shown = ok(defs("ls", "--prefix", "r", "--active", "--not-retired", "--created-by", "ada", "--tenant", "acme"))
    assert shown == [
        "NAME KIND TENANT SOURCE ACTIVE LIVE JUDGED CHANGED NOTE",
        f"researcher agent acme tenant @2 {TWO} 2/3 0.50 of 4 judgements 2026-11-25T14:12:12Z made by breeder",
        "pdf skill - file file - - - the files of its processes differ",
        f"duo team _shared shared @1 {version(kind='team', name='duo', tenant_id='')['def_id']} 1/1 - "
        "2026-11-25T14:12:12Z",
    ]
    asked = {"prefix": "r", "active": "true", "retired": "false", "created_by": "ada", "tenant": "acme", "limit": "50"}
    assert dict(fake.asked[0].url.params) == asked


def test_a_list_that_goes_on_says_how(fake: Definitions) -> None:
    fake.pages[PATH] = lambda _: {"definitions": [line(1)], "next": "abc"}
    assert ok(defs("ls"))[-1] == "There are more: --cursor abc"
    assert json.loads(defs("ls", "--kind", "agent", "--json").stdout) == {"definitions": [line(1)], "next": "abc"}
    assert fake.asked[-1].url.params["kind"] == "agent"
    fake.pages[PATH] = lambda _: {"definitions": [], "next": None}
    assert ok(defs("ls")) == ["none"]


@pytest.mark.parametrize("name", ["researcher", "researcher@2", TWO])
def test_a_version_is_shown_whole_with_the_history_of_its_name(fake: Definitions, name: str) -> None:
    fake.lines = [[line(2, 3)]]
    prompt_text = "You search.\nYou answer."
    whole = {"model": "mock-2", "system_prompt": prompt_text, "system_prompt_base": prompt_text}
    fake.has(version(2, promoted=True, definition=whole, judgements={"count": 1, "mean": 1.0}))
    fake.answers_with(LIST, {"name": "researcher", "versions": [version(3, retired=True), version(2), version(1)]})
    shown = ok(defs("show", name))
    assert shown[:3] == ["version researcher@2", "kind agent", "tenant acme"]
    assert f"def_id {TWO}" in shown
    assert "status active" in shown
    assert f"parent {ONE}" in shown
    assert "made 2026-11-25T14:12:12Z by ada (a_http-ada)" in shown
    assert "why reason 2" in shown
    assert "judged 1.00 of 1 judgement" in shown
    prompt = shown.index("system_prompt: |-")
    assert shown[prompt + 1 : prompt + 4] == ["You search.", "You answer.", ""]
    assert [text.split()[:2] for text in shown[-3:]] == [
        ["researcher@3", "retired"],
        ["researcher@2", "active"],
        ["researcher@1", ONE],
    ]
    assert fake.sent() == [{"op": "list", "name": "researcher"}]
    shown = json.loads(defs("show", name, "--json").stdout)
    assert shown["definition"]["definition"] == whole
    assert len(shown["versions"]) == 3


def test_a_definition_of_a_file_is_shown_with_the_way_to_override_it(fake: Definitions) -> None:
    static = version(0, def_id="def_00000000000000aa", parent_def_id="", created_at=None, created_by="")
    static |= {"created_by_agent_id": "", "description": ""}
    fake.lines = [[line(source="file", static_def_id=static["def_id"], count=0)]]
    fake.has(static)
    shown = ok(defs("show", "researcher"))
    assert "status of a configuration file" in shown
    assert "`loomlog defs fork researcher --promote --set KEY=VALUE` overrides it" in shown[-1]
    assert not fake.sent()


def test_a_shared_version_is_shown_without_the_history_that_is_not_the_callers(fake: Definitions) -> None:
    shared = version(1, tenant_id="")
    fake.lines = [[line(1, source="shared", tenant_id="")]]
    fake.has(shared)
    fake.answers["POST", LIST] = refused(403, "insufficient_scope", "the tenant _shared is not yours")
    assert "tenant _shared" in ok(defs("show", "researcher"))
    assert fake.asked[-1].url.params["tenant"] == "_shared"
    fake.answers["POST", LIST] = refused(503, "definitions_unavailable", "Postgres is away")
    assert defs("show", "researcher").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("show", "nope"), NOT_FOUND, "There is no agent nope. `loomlog defs ls --kind agent` lists them."),
        (("show", "researcher@9"), NOT_FOUND, "There is no version researcher@9: its newest version is researcher@3."),
        (("show", "idle"), NOT_FOUND, "the newest is idle@1, `loomlog defs promote idle@1`"),
        (("show", "static@1"), NOT_FOUND, "it comes from a file only"),
        (("show", "researcher@x"), USAGE_ERROR, "expected NAME, NAME@VERSION such as researcher@2, or an id"),
        (("show", "researcher@0"), USAGE_ERROR, "names no version"),
        (("show", "a@1@2"), USAGE_ERROR, "names no version"),
        (("show", "researcher", "--kind", "agnt"), USAGE_ERROR, "did you mean agent?"),
        (("show", "researcher", "--kind", "volume"), USAGE_ERROR, "--kind is 'volume'"),
        (("ls", "--kind", "agents"), USAGE_ERROR, "did you mean agent?"),
        (("show", "def_0123456789abcdef"), NOT_FOUND, "There is no"),
        (("at", "yesterday"), USAGE_ERROR, "expected an age like 90s"),
        (("at", ""), USAGE_ERROR, "Which time?"),
    ],
)
def test_what_is_not_there_or_wrong_is_a_sentence(
    fake: Definitions, arguments: tuple[str, ...], code: int, text: str
) -> None:
    static = line(name="static", source="file", count=0, latest_version=0)
    fake.lines = [[line(2, 3), line(0, 1, name="idle"), static]]
    result = defs(*arguments)
    assert (result.exit_code, text in result.output) == (code, True), result.output


def test_a_breaking_change_of_the_output_schema_is_said_with_its_reasons(fake: Definitions) -> None:
    fake.lines = [[line(2, 3)]]
    changes = [{"field": "output_schema.required", "before": ["total"], "after": []}]
    output = {"kind": "breaking", "reasons": ["$.total: may be absent now"]}
    body = {"from": ONE, "to": TWO, "changes": changes, "output_change": output}
    fake.answers["GET", f"{PATH}/{TWO}/diff"] = Scripted(body=body)
    assert ok(defs("diff", "researcher"))[-2:] == [
        "the change of the output schema is breaking",
        "$.total: may be absent now",
    ]


def test_differences_are_shown_by_field(fake: Definitions) -> None:
    fake.lines = [[line(2, 3)]]
    changes = [
        {"field": "model", "before": "mock-1", "after": "mock-2"},
        {"field": "tools", "before": None, "after": ["Read", "Write"]},
        {"field": "sampling", "before": {"top_p": 0.5}, "after": None},
        {"field": "system_prompt", "diff": ["@@ -1 +1 @@", "-You search.", "+You look.", " Then answer."]},
    ]
    fake.answers["GET", f"{PATH}/{TWO}/diff"] = Scripted(body={"from": ONE, "to": TWO, "changes": changes})
    assert defs("diff", "researcher").stdout == (
        f"{ONE} -> {TWO}\n"
        "model\n  - mock-1\n  + mock-2\n"
        'tools\n  + ["Read","Write"]\n'
        "sampling\n  - top_p: 0.5\n"
        "system_prompt\n  @@ -1 +1 @@\n  -You search.\n  +You look.\n   Then answer.\n"
    )
    assert "to" not in fake.asked[-1].url.params
    assert json.loads(defs("diff", "researcher", "--json").stdout)["changes"] == changes
    fake.answers["GET", f"{PATH}/{TWO}/diff"] = Scripted(body={"from": TWO, "to": None, "changes": []})
    assert ok(defs("diff", "researcher", "file")) == [f"{TWO} -> nothing", "No difference."]


@pytest.mark.parametrize(
    ("other", "to"), [("file", "file"), ("active", "active"), (THREE, THREE), ("researcher@3", THREE)]
)
def test_the_other_side_of_a_difference_is_a_version_a_file_or_what_is_active(
    fake: Definitions, other: str, to: str
) -> None:
    fake.lines = [[line(2, 3)]]
    fake.answers["GET", f"{PATH}/{ONE}/diff"] = Scripted(body={"from": ONE, "to": to, "changes": []})
    ok(defs("diff", "researcher@1", other))
    assert fake.asked[-1].url.params["to"] == to


def small(number: int, **changes: Any) -> dict[str, Any]:
    fields = ("def_id", "name", "version", "parent_def_id", "retired")
    return {key: version(number)[key] for key in fields} | changes


def test_a_lineage_is_a_tree_from_its_root(fake: Definitions) -> None:
    four, five = version(4)["def_id"], version(5)["def_id"]
    fake.lines = [[line(5, 5)]]
    fake.has(version(3))
    body = {
        "root": small(1),
        "ancestors": [small(2), small(1)],
        "descendants": [small(4, parent_def_id=THREE, retired=True), small(5, parent_def_id=four)],
        "depth": 2,
        "truncated": True,
    }
    fake.answers["GET", f"{PATH}/{THREE}/lineage"] = Scripted(body=body)
    assert defs("lineage", "researcher@3", "--depth", "2").stdout.splitlines() == [
        f"researcher@1  {ONE}",
        f"└── researcher@2  {TWO}",
        f"    └── researcher@3  {THREE}  <- this one  reason 3",
        f"        └── researcher@4  {four}  retired",
        f"            └── researcher@5  {five}  active",
        "There is more than 2 steps away: --depth.",
    ]
    assert json.loads(defs("lineage", "researcher@3", "--json").stdout) == body


def test_the_runs_of_a_version_are_listed(fake: Definitions) -> None:
    fake.lines = [[line(2, 3)]]
    fake.answers["GET", f"{PATH}/{TWO}/runs"] = Scripted(body={"runs": [row()], "next": "abc"})
    shown = ok(defs("runs", "researcher", "--status", "completed", "--limit", "1"))
    assert shown[1].startswith("r_1 assistant completed")
    assert shown[2] == "There are more: --cursor abc"
    assert dict(fake.asked[-1].url.params) == {"status": "completed", "limit": "1"}
    fake.answers["GET", f"{PATH}/{TWO}/runs"] = Scripted(body={"runs": [], "next": None})
    assert ok(defs("runs", "researcher")) == ["No run is pinned to it."]


@pytest.mark.parametrize(
    ("moment", "asked"),
    [
        ("2026-11-25T12:00:00Z", {"time": "2026-11-25T12:00:00.000Z"}),
        ("loom.entity.events/3:17", {"position": "loom.entity.events/3:17"}),
    ],
)
def test_what_was_active_is_asked_by_time_or_position(fake: Definitions, moment: str, asked: dict[str, str]) -> None:
    was = {"kind": "agent", "name": "researcher", "tenant_id": "acme", "active_def_id": TWO, "version": 2}
    was |= {"promoted_at": MADE, "promoted_by": "ada", "why": "better"}
    fake.answers["GET", f"{PATH}/at"] = Scripted(body={"definitions": [was], "at": moment})
    assert ok(defs("at", moment, "--kind", "agent", "--name", "researcher")) == [
        "ACTIVE KIND TENANT ID PROMOTED BY WHY",
        f"researcher@2 agent acme {TWO} 2026-11-25T14:12:12Z ada better",
        f"1 definition at {moment}",
    ]
    assert dict(fake.asked[-1].url.params) == {**asked, "kind": "agent", "name": "researcher"}
    fake.answers["GET", f"{PATH}/at"] = Scripted(body={"definitions": [], "at": moment})
    assert ok(defs("at", moment)) == ["No version was active then."]
