import orjson
import pytest

from loomlog.projections.run_queries import (
    RunCounts,
    RunFilter,
    count_active_runs,
    count_runs,
    list_runs,
    run_by_handle,
    run_by_id,
)
from loomlog.projections.runs import RunRow, apply, runs
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.schemas.generated.run_events import (
    CallWaiting,
    ChildrenPlanned,
    ChildReturned,
    CommandRefused,
    InputReceived,
    RunCancelled,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunResumed,
    ToolOutcomeAsked,
    TurnCancelled,
    WaitReported,
)
from loomlog.schemas.generated.values import (
    AgentDefinition,
    DefinitionPin,
    ForkPoint,
    ImportOrigin,
    ParentCall,
    RunPosition,
    Usage,
)
from loomlog.schemas.records import replace
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import (
    COMPACTED,
    COMPACTING,
    NOT_COMPACTED,
    Partition,
    a3x2,
    asked,
    call,
    closed,
    completed,
    failed,
    opened,
    replied,
    requested,
    returned,
    started,
)
from tests.projections.twin import projected

ASKED_FOR_C0 = ToolOutcomeAsked(turn=1, index=0, call_id="c0", attempt=1, reason="lost")
C0_WAITS = CallWaiting(turn=1, index=0, call_id="c0", attempt=1, wait_id="r_1:1.0", until_ms=1, queues=(), mode="any")
C0_REPORTED = WaitReported(turn=1, index=0, wait_id="r_1:1.0", queue=0, count=1)

TWO_CALLS = [replied(1, "", call("c0"), call("c1")), asked(1, 0, "c0")]
WITH_CHILDREN = [*TWO_CALLS, asked(1, 1, "c1"), ChildrenPlanned(turn=1, index=0, call_id="c0")]


def row_of(*events) -> RunRow:
    partition = Partition()
    partition.claim()
    partition.add("r_1", *events)
    return projected([records_of(partition)]).tables["runs"]["r_1"]


# --- the fold --------------------------------------------------------------------------------------------------------


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(RunRow._fields) == [column.name for column in runs.columns]


def test_a_run_begins_running_with_the_fields_of_its_first_event():
    row = row_of(
        started(
            user_id="ada", metadata={"k": '"v"'}, continues=RunPosition(run_id="r_0", first_offset=1, last_offset=2)
        )
    )
    assert (row.status, row.agent, row.user_id, row.provider, row.model) == (
        "running",
        "writer",
        "ada",
        "mock",
        "mock-generic",
    )
    assert (row.partition, row.first_offset, row.last_offset, row.last_seq) == (0, 1, 1, 1)
    assert orjson.loads(row.metadata) == {"k": '"v"'}
    assert row.continues_run_id == "r_0"
    assert (row.ended_at_ms, row.stop_reason, row.parked) == (None, "", False)


def test_a_turn_adds_its_tokens_and_cost_and_names_its_model():
    row = row_of(
        started(),
        requested(1),
        replied(1, "a", model="mock-large", max_context_tokens=9),
        requested(2),
        replied(2, "b"),
    )
    assert (row.iterations, row.input_tokens, row.output_tokens, row.cost_micros, row.currency) == (
        2,
        203,
        40,
        14,
        "USD",
    )
    assert (row.context_tokens, row.max_context_tokens, row.model) == (122, 9, "mock-generic")


def test_the_owners_sums_win_at_the_end():
    row = row_of(*a3x2("r_1")[:-1], completed(usage=Usage(input_tokens=1), iterations=9, cost_micros=5, currency="EUR"))
    assert (row.status, row.stop_reason, row.iterations, row.input_tokens, row.cost_micros, row.currency) == (
        "completed",
        "end_turn",
        9,
        1,
        5,
        "EUR",
    )
    assert row.ended_at_ms == row.last_event_at_ms > row.started_at_ms


def test_a_failed_run_has_its_error_and_code():
    row = row_of(started(), RunFailed(code="model_error", error="mock 400: no", usage=Usage()))
    assert (row.status, row.error, row.error_code, row.stop_reason) == ("failed", "mock 400: no", "model_error", "")


@pytest.mark.parametrize(("reason", "shown"), [("enough", "enough"), ("", "cancelled")])
def test_the_reason_of_a_cancel_becomes_the_stop_reason(reason, shown):
    row = row_of(started(), RunCancelled(reason=reason, usage=Usage()))
    assert (row.status, row.stop_reason) == ("cancelled", shown)


def test_a_run_is_parked_until_the_next_turn_is_asked_for():
    talk = [started(interactive=True), requested(1), replied(1, "hi"), RunParked(since_turn=1)]
    assert row_of(*talk).parked
    assert not row_of(*talk, InputReceived(text="more"), requested(2)).parked
    assert not row_of(*talk, RunCancelled(usage=Usage())).parked


@pytest.mark.parametrize(
    ("events", "under_way"),
    [
        ([], "model"),
        ([replied(1, "", call("c0"), call("c1"))], "0 1"),
        ([replied(1, "", call("c0"), call("c1")), asked(1, 0, "c0"), opened(1, 1, "c1", "intr_1")], "0"),
        ([replied(1, "", call("c0")), asked(1, 0, "c0"), asked(1, 0, "c0", attempt=2)], "0"),
        ([replied(1, "", call("c0")), asked(1, 0, "c0"), ASKED_FOR_C0], ""),
        ([*TWO_CALLS, asked(1, 1, "c1"), C0_WAITS], "1"),
        ([*TWO_CALLS, asked(1, 1, "c1"), C0_WAITS, C0_REPORTED, returned(1, 1, "c1")], ""),
        ([replied(1, "", call("c0")), asked(1, 0, "c0"), ASKED_FOR_C0, asked(1, 0, "c0", attempt=2)], "0"),
        ([replied(1, "", call("c0")), asked(1, 0, "c0"), ChildrenPlanned(turn=1, index=0, call_id="c0")], "@0"),
        ([*WITH_CHILDREN, returned(1, 1, "c1")], "@0"),
        ([*WITH_CHILDREN, returned(1, 0, "c0")], "1"),
        ([replied(1, "", call("c0")), asked(1, 0, "c0"), returned(1, 0, "c0"), requested(2)], "model"),
        ([replied(1, "hi"), RunParked(since_turn=1)], ""),
        ([replied(1, "hi"), RunParked(since_turn=1), COMPACTING], "compaction"),
        ([RunPauseRequested(scope="run"), RunPaused(turn=1)], ""),
        ([TurnCancelled(turn=1, attempt=1)], ""),
        ([completed()], ""),
    ],
)
def test_a_row_has_the_work_under_way_and_marks_what_waits_for_children(events, under_way):
    assert row_of(started(), requested(1), *events).under_way == under_way


def test_a_compaction_adds_to_the_cost_and_shrinks_the_context_size():
    before = row_of(started(), requested(1), replied(1, usage=Usage(input_tokens=90, output_tokens=10)))
    row = row_of(
        started(), requested(1), replied(1, usage=Usage(input_tokens=90, output_tokens=10)), COMPACTING, COMPACTED
    )
    assert (before.context_tokens, row.context_tokens) == (100, 33)
    assert (row.input_tokens, row.output_tokens) == (890, 60)
    assert row.cost_micros == before.cost_micros + 7
    assert (row.compactions, row.iterations) == (1, 1)


def test_a_reply_without_counted_prompt_tokens_leaves_the_context_size():
    counted = replied(1, "", call("c0"), usage=Usage(input_tokens=90, output_tokens=10))
    row = row_of(started(), requested(1), counted, requested(2), replied(2, usage=Usage(output_tokens=5)))
    assert (row.context_tokens, row.output_tokens) == (100, 15)


def test_a_run_that_is_compacted_does_not_wait_for_input():
    assert not row_of(started(), RunParked(since_turn=1), COMPACTING).parked
    again = row_of(started(), RunParked(since_turn=1), COMPACTING, NOT_COMPACTED, RunParked(since_turn=1))
    assert (again.parked, again.compactions) == (True, 0)


def pausing(row):
    return row.paused, row.pause_requested, row.pause_reason


def test_a_run_is_paused_from_its_boundary_until_nothing_holds_it():
    asked = [started(), requested(1), RunPauseRequested(scope="run", reason="look")]
    assert pausing(row_of(*asked)) == (False, True, "look")
    held = [*asked, RunPaused(turn=2), RunPauseRequested(scope="all", reason="deploy")]
    assert pausing(row_of(*held)) == (True, True, "look")
    half = [*held, RunResumed(scope="run", remaining=1)]
    assert pausing(row_of(*half)) == (True, True, "deploy")
    again = [*half, RunPauseRequested(scope="run", reason="once more"), RunResumed(scope="all", remaining=1)]
    assert pausing(row_of(*again)) == (True, True, "once more")
    free = row_of(*half, RunResumed(scope="all"))
    assert free.status == "running"
    assert pausing(free) == (False, False, "")
    assert pausing(row_of(*held, RunCancelled(usage=Usage()))) == (False, False, "")


def test_errors_and_calls_are_counted():
    row = row_of(started(), failed(1), replied(1, "", call("c1"), attempt=2), returned(1, 0, "c1", is_error=True))
    assert (row.model_errors, row.tool_calls, row.tool_errors) == (1, 0, 1)
    row = row_of(*a3x2("r_1"))
    assert (row.model_errors, row.tool_calls, row.tool_errors) == (0, 2, 0)


def test_a_quarantined_run_says_why_and_is_still_running():
    row = row_of(started(), RunQuarantined(error="bad fold", record_offset=1, record_topic="t"))
    assert (row.status, row.quarantined, row.quarantine_error) == ("running", True, "bad fold")


def test_a_run_has_the_version_that_it_is_pinned_to_and_none_for_an_agent_of_a_file():
    pin = DefinitionPin(def_id="def_00112233aabbccdd", version=7, content_sha256="sha256:00")
    pinned = AgentDefinition(name="writer", provider="mock", model="mock-generic", system_prompt="", sha256="", pin=pin)
    row = row_of(started(definition=pinned))
    assert (row.def_id, row.def_version) == ("def_00112233aabbccdd", 7)
    assert (row_of(started()).def_id, row_of(started()).def_version) == ("", 0)


def test_a_run_that_was_never_accepted_has_no_row():
    partition = Partition()
    partition.claim()
    partition.add("r_1", CommandRefused(code="x", message="y"))
    assert projected([records_of(partition)]).tables["runs"] == {}
    assert apply(None, []) is None


# --- queries ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def some_runs(project):
    """Twelve runs of two tenants, three users; r_01 to r_12 started in this order."""
    partition = Partition()
    partition.claim()
    for number in range(1, 13):
        run_id = f"r_{number:02d}"
        tenant = "acme" if number % 4 == 0 else "default"
        more = {"session_id": "s_chat", "agent_id": "a_mine"} if number in (5, 6, 8) else {}
        partition.add(run_id, started(run_id, user_id=f"u{number % 3}", **more), tenant=tenant)
        if number % 2:
            partition.add(run_id, completed(), tenant=tenant)
    await project(partition)
    return partition


async def ids(reader, tenant, **filters):
    return [row.run_id for row in (await list_runs(reader, tenant, RunFilter(**filters))).rows]


async def test_a_run_is_found_by_its_id_within_its_tenant_only(reader, some_runs):
    row = await run_by_id(reader, "default", "r_05")
    assert (row.run_id, row.status, row.metadata) == ("r_05", "completed", "{}")
    assert await run_by_id(reader, "acme", "r_05") is None
    assert (await run_by_id(reader, EVERY_TENANT, "r_05")) == row
    assert await run_by_id(reader, "default", "r_99") is None


async def test_a_handle_gives_its_live_run_in_the_preferred_tenant_before_newer_ended_ones(reader, project):
    partition = Partition()
    partition.claim()
    for run_id, tenant, user, is_over in (
        ("r_1", "default", "ann", True),
        ("r_2", "default", "bob", False),
        ("r_3", "default", "bob", True),
        ("r_4", "acme", "ann", True),
        ("r_5", "acme", "ann", False),
        ("r_6", "acme", "ann", True),
    ):
        partition.add(run_id, started(run_id, user_id=user, agent_id="mine"), tenant=tenant)
        if is_over:
            partition.add(run_id, completed(), tenant=tenant)
    await project(partition)

    async def run_id_of(scope, **options):
        return (await run_by_handle(reader, scope, "mine", **options)).run_id

    assert await run_id_of("default") == "r_2"
    assert await run_id_of("default", user_id="ann") == "r_1"
    assert await run_id_of(EVERY_TENANT, preferred_tenant="default") == "r_2"
    assert await run_id_of(EVERY_TENANT, preferred_tenant="acme") == "r_5"
    assert await run_id_of(EVERY_TENANT, preferred_tenant="default", user_id="ann") == "r_1"
    assert await run_id_of(EVERY_TENANT, preferred_tenant="globex") == "r_5"


async def test_a_handle_gives_its_newest_run_within_the_tenant(reader, some_runs):
    assert (await run_by_handle(reader, "default", "a_mine")).run_id == "r_06"
    assert (await run_by_handle(reader, "acme", "a_mine")).run_id == "r_08"
    assert await run_by_handle(reader, "default", "a_none") is None


async def test_active_runs_are_counted_and_idle_ones_are_not(reader, project):
    partition = Partition()
    partition.claim()
    parent = ParentCall(run_id="r_1", agent_id="a_1", root_run_id="r_1", turn=1, index=0, number=0, depth=1)
    origin = ImportOrigin(
        topic="run.events", partition=0, first_offset=1, tenant="t", events=2, tail_digest="", bundle_sha256=""
    )
    question = call("c1")
    for run_id, more, events in (
        ("r_works", {}, [requested(1)]),
        ("r_works_again", {}, [requested(1), replied(1), RunParked(since_turn=1), requested(2)]),
        ("r_of_bob", {"user_id": "bob"}, [requested(1)]),
        ("r_parked", {}, [requested(1), replied(1), RunParked(since_turn=1)]),
        ("r_paused", {}, [RunPauseRequested(scope="run"), RunPaused(turn=1)]),
        ("r_quarantined", {}, [requested(1), RunQuarantined(error="x", record_offset=1, record_topic="t")]),
        ("r_works_and_asks", {"user_id": "bob"}, [requested(1), *TWO_CALLS, opened(1, 1, "c1", "intr_0")]),
        ("r_with_children", {"user_id": "bob"}, [requested(1), *WITH_CHILDREN, returned(1, 1, "c1")]),
        ("r_lost", {}, [requested(1), replied(1, "", call("c0")), asked(1, 0, "c0"), ASKED_FOR_C0]),
        ("r_asks", {}, [requested(1), replied(1, "", question), opened(1, 0, "c1", "intr_1")]),
        ("r_child", {"parent": parent}, [requested(1)]),
        ("r_told", {"imported_from": origin}, [requested(1)]),
        ("r_over", {}, [requested(1), replied(1), completed()]),
    ):
        partition.add(run_id, started(run_id, **more), *events)
    partition.add("r_elsewhere", started("r_elsewhere"), requested(1), tenant="acme")
    await project(partition)
    assert await count_active_runs(reader, "default") == [("ada", "mock", 6, 2), ("bob", "mock", 3, 3)]
    assert await count_active_runs(reader, EVERY_TENANT) == [("ada", "mock", 7, 3), ("bob", "mock", 3, 3)]


async def test_a_list_is_newest_first_and_narrowed_by_every_filter(reader, some_runs):
    everything = [f"r_{n:02d}" for n in range(12, 0, -1)]
    assert await ids(reader, EVERY_TENANT) == everything
    assert await ids(reader, "acme") == ["r_12", "r_08", "r_04"]
    assert await ids(reader, "default", statuses=frozenset({"completed"}), user_id="u1") == ["r_07", "r_01"]
    assert await ids(reader, "default", statuses=frozenset({"completed", "running"}), user_id="u0") == [
        "r_09",
        "r_06",
        "r_03",
    ]
    assert await ids(reader, "default", session_id="s_chat") == ["r_06", "r_05"]
    assert await ids(reader, "default", agent_id="a_mine") == ["r_06", "r_05"]
    assert await ids(reader, "default", agent="unknown") == []
    assert await ids(reader, "default", parent_agent_id="a_x") == []
    # As pages show it: the end of an id, or its beginning; anything else finds nothing and fails nothing.
    assert await ids(reader, "default", id_part="06") == ["r_06"]
    assert await ids(reader, "default", id_part="_chat") == ["r_06", "r_05"]
    assert await ids(reader, "default", id_part="a_mi") == ["r_06", "r_05"]
    for words in ("quarterly report", "%", "_6", "0\0", "'", "\ud800", "\\"):
        assert await ids(reader, "default", id_part=words) == []
    sixth = (await run_by_id(reader, "default", "r_06")).started_at_ms
    assert await ids(reader, "default", since_ms=sixth) == ["r_11", "r_10", "r_09", "r_07", "r_06"]
    assert await ids(reader, "default", until_ms=sixth) == ["r_05", "r_03", "r_02", "r_01"]


async def test_a_row_counts_the_children_that_failed(reader, project):
    partition = Partition()
    partition.claim()

    def came_back(status):
        return ChildReturned(turn=1, index=0, call_id="c0", child_run_id="r_c", agent="helper", status=status)

    partition.add("r_1", started(), requested(1), *WITH_CHILDREN, *map(came_back, ("failed", "completed", "refused")))
    partition.add("r_2", started("r_2"), requested(1), *WITH_CHILDREN, came_back("completed"))
    await project(partition)
    rows = {row.run_id: row.failed_children for row in (await list_runs(reader, "default", RunFilter())).rows}
    assert rows == {"r_1": 2, "r_2": 0}


async def test_the_runs_of_a_version_are_found_by_its_id(reader, project):
    partition = Partition()
    partition.claim()
    for run_id, def_id in (("r_1", "def_1"), ("r_2", "def_2"), ("r_3", "def_1")):
        pin = DefinitionPin(def_id=def_id, version=1, content_sha256="")
        definition = replace(started().definition, pin=pin)
        partition.add(run_id, started(run_id, definition=definition))
    partition.add("r_4", started("r_4"))
    await project(partition)
    assert await ids(reader, "default", def_id="def_1") == ["r_3", "r_1"]
    assert await ids(reader, "acme", def_id="def_1") == []


async def test_forks_are_found_by_their_origin_and_by_the_tree_of_their_origin(reader, project):
    partition = Partition()
    partition.claim()
    child = ParentCall(run_id="r_1", agent_id="a_1", root_run_id="r_1", turn=1, index=0, number=0, depth=1)

    def fork_of(run_id):
        return {"forked_from": ForkPoint(run_id=run_id, seq=2, first_offset=1, last_offset=2, digest="ab")}

    for run_id, more in (
        ("r_1", {}),
        ("r_2", {"parent": child}),
        ("r_3", fork_of("r_1")),
        ("r_4", fork_of("r_2")),
        ("r_5", fork_of("r_3")),
        ("r_6", {}),
    ):
        partition.add(run_id, started(run_id, **more))
    await project(partition)
    assert await ids(reader, "default", forked_from="r_1") == ["r_3"]
    assert await ids(reader, "default", forked_from_root="r_1") == ["r_4", "r_3"]
    assert await ids(reader, EVERY_TENANT, forked_from_root="r_3") == ["r_5"]
    assert await ids(reader, "acme", forked_from_root="r_1") == []


async def test_runs_are_counted_by_status_and_by_what_they_wait_for(reader, project):
    partition = Partition()
    partition.claim()
    question = call("c1")
    for run_id, events in (
        ("r_works", [requested(1)]),
        ("r_parked", [requested(1), replied(1), RunParked(since_turn=1)]),
        ("r_paused", [RunPauseRequested(scope="run"), RunPaused(turn=1)]),
        ("r_quarantined", [requested(1), RunQuarantined(error="x", record_offset=1, record_topic="t")]),
        ("r_asks", [requested(1), replied(1, "", question), opened(1, 0, "c1", "intr_1")]),
        ("r_over", [completed()]),
        ("r_failed", [RunFailed(code="x", error="y", usage=Usage())]),
        ("r_cancelled", [RunCancelled(usage=Usage())]),
        ("r_cancelled_too", [RunCancelled(usage=Usage())]),
    ):
        partition.add(run_id, started(run_id, user_id="ann" if run_id == "r_over" else "bob"), *events)
    partition.add("r_elsewhere", started("r_elsewhere"), tenant="acme")
    await project(partition)
    assert await count_runs(reader, "default", RunFilter()) == RunCounts(
        running=5,
        parked=1,
        interrupted=1,
        pause_requested=1,
        quarantined=1,
        is_live_exact=True,
        completed=1,
        failed=1,
        cancelled=2,
        is_exact=True,
    )
    for waiting, run_id in (
        ("awaiting_input", "r_parked"),
        ("interrupted", "r_asks"),
        ("pause_requested", "r_paused"),
        ("quarantined", "r_quarantined"),
    ):
        assert await ids(reader, "default", waiting=waiting) == [run_id]
    assert await ids(reader, "default", waiting="interrupted", user_id="ann") == []
    of_ann = await count_runs(reader, "default", RunFilter(user_id="ann"))
    assert (of_ann.running, of_ann.completed, of_ann.failed) == (0, 1, 0)
    assert (await count_runs(reader, EVERY_TENANT, RunFilter())).running == 6


async def test_beyond_the_limit_counts_say_that_they_are_not_exact(reader, some_runs):
    exact = await count_runs(reader, "default", RunFilter(), most=9)
    assert (exact.running, exact.completed, exact.is_exact, exact.is_live_exact) == (3, 6, True, True)
    some = await count_runs(reader, "default", RunFilter(), most=3)
    assert (some.running, some.is_live_exact, some.is_exact) == (3, True, False)
    few = await count_runs(reader, "default", RunFilter(), most=2)
    assert (few.running, few.is_live_exact) == (2, False)


async def test_pages_join_to_the_whole_list_without_a_run_twice(reader, some_runs):
    listed, after = [], ""
    for _ in range(4):
        page = await list_runs(reader, EVERY_TENANT, RunFilter(), limit=5, after=after)
        listed += [row.run_id for row in page.rows]
        after = page.next
        if not after:
            break
    assert listed == [f"r_{n:02d}" for n in range(12, 0, -1)]
    exact = await list_runs(reader, "acme", RunFilter(), limit=3)
    assert (len(exact.rows), exact.next) == (3, "")


@pytest.mark.parametrize("after", ["nonsense", "a", "####", "MTIz", "eAp5"])
async def test_a_foreign_page_token_is_refused(reader, after):
    with pytest.raises(InvalidPageToken, match="earlier answer"):
        await list_runs(reader, "default", RunFilter(), after=after)


def test_a_call_that_people_approve_counts_once_and_one_that_they_deny_is_none():
    begun = [started(), requested(1), replied(1, "", call("c0"), call("c1"))]
    asks = [opened(1, at, f"c{at}", f"intr_{at}", kind="approval") for at in range(2)]
    row = row_of(*begun, *asks)
    assert (row.tool_calls, row.open_interrupts) == (0, "intr_0 intr_1")
    row = row_of(
        *begun,
        *asks,
        closed(1, 0, "c0", "intr_0", "resolved"),
        asked(1, 0, "c0"),
        closed(1, 1, "c1", "intr_1", "declined"),
    )
    assert (row.tool_calls, row.open_interrupts) == (1, "")
