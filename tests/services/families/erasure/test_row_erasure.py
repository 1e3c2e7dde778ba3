"""Rows and blobs of a person: the event, then the wait for the projector, and what is said of either that fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.erasure_commands import EraseRuns
from loomlog.schemas.generated.values import BlobRef
from loomlog.services.families.erasure import FAMILY, RUNS_MAX, row_erasure
from loomlog.services.families.erasure.row_erasure import RowErasure
from loomlog.services.families.ports.row_erasure import ErasedRows
from tests.services.entities import NOW_MS, UNANSWERED
from tests.services.families_in_memory import FamiliesInMemory


@dataclass
class Projector:
    """What was read of the log (in place of SqlErasures)."""

    reads_after: int = 2
    """Questions until it has read the event."""
    shared: set[str] = field(default_factory=set)
    error: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    async def is_done(self, tenant: str, erasure_id: str) -> bool:
        self.asked.append((tenant, erasure_id))
        return len(self.asked) >= self.reads_after

    async def shared_blobs(self, hashes: Sequence[str], run_ids: Sequence[str]) -> set[str]:
        if self.error is not None:
            raise self.error
        return self.shared & set(hashes)


@dataclass
class Stage:
    families: FamiliesInMemory = field(default_factory=lambda: FamiliesInMemory(FAMILY))
    projector: Projector = field(default_factory=Projector)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)

    async def erase(self, *run_ids: str, blobs: Mapping[str, BlobRef] | None = None, wait_s: float = 5.0) -> ErasedRows:
        projector: Any = self.projector
        rows = RowErasure(self.families, projector, self.blobs, clock_ms=lambda: NOW_MS, rows_wait_s=wait_s)
        more: dict[str, Any] = {"in_clear": True, "erasure_id": "e_1", "by": "op", "reason": "asked"}
        return await rows.erase("acme", "ivy", run_ids, blobs or {}, **more)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(row_erasure, "POLL_S", 0)
    return Stage()


async def test_an_answer_waits_until_the_projector_has_deleted_the_rows(stage: Stage) -> None:
    done = await stage.erase("r_1", "r_2")
    assert (done.are_deleted, done.errors, bool(done.position)) == (True, (), True)
    assert stage.projector.asked == [("acme", "e_1")] * 2
    (command,) = stage.families.asked
    assert isinstance(command, EraseRuns)
    assert (command.subject, command.run_ids, command.in_clear) == ("ivy", ("r_1", "r_2"), True)


async def test_a_repetition_of_an_erasure_is_one_event(stage: Stage) -> None:
    first, second = await stage.erase("r_1"), await stage.erase("r_1")
    assert first.position == second.position


async def test_a_projector_that_is_away_is_said_and_the_event_stays(stage: Stage) -> None:
    stage.projector.reads_after = 10**9
    done = await stage.erase("r_1", wait_s=0)
    assert (done.are_deleted, bool(done.position)) == (False, True)
    assert "the projector has not done it within 0 s, and will when it runs" in done.errors[0]


async def test_no_owner_leaves_the_rows_and_says_so(stage: Stage) -> None:
    stage.families.failing[EraseRuns] = UNANSWERED
    done = await stage.erase("r_1")
    assert (done.are_deleted, done.position) == (False, "")
    assert done.errors == (f"the rows of the subject are not deleted yet: {UNANSWERED}",)


async def test_what_is_too_much_for_one_event_is_left_and_said(stage: Stage) -> None:
    done = await stage.erase(*(f"r_{number}" for number in range(RUNS_MAX + 1)))
    assert done.errors == ("1 runs of the subject are left: repeat the erasure",)
    assert len(stage.families.asked[0].run_ids) == RUNS_MAX


async def test_a_blob_goes_unless_another_run_has_it(stage: Stage) -> None:
    own, shared = [await stage.blobs.put(data) for data in (b"own", b"shared")]
    stage.projector.shared = {shared.sha256}
    done = await stage.erase("r_1", blobs={one.sha256: one for one in (own, shared)})
    assert (done.blobs_deleted, done.errors) == (1, ())
    assert await stage.blobs.get(shared) == b"shared"
    with pytest.raises(Permanent):
        await stage.blobs.get(own)


async def test_blobs_that_could_not_be_deleted_do_not_keep_the_rows(stage: Stage) -> None:
    own = await stage.blobs.put(b"own")
    stage.projector.error = Transient("away", kind="unavailable")
    done = await stage.erase("r_1", blobs={own.sha256: own})
    assert done.are_deleted
    assert done.errors == ("the blobs of the subject were not all deleted: away",)
