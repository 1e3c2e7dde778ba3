"""State files between installations: equal states whatever the partition counts, nothing twice, runs that go on."""

import asyncio
import gzip
import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import (
    ModelCallFailed,
    RunRestored,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import ContentBlock, Segment
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.transfer.restore import RestoreResult
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.core.pauses import WidePause
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run import state as run_states
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.lifecycle.event_import import HISTORY_ONLY
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended
from loomlog.services.stream.archive.bundle import BlobPart
from loomlog.services.stream.archive.state_file import BrokenStateFile, StatedEvent, StatedRun, StateWriter
from loomlog.services.stream.archive.state_reader import StateReader
from loomlog.services.stream.archive.state_validation import validate_state
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from tests.services.application.entity_owner import event_at
from tests.services.application.installation import WAIT_S, Installation, as_here, envelope, installation
from tests.services.application.world import ADMIN_CALLER
from tests.services.runtime.given import DeskAtWork
from tests.services.runtime.run.test_command_handler_imports import importing, records_of
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over
from tests.services.stream.families import add_families, family_script
from tests.services.stream.test_families import lineage

SEEDS = range(6)


async def worked(there: Installation, seed: int, *, tenant: str = "t") -> None:
    """Runs, sessions that go on, forks; most of them over, some in the middle when the owner is killed."""
    world, random = there.world, Random(seed)
    for number in range(5):
        world.start_run(f"r_tok{number}", tenant=tenant)
    await world.finished(*(f"r_tok{number}" for number in range(5)))
    for number in range(3):
        world.start_run(f"r_tok{number}-2", tenant=tenant, session_id=f"s_tok{number}")
    await world.finished(*(f"r_tok{number}-2" for number in range(3)))
    world.put(
        ForkRun(
            envelope=envelope("fork", tenant),
            origin_run_id="r_tok1-2",
            at_seq=len(world.story().runs["r_tok1-2"].events),
            run_id="r_tok1-f",
            prompt="and now?",
        )
    )
    await world.finished("r_tok1-f")
    world.effect_delay = 3
    options = sum(there.lengths().values()) + random.randint(10, 60)
    for number in range(6):
        world.start_run(f"r_live{number}", tenant=tenant)
    await world.until(lambda: sum(there.lengths().values()) >= options)
    await world.close()


async def file_of(there: Installation, **wanted: Any) -> bytes:
    manifest = await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(**wanted))
    _, file = await there.layer.backups.open(manifest["id"])
    with closing(file):
        return file.read()


async def restored(here: Installation, data: bytes, *, dry_run: bool = False, in_clear: bool = True) -> RestoreResult:
    return await here.layer.state_restore.restore(ADMIN_CALLER, io.BytesIO(data), dry_run=dry_run, in_clear=in_clear)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_restored_state_folds_to_equal_states_at_other_partition_counts(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    counts = random.sample((1, 2, 3, 5, 8), 2)
    async with installation(tmp_path / "a", partitions=counts[0], seed=seed) as there:
        await worked(there, seed)
        before = await there.states()
        data = await file_of(there)
    assert len(before) == 15
    live = {name for name, (_, state) in before.items() if not isinstance(state, Ended | run_states.Refused)}
    assert live
    async with installation(tmp_path / "b", partitions=counts[1], seed=seed) as here:
        actual = await restored(here, data)
        assert (actual.runs, actual.live_runs, actual.skipped_runs, actual.failed_runs) == (
            len(before),
            len(live),
            0,
            0,
        )
        assert actual.events == sum(seq for seq, _ in before.values())
        options = await here.states({name: seq for name, (seq, _) in before.items()})
        assert {name: (seq, as_here(state)) for name, (seq, state) in options.items()} == before
        story = await here.world.finished(*before)
        assert {name for name, run in story.runs.items() if any(isinstance(e, RunRestored) for e in run.events)} == live
        here.world.start_run("r_tok1-3", session_id="s_tok1")
        await here.world.finished("r_tok1-3")
        spoken = build_conversation((await here.states())["r_tok1-3"][1])
        earlier = build_conversation(options["r_tok1-2"][1])
        assert spoken[: len(earlier)] == earlier
        assert len(spoken) > len(earlier)


async def test_restoring_twice_adds_nothing(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=2) as there:
        await worked(there, 1)
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=3) as here:
        first = await restored(here, data)
        await here.world.finished()
        lengths = here.lengths()
        again = await restored(here, data)
        assert (again.runs, again.skipped_runs, again.positions) == (0, first.runs, {})
        assert here.lengths() == lengths


async def test_nor_does_it_while_the_restored_runs_are_still_under_way(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=2) as there:
        await worked(there, 1)
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=3) as here:
        here.world.on_effect = stopped
        first = await restored(here, data)
        assert first.live_runs > 0
        lengths = here.lengths()
        async with asyncio.timeout(WAIT_S / 2):  # less than an owner has for one run
            assert (await restored(here, data)).skipped_runs == first.runs
        assert here.lengths() == lengths


# --- what was imported where the file comes from ---------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 4], ids=["in the middle", "whole"])
async def test_what_was_imported_there_is_hearsay_here_too_and_never_goes_on(parts: int, tmp_path: Path) -> None:
    elsewhere = DeskAtWork()
    run = elsewhere.start("r_tok")
    elsewhere.end(run)
    elsewhere.flush()
    values = records_of(elsewhere, "r_tok")
    assert len(values) == 3
    async with installation(tmp_path / "a", partitions=1) as there:
        there.world.put(importing(values[:parts], "r_tok", total=len(values)))
        await there.world.until(lambda: "r_tok" in there.world.story().runs)
        await worked(there, 1)
        data = await file_of(there)
    checked = validate_state(io.BytesIO(data))
    assert (checked.foreign_runs, checked.incomplete_runs) == ({"r_tok"}, {"r_tok"} if parts == 1 else set())
    async with installation(tmp_path / "b", partitions=1) as here:
        dry = await restored(here, data, dry_run=True)
        actual = await restored(here, data)
        assert dry.live_runs == actual.live_runs
        runs = (await here.world.finished("r_tok")).runs
        assert not any(isinstance(event, RunRestored) for event in runs["r_tok"].events)
        for name, flag in (("r_tok", False), ("r_tok0", True)):
            first = runs[name].events[0]
            assert isinstance(first, RunStarted)
            assert first.imported_from is not None
            assert first.imported_from.restored is flag, name


# --- sealed content --------------------------------------------------------------------------------------------------


async def sealed_file(folder: Path, keys: SubjectKeys, *, live: bool = True) -> bytes:
    """Two runs of ivy, one over and one that goes on with it and is under way, and one in clear; all texts of ivy are
    sealed by her key."""
    sealer = await keys.cipher_for("t", "ivy")
    async with installation(folder, partitions=2) as there:
        there.world.start_run("r_tok", prompt=sealer.text("her first words"), user_id="ivy")
        there.world.start_run("r_clear")
        await there.world.finished("r_tok", "r_clear")
        if live:
            there.world.on_effect = stopped
            there.world.start_run("r_tok-2", prompt="in clear", session_id="s_tok", user_id="ivy")
            await there.world.until(lambda: there.world.has("r_tok-2"))
            await there.world.close()
        return await file_of(there)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_runs_under_way_whose_keys_are_not_here_are_refused_and_nothing_is_told(
    dry_run: bool, tmp_path: Path
) -> None:
    data = await sealed_file(tmp_path / "a", keys_over(MemoryLog({TOPIC: 1})))
    for here_keys in (keys_over(MemoryLog({TOPIC: 1})), None):
        async with installation(tmp_path / "b", partitions=1, keys=here_keys) as here:
            with pytest.raises(Refused) as caught:
                await restored(here, data, dry_run=dry_run)
            assert (caught.value.code, "1 of the 1 live runs" in caught.value.message) == ("keys_missing", True)
            assert "Mirror the topic loom.subject.keys" in caught.value.message
            assert await here.states() == {}


async def test_with_the_keys_mirrored_they_go_on(tmp_path: Path) -> None:
    log = MemoryLog({TOPIC: 1})
    data = await sealed_file(tmp_path / "a", keys_over(log))
    async with installation(tmp_path / "b", partitions=1, keys=keys_over(log)) as here:
        actual = await restored(here, data)
        assert (actual.runs, actual.live_runs, actual.sealed_runs) == (3, 1, 0)
        await here.world.finished("r_tok-2")
    async with installation(tmp_path / "c", partitions=1, keys=keys_over(log, b"x" * 32)) as here:
        with pytest.raises(Refused, match="under the same LOOMLOG_ENCRYPTION_KEY"):
            await restored(here, data)


async def test_runs_that_are_over_are_taken_in_sealed_and_counted(tmp_path: Path) -> None:
    data = await sealed_file(tmp_path / "a", keys_over(MemoryLog({TOPIC: 1})), live=False)
    async with installation(tmp_path / "b", partitions=1, keys=keys_over(MemoryLog({TOPIC: 1}))) as here:
        actual = await restored(here, data)
        assert (actual.runs, actual.live_runs, actual.sealed_runs) == (2, 0, 1)


@pytest.mark.parametrize("is_erased", [True, False])
async def test_what_nobody_can_read_ends_here_where_that_is_wanted_or_was_erased(
    is_erased: bool, tmp_path: Path
) -> None:
    log = MemoryLog({TOPIC: 1})
    keys = keys_over(log)
    data = await sealed_file(tmp_path / "a", keys)
    if is_erased:
        await keys.erase("t", "ivy", erasure_id="e_1", reason="asked", by="op")
    else:
        keys = keys_over(MemoryLog({TOPIC: 1}))
    async with installation(tmp_path / "b", partitions=1, keys=keys) as here:
        actual = await here.layer.state_restore.restore(
            ADMIN_CALLER, io.BytesIO(data), sealed=not is_erased, in_clear=True
        )
        assert (actual.runs, actual.live_runs, actual.sealed_runs) == (3, 0, 2)
        state = (await here.states())["r_tok-2"][1]
        assert isinstance(state, Ended)
        assert (state.status, state.reason) == ("cancelled", HISTORY_ONLY)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_content_in_clear_is_refused_where_content_is_encrypted_unless_it_is_wanted(
    dry_run: bool, tmp_path: Path
) -> None:
    log = MemoryLog({TOPIC: 1})
    data = await sealed_file(tmp_path / "a", keys_over(log), live=False)
    async with installation(tmp_path / "b", partitions=1, keys=keys_over(log)) as here:
        with pytest.raises(Refused) as caught:
            await restored(here, data, dry_run=dry_run, in_clear=False)
        assert caught.value.code == "content_in_clear"
        assert "2 of the 2 runs of the file, " in caught.value.message
        assert await here.states() == {}
        assert (await restored(here, data, dry_run=dry_run)).runs == 2
    async with installation(tmp_path / "c", partitions=1) as here:
        assert (await restored(here, data, in_clear=False)).runs == 2, "there all is in clear"


async def test_keys_of_payloads_are_looked_for_too(tmp_path: Path) -> None:
    sealer = await keys_over(MemoryLog({TOPIC: 1})).cipher_for("t", "ivy")
    async with installation(tmp_path / "a", partitions=1) as there:
        ref = await there.blobs.put(sealer.text("long " * 100).encode(), "text/plain")
        block = ContentBlock(type="trusted-text", blob=ref)
        there.world.on_effect = stopped
        there.world.start_run("r_tok", prompt="", segments=(Segment(role="user", content=(block,)),))
        await there.world.until(lambda: there.world.has("r_tok"))
        await there.world.close()
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=1, keys=keys_over(MemoryLog({TOPIC: 1}))) as here:
        with pytest.raises(Refused, match="could not continue here, r_tok first"):
            await restored(here, data)


async def test_a_payload_in_clear_is_content_in_clear(tmp_path: Path) -> None:
    log = MemoryLog({TOPIC: 1})
    sealer = await keys_over(log).cipher_for("t", "")
    for data, is_refused in ((b"long " * 100, True), (sealer.text("long " * 100).encode(), False)):
        async with installation(tmp_path / f"a{is_refused}", partitions=1) as there:
            block = ContentBlock(type="trusted-text", blob=await there.blobs.put(data, "text/plain"))
            there.world.on_effect = stopped
            there.world.start_run("r_tok", prompt="", segments=(Segment(role="user", content=(block,)),))
            await there.world.until(lambda world=there.world: world.has("r_tok"))
            await there.world.close()
            file = await file_of(there)
        async with installation(tmp_path / f"b{is_refused}", partitions=1, keys=keys_over(log)) as here:
            if is_refused:
                with pytest.raises(Refused, match="1 of the 1 runs of the file, r_tok first"):
                    await restored(here, file, in_clear=False)
            else:
                assert (await restored(here, file, in_clear=False)).live_runs == 1


# --- the same file again ---------------------------------------------------------------------------------------------


async def test_where_it_came_from_nothing_is_added_either(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=2) as there:
        await worked(there, 2)
        data = await file_of(there)
        lengths = there.lengths()
        assert (await restored(there, data)).runs == 0
        assert there.lengths() == lengths


async def test_a_run_cut_in_the_middle_of_its_tool_calls_goes_on(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        held = asyncio.Event()

        async def hold(effect: Any) -> None:
            if type(effect).__name__ == "CallTool":
                await held.wait()

        there.world.on_effect = hold
        for number in range(4):  # with the script's draws every effect class is among their calls
            there.world.start_run(f"r_cut{number}")
        await there.world.until(
            lambda: [type(run.state) for run in there.world.story().runs.values()] == [AwaitingTools] * 4
        )
        await there.world.close()
        data = await file_of(there)
        before = await there.states()
    async with installation(tmp_path / "b", partitions=5) as here:
        assert (await restored(here, data)).live_runs == 4
        story = await here.world.finished(*before)
    outcomes: set[str] = set()
    for name, run in story.runs.items():
        assert isinstance(run.state, Ended), name
        after = run.events[before[name][0] :]
        assert isinstance(after[0], RunRestored)
        for opened in before[name][1].open:  # type: ignore[union-attr]
            is_call = [e for e in after if isinstance(e, ToolCallRequested) and e.index == opened.index and e.turn == 1]
            results = [e for e in after if isinstance(e, ToolReturned) and e.index == opened.index and e.turn == 1]
            outcomes |= {f"{opened.effect_class} {result.outcome}" for result in results}
            assert [call.attempt for call in is_call] == ([] if opened.effect_class == "unsafe" else [2])
    assert outcomes == {"pure ok", "read ok", "idempotent ok", "unsafe outcome_unknown"}


async def test_a_lost_model_call_is_visible_and_made_again(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        stuck = asyncio.Event()

        async def hold(_: Any) -> None:
            await stuck.wait()

        there.world.on_effect = hold
        there.world.start_run("r_stuck")
        await there.world.until(lambda: there.world.has("r_stuck"))
        await there.world.close()
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=2) as here:
        await restored(here, data)
        events = (await here.world.finished("r_stuck")).runs["r_stuck"].events
    assert [type(event).__name__ for event in events[2:5]] == ["RunRestored", "ModelCallFailed", "ModelCallRequested"]
    assert isinstance(events[3], ModelCallFailed)
    assert (events[3].kind, events[4].attempt) == ("interrupted", 2)


@pytest.mark.parametrize("part_bytes", [1, limits.IMPORT_BATCH_BYTES], ids=["in parts", "at once"])
async def test_a_restored_run_can_be_carried_on_to_a_third_installation(
    part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMPORT_BATCH_BYTES", part_bytes)
    async with installation(tmp_path / "a", partitions=1) as there:
        await worked(there, 3)
        data = await file_of(there)
        before = await there.states()
    async with installation(tmp_path / "b", partitions=3) as second:
        second.world.effect_delay = 50
        await restored(second, data)
        await second.world.close()
        further = await file_of(second)
        between = await second.states()
    async with installation(tmp_path / "c", partitions=2) as third:
        actual = await restored(third, further)
        assert actual.failed_runs == 0
        assert actual.live_runs == sum(
            isinstance(state, AwaitingModel | AwaitingTools) for _, state in between.values()
        )
        assert actual.live_runs > 0
        story = await third.world.finished(*before)
        options = await third.states({name: seq for name, (seq, _) in between.items()})
        assert {n: (s, as_here(state)) for n, (s, state) in options.items()} == {
            n: (s, as_here(state)) for n, (s, state) in between.items()
        }
        assert all(isinstance(run.state, Ended) for run in story.runs.values())
        lengths = third.lengths()
        assert (await restored(third, data)).runs == 0  # the older file of the same runs
        assert third.lengths() == lengths


async def test_a_long_run_comes_in_parts_and_a_take_over_between_them_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMPORT_BATCH_BYTES", 1)
    async with installation(tmp_path / "a", partitions=1) as there:
        await worked(there, 4)
        data, before = await file_of(there), await there.states()
    async with installation(tmp_path / "b", partitions=2) as here:
        work = asyncio.create_task(restored(here, data))
        await here.world.until(lambda: sum(here.lengths().values()) > 40)
        await here.world.hosts[0].kill()
        here.world.host("b")
        assert (await work).runs == len(before)
        options = await here.states({name: seq for name, (seq, _) in before.items()})
        assert {name: (seq, as_here(state)) for name, (seq, state) in options.items()} == before
        await here.world.finished(*before)


async def test_a_session_that_has_gone_on_here_is_not_disturbed(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        there.world.on_effect = stopped
        there.world.start_run("r_same", session_id="")
        await there.world.until(lambda: there.world.has("r_same"))
        await there.world.close()
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=1) as here:
        here.world.on_effect = stopped
        here.world.start_run("r_same-9", agent_id="a_same")
        await here.world.until(lambda: here.world.has("r_same-9"))
        await restored(here, data)
        run = (await here.world.finished("r_same")).runs["r_same"]
        assert isinstance(run.state, Ended)
        assert run.state.reason == "restored, but r_same-9 has its session or its handle here"


async def stopped(_: Any) -> None:
    await asyncio.Event().wait()


# --- tenants, pauses, choice -----------------------------------------------------------------------------------------


async def test_a_tenants_file_holds_nothing_of_another(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=3) as there:
        there.world.start_run("r_mine", tenant="mine", prompt="my secret")
        there.world.start_run("r_theirs", tenant="theirs", prompt="their secret")
        await there.world.finished("r_mine", "r_theirs")
        await there.layer.wide_pauses.restore(
            ADMIN_CALLER, WidePause(scope="tenant", tenant="mine", reason=""), dry_run=False
        )
        await there.layer.wide_pauses.restore(
            ADMIN_CALLER, WidePause(scope="tenant", tenant="theirs", reason=""), dry_run=False
        )
        await there.layer.wide_pauses.restore(ADMIN_CALLER, WidePause(scope="all"), dry_run=False)
        data = await file_of(there, tenant="mine")
    items = list(StateReader(io.BytesIO(data)))
    assert [item.run_id for item in items if isinstance(item, StatedRun)] == ["r_mine"]
    assert [item.tenant for item in items if isinstance(item, WidePause)] == ["mine"]
    values = b"".join(item.event.value for item in items if isinstance(item, StatedEvent))
    assert b"my secret" in values
    for foreign in (b"their secret", b"theirs"):
        assert foreign not in values
        assert foreign not in gzip.decompress(data)


async def test_pauses_stand_here_before_the_first_run_goes_on_and_only_once(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        pause = WidePause(scope="agent", agent="helper", tenant="t", reason="look")
        await there.layer.wide_pauses.restore(ADMIN_CALLER, pause, dry_run=False)
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=2) as here:
        actual = await restored(here, data)
        (position,) = actual.positions.values()
        assert (actual.pauses, type(event_at(here.log, position))) == (1, PauseSet)
        (entry,) = here.layer.wide_pauses.table.listed()
        assert (entry.scope, entry.agent, entry.tenant, entry.reason) == ("agent", "helper", "t", "look")
        assert (await restored(here, data)).pauses == 0


async def test_a_file_of_nobody_says_so(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        manifest = await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(tenant="nobody"))
        assert manifest["warnings"] == ["there is no run of a tenant nobody to put into it"]
        assert (await there.layer.backups.create(ADMIN_CALLER, StateFileRequest()))["warnings"] == []


async def test_a_tenants_runs_stay_held_by_what_held_everybody(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        await there.layer.wide_pauses.restore(ADMIN_CALLER, WidePause(scope="all", reason="the move"), dry_run=False)
        await there.layer.wide_pauses.restore(
            ADMIN_CALLER, WidePause(scope="agent", agent="helper", reason="odd"), dry_run=False
        )
        data = await file_of(there, tenant="mine")
    async with installation(tmp_path / "b", partitions=2) as here:
        assert (await restored(here, data)).pauses == 2
        table = here.layer.wide_pauses.table
        assert [hold.reason for hold in table.pauses_for("mine", "helper")] == ["the move", "odd"]
        assert table.pauses_for("theirs", "helper") == ()


async def test_without_history_only_what_is_under_way_and_what_that_goes_on_with(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=2) as there:
        for name in ("r_old", "r_ses"):
            there.world.start_run(name)
        await there.world.finished("r_old", "r_ses")
        there.world.on_effect = stopped
        there.world.start_run("r_ses-2", session_id="s_ses")
        await there.world.until(lambda: there.world.has("r_ses-2"))
        await there.world.close()
        data = await file_of(there, include_history=False)
        assert [i.run_id for i in StateReader(io.BytesIO(data)) if isinstance(i, StatedRun)] == ["r_ses", "r_ses-2"]
        later = await file_of(there, since_ms=there.world.now + 1)
        assert [i.run_id for i in StateReader(io.BytesIO(later)) if isinstance(i, StatedRun)] == ["r_ses", "r_ses-2"]


async def test_a_dry_run_says_what_would_be_added_and_adds_nothing(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        await worked(there, 5)
        data, before = await file_of(there), await there.states()
    async with installation(tmp_path / "b", partitions=2) as here:
        await here.world.until(lambda: sum(here.lengths().values()) == 2)
        actual = await restored(here, data, dry_run=True)
        assert (actual.runs, actual.is_dry_run, actual.positions) == (len(before), True, {})
        assert here.log.records[("loom.run.commands", 0)] == here.log.records[("loom.run.commands", 1)] == []


async def test_a_run_id_of_another_tenant_is_left_out_with_those_that_go_on_with_it(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        there.world.start_run("r_tok")
        await there.world.finished("r_tok")
        there.world.start_run("r_tok-2", session_id="s_tok")
        there.world.start_run("r_free")
        await there.world.finished("r_tok-2", "r_free")
        data = await file_of(there)
    async with installation(tmp_path / "b", partitions=2) as here:
        here.world.start_run("r_tok", tenant="other")
        await here.world.finished("r_tok")
        actual = await restored(here, data)
        assert (actual.runs, actual.failed_runs) == (1, 2)
        assert "does not belong" in actual.warnings[0]
        assert "r_tok-2 is not restored: the run it continues is not here" in actual.warnings[1]


async def test_payloads_come_along(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        ref = await there.blobs.put(b"long " * 300_000)
        block = ContentBlock(type="trusted-text", blob=ref)
        there.world.start_run("r_blob", prompt="", segments=(Segment(role="user", content=(block,)),))
        await there.world.finished("r_blob")
        data = await file_of(there)
    assert sum(isinstance(item, BlobPart) for item in StateReader(io.BytesIO(data))) == 3
    async with installation(tmp_path / "b", partitions=2) as here:
        assert (await restored(here, data)).blobs == 1
        assert await here.blobs.get(ref) == b"long " * 300_000


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture
async def good(tmp_path: Path) -> AsyncIterator[bytes]:
    async with installation(tmp_path / "good", partitions=2) as there:
        there.world.start_run("r_one")
        await there.world.finished("r_one")
        yield await file_of(there, label="good")


async def refusal(tmp_path: Path, data: bytes) -> Refused:
    async with installation(tmp_path / "here", partitions=1) as here:
        with pytest.raises(Refused) as caught:
            await restored(here, data)
        assert here.log.records[("loom.run.commands", 0)] == []
    return caught.value


def rehashed(plain: bytes, *, events: int = 0) -> bytes:
    """The document as if it had been written so."""
    *lines, end = plain.splitlines(keepends=True)
    last = json.loads(b"{" + end[2:])
    last["counts"]["runs"] += events
    last["sha256"] = hashlib.sha256(b"".join(lines)).hexdigest()
    return b"".join(lines) + b"}," + json.dumps(last)[1:].encode() + b"\n"


def document_of(data: bytes) -> Any:
    return json.loads(gzip.decompress(data))


async def test_a_file_that_was_cut_altered_or_is_another_one_is_refused(tmp_path: Path, good: bytes) -> None:
    plain = gzip.decompress(good)
    lines = plain.splitlines(keepends=True)
    event = next(at for at, line in enumerate(lines) if b'"kind":"event"' in line)
    for number, (data, says) in enumerate(
        [
            (good[:-30], "cut short"),
            (good[: len(good) // 2], "cut short"),
            (b"nothing", "missing"),
            (b"{}\n", "does not say"),
            (b"", "missing"),
            (plain.replace(b'"label":"good"', b'"label":"evil"'), "altered"),
            (b"".join([*lines[:event], *lines[event + 1 :]]), ""),
            (plain + b" ", "after the last line"),
            (gzip.compress(plain) + b"x", "after the last line"),
        ]
    ):
        actual = await refusal(tmp_path / str(number), data)
        assert actual.code == "restore_failed", (actual.message, says)
        assert says in actual.message, (number, actual.message)


async def test_no_byte_can_be_changed_without_being_found(good: bytes) -> None:
    plain, random = gzip.decompress(good), Random(7)
    validate_state(io.BytesIO(plain))
    for at in (*range(0, 400, 3), *random.sample(range(len(plain)), 300), *range(len(plain) - 120, len(plain))):
        altered = bytearray(plain)
        altered[at] ^= 1 << random.randrange(8)
        with pytest.raises(BrokenStateFile):
            validate_state(io.BytesIO(bytes(altered)))


async def test_a_newer_or_an_unknown_version_says_so(tmp_path: Path, good: bytes) -> None:
    plain = gzip.decompress(good)
    for number, (old, new, code) in enumerate(
        [
            (b'"schema_version":4', b'"schema_version":5', "snapshot_version_too_new"),
            (b'"schema_version":4', b'"schema_version":0', "snapshot_version_unknown"),
            (b'"runs":{"version":1', b'"runs":{"version":9', "snapshot_version_too_new"),
            (b'"blobs":{"version":1', b'"magic":{"version":1', "snapshot_version_unknown"),
        ]
    ):
        assert (await refusal(tmp_path / str(number), rehashed(plain.replace(old, new, 1)))).code == code


async def test_a_history_that_does_not_hold_is_refused_even_when_its_hash_was_made_anew(
    tmp_path: Path, good: bytes
) -> None:
    lines = gzip.decompress(good).splitlines(keepends=True)
    event = [at for at, line in enumerate(lines) if b'"kind":"event"' in line][1]
    actual = await refusal(tmp_path, rehashed(b"".join([*lines[:event], *lines[event + 1 :]]), events=-1))
    assert "seq 2 was expected" in actual.message


async def test_a_document_that_was_parsed_is_the_same_file_again(tmp_path: Path, good: bytes) -> None:
    again = b"".join(StateWriter().rewrite(document_of(good)))
    assert gzip.decompress(again) == gzip.decompress(good)
    async with installation(tmp_path / "here", partitions=3) as here:
        assert (await restored(here, again)).runs == 1


async def test_a_run_whose_history_is_not_whole_is_left_out_and_said(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        there.world.start_run("r_tok")
        await there.world.finished("r_tok")
        there.world.start_run("r_tok-2", session_id="s_tok")
        there.world.start_run("r_free")
        await there.world.finished("r_tok-2", "r_free")
        await there.world.close()
        records = there.log.records["loom.run.events", 0]
        at = next(r.offset for r in records if b"r_tok" in (r.value or b"") and r.offset > 3)
        records[at] = replace(records[at], value=b"x")
        manifest = await there.layer.backups.create(ADMIN_CALLER, StateFileRequest())
    assert manifest["runs"] == 1
    assert [warning.split(":")[0] for warning in manifest["warnings"]] == ["r_tok is left out", "r_tok-2 is left out"]


async def test_files_are_listed_newest_first_and_go_when_removed(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        there.world.start_run("r_one")
        await there.world.finished("r_one")
        made = []
        for label in ("one", "two"):
            there.world.now += 1000
            made.append(await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(label=label)))
        listed = await there.layer.backups.list()
        assert [entry["label"] for entry in listed] == ["two", "one"]
        assert listed[1] == made[0]
        assert made[0]["byte_size"] == (tmp_path / "a" / f"{made[0]['id']}.loomlog-state.gz").stat().st_size
        assert await there.layer.backups.remove(made[0]["id"])
        assert not await there.layer.backups.remove(made[0]["id"])
        assert len(list((tmp_path / "a").iterdir())) == 2
        with pytest.raises(Refused, match="there is no snapshot"):
            await there.layer.backups.open(made[0]["id"])


async def test_one_over_its_bound_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with installation(tmp_path / "a", partitions=1) as there:
        with pytest.raises(Refused) as caught:
            await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(max_bytes=10))
        assert caught.value.code == "snapshot_too_large"
        assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("seed", range(4))
async def test_a_tree_that_was_under_way_goes_on_with_the_children_it_has(seed: int, tmp_path: Path) -> None:
    """A parent that went on before its children are here would start them anew."""
    random = Random(seed)
    async with installation(tmp_path / "a", partitions=2, seed=seed) as there:
        add_families(there.world.definitions, "tree-3-2")
        there.world.script, there.world.effect_delay = family_script, 4
        there.world.start_run("r_tree", agent="tree-3-2")
        options = random.randint(12, 60)
        await there.world.until(lambda: sum(there.lengths().values()) >= options)
        await there.world.close()
        data = await file_of(there)
        before = lineage(there.world.story())
    async with installation(tmp_path / "b", partitions=3, seed=seed) as here:
        add_families(here.world.definitions, "tree-3-2")
        here.world.script = family_script
        actual = await restored(here, data)
        assert (actual.runs, actual.failed_runs) == (len(before), 0), actual.warnings
        story = await here.world.finished("r_tree")
        assert len(lineage(story)) == 1 + 3 + 6
        assert {run.state.status for run in story.runs.values() if isinstance(run.state, Ended)} == {"completed"}
