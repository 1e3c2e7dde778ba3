import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRange, ProducerRecord
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.ids import partition_key
from loomlog.services.application import limits
from loomlog.services.application.queries import audit_log as module
from loomlog.services.application.queries import log_pages
from loomlog.services.application.queries.audit_log import AuditLog, EventPage, EventQuery
from loomlog.services.application.resources import TOPICS
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.shares import PRINCIPAL, ShareExhausted
from tests.services.application.owner import NOW_MS
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, World, declined, pieces_of, world

RUN_EVENTS = ["RunStarted", "ModelCallRequested", "ModelReplied", "RunCompleted"]


async def finished(made: World, *, caller: Caller = ADMIN_CALLER, agent: str = "soaker", **fields: Any) -> StartedRun:
    accepted = await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go", **fields))
    await pieces_of(accepted.stream)
    return accepted


async def listed(made: World, caller: Caller = ADMIN_CALLER, **query: Any) -> EventPage:
    return await made.layer.audit_log.events(caller, EventQuery(**query))


def types(page: EventPage) -> list[str]:
    return [view.type for view in page.events]


# --- of one run ------------------------------------------------------------------------------------------------------


async def test_the_events_of_a_run_in_order_with_their_places() -> None:
    async with world() as made:
        run = await finished(made)
        page = await listed(made, run_id=run.run_id)
    assert types(page) == RUN_EVENTS
    assert [view.seq for view in page.events] == [1, 2, 3, 4]
    assert [view.offset for view in page.events] == [1, 2, 3, 4]
    first = page.events[0]
    assert (first.run_id, first.tenant, first.cause_id) == (run.run_id, "default", run.run_id)
    assert first.payload["session_id"] == run.session_id
    assert page.next == ""


async def test_other_runs_of_the_partition_are_left_out() -> None:
    async with world() as made:
        first = await finished(made)
        for _ in range(3):
            again = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="x"))
            await pieces_of(again.stream)
        page = await listed(made, run_id=again.run_id)
    assert types(page) == RUN_EVENTS
    assert {view.run_id for view in page.events} == {again.run_id}


async def test_what_a_fenced_owner_wrote_is_left_out() -> None:
    async with world() as made:
        run = await finished(made, agent="parker", interactive=False)
        partition = made.layer.publisher.partition_of(partition_key(run.run_id))
        old = made.terms[partition]
        made.claim(partition)
        made.seqs[run.run_id] = 4
        offset = made.happen(run.run_id, RunParked(since_turn=9), term=old)
        page = await listed(made, run_id=run.run_id)
        assert types(page) == RUN_EVENTS
        assert types(await listed(made, partition=partition)) == ["Claim", *RUN_EVENTS, "Claim"]
        single = await made.layer.audit_log.record(ADMIN_CALLER, TOPICS.events, partition, offset)
    assert (single.type, single.stale, single.run_id) == ("RunParked", True, run.run_id)


@pytest.mark.parametrize("stranger", [GLOBEX, IVY])
async def test_the_events_of_another_tenants_or_users_run_do_not_exist(stranger: Caller) -> None:
    async with world() as made:
        run = await finished(made, caller=ACME)
        assert (await declined(listed(made, stranger, run_id=run.run_id))).code == "not_found"
        place = run.position.removeprefix("loom.run.events/").split(":")
        actual = await declined(made.layer.audit_log.record(stranger, TOPICS.events, int(place[0]), int(place[1])))
        assert actual.code == "not_found"


async def test_an_isolated_user_sees_the_events_of_its_own_run() -> None:
    async with world() as made:
        run = await finished(made, caller=IVY)
        assert types(await listed(made, IVY, run_id=run.run_id)) == RUN_EVENTS
        place = run.position.removeprefix("loom.run.events/").split(":")
        view = await made.layer.audit_log.record(IVY, TOPICS.events, int(place[0]), int(place[1]))
    assert view.type == "RunStarted"


async def test_an_isolated_user_must_name_its_run() -> None:
    async with world() as made:
        assert (await declined(listed(made, IVY))).code == "bad_request"


async def test_a_refused_run_has_its_one_event() -> None:
    async with world() as made:
        actual = await declined(made.layer.runs.start(ADMIN_CALLER, RunRequest(agent="ghost", prompt="x")))
        assert actual.code == "unknown_agent"
        page = await listed(made, run_id=made.commands()[0].run_id)
    assert types(page) == ["RunRefused"]


# --- of the whole log ------------------------------------------------------------------------------------------------


async def test_a_tenant_sees_its_own_events_and_no_claims() -> None:
    async with world() as made:
        mine = await finished(made, caller=ACME)
        await finished(made, caller=GLOBEX)
        page = await listed(made, ACME)
    assert {view.run_id for view in page.events} == {mine.run_id}
    assert types(page) == RUN_EVENTS


async def test_an_administrator_sees_everything_by_partition_and_offset() -> None:
    async with world() as made:
        for _ in range(6):
            await finished(made)
        page = await listed(made)
    assert types(page).count("Claim") == 4
    assert types(page).count("RunCompleted") == 6
    places = [(view.partition, view.offset) for view in page.events]
    assert places == sorted(places)


async def test_pages_go_on_without_hole_or_repetition() -> None:
    async with world() as made:
        for _ in range(6):
            await finished(made)
        whole = (await listed(made)).events
        for limit in (1, 3, 7):
            actual: list[Any] = []
            cursor = ""
            for _ in range(100):
                page = await listed(made, limit=limit, cursor=cursor)
                actual += page.events
                cursor = page.next
                if not cursor:
                    break
            assert tuple(actual) == whole


async def test_a_list_goes_on_later_where_it_ended() -> None:
    async with world() as made:
        run = await finished(made)
        whole = await listed(made, run_id=run.run_id)
        later = await listed(made, run_id=run.run_id, cursor=whole.resume)
        assert (whole.next, later.events, later.next) == ("", (), "")
        first = await listed(made, run_id=run.run_id, limit=1)
        assert (await listed(made, run_id=run.run_id, cursor=first.resume)).events == whole.events[1:]

        partition = whole.events[0].partition
        before = await listed(made, partition=partition)
        while not (await listed(made, partition=partition, cursor=before.resume)).events:
            await finished(made)
        after = await listed(made, partition=partition, cursor=before.resume)
        assert (*before.events, *after.events) == (await listed(made, partition=partition)).events
        assert (await listed(made)).resume == ""


async def test_a_page_that_scanned_enough_comes_back_short_with_a_place_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVENTS_SCANNED_MAX", 3)
    async with world() as made:
        await finished(made, caller=GLOBEX)
        run = await finished(made, caller=ACME)
        actual: list[Any] = []
        cursor = ""
        for _ in range(100):
            page = await listed(made, ACME, cursor=cursor)
            assert len(page.events) <= 3
            actual += page.events
            cursor = page.next
            if not cursor:
                break
    assert [view.type for view in actual] == RUN_EVENTS
    assert {view.run_id for view in actual} == {run.run_id}


async def test_a_type_narrows_the_list() -> None:
    async with world() as made:
        for _ in range(3):
            await finished(made)
        assert set(types(await listed(made, type="RunStarted"))) == {"RunStarted"}
        assert len((await listed(made, type="loom.run.events.RunStarted")).events) == 3
        assert types(await listed(made, type="Claim")) == ["Claim"] * 4
        assert (await declined(listed(made, type="RunExploded"))).code == "bad_request"


async def test_offsets_narrow_a_partition() -> None:
    async with world() as made:
        run = await finished(made)
        partition = made.layer.publisher.partition_of(partition_key(run.run_id))
        page = await listed(made, partition=partition, from_offset=2, to_offset=4)
        assert types(page) == ["ModelCallRequested", "ModelReplied"]
        assert (await declined(listed(made, from_offset=2))).code == "bad_request"
        assert (await declined(listed(made, partition=99))).code == "bad_request"


async def test_times_narrow_the_list() -> None:
    async with world() as made:
        run = await finished(made)
        made.log.clock_ms = NOW_MS + 100_000
        made.seqs[run.run_id] = 4
        made.states.pop(run.run_id)
        early = await listed(made, run_id=run.run_id, to_ms=NOW_MS)
        assert types(early) == []
        assert types(await listed(made, run_id=run.run_id, from_ms=NOW_MS, to_ms=NOW_MS + 1)) == RUN_EVENTS
        assert types(await listed(made, run_id=run.run_id, from_ms=NOW_MS + 1)) == []


@pytest.mark.parametrize("cursor", ["!", "AAAA", "OTk6MDow", "\0", "x" * 999])
async def test_a_place_we_did_not_give_out_is_refused(cursor: str) -> None:
    async with world() as made:
        assert (await declined(listed(made, cursor=cursor))).code == "bad_request"


# --- single records --------------------------------------------------------------------------------------------------


async def test_a_record_is_shown_with_its_cause() -> None:
    async with world() as made:
        run = await finished(made)
        partition = made.layer.publisher.partition_of(partition_key(run.run_id))
        for topic in (TOPICS.events, "run.events"):
            view = await made.layer.audit_log.record(ADMIN_CALLER, topic, partition, 1)
            assert (view.type, view.stale, view.cause_id) == ("RunStarted", False, run.run_id)
        claim = await made.layer.audit_log.record(ADMIN_CALLER, TOPICS.events, partition, 0)
        assert (claim.type, claim.stale) == ("Claim", False)


async def test_commands_are_for_administrators() -> None:
    async with world() as made:
        run = await finished(made, caller=ACME)
        partition = made.layer.publisher.partition_of(partition_key(run.run_id))
        view = await made.layer.audit_log.record(ADMIN_CALLER, TOPICS.commands, partition, 0)
        assert (view.type, view.run_id, view.tenant) == ("StartRun", run.run_id, "acme")
        assert (await declined(made.layer.audit_log.record(ACME, TOPICS.commands, partition, 0))).code == "not_found"


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [
        (TOPICS.events, 0, 999),
        (TOPICS.events, 99, 0),
        ("loom.dead-letter", 0, 0),
        ("../etc", 0, 0),
        (TOPICS.previews, 0, 0),
    ],
)
async def test_a_record_that_is_not_there_is_not_found(topic: str, partition: int, offset: int) -> None:
    async with world() as made:
        assert (await declined(made.layer.audit_log.record(ADMIN_CALLER, topic, partition, offset))).code == "not_found"


async def test_a_record_nobody_can_read_is_passed_by_and_not_found_alone() -> None:
    async with world() as made:
        offset = made.log.put(TOPICS.events, 0, [ProducerRecord(key=b"k", value=b"junk")])
        assert types(await listed(made, partition=0)) == ["Claim"]
        assert (await declined(made.layer.audit_log.record(ADMIN_CALLER, TOPICS.events, 0, offset))).code == "not_found"


# --- bounds ----------------------------------------------------------------------------------------------------------


class StuckRanges:
    """A broker that does not answer, or refuses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def read(self, topic: str, partition: int, start: int, end: int) -> LogRange:
        raise AssertionError("never reached")

    async def end_offset(self, topic: str, partition: int) -> int:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        return 0

    async def beginning_offset(self, topic: str, partition: int) -> int:
        return 0


def audit_over(made: World, ranges: StuckRanges) -> AuditLog:
    return AuditLog(made.layer.sources, ranges, made.codec, events_topic=TOPICS.events, commands_topic=TOPICS.commands)


async def test_a_broker_that_is_away_is_an_answer_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "READ_WAIT_S", 0.02)
    async with world() as made:
        for ranges in (StuckRanges(), StuckRanges(Transient("away", kind="unavailable"))):
            actual = await declined(audit_over(made, ranges).events(ADMIN_CALLER, EventQuery()))
            assert actual.code == "log_unavailable"


async def test_too_many_who_wait_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "READ_WAIT_S", 0.05)
    monkeypatch.setattr(limits, "EVENTS_WAITING_MAX", 2)
    async with world() as made:
        audit = audit_over(made, StuckRanges())
        asked: Sequence[asyncio.Task[EventPage]] = [
            asyncio.create_task(audit.events(ADMIN_CALLER, EventQuery())) for _ in range(3)
        ]
        actual = await asyncio.gather(*asked, return_exceptions=True)
    assert [one.bound for one in actual if isinstance(one, ShareExhausted)] == [PRINCIPAL]
    assert sorted(one.code for one in actual if isinstance(one, module.Refused)) == [
        "log_unavailable",
        "log_unavailable",
    ]
