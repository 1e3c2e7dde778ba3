"""Where runs lie, as the owner of a partition knows it."""

import pytest

from loomlog.services.runtime.run import run_directory
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


def directory() -> RunDirectory:
    return RunDirectory(number=0, known_since_ms=0, forgotten_until=0, index=EmptyIndex(), past=DeskAtWork().past)


@pytest.mark.parametrize(
    ("session", "handle", "names"),
    [("", "", ("s_tok", "a_tok")), ("s_tok", "a_tok", ("s_tok", "a_tok")), ("s_old", "a_mine", ("s_old", "a_mine"))],
    ids=["at rest", "of its id", "others"],
)
def test_a_live_run_holds_its_session_and_handle_for_its_tenant_until_it_ends(
    session: str, handle: str, names: tuple[str, str]
) -> None:
    known = directory()
    known.register("r_tok", "t", session, handle)
    assert (known.session_holder("t", names[0]), known.handle_holder("t", names[1])) == ("r_tok", "r_tok")
    assert (known.session_holder("other", names[0]), known.handle_holder("other", names[1])) == ("", "")
    for name in {"s_tok", "s_old", "a_tok", "r_tok", "tok", ""} - set(names):
        assert (known.session_holder("t", name), known.handle_holder("t", name)) == ("", "")
    known.unregister("r_tok", "t", *names)
    assert (known.session_holder("t", names[0]), known.handle_holder("t", names[1])) == ("", "")


def test_a_run_that_continues_the_session_of_another_is_found_under_it() -> None:
    known = directory()
    known.register("r_tok", "t", "s_tok", "a_tok")
    known.unregister("r_tok", "t", "s_tok", "a_tok")
    known.register("r_tok-2", "t", "s_tok", "a_tok-2")
    assert known.session_holder("t", "s_tok") == "r_tok-2"
    assert known.handle_holder("t", "a_tok-2") == "r_tok-2"


def test_the_issue_time_of_a_run_that_rested_bounds_what_may_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "ENDED_KEPT", 0)
    known = directory()
    known.issued_at_ms["r_one"] = 5_000
    known.forget_issued("r_one")
    assert (known.issued_at_ms, known.issued_until_ms) == ({}, 5_000)
    known.add_ended(
        EndedRun(
            run_id="r_one", tenant="t", session_id="", partition=0, first_offset=1, last_offset=2, ended_at_ms=1_000
        )
    )
    assert known.known_since_ms == 5_001
