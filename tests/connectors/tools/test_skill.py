from collections.abc import Sequence

import orjson
import pytest

from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.protocols import EffectClass, SkillSummary, SkillText, ToolResult
from loomlog.connectors.tools.file_skills import FileSkills
from loomlog.connectors.tools.skill import LISTED_MAX, SkillTool
from loomlog.schemas.generated.values import SkillPin
from tests.connectors.tools.given import context

OLD = SkillText(
    name="pdf",
    description="Reads PDF files",
    body="Read page by page.",
    tools=("Read",),
    files={"forms/tax.md": "Ask first.", "a.txt": "ä"},
    def_id="sdf_1",
    version=1,
    content_sha256="sha256:1",
)
NEW = SkillText(name="pdf", body="Read backwards.", def_id="sdf_2", version=2, content_sha256="sha256:2")
PINNED = (SkillPin(name="pdf", def_id="sdf_1", version=1, content_sha256="sha256:1"),)


class Versions:
    """Skills with versions: the last one of a name is the current one."""

    def __init__(self, *texts: SkillText) -> None:
        self.texts = texts

    async def find(self, tenant: str, name: str) -> SkillText | None:
        return next((text for text in reversed(self.texts) if text.name == name and tenant == "acme"), None)

    async def version(self, tenant: str, pin: SkillPin) -> SkillText | None:
        return next((text for text in self.texts if text.def_id == pin.def_id), None)

    async def names(self, tenant: str) -> Sequence[SkillSummary]:
        names = sorted({text.name for text in self.texts})
        return [SkillSummary(name=name, description=f"about {name}", source="dynamic") for name in names]


async def called(
    *texts: SkillText,
    skills: tuple[str, ...] = (),
    pins: tuple[SkillPin, ...] = (),
    grants: tuple[str, ...] = ("Read", "Skill"),
    **arguments: object,
) -> ToolResult:
    tool = SkillTool(Versions(*texts))
    return await tool.call(arguments, context(skills=skills, skill_pins=pins, tool_grants=grants))


async def test_invoke_returns_the_body_only_and_the_version_it_used():
    for arguments in ({"name": "pdf"}, {"op": "invoke", "name": "pdf"}):
        result = await called(OLD, **arguments)
        assert (result.text, result.is_error, result.skill_pin) == ("Read page by page.", False, PINNED[0])


async def test_a_run_keeps_to_the_version_it_used_first():
    assert (await called(OLD, NEW, name="pdf")).text == NEW.body
    kept = await called(OLD, NEW, name="pdf", pins=PINNED)
    assert (kept.text, kept.skill_pin) == (OLD.body, PINNED[0])
    read = await called(OLD, NEW, op="read", name="pdf", path="a.txt", pins=PINNED)
    assert (read.text, read.skill_pin) == ("ä", PINNED[0])


async def test_a_pinned_version_that_is_gone_is_an_error_and_never_another_one():
    result = await called(NEW, name="pdf", pins=PINNED)
    assert result.is_error
    assert "version 1" in result.text
    assert "not here any more" in result.text
    assert result.skill_pin is None


async def test_a_pin_of_another_skill_does_not_matter():
    other = SkillPin(name="docx", def_id="sdf_9", version=9, content_sha256="sha256:9")
    assert (await called(OLD, NEW, name="pdf", pins=(other,))).text == NEW.body


async def test_files_are_listed_and_read():
    listed = await called(OLD, op="files", name="pdf")
    assert orjson.loads(listed.text) == {
        "name": "pdf",
        "files": [{"path": "a.txt", "bytes": 2}, {"path": "forms/tax.md", "bytes": 10}],
    }
    assert listed.skill_pin == PINNED[0]
    assert (await called(OLD, op="read", name="pdf", path="forms/tax.md")).text == "Ask first."
    missing = await called(OLD, op="read", name="pdf", path="../a.txt")
    assert missing.is_error
    assert "a.txt, forms/tax.md" in missing.text


@pytest.mark.parametrize(
    ("skills", "is_allowed"),
    [((), True), (("p*",), True), (("docx",), False), (("-pdf",), False), (("-*",), False), (("-docx",), True)],
)
@pytest.mark.parametrize("op", ["invoke", "files", "read"])
async def test_the_agents_patterns_decide(skills: tuple[str, ...], is_allowed: bool, op: str):
    more = {"path": "a.txt"} if op == "read" else {}
    for pins in ((), PINNED):
        result = await called(OLD, skills=skills, pins=pins, op=op, name="pdf", **more)
        assert result.is_error is not is_allowed
        assert is_allowed or ("may use" in result.text and OLD.body not in result.text)


@pytest.mark.parametrize(
    ("needs", "grants", "missing"),
    [
        (("Read",), ("Read",), []),
        (("Read",), ("*",), []),
        (("Read", "Write"), ("Re*", "Grep"), ["Write"]),
        (("mcp__a__*",), ("mcp__*",), []),
        (("mcp__a__*",), ("mcp__a__x",), ["mcp__a__*"]),
        (("mcp__a__x", "Bash"), ("mcp__a__*",), ["Bash"]),
        (("client:page",), ("client__page",), []),
        ((), (), []),
    ],
)
async def test_the_tools_of_a_skill_must_be_granted(
    needs: tuple[str, ...], grants: tuple[str, ...], missing: list[str]
):
    skill = SkillText(name="s", body="secret art", tools=needs)
    result = await called(skill, name="s", grants=grants)
    assert result.is_error is bool(missing)
    assert all(tool in result.text for tool in missing)
    assert ("secret art" in result.text) is not bool(missing)


async def test_list_has_what_the_agent_may_use():
    texts = [SkillText(name=name, body="b") for name in ("team/b", "a", "team/a", "team/x/y")]
    listed = await called(*texts, op="list", skills=("-team/b",))
    names = ["a", "team/a", "team/x/y"]
    assert orjson.loads(listed.text) == {"skills": [{"name": n, "description": f"about {n}"} for n in names]}
    assert listed.skill_pin is None
    chosen = await called(*texts, op="list", pattern="team/*")
    assert [skill["name"] for skill in orjson.loads(chosen.text)["skills"]] == ["team/a", "team/b"]


async def test_a_long_list_is_cut_and_says_so():
    texts = [SkillText(name=f"s{n:03}", body="b") for n in range(LISTED_MAX + 1)]
    answer = orjson.loads((await called(*texts, op="list")).text)
    assert (len(answer["skills"]), answer["count"]) == (LISTED_MAX, LISTED_MAX + 1)
    assert "pattern" in answer["hint"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, '"name" is missing'),
        ({"op": "read", "name": "pdf"}, '"path" is missing'),
        ({"op": "list", "name": "pdf"}, '"name" does not belong to op list'),
        ({"op": "invoke", "name": "pdf", "path": "a"}, '"path" does not belong to op invoke'),
        ({"op": "load", "name": "pdf"}, "one of invoke, list, files, read"),
        ({"op": "list", "pattern": "a**"}, "** must be a whole part"),
        ({"name": "nope"}, "The skill nope was not found"),
        ({"name": "../pdf"}, "is no name of a skill"),
        ({"name": "a\ud800"}, "is no name of a skill"),
        ({"name": "a\n"}, "is no name of a skill"),
        ({"name": "a" * 129}, "at most 128 characters"),
        ({"op": "read", "name": "pdf", "path": "\ud800"}, "has no file"),
    ],
)
async def test_unusable_calls_are_explained(arguments: dict[str, object], expected: str):
    result = await called(OLD, **arguments)
    assert result.is_error
    assert expected in result.text
    assert result.text.encode()


async def test_unusable_patterns_of_an_agent_allow_nothing():
    result = await called(OLD, name="pdf", skills=("a b",))
    assert result.is_error
    assert "'a b'" in result.text


async def test_a_call_has_no_effect():
    assert SkillTool(Versions()).effect_class({"name": "pdf"}) is EffectClass.READ


async def test_skills_of_files_are_everyones_and_are_pinned_by_their_hash():
    block = SkillBlock(description="d", tools=("Read",), body="b", files={"f": "t"})
    skills = FileSkills({"z": block, "a": SkillBlock(body="a")}, lambda name, skill: f"sha256:{name}{skill.body}")
    text = await skills.find("anyone", "z")
    assert text == SkillText(
        name="z", description="d", body="b", tools=("Read",), files={"f": "t"}, content_sha256="sha256:zb"
    )
    assert await skills.names("anyone") == [SkillSummary(name="a"), SkillSummary(name="z", description="d")]
    pin = SkillPin(name="z", def_id="", version=0, content_sha256="sha256:zb")
    assert await skills.version("anyone", pin) is text
    for other in (
        SkillPin(name="z", def_id="", version=0, content_sha256="sha256:old"),
        SkillPin(name="z", def_id="sdf_1", version=1, content_sha256="sha256:zb"),
        SkillPin(name="gone", def_id="", version=0, content_sha256="sha256:zb"),
    ):
        assert await skills.version("anyone", other) is None
    assert await skills.find("anyone", "gone") is None
