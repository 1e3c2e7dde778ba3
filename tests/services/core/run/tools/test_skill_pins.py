"""The first use of a skill pins its version for the run."""

from loomlog.schemas.generated.values import ImportOrigin, SkillPin
from loomlog.schemas.records import replace
from loomlog.services.core.run.limits import SKILL_PINS_KEPT
from loomlog.services.core.run.run_facts import RunFacts, import_identity, with_skill_pin
from tests.services.core.run.given import answered, at_tools, begun, calls, returned

ORIGIN = ImportOrigin(
    topic="t", partition=0, first_offset=1, tenant="there", events=4, tail_digest="ab", bundle_sha256="cd"
)


def pin(name: str, version: int = 1) -> SkillPin:
    return SkillPin(name=name, def_id=f"sdf_{version}", version=version, content_sha256="sha256:ab")


def with_pins(facts: RunFacts, *pins: SkillPin) -> RunFacts:
    for one in pins:
        facts = with_skill_pin(facts, one)
    return facts


def test_the_result_of_a_call_says_which_version_it_used_and_the_run_keeps_to_it() -> None:
    run = at_tools("Read", "Read")
    run.give(replace(returned(run.state, 1), skill_pin=pin("tidy", 3)))
    run.give(replace(returned(run.state, 0), skill_pin=pin("tidy", 4)))
    run.give(answered(run.state, "", *calls("Read")))
    run.give(replace(returned(run.state, 0), skill_pin=pin("write", 1)))
    assert run.live.facts.skill_pins == (pin("tidy", 3), pin("write", 1))


def test_a_run_remembers_the_first_of_very_many_skills() -> None:
    facts = with_pins(begun().live.facts, *(pin(f"skill-{number}") for number in range(SKILL_PINS_KEPT + 1)))
    assert len(facts.skill_pins) == SKILL_PINS_KEPT
    assert facts.skill_pins[0].name == "skill-0"


def test_a_run_of_a_file_pins_only_what_it_is_restored_with() -> None:
    facts = begun().live.facts
    for restored, expected in ((False, ()), (True, (pin("tidy"),))):
        imported = replace(facts, imported_as=import_identity(replace(ORIGIN, restored=restored)))
        assert with_skill_pin(imported, pin("tidy")).skill_pins == expected
