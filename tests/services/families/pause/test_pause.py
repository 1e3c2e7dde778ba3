"""Pauses: what is decided, what it holds, and that a state survives its encoding."""

from typing import Any

import pytest

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet, SwitchUsed
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import STATE_BYTES_MAX, At
from loomlog.services.core.pauses import WidePause
from loomlog.services.families.pause import FAMILY, PAUSES, limits
from loomlog.services.families.pause.state import PauseTable

ENVELOPE = CommandEnvelope(command_id="c", tenant="")


def pause(scope: str, tenant: str = "", agent: str = "", *, reason: str = "r", switch: str = "") -> SetPause:
    return SetPause(envelope=ENVELOPE, scope=scope, tenant=tenant, agent=agent, reason=reason, switch=switch)


def lift(scope: str, tenant: str = "", agent: str = "") -> LiftPause:
    return LiftPause(envelope=ENVELOPE, scope=scope, tenant=tenant, agent=agent)


class Given:
    """The pauses after these commands; `events` are those of the last one."""

    def __init__(self, *commands: Any) -> None:
        self.table: PauseTable = FAMILY.rules.initial(PAUSES)
        self.events: list[Any] = []
        for command in commands:
            self.when(command)

    def when(self, command: Any, caller: str = "op") -> "Given":
        self.events = list(FAMILY.rules.decide(self.table, command, At(7, caller=caller)))
        for event in self.events:
            if not isinstance(event, CommandRefused):
                self.table = FAMILY.rules.evolve(self.table, event, 7)
        return self

    @property
    def code(self) -> str:
        (refused,) = self.events
        assert isinstance(refused, CommandRefused)
        return refused.code


def held(table: PauseTable, tenant: str = "acme", agent: str = "helper") -> list[str]:
    return [pause.scope for pause in table.pauses_for(tenant, agent)]


def test_nothing_is_paused_at_first() -> None:
    assert held(Given().table) == []


def test_a_pause_is_set_with_who_and_when() -> None:
    given = Given().when(pause("tenant", "acme", reason="bill"))
    assert given.events == [PauseSet(scope="tenant", tenant="acme", reason="bill", by="op")]
    assert given.table.listed() == (WidePause(scope="tenant", tenant="acme", reason="bill", by="op", at_ms=7),)
    assert given.table.changed_by == "op"


def test_a_pause_is_lifted_by_its_name() -> None:
    given = Given(pause("all"), pause("tenant", "acme")).when(lift("all"), caller="boss")
    assert given.events == [PauseLifted(scope="all", by="boss")]
    assert (held(given.table), given.table.changed_by) == (["tenant"], "boss")


def test_what_is_set_twice_or_lifted_without_being_set_is_refused() -> None:
    given = Given(pause("all", reason="one"))
    assert given.when(pause("all", reason="two")).code == "already_pausing"
    assert given.when(lift("tenant", "acme")).code == "not_paused"
    assert [entry.reason for entry in given.table.pauses_for("t", "a")] == ["one"]
    assert given.when(lift("all")).when(lift("all")).code == "not_paused"


def test_each_width_holds_what_it_names_and_nothing_else() -> None:
    assert held(Given(pause("all")).table) == ["all"]
    tenant = Given(pause("tenant", "acme")).table
    assert (held(tenant), held(tenant, "globex")) == (["tenant"], [])
    agent = Given(pause("agent", "acme", "helper")).table
    assert (held(agent), held(agent, agent="other"), held(agent, "globex")) == (["agent"], [], [])
    assert held(Given(pause("agent", agent="helper")).table, "globex") == ["agent"]


def test_a_run_is_held_once_for_each_scope() -> None:
    commands = (pause("agent", agent="helper"), pause("agent", "acme", "helper"), pause("tenant", "acme"), pause("all"))
    assert held(Given(*commands).table) == ["all", "tenant", "agent"]


@pytest.mark.parametrize(
    "scope",
    [("run",), ("all", "acme"), ("tenant",), ("tenant", "acme", "helper"), ("agent", "acme")],
)
@pytest.mark.parametrize("command", [pause, lift])
def test_what_contradicts_itself_is_refused(command: Any, scope: tuple[str, ...]) -> None:
    assert Given().when(command(*scope)).code == "bad_request"


@pytest.mark.parametrize(
    "command",
    [pause("tenant", "a\nb"), pause("agent", agent="x" * 257), pause("all", switch="x" * 257), lift("tenant", "a\0")],
)
def test_names_are_bounded_and_printable(command: Any) -> None:
    assert Given().when(command).code == "bad_request"


def test_a_long_reason_is_cut() -> None:
    assert len(Given(pause("all", reason="x" * 501)).table.listed()[0].reason) == 500


def test_there_are_only_so_many_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAUSES_MAX", 2)
    given = Given(pause("tenant", "a"), pause("tenant", "b"))
    assert given.when(pause("all")).code == "bad_request"
    assert held(given.when(lift("tenant", "a")).when(pause("all")).table) == ["all"]


def test_a_start_paused_switch_is_not_refused_for_the_number_of_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAUSES_MAX", 1)
    assert held(Given(pause("tenant", "a"), pause("all", switch="1")).table) == ["all"]


def test_ordinary_pauses_are_far_from_the_bound_of_a_state() -> None:
    commands = [
        pause("agent", f"tenant-{number}", "some/agent", reason="x" * 200) for number in range(limits.PAUSES_MAX)
    ]
    assert len(StateCodec(PauseTable).encode(Given(*commands).table)) < STATE_BYTES_MAX / 2


# --- the start-paused switch -----------------------------------------------------------------------------------------


def test_a_value_of_the_switch_counts_once() -> None:
    first = pause("all", switch="1")
    given = Given(first, lift("all"))
    assert given.when(first).events == []
    assert held(given.table) == []
    assert held(given.when(pause("all", switch="2")).table) == ["all"]


def test_a_value_whose_pause_still_stands_does_nothing_again() -> None:
    given = Given(pause("all", switch="1"))
    assert given.when(pause("all", switch="1")).events == []
    assert held(given.table) == ["all"]


def test_what_an_operator_has_paused_keeps_its_author_and_the_value_counts_as_used() -> None:
    given = Given(pause("all", reason="deploy")).when(pause("all", switch="1"), caller="rt-1")
    assert given.events == [SwitchUsed(switch="1")]
    assert [(entry.reason, entry.by) for entry in given.table.listed()] == [("deploy", "op")]
    assert given.when(lift("all")).when(pause("all", switch="1")).events == []


def test_only_so_many_values_of_the_switch_are_known() -> None:
    given = Given()
    for number in range(limits.SWITCHES_MAX + 1):
        given.when(pause("all", switch=f"s{number}"))
    assert len(given.table.used_switches) == limits.SWITCHES_MAX
    assert given.table.used_switches[-1] == f"s{limits.SWITCHES_MAX}"


# --- what is kept and shown ------------------------------------------------------------------------------------------


def test_a_state_is_the_same_after_it_was_encoded() -> None:
    table = Given(pause("tenant", "b"), pause("agent", "", "x"), pause("all", switch="1")).table
    states = StateCodec(PauseTable)
    assert states.decode(states.encode(table)) == table
    assert [entry.scope for entry in table.listed()] == ["agent", "all", "tenant"]


def test_what_holds_the_runs_of_a_tenant_is_the_same_as_pauses_of_that_tenant_alone() -> None:
    table = Given(
        pause("all", reason="all"),
        pause("agent", "", "helper", reason="helper"),
        pause("agent", "", "other", reason="other"),
        pause("agent", "acme", "other", reason="acme's other"),
        pause("tenant", "other", reason="not acme's"),
    ).table
    narrowed = table.listed_for_tenant("acme")
    assert [(entry.scope, entry.tenant, entry.agent, entry.reason) for entry in narrowed] == [
        ("agent", "acme", "helper", "helper"),
        ("agent", "acme", "other", "acme's other"),
        ("tenant", "acme", "", "all"),
    ]
