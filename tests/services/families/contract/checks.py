"""The promises of the kit that a family's rules keep alone. Each check raises AssertionError when one is broken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope, Envelope
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import TIMER_FIRED, At, aggregate_id, items_problem
from loomlog.services.stream.entities.families import EntityCommand, EntityFamilies, FamilySet
from tests.services.families.contract.cases import Case
from tests.services.families.contract.commands import commands_of

NOW_MS = 1_700_000_000_000
STEP_MS_MAX = 120_000
COMMANDS_MAX = 12
EXAMPLES = 40
PHASES: tuple[Phase, ...] = (Phase.generate, Phase.shrink)
UNHEALTHY = tuple(HealthCheck)
"""Generated commands are filtered, and plays are long: neither says anything about a family."""
ENVELOPE = CommandEnvelope(command_id="", tenant="acme", subject="ada", issued_at_ms=NOW_MS)
CODEC = local_codec()
Steps = list[tuple[Any, int]]
"""Commands, each with the milliseconds that pass before it."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision: the state before, the command (TIMER_FIRED for a timer), the events, the state after."""

    name: str
    before: Entity[Any]
    order: EntityCommand
    events: Sequence[Any]
    after: Entity[Any]
    at_ms: int


def play(case: Case, steps: Steps) -> list[Decided]:
    """Decide the commands by the rules alone; a timer that has come due between two of them fires before the second."""
    families = FamilySet(case.families)
    family, states, decisions, now_ms = EntityFamilies(families), dict[str, Entity[Any]](), list[Decided](), NOW_MS

    def decide(name: str, command: Any) -> None:
        before = states.get(name) or family.absent(name)
        order = EntityCommand(command, At(now_ms, "" if command is TIMER_FIRED else "ada", f"c{len(decisions)}"))
        events = family.decide(before, order)
        after = before
        for event in events:
            after = family.evolve(after, event, now_ms)
        states[name] = after
        decisions.append(Decided(name, before, order, events, after, now_ms))

    for command, passes_ms in steps:
        now_ms += passes_ms
        for name, state in list(states.items()):
            if 0 < family.next_timer_at(state) <= now_ms:
                decide(name, TIMER_FIRED)
        _, row = families.of_command(command)
        decide(aggregate_id(case.family.name, "acme", row.aggregate(command)), command)
    return decisions


def steps_of(case: Case) -> st.SearchStrategy[Steps]:
    """Commands of the case, generated and registered ones, each with the milliseconds that pass before it."""
    generated = commands_of(case.family, ENVELOPE)
    registered = case.examples(ENVELOPE)
    commands = st.one_of(generated, st.sampled_from(registered)) if registered else generated
    return st.lists(st.tuples(commands, st.sampled_from((0, 1, STEP_MS_MAX))), max_size=COMMANDS_MAX)


_generated: dict[int, tuple[Case, list[Steps]]] = {}


def for_every_steps(case: Case, check: Callable[[Steps], object]) -> None:
    """Check many sequences of commands. They are the same for every check of a case, and made once; Hypothesis makes
    them again to shrink one that fails.
    """
    if id(case) not in _generated:
        made: list[Steps] = []
        _generate(case, made.append)
        _generated[id(case)] = case, made
    try:
        for steps in _generated[id(case)][1]:
            check(steps)
    except Exception:
        _generate(case, check)
        raise


def _generate(case: Case, check: Callable[[Steps], object]) -> None:
    @settings(max_examples=EXAMPLES, phases=PHASES, deadline=None, derandomize=True, suppress_health_check=UNHEALTHY)
    @given(steps_of(case))
    def run(steps: Steps) -> None:
        check(steps)

    run()


def for_every_play(case: Case, check: Callable[[list[Decided]], object]) -> None:
    """Check many sequences of decisions."""
    for_every_steps(case, lambda steps: check(play(case, steps)))


def snapshots_and_tails_are_the_full_fold(case: Case) -> None:
    """Encoded and decoded after any decision, the fold goes on to the same bytes."""
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        whole = {one.name: families.of(one.name).states.encode(one.after) for one in decisions}
        for cut in range(len(decisions) + 1):
            states: dict[str, Entity[Any]] = {}
            for number, one in enumerate(decisions):
                hosted = families.of(one.name)
                if number == cut:
                    states = {
                        name: families.of(name).states.decode(families.of(name).states.encode(state))
                        for name, state in states.items()
                    }
                state = states.get(one.name) or hosted.rules.initial(one.name)
                for event in one.events:
                    state = hosted.rules.evolve(state, event, one.at_ms)
                states[one.name] = state
            folded = {name: families.of(name).states.encode(state) for name, state in states.items()}
            assert folded == whole, f"a cut before decision {cut} changes the fold"

    for_every_play(case, check)


def states_round_trip(case: Case) -> None:
    """Canonical bytes are decoded to the state they are of, and are the same bytes again."""
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        for one in decisions:
            states = families.of(one.name).states
            data = states.encode(one.after)
            assert states.decode(data) == one.after
            assert states.encode(states.decode(data)) == data

    for_every_play(case, check)


def events_round_trip(case: Case) -> None:
    """What is decided can be written, and is read as it was: the fold of the log is the fold of the decision."""
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        for one in decisions:
            hosted, state = families.of(one.name), one.before
            for event in one.events:
                envelope = Envelope(
                    term=0, seq=state.seq + 1, aggregate=one.name, tenant="acme", at_ms=one.at_ms, prev=bytes(16)
                )
                read = CODEC.decode(CODEC.encode_event(envelope, event)).record
                assert read == event
                state = hosted.rules.evolve(state, read, one.at_ms)
            assert state == one.after

    for_every_play(case, check)


def rules_are_deterministic(case: Case) -> None:
    """The same decisions, played again later, have the same events and states: no clock, no randomness."""

    def check(steps: Steps) -> None:
        first, second = play(case, steps), play(case, steps)
        assert [(one.events, one.after) for one in first] == [(one.events, one.after) for one in second]

    for_every_steps(case, check)


def every_command_has_an_answer(case: Case) -> None:
    """A command is followed by an event, if only by one that says that nothing changed; refusals have a reason."""

    def check(decisions: list[Decided]) -> None:
        for one in decisions:
            if one.order.command is not TIMER_FIRED:
                assert one.events, f"{one.order.command} has no answer"
            for event in one.events:
                if isinstance(event, CommandRefused):
                    assert event.code, f"{one.order.command} is refused without a code"
                    assert event.message, f"{one.order.command} is refused without a reason"
                    assert len(one.events) == 1, "a refusal is the only event of its decision"
                if isinstance(event, CommandRefused | CommandHadNoEffect):
                    assert one.after.state == one.before.state

    for_every_play(case, check)


def replies_follow_from_the_events_alone(case: Case) -> None:
    """The reply to a repeated command is made from its events as they are in the log, and is the same."""
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        for one in decisions:
            if one.order.command is TIMER_FIRED:
                continue
            _, row = families.of_command(one.order.command)
            envelope = Envelope(term=0, seq=1, aggregate=one.name, tenant="acme", at_ms=one.at_ms, prev=bytes(16))
            read = [CODEC.decode(CODEC.encode_event(envelope, event)).record for event in one.events]
            assert row.reply(read) == row.reply(one.events)

    for_every_play(case, check)


def sends_follow_from_the_event(case: Case) -> None:
    """What an event sends is the same, asked again after the aggregate has gone on."""
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        last = {one.name: one.after for one in decisions}
        for one in decisions:
            hosted, state = families.of(one.name), one.before
            for event in one.events:
                state = hosted.rules.evolve(state, event, one.at_ms)
                sent = list(hosted.declaration.sends(state.state, event))
                assert list(hosted.declaration.sends(last[one.name].state, event)) == sent

    for_every_play(case, check)


def items_follow_from_state_and_event(case: Case) -> None:
    """The items of an event can be stored, are the same from a state that was stored and read, and have ids that no
    other aggregate uses.
    """
    families = FamilySet(case.families)

    def check(decisions: list[Decided]) -> None:
        owners: dict[tuple[str, str], str] = {}
        for one in decisions:
            hosted, state = families.of(one.name), one.before
            for event in one.events:
                state = hosted.rules.evolve(state, event, one.at_ms)
                if isinstance(event, CommandRefused | CommandHadNoEffect):
                    continue
                envelope = Envelope(
                    term=0, seq=state.seq, aggregate=one.name, tenant="acme", at_ms=one.at_ms, prev=bytes(16)
                )
                items = list(hosted.declaration.items(state.state, event, envelope))
                assert not (problem := items_problem(items)), problem
                stored = hosted.states.decode(hosted.states.encode(state)).state
                read = CODEC.decode(CODEC.encode_event(envelope, event)).record
                assert list(hosted.declaration.items(stored, read, envelope)) == items
                for item in items:
                    owner = owners.setdefault((item.kind, item.id), one.name)
                    assert owner == one.name, f"the {item.kind} {item.id} is of {owner} and of {one.name}"

    for_every_play(case, check)


def timers_fire_once(case: Case) -> None:
    """A timer that fires before its time changes nothing; one that has fired is not due any more."""
    family = EntityFamilies(FamilySet(case.families))

    def check(decisions: list[Decided]) -> None:
        for one in decisions:
            due_ms = family.next_timer_at(one.after)
            assert due_ms >= 0
            early = family.decide(one.after, EntityCommand(TIMER_FIRED, At(max(due_ms - 1, 0))))
            assert not early, f"a timer that is due at {due_ms} was heard at {due_ms - 1}"
            if not due_ms:
                continue
            state = one.after
            for event in family.decide(state, EntityCommand(TIMER_FIRED, At(due_ms))):
                state = family.evolve(state, event, due_ms)
            assert family.next_timer_at(state) != due_ms, "a timer that has fired is due again at the same time"

    for_every_play(case, check)
