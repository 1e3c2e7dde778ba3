"""Hooks: what is a registration, who may remove one, and which hooks look at a call in which order."""

from typing import Any

import pytest

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.schemas.generated.hook_events import HookRegistered, HookRemoved
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import STATE_BYTES_MAX, At
from loomlog.services.families.hook import FAMILY, HOOKS, limits
from loomlog.services.families.hook.state import Hook, HookTable

ENVELOPE = CommandEnvelope(command_id="c", tenant="")
URL = "https://hooks.example/x"


def register(name: str = "guard", *, tenant: str = "acme", owner: str = "ops", **more: Any) -> RegisterHook:
    fields = {"hook_id": f"h_{name[:9]}", "phase": "pre", "callback_url": URL, **more}
    return RegisterHook(envelope=ENVELOPE, tenant=tenant, owner=owner, name=name, **fields)


def remove(hook_id: str, of_tenant: str | None = None) -> RemoveHook:
    return RemoveHook(envelope=ENVELOPE, hook_id=hook_id, of_tenant=of_tenant)


class Given:
    """The hooks after these commands; `events` are those of the last one."""

    def __init__(self, *commands: Any) -> None:
        self.table: HookTable = FAMILY.rules.initial(HOOKS)
        self.events: list[Any] = []
        for command in commands:
            self.when(command)

    def when(self, command: Any) -> "Given":
        self.events = list(FAMILY.rules.decide(self.table, command, At(7, caller="op")))
        for event in self.events:
            if not isinstance(event, CommandRefused):
                self.table = FAMILY.rules.evolve(self.table, event, 7)
        return self

    @property
    def refused(self) -> CommandRefused:
        (refused,) = self.events
        assert isinstance(refused, CommandRefused)
        return refused


def names(found: HookTable, phase: str = "pre", *, tenant: str = "acme", agent: str = "helper", tool: str = "HTTP"):
    return [one.name for one in found.hooks_for_call(tenant, agent, tool, phase)]


# --- what is decided -------------------------------------------------------------------------------------------------


def test_a_hook_is_registered_with_who_and_when() -> None:
    given = Given().when(register(agents=("helper",), tools=("HTT*",), fail_mode="closed", timeout_ms=5))
    fields = {
        "hook_id": "h_guard",
        "tenant": "acme",
        "owner": "ops",
        "name": "guard",
        "phase": "pre",
        "agents": ("helper",),
        "tools": ("HTT*",),
        "callback_url": URL,
        "fail_mode": "closed",
        "timeout_ms": 5,
        "by": "op",
    }
    assert given.events == [HookRegistered(**fields)]
    assert given.table.entries == (Hook(**fields, at_ms=7),)


def test_a_hook_is_removed_by_its_tenant_or_by_an_administrator() -> None:
    for of_tenant in ("acme", None):
        given = Given(register("a")).when(remove("h_a", of_tenant))
        assert given.events == [HookRemoved(hook_id="h_a", by="op")]
        assert given.table.entries == ()


@pytest.mark.parametrize("command", [remove("h_b"), remove("h_a", "globex"), remove("h_a", "")])
def test_a_hook_that_is_not_there_or_of_another_tenant_is_not_found(command: RemoveHook) -> None:
    given = Given(register("a")).when(command)
    assert given.refused.code == "not_found"
    assert len(given.table.entries) == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"owner": ""}, "owner"),
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"owner": "a\nb"}, "owner"),
        ({"hook_id": ""}, "hook_id"),
        ({"tenant": "a\0"}, "tenant"),
        ({"phase": "during"}, "phase"),
        ({"fail_mode": "maybe"}, "fail_mode"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"timeout_ms": 60_001}, "timeout_ms"),
        ({"callback_url": ""}, "callback_url"),
        ({"callback_url": "x" * 2_001}, "callback_url"),
        ({"agents": ("",)}, "agents"),
        ({"agents": ("a",) * 257}, "agents"),
        ({"tools": ("",)}, "tools"),
        ({"tools": ("a*b",)}, "tools"),
        ({"tools": ("**",)}, "tools"),
        ({"tools": ("t",) * 257}, "tools"),
    ],
)
def test_what_is_no_registration_is_refused(wrong: dict[str, Any], field: str) -> None:
    given = Given().when(register(**wrong))
    assert (given.refused.code, field in given.refused.message) == ("invalid_registration", True)
    assert given.table.entries == ()


def test_a_tenant_has_only_so_many_and_may_still_replace_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOOKS_PER_TENANT_MAX", 2)
    given = Given(register("a"), register("b"))
    assert given.when(register("c")).refused.code == "invalid_registration"
    assert len(given.when(register("b", timeout_ms=5)).when(register("a", tenant="globex")).table.entries) == 3


def test_all_tenants_together_have_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOOKS_MAX", 2)
    given = Given(register("a"), register("a", tenant="globex"))
    assert "of all tenants" in given.when(register("b")).refused.message
    assert given.when(register("a", timeout_ms=5)).table.entries[0].timeout_ms == 5


def test_one_tenant_cannot_use_the_place_of_the_others() -> None:
    large = tuple(f"{number:0200}" for number in range(limits.NAMES_MAX))
    given = Given(register("a", tools=large))
    assert "bytes" in given.when(register("b", tools=large)).refused.message
    assert len(given.when(register("b", tools=large, tenant="globex")).table.entries) == 2


def test_as_many_hooks_as_there_may_be_fit_a_state() -> None:
    given = Given(*(register(str(n), tenant=f"t{n // 100}", tools=("HTTP",)) for n in range(limits.HOOKS_MAX)))
    assert len(given.table.entries) == limits.HOOKS_MAX
    assert len(StateCodec(HookTable).encode(given.table)) < STATE_BYTES_MAX


def test_the_order_survives_the_encoding_of_a_state() -> None:
    table = Given(register("b"), register("a"), register("c", tenant="")).table
    states = StateCodec(HookTable)
    assert states.decode(states.encode(table)) == table
    assert [hook.name for hook in table.entries] == ["b", "a", "c"]


# --- which hooks a call has ------------------------------------------------------------------------------------------


def test_nobody_looks_at_first() -> None:
    assert names(Given().table) == []


def test_pre_hooks_are_asked_in_order_and_post_hooks_in_reverse() -> None:
    hook_table = Given(
        register("a"), register("b"), register("c", phase="post"), register("d", phase="post"), register("e")
    ).table
    assert (names(hook_table), names(hook_table, "post")) == (["a", "b", "e"], ["d", "c"])


def test_registering_a_name_again_replaces_it_and_keeps_its_place() -> None:
    hook_table = Given(register("a", hook_id="h_1"), register("b"), register("a", hook_id="h_2", timeout_ms=7)).table
    assert names(hook_table) == ["a", "b"]
    assert hook_table.find("h_1") is None
    assert hook_table.hooks_for_call("acme", "helper", "HTTP", "pre")[0].timeout_ms == 7


def test_the_same_name_of_another_owner_or_tenant_is_another_hook() -> None:
    hook_table = Given(
        register("a"), register("a", owner="else", hook_id="h_2"), register("a", tenant="globex", hook_id="h_3")
    ).table
    assert [one.hook_id for one in hook_table.entries] == ["h_a", "h_2", "h_3"]


def test_a_removal_takes_one_registration_away() -> None:
    hook_table = Given(register("a"), register("b"), remove("h_a")).table
    assert names(hook_table) == ["b"]


def test_removing_what_was_replaced_meanwhile_removes_nothing() -> None:
    hook_table = Given(register("a", hook_id="h_1"), register("a", hook_id="h_2"), remove("h_1")).table
    assert names(hook_table) == ["a"]


@pytest.mark.parametrize(
    ("registered", "call", "looks"),
    [
        ({}, {}, True),
        ({"tenant": ""}, {}, True),
        ({"tenant": "globex"}, {}, False),
        ({"agents": ("helper",)}, {}, True),
        ({"agents": ("other",)}, {}, False),
        ({"agents": ("help*",)}, {}, False),
        ({"tools": ("HTTP",)}, {}, True),
        ({"tools": ("HTT*",)}, {}, True),
        ({"tools": ("*",)}, {}, True),
        ({"tools": ("HTTP",)}, {"tool": "HTTPS"}, False),
        ({"tools": ("mcp__git__*",)}, {"tool": "mcp__git__push"}, True),
        ({"tools": ("*HTTP",)}, {}, False),
        ({"tools": ("Read", "Write")}, {"tool": "Write"}, True),
        ({"tools": ("Read",), "agents": ("helper",)}, {"tool": "Read", "agent": "other"}, False),
    ],
)
def test_which_calls_a_hook_sees(registered: dict[str, Any], call: dict[str, Any], looks: bool) -> None:
    assert bool(names(Given(register(**registered)).table, **call)) is looks
