import pytest

from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.schemas.records import replace
from loomlog.services.core.pauses import InvalidPause, PauseTable


def said(scope: str, tenant: str = "", agent: str = "", *, paused: bool = True, reason: str = "r") -> PauseSet:
    return PauseSet(scope=scope, tenant=tenant, agent=agent, paused=paused, reason=reason, by="op")


def after(*changes: PauseSet) -> PauseTable:
    table = PauseTable()
    for change in changes:
        table = table.apply(change)
    return table


def held(table: PauseTable, tenant: str = "acme", agent: str = "helper") -> list[str]:
    return [pause.scope for pause in table.pauses_for(tenant, agent)]


def test_nothing_is_paused_at_first() -> None:
    assert held(PauseTable()) == []


def test_each_width_holds_what_it_names_and_nothing_else() -> None:
    assert held(after(said("all"))) == ["all"]
    tenant = after(said("tenant", "acme"))
    assert (held(tenant), held(tenant, "globex")) == (["tenant"], [])
    agent = after(said("agent", "acme", "helper"))
    assert (held(agent), held(agent, agent="other"), held(agent, "globex")) == (["agent"], [], [])
    assert held(after(said("agent", agent="helper")), "globex") == ["agent"]


def test_a_run_is_held_once_for_each_scope() -> None:
    table = after(said("agent", agent="helper"), said("agent", "acme", "helper"), said("tenant", "acme"), said("all"))
    assert held(table) == ["all", "tenant", "agent"]


def test_only_what_was_named_is_lifted_and_the_last_word_counts() -> None:
    table = after(said("all"), said("tenant", "acme"), said("all", paused=False))
    assert held(table) == ["tenant"]
    assert table.has_entry("tenant", "acme", "")
    assert not table.has_entry("all", "", "")
    again = after(said("all", reason="one"), said("all", reason="two"))
    assert [pause.reason for pause in again.pauses_for("t", "a")] == ["two"]


@pytest.mark.parametrize(
    "change",
    [said("run"), said("all", "acme"), said("tenant"), said("tenant", "acme", "helper"), said("agent", "acme")],
)
def test_what_contradicts_itself_is_refused(change: PauseSet) -> None:
    with pytest.raises(InvalidPause):
        PauseTable().apply(change)


def test_a_value_of_the_start_paused_switch_counts_once() -> None:
    first = replace(said("all"), switch="1")
    table = after(first, said("all", paused=False), first)
    assert held(table) == []
    assert held(table.apply(replace(first, switch="2"))) == ["all"]


def test_what_holds_the_runs_of_a_tenant_is_the_same_as_pauses_of_that_tenant_alone() -> None:
    table = after(
        said("all", reason="all"),
        said("agent", "", "helper", reason="helper"),
        said("agent", "", "other", reason="other"),
        said("agent", "acme", "other", reason="acme's other"),
        said("tenant", "other", reason="not acme's"),
    )
    narrowed = after(*table.entries_for_tenant("acme"))
    assert [(entry.scope, entry.tenant, entry.agent, entry.reason) for entry in narrowed.entries.values()] == [
        ("agent", "acme", "other", "acme's other"),
        ("tenant", "acme", "", "all"),
        ("agent", "acme", "helper", "helper"),
    ]
    assert narrowed.pauses_for("other", "helper") == ()
