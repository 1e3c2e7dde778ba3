"""Imports at the desk of a partition: ids stay, places move, sessions and handles of the living are left alone."""

from dataclasses import replace as replace_context
from typing import Any

import pytest

from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.run_commands import ImportRun
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import ImportOrigin
from loomlog.services.core.run.commands import ApplyWidePauses
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.run_facts import Pause
from loomlog.services.core.run.state import AwaitingModel, Ended, Paused
from loomlog.services.families.pause.state import PauseTable
from loomlog.services.families.pause.state import evolve as evolve_pauses
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import NOW, answered, calls, returned
from tests.services.runtime.given import DeskAtWork, envelope, started
from tests.services.runtime.run.test_command_handler_forks import forked, forking
from tests.services.stream.given import CODEC, EVENTS, FAMILY


def records_of(work: DeskAtWork, run_id: str) -> list[bytes]:
    actual = []
    for record in work.log.records[EVENTS, 0]:
        decoded = CODEC.decode(record.value or b"")
        if decoded.envelope is not None and decoded.envelope.aggregate == run_id:
            actual.append(record.value or b"")
    return actual


def importing(
    values: list[bytes], run_id: str, *, first: int = 1, total: int = 0, tenant: str = "t", continues: bool = False
) -> ImportRun:
    origin = ImportOrigin(
        topic=EVENTS,
        partition=0,
        first_offset=1,
        tenant="there",
        events=total or len(values),
        tail_digest="ab",
        bundle_sha256="cd",
    )
    return ImportRun(
        envelope=envelope(f"import-{run_id}-{first}", tenant),
        run_id=run_id,
        origin=origin,
        first_seq=first,
        events=tuple(values),
        continues=continues,
    )


async def take_in(work: DeskAtWork, command: ImportRun) -> Any:
    prepared = await work.prepare(command)
    if prepared.aggregate is not None:
        work.decide(prepared)
        work.flush()
    return prepared.aggregate


async def there_and_here() -> tuple[DeskAtWork, DeskAtWork]:
    """Where r_tok, its continuation r_tok-2 and a fork of that, r_tok-f, happened; and a log with other offsets."""
    there, here = DeskAtWork(), DeskAtWork()
    first = there.start("r_tok")
    there.partition.submit(first, answered(first.state, "see", *calls("Read")), at_ms=NOW + 5)
    there.partition.submit(first, returned(first.state, 0), at_ms=NOW + 6)
    there.partition.submit(first, answered(first.state, "done"), at_ms=NOW + 7)
    there.flush()
    second = there.start("r_tok-2", session_id="s_tok")
    there.partition.submit(second, answered(second.state, "again"), at_ms=NOW + 8)
    there.flush()
    fork = await forked(there, forking(2, origin="r_tok-2"))
    there.partition.submit(fork, answered(fork.state, "otherwise"), at_ms=NOW + 9)
    there.flush()
    here.start("r_other")
    return there, here


async def test_a_family_of_runs_is_told_again_under_this_logs_own_places() -> None:
    there, here = await there_and_here()
    for run_id in ("r_tok", "r_tok-2", "r_tok-f"):
        taken = await take_in(here, importing(records_of(there, run_id), run_id))
        assert isinstance(taken.state, Ended), run_id
    first = CODEC.decode(records_of(here, "r_tok-f")[0]).record
    assert isinstance(first, RunStarted)
    assert first.forked_from is not None
    assert first.forked_from.seq == 2
    old = CODEC.decode(records_of(there, "r_tok-f")[0]).record.forked_from
    assert first.forked_from.digest != old.digest
    fresh = type(here.past)(FAMILY, CODEC, here.log, EVENTS)
    messageses = [
        build_conversation((await past.load(0, work.desk._directory.ended["r_tok-f"].position)).state)
        for work, past in ((there, there.past), (here, fresh))
    ]
    assert messageses[0] == messageses[1]
    assert len(messageses[0]) == 6


async def test_times_are_those_of_then_and_the_chain_is_of_now() -> None:
    there, here = await there_and_here()
    await take_in(here, importing(records_of(there, "r_tok"), "r_tok"))
    theirs = [CODEC.decode(value).envelope for value in records_of(there, "r_tok")]
    ours = [CODEC.decode(value).envelope for value in records_of(here, "r_tok")]
    assert [e.at_ms for e in ours if e] == [e.at_ms for e in theirs if e]
    assert [e.seq for e in ours if e] == [e.seq for e in theirs if e]
    assert ours[-1] is not None
    assert theirs[-1] is not None
    assert ours[-1].prev != theirs[-1].prev


async def test_what_it_goes_on_with_must_be_here() -> None:
    there, here = await there_and_here()
    command = importing(records_of(there, "r_tok-2"), "r_tok-2")
    with pytest.raises(ValueError, match="r_tok, which must be imported before it"):
        await here.prepare(command)
    await take_in(here, importing(records_of(there, "r_tok"), "r_tok"))
    assert isinstance((await take_in(here, command)).state, Ended)


async def test_the_same_again_and_what_another_tenant_has_has_no_place() -> None:
    there, here = await there_and_here()
    command = importing(records_of(there, "r_tok"), "r_tok")
    await take_in(here, command)
    assert await take_in(here, command) is None
    assert await take_in(there, command) is None
    here.known_since_ms, here.forgotten_until = NOW, len(here.log.records[EVENTS, 0])
    here.take_over()
    assert await take_in(here, command) is None


async def test_in_parts_with_a_take_over_between_them() -> None:
    there, here = await there_and_here()
    values = records_of(there, "r_tok")
    assert await take_in(here, importing(values[2:], "r_tok", first=3, total=len(values))) is None
    taken = await take_in(here, importing(values[:2], "r_tok", total=len(values)))
    assert isinstance(taken.state, AwaitingModel)
    fold = Fold(FAMILY, CODEC, term=-1, next_offset=0)
    fold.feed(here.log.records[EVENTS, 0])
    live = {run.id: run for run in await fold.live(lambda event: here.past.history_for(0, event))}
    here.take_over()
    again: Aggregate = live["r_tok"]
    here.partition.aggregates["r_tok"] = again
    here.desk.live_found(again)
    assert not here.partition.submit(again, FAMILY.effects.recover(NOW, frozenset()), at_ms=NOW)
    await take_in(here, importing(values[2:], "r_tok", first=3, total=len(values)))
    assert isinstance(again.state, Ended)


async def test_an_import_holds_no_session_and_no_handle_and_is_not_counted() -> None:
    there, here = await there_and_here()
    values = records_of(there, "r_tok")
    await take_in(here, importing(values[:2], "r_tok", total=len(values)))
    started = here.start("r_tok-9", agent_id="a_tok")
    assert isinstance(started.state, AwaitingModel)
    await take_in(here, importing(values[2:], "r_tok", first=3, total=len(values)))
    assert here.tallies.told == []
    assert here.desk._directory.handle_holder("t", "a_tok") == "r_tok-9"


async def test_an_imported_session_goes_on_here() -> None:
    there, here = await there_and_here()
    await take_in(here, importing(records_of(there, "r_tok"), "r_tok"))
    further = here.start("r_tok-8", session_id="s_tok")
    assert len(further.state.facts.messages) == 5


@pytest.mark.parametrize("values", [[b"junk"], [b""]])
async def test_undecodable_events_are_no_command(values: list[bytes]) -> None:
    with pytest.raises(Exception, match="framed"):
        await DeskAtWork().lookup(importing(values, "r_tok"))


# --- restores: the run goes on here ----------------------------------------------------------------------------------


def names(run: Aggregate, work: DeskAtWork) -> list[str]:
    return [type(CODEC.decode(value).record).__name__ for value in records_of(work, run.id)]


async def restored(work: DeskAtWork, there: DeskAtWork, run_id: str) -> Aggregate:
    actual = await take_in(work, importing(records_of(there, run_id), run_id, continues=True))
    assert isinstance(actual, Aggregate)
    return actual


async def test_a_restored_run_goes_on_and_holds_its_session_and_its_handle() -> None:
    there, here = DeskAtWork(), DeskAtWork()
    there.start("r_tok", agent_id="a_mine")
    run = await restored(here, there, "r_tok")
    assert names(run, here)[2:] == ["RunRestored", "ModelCallFailed", "ModelCallRequested"]
    directory = here.desk._directory
    assert directory.handle_holder("t", "a_mine") == directory.session_holder("t", "s_tok") == "r_tok"
    assert here.decide(here.at_once(started("r_tok-2", session_id="s_tok"))) == ["RunRefused"]
    assert here.decide(here.at_once(started("r_tok-3", agent_id="a_mine"))) == ["RunRefused"]
    here.partition.submit(run, answered(run.state, "done", attempt=2), at_ms=NOW)
    here.flush()
    assert isinstance(run.state, Ended)
    assert here.tallies.told == [("r_tok", "completed")]
    assert isinstance(here.start("r_tok-4", session_id="s_tok").state, AwaitingModel)


async def test_a_restored_run_obeys_what_is_paused_here() -> None:
    there, here = DeskAtWork(), DeskAtWork()
    there.start("r_tok")
    table = evolve_pauses(PauseTable(), PauseSet(scope="tenant", tenant="t", reason="bill", by="op"), 1)
    context = replace_context(here.desk._context, pauses=lambda: table)
    here.desk._context = here.desk._history._context = context
    run = await restored(here, there, "r_tok")
    assert names(run, here)[2:] == ["RunRestored", "RunPauseRequested", "ModelCallFailed", "RunPaused"]
    assert isinstance(run.state, Paused)


async def test_what_was_paused_there_and_not_here_goes_on() -> None:
    there, here = DeskAtWork(), DeskAtWork()
    run = there.start("r_tok")
    paused = ApplyWidePauses(at_ms=NOW, pauses=(Pause(scope="tenant", reason="bill", by="op"),), by="op")
    there.partition.submit(run, paused, at_ms=NOW)
    there.partition.submit(run, FAMILY.effects.recover(NOW, frozenset()), at_ms=NOW)
    there.flush()
    assert isinstance(run.state, Paused)
    taken = await restored(here, there, "r_tok")
    assert names(taken, here)[-3:] == ["RunRestored", "RunResumed", "ModelCallRequested"]


async def test_a_run_that_was_parked_because_of_a_bug_stays_parked() -> None:
    there, here = DeskAtWork(), DeskAtWork()
    run = there.start("r_tok")
    there.partition.append(run, [FAMILY.quarantine("a bug", EVENTS, 1)], at_ms=NOW)
    there.flush()
    taken = await restored(here, there, "r_tok")
    assert names(taken, here)[-2:] == ["RunQuarantined", "RunRestored"]
    assert taken.quarantined == "a bug"


async def test_a_restore_of_what_went_on_somewhere_before_waits_for_its_own_end() -> None:
    first, second, third = DeskAtWork(), DeskAtWork(), DeskAtWork()
    first.start("r_tok")
    await restored(second, first, "r_tok")
    values = records_of(second, "r_tok")
    assert len(values) == 5
    taken = await take_in(third, importing(values[:4], "r_tok", total=5, continues=True))
    assert is_importing(taken.state)
    assert third.desk._directory.handle_holder("t", "a_tok") == ""
    await take_in(third, importing(values[4:], "r_tok", first=5, total=5, continues=True))
    assert names(taken, third)[5:] == ["RunRestored", "ModelCallFailed", "ModelCallRequested"]
    assert not is_importing(taken.state)
