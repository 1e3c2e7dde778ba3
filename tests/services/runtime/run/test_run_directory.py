"""Where runs lie, as the owner of a partition knows it."""

import pytest

from loomlog.services.runtime.run.run_directory import RunDirectory
from loomlog.services.runtime.run.run_index import EndedRun
from tests.services.runtime.fakes import EmptyIndex
from tests.services.runtime.given import DeskAtWork

LIES_IN = 3


class OneRun(EmptyIndex):
    """An index that knows a run of partition LIES_IN."""

    async def find_run(self, run_id: str) -> EndedRun | None:
        return EndedRun(
            run_id=run_id,
            tenant="t",
            session_id="s_one",
            partition=LIES_IN,
            first_offset=928,
            last_offset=940,
            ended_at_ms=1,
        )


@pytest.mark.parametrize(("number", "is_known"), [(LIES_IN, True), (0, False)])
async def test_a_place_in_another_partition_is_none_here(number: int, *, is_known: bool) -> None:
    work = DeskAtWork()
    known = RunDirectory(number=number, known_since_ms=0, forgotten_until=0, index=OneRun(), past=work.past)
    assert (await known.position_of("r_one", "t", work.partition) is not None) == is_known
