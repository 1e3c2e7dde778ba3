"""The part of the checker that judges promotions of definitions: a log as it should be, and every way to spoil it."""

from dataclasses import replace as changed

from loomlog.schemas.generated.definition_events import DefPromoted
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import AgentDefinition, DefinitionPin
from tests.chaos.definitions import shipped_once
from tests.chaos.evidence import Evidence, Shipped
from tests.chaos.history import accepted
from tests.chaos.story_book import Log

LINE, AGGREGATE = "writer", "definition:default/agent/writer"
MADE = ("def_1", "def_2")
ONE = Shipped(line=LINE, key="k0", def_id="def_1", is_answered=True, run_id="r_one")


def found(promoted: tuple[str, ...], *shipped: Shipped, pin: str = "def_1", spoil: bool = False) -> list[str]:
    """The kinds of what is wrong with a log in which these versions were promoted after they were made."""
    entities, runs = Log(), Log()
    for log in (entities, runs):
        log.claim()
    for number, def_id in enumerate((*MADE, *promoted)):
        event = DefPromoted(
            kind="agent", name=LINE, from_def_id="", to_def_id=def_id, version=1, why="", by_agent_id="", by="local"
        )
        entities.event(event, run_id=AGGREGATE, keep=not spoil or number != len(MADE))
    definition = AgentDefinition(
        name=LINE,
        provider="mock",
        model="m",
        pin=DefinitionPin(def_id=pin, version=1, content_sha256="sha256:0"),
    )
    runs.event(RunStarted(session_id="s", agent_id="a", definition=definition, segments=()))
    evidence = changed(runs.evidence(), entity_events={0: entities.events}, shipped=shipped)
    assert isinstance(evidence, Evidence)
    return [violation.kind for violation in shipped_once(evidence, {0: accepted(0, runs.events)})]


def test_a_promotion_that_was_answered_is_there_once_with_a_run_that_is_pinned_to_it() -> None:
    assert found(("def_1",), ONE) == []


def test_one_that_was_not_answered_may_be_there_and_is_said() -> None:
    unanswered = changed(ONE, key="k1", def_id="def_2", is_answered=False, run_id="")
    assert found(("def_1", "def_2"), ONE, unanswered) == ["stuck"]
    assert found(("def_1",), ONE, unanswered) == ["stuck"]


def test_a_lost_one_a_doubled_one_and_another_one_are_found() -> None:
    assert found((), ONE) == ["lost"]
    assert found(("def_1", "def_1", "def_1"), ONE) == ["doubled"]
    assert found(("def_2",), ONE) == ["doubled"]


def test_a_run_with_another_version_is_found() -> None:
    assert found(("def_1",), ONE, pin="def_2") == ["pin"]


def test_a_run_without_an_end_is_found() -> None:
    assert found(("def_1",), changed(ONE, run_id="")) == ["stuck"]


def test_events_that_do_not_follow_each_other_are_found() -> None:
    assert found(("def_1", "def_2"), ONE, spoil=True) == ["gap", "chain"]
