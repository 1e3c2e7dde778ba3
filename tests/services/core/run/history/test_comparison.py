"""Two runs side by side: where they part, and what counts as a difference."""

from typing import Any

from loomlog.schemas.generated.values import AgentDefinition, ForkPoint
from loomlog.services.core.run.history.comparison import CommonPoint, Figures, compare_runs, figures_of, steps_of
from loomlog.services.core.run.history.replay import ReplayResult, replay
from tests.projections.stories import Partition, a3x2, call, completed, replied, requested, started
from tests.services.core.run.history.test_replay import accepted


def told(*events: Any, run_id: str = "r_1", history: Any = ()) -> ReplayResult:
    partition = Partition()
    partition.claim()
    partition.add(run_id, *events)
    replayed = replay(run_id, accepted(partition, run_id), history=history)
    assert replayed.drift == ()
    return replayed


def short(text: str = "Hi!", prompt: str = "hello", **more: Any) -> ReplayResult:
    return told(started(prompt=prompt), requested(1), replied(1, text, **more), completed())


def test_a_run_is_the_same_as_itself() -> None:
    comparison = compare_runs(short(), short())
    assert comparison.is_same
    assert [pair.differing_fields for pair in comparison.steps] == [(), ()]


def test_they_differ_from_the_first_step_that_says_something_else_on() -> None:
    comparison = compare_runs(told(*a3x2("r_1")), short())
    assert comparison.first_difference is not None
    later = comparison.steps[comparison.first_difference :]
    assert all(pair.differing_fields for pair in later)
    assert later[-1].b is None
    assert later[-1].differing_fields == ("only in one",)


def test_what_is_equal_again_after_they_parted_is_not_called_the_same() -> None:
    comparison = compare_runs(short(prompt="one"), short(prompt="two"))
    assert [pair.differing_fields for pair in comparison.steps] == [("text",), ("after they parted",)]


def test_figures_alone_differ_without_parting() -> None:
    comparison = compare_runs(short(cost_micros=7), short(cost_micros=9))
    assert [pair.differing_fields for pair in comparison.steps] == [(), ("cost_micros",)]
    assert comparison.first_difference == 1


def test_the_definition_and_the_outcome_are_compared_by_field() -> None:
    other = AgentDefinition(name="writer", provider="mock", model="tiny", system_prompt="You write.", sha256="cd" * 32)
    comparison = compare_runs(short(), told(started(definition=other), requested(1), replied(1, "Hi!")))
    assert [one.name for one in comparison.definition] == ["model", "sha256"]
    assert {one.name: (one.a, one.b) for one in comparison.outcome}["status"] == ("completed", "running")
    assert comparison.system == ()


def test_a_fork_lines_up_with_its_origin_and_its_shared_answers_have_no_figures_to_differ() -> None:
    origin = short()
    point = ForkPoint(run_id="r_1", first_offset=1, last_offset=4, seq=4, digest=origin.tail_digest.hex())
    fork = told(
        started("r_1-f", prompt="and?", forked_from=point),
        requested(1),
        replied(1, "So."),
        completed(),
        run_id="r_1-f",
        history=origin.history,
    )
    comparison = compare_runs(origin, fork)
    assert comparison.first_difference == 2
    assert [(pair.a is None, pair.b is None) for pair in comparison.steps] == [(False, False)] * 2 + [(True, False)] * 2
    shared, own = steps_of(fork)[1], steps_of(fork)[3]
    assert (shared.turn, shared.seq, own.turn, own.seq) == (0, 0, 1, 3)


def test_an_origin_and_its_fork_are_counted_from_what_they_share() -> None:
    origin, fork = told(*a3x2("r_1")), short()
    shared = figures_of(short())
    common = CommonPoint(run_id="r_1", seq=3, extra_a=Figures() - shared)
    comparison = compare_runs(origin, fork, common=common)
    assert comparison.figures_a == figures_of(origin) - shared
    assert comparison.figures_b == figures_of(fork)
    turns = {one.name: (one.a, one.b) for one in comparison.outcome}["turns"]
    assert turns == (figures_of(origin).turns - 1, 1)


def test_calls_and_their_results_are_steps_with_names() -> None:
    steps = steps_of(told(*a3x2("r_1")))
    assert {step.who for step in steps} == {"user", "agent", "tools"}
    agent = next(step for step in steps if step.calls and step.who == "agent")
    tools = steps[steps.index(agent) + 1]
    assert [one.name for one in agent.calls] == [one.name for one in tools.calls]


def test_another_input_of_a_call_is_a_difference() -> None:
    def asking(text: str) -> ReplayResult:
        return told(started(), requested(1), replied(1, "", call("c1", text=text)))

    assert compare_runs(asking('{"city": "Paris"}'), asking('{"city": "Rome"}')).first_difference == 1


def test_an_answer_without_a_word_has_no_step_and_shifts_nothing() -> None:
    steps = steps_of(told(started(), requested(1), replied(1, ""), completed()))
    assert [step.who for step in steps] == ["user"]
