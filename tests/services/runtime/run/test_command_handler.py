"""What an owner knows besides the fold: repeated commands, sessions and handles, and what is misplaced."""

import re
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.run_commands import (
    CancelTurn,
    CloseResident,
    CompactRun,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResolveInterruption,
    StartRun,
)
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import Sampling
from loomlog.schemas.ids import hashed_token
from loomlog.services.core.run.commands import StartCommand
from loomlog.services.runtime.run import run_directory
from loomlog.services.runtime.run.late_results import encode_result
from loomlog.services.runtime.run.run_directory import CLOCK_SKEW_MS
from loomlog.services.runtime.run.start_handler import MAX_COMMAND_BYTES, derive_run_id
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.fold import Fold
from tests.services.core.run.given import NOW, answered
from tests.services.runtime.given import DeskAtWork, cancelling, envelope, pausing, resuming, saying, started
from tests.services.stream.given import CODEC, EVENTS, FAMILY


def order_of(prepared: PendingDecision) -> StartCommand:
    assert prepared.command is not None
    order = prepared.command()
    assert isinstance(order, StartCommand)
    return order


# --- starts ----------------------------------------------------------------------------------------------------------


def test_a_new_start_is_ready_at_once_with_ids_derived_from_its_run() -> None:
    prepared = DeskAtWork().at_once(started("r_tok"))
    assert prepared.aggregate is not None
    assert (prepared.aggregate.id, prepared.aggregate.key, prepared.aggregate.tenant) == ("r_tok", b"tok", "t")
    assert prepared.cause_id == "start-r_tok"
    order = order_of(prepared)
    assert (order.session_id, order.agent_id, order.at_ms) == ("s_tok", "a_tok", NOW)
    assert order.definition is not None
    assert order.definition.name == "helper"
    assert (order.session_exists, order.session_live_run, order.handle_live_run) == (True, "", "")


def test_chosen_session_and_handle_are_kept() -> None:
    work = DeskAtWork()
    work.start("r_tok")
    order = order_of(work.at_once(started("r_tok-2", session_id="s_tok", agent_id="mine")))
    assert (order.session_id, order.agent_id) == ("s_tok", "mine")


def test_a_start_without_a_run_id_gets_one_from_its_key_and_command() -> None:
    command = StartRun(envelope=envelope("c1"), agent="helper", prompt="go")
    prepared = DeskAtWork().at_once(command, key=b"ticket7")
    assert prepared.aggregate is not None
    assert prepared.aggregate.id == f"r_ticket7-{hashed_token('command', 't', 'c1')}"


def test_the_derived_id_is_the_same_for_the_same_command_and_no_other() -> None:
    assert derive_run_id("k", "t", "c1") == derive_run_id("k", "t", "c1")
    others = {derive_run_id("k", "t", "c2"), derive_run_id("k", "u", "c1"), derive_run_id("l", "t", "c1")}
    assert len(others | {derive_run_id("k", "t", "c1")}) == 4


@pytest.mark.parametrize("key", ["", "a b", "a-b", "a_b", "ä", "x" * 65])
def test_a_key_that_cannot_be_part_of_an_id_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 letters and digits"):
        derive_run_id(key, "t", "c")


def test_an_unknown_agent_is_left_to_the_core_to_refuse() -> None:
    order = order_of(DeskAtWork().at_once(started("r_tok", agent="nobody")))
    assert order.definition is None
    assert order.definition_refusal is not None
    assert order.definition_refusal.code == "unknown_agent"


TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


@pytest.mark.parametrize(
    ("header", "kept"),
    [(TRACE.encode(), TRACE), (b"", ""), (b"x" * 900_000, ""), (b"\xff\xfe", ""), (b"00-1-2-01", "")],
)
def test_a_trace_context_is_kept_when_it_is_one(header: bytes, kept: str) -> None:
    """Every record of the run repeats it, so nothing else and nothing large may get in."""
    prepared = DeskAtWork().at_once(started("r_tok"), headers=(("traceparent", header),))
    assert order_of(prepared).traceparent == kept


# --- repeated starts -------------------------------------------------------------------------------------------------


def test_a_start_of_a_live_run_changes_nothing() -> None:
    work = DeskAtWork()
    work.start("r_tok")
    assert work.decide(work.at_once(started("r_tok"))) == []


def test_a_start_of_a_run_that_is_over_has_no_place() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    work.flush()
    assert work.at_once(started("r_tok")).aggregate is None


def test_a_start_of_a_run_whose_end_is_on_its_way_has_no_place_either() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    assert work.at_once(started("r_tok")).aggregate is None


def test_a_start_that_was_refused_is_over_as_soon_as_that_is_decided() -> None:
    work = DeskAtWork()
    assert work.decide(work.at_once(started("r_tok", agent="nobody"))) == ["RunRefused"]
    assert work.at_once(started("r_tok", agent="nobody")).aggregate is None
    work.flush()
    assert work.at_once(started("r_tok", agent="nobody")).aggregate is None


async def test_after_a_checkpoint_an_old_command_is_looked_up_and_a_new_one_is_not() -> None:
    work = DeskAtWork(known_since_ms=NOW)
    assert work.at_once(started("r_new", issued_at_ms=NOW + CLOCK_SKEW_MS)).aggregate is not None
    actual = await work.looked_up(started("r_old", issued_at_ms=NOW + CLOCK_SKEW_MS - 1))
    assert actual.aggregate is not None  # the index does not know it either


async def test_a_run_that_only_the_index_knows_is_not_started_again() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    work.flush()
    work.known_since_ms, work.forgotten_until = NOW, len(work.log.records[EVENTS, 0])
    work.take_over()
    assert (await work.looked_up(started("r_tok"))).aggregate is None


async def test_a_key_is_looked_up_however_new_its_command_is() -> None:
    """With an idempotency key the same key gives the same run for ever."""
    work = DeskAtWork()
    work.end(work.start("r_tok", idempotency_key="k"))
    work.flush()
    work.known_since_ms, work.forgotten_until = NOW, len(work.log.records[EVENTS, 0])
    work.take_over()
    again = started("r_tok", idempotency_key="k", issued_at_ms=NOW + 10**9)
    assert (await work.looked_up(again)).aggregate is None


def test_nothing_is_looked_up_when_nothing_was_ever_forgotten() -> None:
    assert DeskAtWork().at_once(started("r_tok", idempotency_key="k", issued_at_ms=0)).aggregate is not None


async def test_a_look_up_waits_until_the_index_has_come_far_enough() -> None:
    work = DeskAtWork(known_since_ms=NOW, forgotten_until=10)
    work.index.limits[0] = 9
    with pytest.raises(Transient, match="at 9, 10 is needed"):
        await work.prepare(started("r_tok"))
    work.index.limits[0] = 10
    assert (await work.looked_up(started("r_tok"))).aggregate is not None


async def test_what_the_desk_forgets_itself_is_looked_up_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "ENDED_KEPT", 2)
    work = DeskAtWork()
    for number, name in enumerate(("r_a", "r_b", "r_c", "r_d")):
        work.now = NOW + number * 10**9
        work.end(work.start(name, issued_at_ms=work.now))
        work.flush()
    work.now += 1
    assert work.at_once(started("r_d")).aggregate is None
    work.index.limits[0] = 0
    with pytest.raises(Transient):
        await work.prepare(started("r_a"))
    del work.index.limits[0]
    assert (await work.looked_up(started("r_a"))).aggregate is None


@pytest.mark.parametrize("forgotten_by", ["eviction", "checkpoint"])
async def test_a_forgotten_start_is_not_new_for_an_owner_whose_clock_has_gone_back(
    monkeypatch: pytest.MonkeyPatch, forgotten_by: str
) -> None:
    monkeypatch.setattr(run_directory, "ENDED_KEPT", 1)
    work = DeskAtWork(known_since_ms=1, now=NOW - 3_600_000)
    for name in ("r_old", "r_other"):
        prepared = await work.looked_up(started(name, issued_at_ms=NOW))
        assert work.decide(prepared)
        work.flush()
        assert prepared.aggregate is not None
        work.end(prepared.aggregate)
        work.flush()
    if forgotten_by == "checkpoint":
        work.known_since_ms = max(work.now, work.desk.issued_until_ms)
        work.forgotten_until = len(work.log.records[EVENTS, 0])
        work.take_over()
    assert (await work.looked_up(started("r_old", issued_at_ms=NOW))).aggregate is None
    # Its sender's clock is ahead of the owner's, so its time does not say that it is new.
    assert (await work.looked_up(started("r_new", issued_at_ms=NOW + CLOCK_SKEW_MS + 1))).aggregate is not None


async def test_a_start_that_was_issued_after_now_is_looked_up() -> None:
    """Its sender's clock is ahead; a repetition has the same time, however long the first one is forgotten."""
    work = DeskAtWork(known_since_ms=1)
    assert work.at_once(started("r_new", issued_at_ms=NOW + CLOCK_SKEW_MS)).aggregate is not None
    assert (await work.looked_up(started("r_ahead", issued_at_ms=NOW + CLOCK_SKEW_MS + 1))).aggregate is not None


async def test_a_repeat_of_a_live_run_is_remembered_with_its_later_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "ENDED_KEPT", 0)
    work = DeskAtWork(now=NOW - 3_600_000)
    live = work.start("r_old", issued_at_ms=NOW)
    work.at_once(started("r_old", issued_at_ms=NOW + 60_000))
    work.end(live)
    work.flush()
    assert (await work.looked_up(started("r_old", issued_at_ms=NOW + 60_000))).aggregate is None


# --- sessions and handles --------------------------------------------------------------------------------------------


def test_a_session_in_memory_is_continued_with_its_conversation() -> None:
    work = DeskAtWork()
    first = work.start("r_tok")
    work.end(first)
    work.flush()
    prepared = work.at_once(started("r_tok-2", session_id="s_tok"))
    assert prepared.aggregate is not None
    assert [message.role for message in prepared.aggregate.state.history] == ["user"]
    continues = order_of(prepared).continues
    assert continues is not None
    assert (continues.run_id, continues.first_offset, continues.last_offset) == ("r_tok", 1, 3)


async def test_a_session_known_by_the_index_is_continued_from_the_log() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    work.flush()
    work.past._kept.clear()
    work.known_since_ms, work.forgotten_until = NOW, len(work.log.records[EVENTS, 0])
    work.take_over()
    prepared = await work.looked_up(started("r_tok-2", session_id="s_tok", issued_at_ms=NOW + 10**9))
    assert prepared.aggregate is not None
    assert [message.role for message in prepared.aggregate.state.history] == ["user"]


async def test_a_session_whose_state_left_memory_is_read_again() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    work.flush()
    work.past._kept.clear()
    prepared = await work.looked_up(started("r_tok-2", session_id="s_tok"))
    assert order_of(prepared).session_exists


def test_a_busy_session_names_its_live_run() -> None:
    work = DeskAtWork()
    work.start("r_tok")
    order = order_of(work.at_once(started("r_tok-2", session_id="s_tok")))
    assert (order.session_exists, order.session_live_run) == (True, "r_tok")


async def test_an_unknown_session_is_not_found() -> None:
    order = order_of(await DeskAtWork().looked_up(started("r_tok", session_id="s_tok")))
    assert not order.session_exists


async def test_a_session_of_another_tenant_is_not_found_and_its_run_not_named() -> None:
    work = DeskAtWork()
    run = work.start("r_tok")
    theirs = started("r_tok-2", session_id="s_tok", tenant="other")
    order = order_of(await work.looked_up(theirs))
    assert (order.session_exists, order.session_live_run, order.continues) == (False, "", None)
    work.end(run)
    work.flush()
    order = order_of(work.at_once(theirs))
    assert (order.session_exists, order.session_live_run, order.continues) == (False, "", None)
    prepared = work.at_once(theirs)
    assert prepared.aggregate is not None
    assert prepared.aggregate.state.history == ()


async def test_a_session_whose_last_run_is_just_ending_waits_for_the_end() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok"))
    waiting = work.lookup(started("r_tok-2", session_id="s_tok"))
    work.flush()
    order = order_of(await waiting)
    assert (order.session_exists, order.session_live_run) == (True, "")
    assert order.continues is not None


async def test_a_handle_whose_run_is_just_ending_waits_for_the_end() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok", agent_id="mine"))
    waiting = work.lookup(started("r_other", agent_id="mine"))
    work.flush()
    assert order_of(await waiting).handle_live_run == ""


def test_a_handle_in_use_is_named_within_its_tenant_only() -> None:
    work = DeskAtWork()
    work.start("r_tok", agent_id="mine")
    assert order_of(work.at_once(started("r_a", agent_id="mine"))).handle_live_run == "r_tok"
    assert order_of(work.at_once(started("r_b", agent_id="mine", tenant="other"))).handle_live_run == ""


def test_a_session_and_a_handle_are_free_when_the_end_is_in_the_log() -> None:
    work = DeskAtWork()
    work.end(work.start("r_tok", agent_id="mine"))
    work.flush()
    order = order_of(work.at_once(started("r_tok-2", session_id="s_tok", agent_id="mine")))
    assert (order.session_live_run, order.handle_live_run) == ("", "")


# --- what is misplaced -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "key", "says"),
    [
        (started("r_tok"), b"other", "the record's key is 'other', but the run r_tok belongs under 'tok'"),
        (started("r_tok"), b"", "belongs under 'tok'"),
        (started("r_tok"), b"\xff", "belongs under 'tok'"),
        (started("r_a b"), b"a b", "expected 1 to 128 of A-Z"),
        (started("x" * 129), b"x" * 129, "expected 1 to 128 of A-Z"),
        (started("r_tok-2", session_id="s_other"), b"tok", "the session s_other belongs under 'other'"),
        (started("r_tok", prompt="x" * MAX_COMMAND_BYTES), b"tok", f"at most {MAX_COMMAND_BYTES}"),
        (StartRun(envelope=envelope("c"), agent="helper", prompt="go"), b"a-b", "1 to 64 letters and digits"),
    ],
)
def test_a_start_in_the_wrong_place_is_refused_with_what_was_expected(command: StartRun, key: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        DeskAtWork().at_once(command, key=key)


def test_a_start_in_the_wrong_partition_is_refused_with_the_right_one() -> None:
    work = DeskAtWork(partitions=64)
    with pytest.raises(ValueError, match=r"is in partition 0, but its key belongs in .*murmur2"):
        work.at_once(started("r_tok"))


@pytest.mark.parametrize(
    "make",
    [
        cancelling,
        pausing,
        resuming,
        lambda run_id: saying(run_id, "hello"),
        lambda run_id: CompactRun(envelope=envelope("c"), run_id=run_id),
        lambda run_id: QuarantineRun(envelope=envelope("c"), run_id=run_id, reason="look"),
        lambda run_id: ReleaseRun(envelope=envelope("c"), run_id=run_id),
        lambda run_id: ResolveCall(envelope=envelope("c"), run_id=run_id, turn=1, index=0, done=True),
        lambda run_id: ResolveInterruption(envelope=envelope("c"), run_id=run_id, interrupt_id="i", answer="a"),
        lambda run_id: CancelTurn(envelope=envelope("c"), run_id=run_id),
        lambda run_id: CloseResident(envelope=envelope("c"), run_id=run_id),
    ],
)
def test_an_order_to_a_run_in_the_wrong_place_is_refused_with_what_was_expected(make: Any) -> None:
    """Nobody would ever find its run there: it would be gone without a word."""
    with pytest.raises(ValueError, match="belongs under 'tok'"):
        DeskAtWork().at_once(make("r_tok"), key=b"other")
    with pytest.raises(ValueError, match=r"is in partition 0, but its key belongs in .*murmur2"):
        DeskAtWork(partitions=64).at_once(make("r_tok"))


# --- commands to runs under way --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [cancelling, pausing, resuming, lambda run_id, **more: saying(run_id, "hello", **more)]
)
def test_a_command_reaches_its_own_live_run_and_no_other(make: Any) -> None:
    work = DeskAtWork()
    run = work.start("r_tok")
    prepared = work.at_once(make("r_tok"))
    assert prepared.aggregate is run
    assert prepared.cause_id
    assert work.at_once(make("r_tok", tenant="other")).aggregate is None
    assert work.at_once(make("r_unknown")).aggregate is None
    work.end(run)
    assert work.at_once(make("r_tok")).aggregate is None


def test_a_pause_and_its_end_are_decided_like_any_command() -> None:
    work = DeskAtWork()
    work.start("r_tok")
    assert work.decide(work.at_once(pausing("r_tok"))) == ["RunPauseRequested"]
    assert work.decide(work.at_once(resuming("r_tok"))) == ["RunResumed"]


def test_ended_runs_are_told_to_the_tallies_when_they_are_in_the_log() -> None:
    work = DeskAtWork()
    run = work.start("r_tok")
    work.end(run)
    assert work.tallies.told == []
    work.flush()
    assert work.tallies.told == [("r_tok", "cancelled")]
    assert work.past.cached("r_tok") is run.state


# --- a take-over -----------------------------------------------------------------------------------------------------


async def taken_over(work: DeskAtWork, *, start: int = 0, term: int = -1) -> None:
    """A new desk that was told what a fold of the log found."""
    fold = Fold(FAMILY, CODEC, term=term, next_offset=start)
    fold.feed(work.log.records[EVENTS, 0][start:])
    work.past._kept.clear()  # another process has none of these states
    work.take_over()
    for first, last in fold.over.values():
        work.desk.ended_found(first, last)

    async def nothing(event: Any) -> Any:
        return None

    for run in await fold.live(nothing):
        work.partition.aggregates[run.id] = run
        work.desk.live_found(run)


async def test_a_new_desk_knows_what_the_fold_found() -> None:
    work = DeskAtWork()
    work.end(work.start("r_over", agent_id="mine"))
    work.start("r_live", agent_id="theirs")
    work.decide(work.at_once(started("r_refused", agent="nobody")))
    work.flush()
    await taken_over(work)
    assert work.at_once(started("r_over")).aggregate is None
    assert work.at_once(started("r_refused")).aggregate is None
    assert order_of(work.at_once(started("r_live-2", session_id="s_live"))).session_live_run == "r_live"
    assert order_of(work.at_once(started("r_x", agent_id="theirs"))).handle_live_run == "r_live"
    assert order_of(work.at_once(started("r_y", agent_id="mine"))).handle_live_run == ""
    prepared = await work.looked_up(started("r_over-2", session_id="s_over"))
    continues = order_of(prepared).continues
    assert continues is not None
    assert continues.run_id == "r_over"


async def test_the_session_of_a_refused_run_is_not_taken_for_one_that_exists() -> None:
    work = DeskAtWork()
    work.decide(work.at_once(started("r_refused", agent="nobody")))
    work.flush()
    await taken_over(work)
    prepared = await work.looked_up(started("r_refused-2", session_id="s_refused"))
    assert not order_of(prepared).session_exists


async def test_a_run_that_began_before_the_checkpoint_and_ended_after_is_left_to_the_index() -> None:
    work = DeskAtWork()
    run = work.start("r_tok")
    begin = len(work.log.records[EVENTS, 0])
    work.end(run)
    work.flush()
    end = len(work.log.records[EVENTS, 0])
    await taken_over(work, start=begin, term=0)
    work.index.limits[0] = end - 1
    with pytest.raises(Transient):
        await work.prepare(started("r_tok"))
    del work.index.limits[0]
    assert (await work.looked_up(started("r_tok"))).aggregate is None


def test_a_run_is_pinned_to_what_was_narrowed() -> None:
    work = DeskAtWork()
    run = work.start("r_tok", tools=(), sampling=Sampling(seed=7))
    assert run.state.facts.definition.tools == ()
    assert run.state.facts.definition.sampling == Sampling(seed=7)
    event = CODEC.decode(work.log.records[EVENTS, 0][1].value or b"").record
    assert isinstance(event, RunStarted)
    assert event.definition == run.state.facts.definition


def test_a_result_that_a_former_owner_hands_over_goes_to_its_run_and_to_no_other_tenants() -> None:
    work = DeskAtWork()
    run = work.start("r_tok")
    late = answered(run.state, "done")
    for tenant, events in (("other", None), ("t", ["ModelReplied", "RunCompleted"])):
        command = encode_result(envelope("h_1", tenant), "r_tok", late)
        assert command is not None
        prepared = work.at_once(command)
        assert (prepared.aggregate and work.decide(prepared)) == events
