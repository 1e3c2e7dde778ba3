"""Rules of consolidation: the lease, the watermark, pending entries, and when the consolidator starts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.generated.consolidation_commands import (
    AckPending,
    AdvanceTarget,
    BankPending,
    DropTarget,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
from loomlog.schemas.generated.consolidation_events import ConsolidationRequested, PendingAcked, TargetLeased
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.core.system_agents import CONSOLIDATOR
from loomlog.services.families.consolidation import FAMILY, limits
from loomlog.services.families.consolidation.state import (
    Target,
    initial,
    next_timer_ms,
    number_of,
    pending_id,
    start_delay_ms,
)

NOW_MS = 1_800_000_000_000
ENVELOPE = CommandEnvelope(command_id="c", tenant="acme", subject="ada")
ADA: dict[str, Any] = {"envelope": ENVELOPE, "scope": "user", "scope_id": "ada"}
CHAT_MS = NOW_MS - 60_000


class Targets:
    """A target of the user ada, and its clock."""

    def __init__(self) -> None:
        self.state: Target = initial("consolidation:acme/user/ada")
        self.now_ms = NOW_MS

    def do(self, command: Any) -> Sequence[Any]:
        events = FAMILY.rules.decide(self.state, command, At(self.now_ms, "ada", "c"))
        for event in events:
            if not isinstance(event, CommandRefused):
                self.state = FAMILY.rules.evolve(self.state, event, self.now_ms)
        return events

    def refused(self, command: Any) -> str:
        (event,) = self.do(command)
        assert isinstance(event, CommandRefused)
        return event.code

    def lease(self, owner: str = "r_1", lease_ms: int = limits.LEASE_MS) -> TargetLeased:
        (event,) = self.do(LeaseTarget(**ADA, owner=owner, lease_ms=lease_ms))
        return event

    def bank(self, text: str = "{}") -> str:
        command = BankPending(**ADA, payload=text, payload_bytes=len(text), origin="agent_explicit")
        (event,) = self.do(command)
        return str(event.pending_id)

    def advance(self, at_ms: int = CHAT_MS, session: str = "s_1", owner: str = "r_1") -> AdvanceTarget:
        return AdvanceTarget(**ADA, owner=owner, completed_at_ms=at_ms, session_id=session)

    def fire(self) -> ConsolidationRequested:
        self.now_ms = next_timer_ms(self.state)
        assert self.now_ms, "no timer is set"
        (event,) = self.do(TIMER_FIRED)
        return event


@pytest.fixture
def targets() -> Targets:
    return Targets()


# --- the lease -------------------------------------------------------------------------------------------------------


def test_one_run_has_the_lease_until_it_expires(targets: Targets) -> None:
    assert targets.lease("r_1").is_acquired
    denied = targets.lease("r_2")
    assert (denied.is_acquired, denied.owner, denied.expires_at_ms) == (False, "r_1", NOW_MS + limits.LEASE_MS)
    targets.now_ms += limits.LEASE_MS
    assert targets.lease("r_2").is_acquired
    assert targets.refused(targets.advance(owner="r_1")) == "lease_lost"


def test_the_owner_extends_its_lease(targets: Targets) -> None:
    targets.lease()
    targets.now_ms += 30_000
    assert targets.lease().expires_at_ms == NOW_MS + 90_000


def test_a_release_lets_the_next_one_in_and_a_late_one_takes_nothing_away(targets: Targets) -> None:
    targets.lease()
    assert targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert targets.lease("r_2").is_acquired
    assert targets.do(ReleaseTarget(**ADA, owner="r_1")) == []
    assert targets.state.owner == "r_2"


@pytest.mark.parametrize("lease_ms", [0, -1, limits.LEASE_MS_MAX + 1])
def test_a_lease_is_a_second_to_an_hour(targets: Targets, lease_ms: int) -> None:
    assert targets.refused(LeaseTarget(**ADA, owner="r_1", lease_ms=lease_ms)) == "bad_request"


@pytest.mark.parametrize(("scope", "scope_id"), [("run", "r"), ("user", ""), ("tenant", "acme"), ("user", "a\nb")])
def test_only_scopes_of_entries_have_targets(targets: Targets, scope: str, scope_id: str) -> None:
    command = LeaseTarget(envelope=ENVELOPE, scope=scope, scope_id=scope_id, owner="r_1")
    assert targets.refused(command) == "invalid_scope"


# --- the watermark ---------------------------------------------------------------------------------------------------


def test_the_watermark_moves_forward_by_the_owner_only(targets: Targets) -> None:
    assert targets.refused(targets.advance()) == "lease_lost"
    targets.lease()
    assert targets.do(targets.advance())
    assert targets.do(targets.advance()) == [], "the same again changes nothing"
    assert targets.do(targets.advance(CHAT_MS, "s_2")), "of one moment, in the order of the sessions"
    assert targets.refused(targets.advance(CHAT_MS, "s_1")) == "cursor_regression"
    assert targets.refused(targets.advance(CHAT_MS - 1, "s_9")) == "cursor_regression"
    assert (targets.state.watermark_at_ms, targets.state.watermark_session_id) == (CHAT_MS, "s_2")


def test_the_watermark_never_goes_to_the_future(targets: Targets) -> None:
    targets.lease()
    assert targets.refused(targets.advance(NOW_MS + limits.CLOCK_SKEW_MS + 1)) == "not_yet"
    assert targets.refused(targets.advance(0)) == "bad_request"


# --- pending entries -------------------------------------------------------------------------------------------------


def test_entries_are_acknowledged_once_with_the_lease(targets: Targets) -> None:
    first, second = targets.bank(), targets.bank()
    ack = AckPending(**ADA, owner="r_1", ids=(first, "mp_unknown", first))
    assert targets.refused(ack) == "lease_lost"
    targets.lease()
    (event,) = targets.do(ack)
    assert (event.ids, event.pending) == ((first,), 1)
    assert targets.do(ack) == []
    assert targets.do(AckPending(**ADA, owner="r_1", ids=(second,)))
    assert (targets.state.pending, targets.state.open_ranges) == (0, ())


def test_an_id_of_another_target_is_unknown(targets: Targets) -> None:
    targets.bank()
    other = replace(initial("consolidation:acme/user/bob"), last_number=1)
    assert number_of(targets.state, pending_id(other, 1)) == 0
    assert number_of(targets.state, pending_id(targets.state, 1)) == 1


def test_two_hundred_ids_are_two_events_that_fit_their_rows(targets: Targets) -> None:
    ids = tuple(targets.bank() for _ in range(limits.ACK_IDS_MAX))
    targets.lease()
    events = targets.do(AckPending(**ADA, owner="r_1", ids=ids))
    assert [len(event.ids) for event in events if isinstance(event, PendingAcked)] == [100, 100]
    assert targets.state.pending == 0
    assert targets.refused(AckPending(**ADA, owner="r_1", ids=(*ids, "mp_more"))) == "bad_request"


def test_the_bounds_of_banking(targets: Targets) -> None:
    large = BankPending(**ADA, payload="x", payload_bytes=limits.PAYLOAD_BYTES_MAX + 1, origin="compaction")
    assert targets.refused(large) == "memory_value_too_large"
    inline = "x" * (limits.INLINE_CHARACTERS_MAX + 1)
    assert targets.refused(replace(large, payload=inline, payload_bytes=1)) == "memory_value_too_large"
    assert targets.refused(replace(large, payload="", payload_bytes=1)) == "missing_value"
    assert targets.refused(replace(large, payload_bytes=1, origin="made up")) == "bad_request"
    targets.state = replace(targets.state, pending=limits.PENDING_MAX)
    assert targets.refused(replace(large, payload_bytes=1)) == "memory_quota_exceeded"


@given(st.lists(st.integers(1, 40), max_size=60))
def test_the_open_ranges_are_the_set_of_open_numbers(acked: list[int]) -> None:
    targets = Targets()
    ids = {number: targets.bank() for number in range(1, 31)}
    targets.lease()
    for number in acked:
        targets.do(AckPending(**ADA, owner="r_1", ids=(ids.get(number, "mp_none"),)))
    left = set(ids) - set(acked)
    assert {number for number in range(1, 41) if targets.state.is_open(number)} == left
    assert targets.state.pending == len(left)


# --- the start of the consolidator -----------------------------------------------------------------------------------


def test_what_is_banked_starts_the_consolidator_a_minute_later(targets: Targets) -> None:
    assert next_timer_ms(targets.state) == 0
    targets.bank()
    targets.now_ms += 10_000
    targets.bank()
    assert next_timer_ms(targets.state) == NOW_MS + limits.START_DELAY_MS, "it is not put off by more"
    event = targets.fire()
    (send,) = FAMILY.sends(targets.state, event)
    start = send.command
    assert (send.to, start.agent, start.user_id, start.run_id) == ("run", CONSOLIDATOR, "ada", event.run_id)
    assert {name: orjson.loads(text) for name, text in start.options.metadata.items()} == {
        "memory_scope": "user",
        "memory_scope_id": "ada",
    }


def test_no_run_starts_while_another_has_the_lease(targets: Targets) -> None:
    targets.bank()
    targets.lease(lease_ms=600_000)
    assert next_timer_ms(targets.state) == NOW_MS + 600_000
    targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert next_timer_ms(targets.state) == NOW_MS + limits.START_DELAY_MS, "entries are left"


def test_starts_without_progress_become_rare_and_end(targets: Targets) -> None:
    targets.bank()
    runs, times = set[str](), [NOW_MS]
    while next_timer_ms(targets.state):
        runs.add(targets.fire().run_id)
        times.append(targets.now_ms)
    assert len(runs) == limits.STARTS_MAX
    assert [later - earlier for earlier, later in pairwise(times)] == [
        start_delay_ms(attempt) for attempt in range(limits.STARTS_MAX)
    ]
    targets.bank()
    targets.fire()
    assert next_timer_ms(targets.state) == 0, "new work is one more start"


def test_progress_makes_starts_frequent_again(targets: Targets) -> None:
    first, _ = targets.bank(), targets.bank()
    for _ in range(5):
        targets.fire()
    targets.lease()
    targets.do(AckPending(**ADA, owner="r_1", ids=(first,)))
    targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert next_timer_ms(targets.state) == targets.now_ms + limits.START_DELAY_MS


def test_a_settled_chat_starts_one_pass(targets: Targets) -> None:
    targets.do(NoteSettledChat(**ADA))
    targets.fire()
    targets.lease()
    targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert next_timer_ms(targets.state) == 0


def test_a_chat_that_settles_during_a_pass_and_a_pass_with_work_left_start_another(targets: Targets) -> None:
    targets.do(NoteSettledChat(**ADA))
    targets.lease()
    targets.now_ms += 1_000
    targets.do(NoteSettledChat(**ADA))
    targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert next_timer_ms(targets.state)
    targets.lease()
    targets.do(ReleaseTarget(**ADA, owner="r_1"))
    assert next_timer_ms(targets.state) == 0
    targets.lease()
    targets.do(ReleaseTarget(**ADA, owner="r_1", has_more=True))
    assert next_timer_ms(targets.state) == targets.now_ms + limits.START_DELAY_MS


def test_a_pass_that_dies_is_followed_by_another_when_its_lease_expires(targets: Targets) -> None:
    targets.do(NoteSettledChat(**ADA))
    targets.fire()
    targets.lease(lease_ms=600_000)
    assert next_timer_ms(targets.state) == targets.now_ms + 600_000


# --- an erased user --------------------------------------------------------------------------------------------------


def test_a_drop_removes_all_pending_entries_and_all_work(targets: Targets) -> None:
    ids = [targets.bank() for _ in range(limits.ACK_EVENT_IDS_MAX + 5)]
    targets.lease()
    targets.do(AckPending(**ADA, owner="r_1", ids=tuple(ids[1:3])))
    targets.do(NoteSettledChat(**ADA))
    targets.do(targets.advance())
    *removed, dropped = targets.do(DropTarget(**ADA))
    assert [one for event in removed for one in event.ids] == [ids[0], *ids[3:]]
    assert removed[-1].pending == 0
    assert dropped.dropped_pending == len(ids) - 2
    assert (targets.state.pending, targets.state.has_work, targets.state.owner) == (0, False, "")
    assert next_timer_ms(targets.state) == 0
    assert targets.state.watermark_at_ms == CHAT_MS, "the chats before it are not read again"
    assert targets.bank() not in ids, "numbers are not used again"


def test_chats_that_the_erasure_has_cancelled_start_nothing_and_later_ones_do(targets: Targets) -> None:
    targets.do(DropTarget(**ADA))
    targets.now_ms += limits.DROPPED_MS - 1
    assert targets.do(NoteSettledChat(**ADA)) == []
    targets.now_ms += 1
    assert targets.do(NoteSettledChat(**ADA))
    assert next_timer_ms(targets.state) > 0
