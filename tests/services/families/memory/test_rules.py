"""The rules of a memory scope: what is refused, what follows, and what the state counts."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.decide import decide, next_timer_ms
from loomlog.services.families.memory.state import MemoryScope, evolve, initial, name_bytes

NOW_MS = 1_800_000_000_000
ENVELOPE = CommandEnvelope(command_id="c", tenant="acme")
SOURCE = MemorySource(origin="agent_explicit", run_id="r_1")


@dataclass
class Ada:
    """The scope of a user, driven by commands."""

    state: MemoryScope = field(default_factory=lambda: initial("memory:acme/user/ada"))
    now_ms: int = NOW_MS

    def give(self, command: Any) -> list[Any]:
        events = list(decide(self.state, command, At(self.now_ms, "ada")))
        for event in events:
            if not isinstance(event, CommandRefused):
                self.state = evolve(self.state, event, self.now_ms)
        return events

    def set(self, key: str, value: str = "1", **fields: Any) -> Any:
        named = {"scope": "user", "scope_id": "ada", "source": SOURCE, **fields}
        command = SetEntry(envelope=ENVELOPE, key=key, value=value, **named)
        return self.give(command)[-1]

    def delete(self, key: str, **fields: Any) -> list[Any]:
        return self.give(DeleteEntry(envelope=ENVELOPE, scope="user", scope_id="ada", key=key, **fields))


def test_a_key_keeps_its_time_of_creation_and_gets_a_new_revision() -> None:
    ada = Ada()
    first = ada.set("k", '"a"')
    ada.now_ms += 5_000
    second = ada.set("k", '"longer"')
    assert (first.revision, first.previous_revision, second.revision, second.previous_revision) == (1, 0, 2, 1)
    assert first.created_at_s == second.created_at_s
    assert (ada.state.keys, ada.state.bytes) == (1, len('"longer"'))
    assert (second.usage_bytes, second.usage_keys) == (ada.state.bytes, ada.state.keys)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"key": ""}, "bad_request"),
        ({"key": "k" * 513}, "bad_request"),
        ({"key": "a\0b"}, "bad_request"),
        ({"key": "line\nbreak"}, "bad_request"),
        ({"scope": "galaxy"}, "invalid_scope"),
        ({"scope": "tenant"}, "invalid_scope"),
        ({"scope_id": ""}, "invalid_scope"),
        ({"value": ""}, "missing_value"),
        ({"value": "x" * (limits.VALUE_BYTES_DEFAULT + 1), "source": None}, "memory_value_too_large"),
        ({"value": "x", "value_bytes": limits.VALUE_BYTES_MAX + 1}, "memory_value_too_large"),
        ({"value": "no json", "source": None}, "invalid_value"),
        ({"value": "NaN", "source": None}, "invalid_value"),
        ({"value": "[" * 100_000, "source": None}, "memory_value_too_large"),
        ({"value": "[" * 10_000, "source": None}, "invalid_value"),
        ({"ttl_ms": -1}, "bad_request"),
        ({"ttl_ms": 2**60}, "bad_request"),
        ({"quota_bytes": -2}, "bad_request"),
        ({"if_revision": 3}, "revision_conflict"),
        ({"value": '"12345678"', "quota_bytes": 8}, "memory_quota_exceeded"),
    ],
)
def test_bad_commands_are_refused(fields: dict[str, Any], code: str) -> None:
    ada = Ada()
    refused = ada.set(**{"key": "k", **fields})
    assert isinstance(refused, CommandRefused)
    assert refused.code == code
    assert ada.state == initial("memory:acme/user/ada")


def test_a_service_that_appends_records_is_named_as_the_source() -> None:
    event = Ada().set("k", '{"a": 1}', source=None)
    assert event.source == MemorySource(origin="service", principal="ada")


def test_a_write_decided_with_an_older_revision_is_refused() -> None:
    ada = Ada()
    ada.set("n", "1", if_revision=0)
    assert ada.set("n", "2", if_revision=0).code == "revision_conflict"
    assert isinstance(ada.set("n", "2", if_revision=1), EntrySet)
    assert ada.set("n", "3", if_revision=1).code == "revision_conflict"


def test_an_expired_key_is_none_and_makes_room_when_it_is_needed() -> None:
    ada = Ada()
    ada.set("old", '"0123456789"', ttl_ms=1_000, quota_bytes=30)
    ada.set("kept", '"0123456789"', quota_bytes=30)
    assert ada.set("new", '"0123456789"', quota_bytes=30).code == "memory_quota_exceeded"
    ada.now_ms += 1_000
    assert ada.state.find("old", ada.now_ms) is None
    events = ada.give(
        SetEntry(
            envelope=ENVELOPE,
            scope="user",
            scope_id="ada",
            key="new",
            value='"0123456789"',
            quota_bytes=30,
            source=SOURCE,
        )
    )
    assert [type(event) for event in events] == [EntriesExpired, EntrySet]
    assert events[0].keys == ("old",)
    assert (ada.state.keys, ada.state.bytes) == (2, 24)


def test_a_ttl_stays_when_a_write_names_none() -> None:
    ada = Ada()
    first = ada.set("k", ttl_ms=10_000)
    ada.now_ms += 1_000
    assert ada.set("k", "2").expires_at_ms == first.expires_at_ms
    ada.now_ms += 10_000
    assert ada.set("k", "3").expires_at_ms == 0


def test_expired_keys_are_removed_by_the_timer_in_portions() -> None:
    ada = Ada()
    for number in range(limits.KEYS_PER_EVENT + 5):
        ada.set(f"k{number:03d}", ttl_ms=1_000)
    ada.set("stays")
    due = next_timer_ms(ada.state)
    assert due % limits.SWEEP_MS == 0
    assert due > NOW_MS + 1_000
    ada.now_ms = due
    ada.give(TIMER_FIRED)
    assert ada.state.keys == 6
    assert next_timer_ms(ada.state) == due
    ada.give(TIMER_FIRED)
    assert ada.state.keys == 1
    assert next_timer_ms(ada.state) == 0


def test_a_timer_of_a_key_that_was_deleted_fires_once() -> None:
    ada = Ada()
    ada.set("k", ttl_ms=1_000)
    ada.delete("k", source=SOURCE)
    ada.now_ms = next_timer_ms(ada.state)
    (event,) = ada.give(TIMER_FIRED)
    assert event.keys == ()
    assert next_timer_ms(ada.state) == 0


def test_deleting_what_is_not_there_changes_nothing() -> None:
    ada = Ada()
    assert ada.delete("absent", source=SOURCE) == []
    ada.set("k")
    (event,) = ada.delete("k", source=SOURCE)
    assert isinstance(event, EntryDeleted)
    assert event.previous_revision == 1
    assert ada.state.keys == 0


def test_an_archived_key_is_gone_until_it_is_set_again() -> None:
    ada = Ada()
    command = SupersedeEntry(envelope=ENVELOPE, scope="user", scope_id="ada", key="k", by_key="k2", source=SOURCE)
    assert ada.give(command)[0].code == "not_found"
    ada.set("k")
    (event,) = ada.give(command)
    assert isinstance(event, EntrySuperseded)
    assert ada.state.find("k", NOW_MS) is None
    assert ada.state.bytes == 0
    assert ada.set("k").previous_revision == 0


def test_dropping_a_scope_names_all_keys() -> None:
    ada = Ada()
    keys = sorted(f"k{number}" for number in range(200))
    for key in keys:
        ada.set(key)
    events = ada.give(DropScope(envelope=ENVELOPE, scope="user", scope_id="ada", source=SOURCE))
    assert all(isinstance(event, ScopeDropped) for event in events)
    assert [event.more for event in events][-1] is False
    assert [key for event in events for key in event.keys] == keys
    assert events[-1].dropped_keys == 200
    assert (ada.state.keys, ada.state.bytes, ada.state.name_bytes) == (0, 0, 0)


def test_the_number_of_keys_and_the_bytes_of_their_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", 2)
    ada = Ada()
    ada.set("a"), ada.set("b")
    assert ada.set("c").code == "memory_quota_exceeded"
    assert isinstance(ada.set("a", "2"), EntrySet)
    monkeypatch.setattr(limits, "KEYS_MAX", 100)
    monkeypatch.setattr(limits, "NAMES_BYTES_MAX", ada.state.name_bytes + name_bytes("c"))
    assert isinstance(ada.set("c"), EntrySet)
    assert ada.set("d").code == "memory_quota_exceeded"


KEYS = st.sampled_from(["a", "b", "c", "kk/1", "ключ"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 2_000))))
def test_the_counts_are_those_of_the_keys(steps: list[tuple[str, int, int]]) -> None:
    ada = Ada()
    for key, what, later_ms in steps:
        ada.now_ms += later_ms
        match what:
            case 0:
                ada.set(key, '"' + "x" * (later_ms % 7) + '"')
            case 1:
                ada.set(key, "1", ttl_ms=1_500)
            case 2:
                ada.delete(key, source=SOURCE)
            case 3:
                ada.give(TIMER_FIRED)
    entries = dict(ada.state.entries())
    assert ada.state.keys == len(entries)
    assert ada.state.bytes == sum(entry.bytes for entry in entries.values())
    assert ada.state.name_bytes == sum(map(name_bytes, entries))
    soonest = min((entry.expires_at_ms for entry in entries.values() if entry.expires_at_ms), default=0)
    assert not soonest or 0 < ada.state.next_expiry_ms <= soonest
