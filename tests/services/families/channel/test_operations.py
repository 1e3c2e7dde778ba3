"""Operations of applications and agents: op x scope x field, repetitions, waiting, and what others do meanwhile."""

import asyncio
import math
from typing import Any

import pytest
from msgspec import to_builtins

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.channel_commands import PublishMessage, ReadQueue, SettleLease, WatchQueue
from loomlog.schemas.generated.channel_events import MessagesLeased
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.refusals import Unavailable
from loomlog.services.families.channel import store
from loomlog.services.families.channel.caller import Queue
from loomlog.services.families.channel.limits import REQUEST_LEASE_MS
from loomlog.services.families.channel.operations import (
    BATCH_BYTES_MAX,
    ChannelOperations,
    deliveries_by_position,
    settle_command,
)
from loomlog.services.families.channel.store import ChannelStore
from tests.services.entities import NOW_MS, UNANSWERED
from tests.services.families.channel.callers import ALL, Caller, Declared, Installation

TEAM = Queue("acme", "team", "tenant")
WORK = Queue("acme", "work/in", "tenant")


@pytest.fixture
def here() -> Installation:
    return Installation()


@pytest.fixture
def app(here: Installation) -> Caller:
    return here.application()


@pytest.fixture
def agent(here: Installation) -> Caller:
    return here.agent()


async def settled(here: Installation) -> None:
    """Wait until nothing is done beside answers any more."""
    await asyncio.gather(*here.operations._settling)


def asked(here: Installation, kind: type[Any]) -> list[Any]:
    return [command for command in here.entities.asked if isinstance(command, kind)]


# --- publishing ------------------------------------------------------------------------------------------------------


async def test_a_message_is_published_and_read(here: Installation, app: Caller) -> None:
    sent = await app("publish", channel="team", value={"n": 1})
    assert sent == {"message_id": sent["message_id"], "channel": "team", "dropped_oldest": 0}
    batch = await app("subscribe", channel="team")
    (message,) = batch["messages"]
    assert message == {"id": sent["message_id"], "value": {"n": 1}, "published_at": "2027-01-15T08:00:00.000000001Z"}
    assert batch["channel"] == "team"
    assert batch["next_cursor"].endswith(sent["message_id"])


async def test_a_repeated_publish_publishes_once(app: Caller) -> None:
    first = await app("publish", channel="team", value=1, command_id="x")
    assert await app("publish", channel="team", value=1, command_id="x", attempt=2) == first
    assert await app.values("peek", "team") == [1]


async def test_what_a_run_records_of_a_publish(agent: Caller) -> None:
    outcome = await agent.answer("publish", channel="inbox", value={"a": "ä"})
    (use,) = outcome.channels
    assert (use.kind, use.channel, use.scope, use.scope_id) == ("publish", "inbox", "user", "ann")
    assert use.message_id == outcome.value.message_id
    assert use.payload_bytes == len('{"a":"ä"}'.encode())
    assert outcome.positions == ("loom.entity.events/1:1",)


async def test_beyond_max_messages_the_oldest_is_dropped_and_told(agent: Caller) -> None:
    for number in range(3):
        assert (await agent("publish", channel="inbox", value=number))["dropped_oldest"] == 0
    outcome = await agent.answer("publish", channel="inbox", value=3)
    assert outcome.value.dropped_oldest == outcome.channels[0].dropped_oldest == 1
    assert await agent.values("peek", "inbox") == [1, 2, 3]


async def test_the_ttl_of_the_call_wins_over_that_of_the_channel(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="inbox", value="default")
    await agent("publish", channel="inbox", value="longer", ttl=120)
    await agent("publish", channel="inbox", value="as text", ttl="90s")
    here.pass_time(60_000)
    assert await agent.values("peek", "inbox") == ["longer", "as text"]
    here.pass_time(30_000)
    assert await agent.values("subscribe", "inbox") == ["longer"]
    here.pass_time(30_000)
    assert await agent.values("peek", "inbox") == []


async def test_a_delayed_message_is_visible_at_its_time(here: Installation, app: Caller) -> None:
    sent = await app("publish", channel="team", value="later", deliver_at="2027-01-15T08:00:30Z")
    assert sent["visible_at"].startswith("2027-01-15T08:00:30.")
    assert await app.values("peek", "team") == []
    here.pass_time(30_000, TEAM)
    assert await app.values("peek", "team") == ["later"]
    here.forget_messages()
    assert await app.values("peek", "team") == ["later"]


async def test_a_time_that_is_past_means_at_once(app: Caller) -> None:
    assert "visible_at" not in await app("publish", channel="team", value=1, deliver_at="2020-01-01T00:00:00+02:00")
    assert await app.values("peek", "team") == [1]


BAD_TIMES = ["tomorrow", "2027-01-15", "2027-01-15T08:00:30", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", 5]


@pytest.mark.parametrize("at", BAD_TIMES)
async def test_a_bad_time_is_refused_with_the_time(app: Caller, at: Any) -> None:
    refused = await app.refused("publish", channel="team", value=1, deliver_at=at)
    assert refused.code == "invalid_request"
    assert str(at) in str(refused)


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "invalid_request"),
        (math.nan, "invalid_request"),
        ([math.inf], "invalid_request"),
        (DEEP, "invalid_request"),
        (2**70, "invalid_request"),
        ("\ud800", "invalid_request"),
        ("a\0b", "invalid_request"),
        ("x" * 65_536, "payload_too_large"),
    ],
)
async def test_a_value_that_is_no_json_or_too_large_is_refused(
    here: Installation, app: Caller, value: Any, code: str
) -> None:
    assert (await app.refused("publish", channel="team", value=value)).code == code
    assert here.entities.asked == []


async def test_broadcast_publishes_to_each_channel_once(app: Caller) -> None:
    done = await app("broadcast", channels=["work/in", "work/out", "work/in"], value=1)
    assert (done["published"], done["failed"]) == (2, 0)
    assert [row["channel"] for row in done["results"]] == ["work/in", "work/out"]
    assert all(row["message_id"] and row["dropped_oldest"] == 0 for row in done["results"])
    assert await app.values("peek", "work/in") == await app.values("peek", "work/out") == [1]


async def test_broadcast_to_a_channel_that_is_not_allowed_publishes_nothing(here: Installation) -> None:
    agent = here.agent(publish=("work/in",))
    refused = await agent.refused("broadcast", channels=["work/in", "work/out"], value=1)
    assert "work/out" in str(refused)
    assert here.entities.asked == []


async def test_broadcast_takes_at_most_32_channels(app: Caller) -> None:
    refused = await app.refused("broadcast", channels=[f"c{number}" for number in range(33)], value=1)
    assert "33" in str(refused)


# --- scopes and grants -----------------------------------------------------------------------------------------------


async def test_the_declared_scope_decides(here: Installation) -> None:
    ann, bob = here.agent(), here.agent(user_id="bob")
    elsewhere = here.application(user_id="ann", tenant="other")
    for name in ("plaza", "team", "inbox", "notes"):
        await ann("publish", channel=name, value=name)
    assert await bob.values("peek", "inbox") == []
    assert await bob.values("peek", "team") == ["team"]
    assert await bob.values("peek", "notes") == ["notes"]
    assert await elsewhere.values("peek", "plaza") == ["plaza"]
    assert await elsewhere.values("peek", "inbox") == await elsewhere.values("peek", "team") == []


async def test_an_operator_names_the_user_or_the_agent(here: Installation, app: Caller, agent: Caller) -> None:
    await agent("publish", channel="inbox", value=1)
    await agent("publish", channel="notes", value=2)
    assert await app.values("subscribe", "inbox", scope_id="ann") == [1]
    assert await app.values("peek", "notes", scope_id="helper") == [2]
    assert (await app.refused("peek", channel="inbox")).code == "channel_scope_invalid"
    assert (await app.refused("peek", channel="notes", scope_id="x" * 300)).code == "channel_scope_invalid"


async def test_an_agent_names_no_scope_id(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="inbox", value=1)
    assert await here.agent(user_id="bob").values("peek", "inbox", scope_id="ann") == []
    assert (await here.agent(user_id="").refused("peek", channel="inbox")).code == "channel_scope_invalid"


@pytest.mark.parametrize(
    ("pattern", "is_allowed"),
    [("work/in", True), ("work/*", True), ("work/", False), ("work*", False), ("*", False), ("w/*", False)],
)
async def test_grants_are_exact_or_end_with_a_star(here: Installation, pattern: str, is_allowed: bool) -> None:
    agent = here.agent(publish=(pattern,), subscribe=(pattern,))
    if is_allowed:
        await agent("publish", channel="work/in", value=1)
        assert await agent.values("peek", "work/in") == [1]
    else:
        assert (await agent.refused("publish", channel="work/in", value=1)).code == "channel_not_granted"
        assert (await agent.refused("subscribe", channel="work/in")).code == "channel_not_granted"


@pytest.mark.parametrize("name", ["work/../in", "work//in", "", 7, "x" * 300, "a\nb"])
async def test_bad_names_are_refused(here: Installation, name: Any) -> None:
    agent = here.agent(publish=("work/*", "work/../in"))
    assert (await agent.refused("publish", channel=name, value=1)).code == "invalid_request"


async def test_a_channel_that_is_not_declared_is_refused(here: Installation, app: Caller) -> None:
    assert (await app.refused("publish", channel="nowhere", value=1)).code == "channel_not_declared"
    agent = here.agent(subscribe=("nowhere",))
    assert (await agent.refused("await", channels=["nowhere"])).code == "channel_not_declared"


@pytest.mark.parametrize("name", ["beat", "_system/runtime-state"])
async def test_only_the_system_and_operators_publish_to_system_channels(
    here: Installation, app: Caller, agent: Caller, name: str
) -> None:
    assert (await agent.refused("publish", channel=name, value=1)).code == "channel_not_granted"
    await app("publish", channel=name, value=1)
    assert await agent.values("peek", name) == [1]


async def test_an_isolated_user_has_user_and_agent_scope_only(here: Installation) -> None:
    agent = here.agent(is_isolated=True)
    await agent("publish", channel="inbox", value=1)
    await agent("publish", channel="notes", value=1)
    for name in ("plaza", "team"):
        assert (await agent.refused("publish", channel=name, value=1)).code == "insufficient_scope"
        assert (await agent.refused("subscribe", channel=name)).code == "insufficient_scope"


# --- reading by applications -----------------------------------------------------------------------------------------


async def test_subscribe_moves_on_and_settles_its_lease(here: Installation, app: Caller) -> None:
    for number in range(3):
        await app("publish", channel="team", value=number)
    assert await app.values("subscribe", "team", max_messages=2) == [0, 1]
    assert await app.values("subscribe", "team", max_messages=2) == [2]
    last = await app("subscribe", channel="team")
    assert last["messages"] == []
    assert last["next_cursor"] == ""
    await settled(here)
    assert [command.taken for command in asked(here, SettleLease)] == [2, 1]
    assert here.entities.entities["acme", TEAM.aggregate].state.leased == 0


async def test_a_message_whose_request_did_not_end_is_given_again_and_says_so(here: Installation, app: Caller) -> None:
    await app("publish", channel="team", value="lost")
    names = {"channel": TEAM.channel, "scope": TEAM.scope, "scope_id": TEAM.scope_id}
    envelope = CommandEnvelope(command_id="died", tenant="acme", subject="ada")
    await here.operations.store.ask(ReadQueue(envelope=envelope, max_messages=10, **names), TEAM)
    here.pass_time(REQUEST_LEASE_MS, TEAM)
    await app("publish", channel="team", value="new")
    again, new = (await app("subscribe", channel="team"))["messages"]
    assert (again["value"], again["redelivered"], again["attempt"]) == ("lost", True, 2)
    assert new.keys() == {"id", "value", "published_at"}


async def test_what_is_taken_is_settled_before_the_process_ends(here: Installation, app: Caller) -> None:
    await app("publish", channel="team", value=1)
    await app("subscribe", channel="team")
    await here.operations.close()
    assert here.entities.entities["acme", TEAM.aggregate].state.leased == 0


async def test_a_settlement_that_finds_no_owner_is_tried_again(here: Installation, app: Caller) -> None:
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        here.entities.error = None

    operations = ChannelOperations(Declared(), here.store, clock_ms=lambda: NOW_MS, sleep=sleep)
    await app("publish", channel="team", value=1)
    await app("subscribe", channel="team", command_id="x")
    here.entities.error = UNANSWERED
    await operations.settle(TEAM, settle_command(TEAM, "x.0", 1, subject="app", at_ms=NOW_MS))
    assert len(pauses) == 1
    assert here.entities.entities["acme", TEAM.aggregate].state.leased == 0


async def test_readers_of_their_own_read_everything(app: Caller) -> None:
    await app("publish", channel="team", value=1)
    assert await app.values("subscribe", "team") == [1]
    assert await app.values("subscribe", "team", reader="audit") == [1]
    assert await app.values("subscribe", "team", reader="audit") == []


async def test_a_cursor_is_read_after_and_the_oldest_is_replayed(app: Caller) -> None:
    await app("publish", channel="team", value="old")
    cursor = (await app("subscribe", channel="team"))["next_cursor"]
    await app("publish", channel="team", value="new")
    assert await app.values("subscribe", "team", from_cursor=cursor) == ["new"]
    assert await app.values("subscribe", "team", from_cursor="cur_0") == ["old", "new"]
    assert (await app("subscribe", channel="team", from_cursor=cursor, wait_ms=0))["next_cursor"] != cursor


@pytest.mark.parametrize("op", ["subscribe", "peek"])
async def test_bad_cursors_are_refused_with_the_cursor(app: Caller, op: str) -> None:
    await app("publish", channel="team", value=1)
    await app("publish", channel="plaza", value=1)
    other = (await app("subscribe", channel="plaza"))["next_cursor"]
    for cursor in ("garbage", other):
        refused = await app.refused(op, channel="team", from_cursor=cursor)
        assert refused.code == "invalid_request"
        assert cursor in str(refused)


async def test_ack_moves_forward_only(app: Caller) -> None:
    for number in range(2):
        await app("publish", channel="team", value=number)
    first = (await app("subscribe", channel="team", reader="r", max_messages=1))["next_cursor"]
    second = (await app("subscribe", channel="team", reader="r", max_messages=1))["next_cursor"]
    assert await app("ack", channel="team", cursor=second) == {"ok": True}
    assert await app.values("subscribe", "team") == []
    assert (await app.refused("ack", channel="team", cursor=first)).code == "channel_cursor_regression"
    assert (await app.refused("ack", channel="team", cursor="garbage")).code == "invalid_request"
    assert (await app.refused("ack", channel="team")).code == "invalid_request"


async def test_a_batch_has_a_bound_and_the_rest_is_read_next(here: Installation, app: Caller) -> None:
    value = "x" * 60_000
    for _ in range(10):
        await app("publish", channel="team", value=value)
    sizes = []
    for _ in range(2):
        sizes.append(len(await app.values("subscribe", "team")))
        await settled(here)
    assert sizes == [BATCH_BYTES_MAX // 60_002, 10 - BATCH_BYTES_MAX // 60_002]
    assert len(await app.values("peek", "team")) == sizes[0]


async def test_messages_are_read_from_rows_when_the_cache_has_them_not(here: Installation, app: Caller) -> None:
    here.entities.is_owner = False
    for number in range(3):
        await app("publish", channel="team", value=number)
    here.forget_messages()
    assert await app.values("peek", "team") == [0, 1, 2]
    assert await app.values("subscribe", "team") == [0, 1, 2]


async def test_a_message_that_is_gone_is_taken_and_left_out(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="inbox", value="short", ttl=1)
    await agent("publish", channel="inbox", value="long", ttl=100)
    here.pass_time(2_000)
    outcome = await agent.answer("subscribe", channel="inbox")
    assert [one.value for one in outcome.value.messages] == ["long"]


async def test_a_subscribe_with_the_same_id_gets_the_same_batch(app: Caller) -> None:
    await app("publish", channel="team", value=1)
    first = await app("subscribe", channel="team", command_id="x")
    await app("publish", channel="team", value=2)
    assert await app("subscribe", channel="team", command_id="x", attempt=2) == first


async def test_a_repeated_subscribe_that_had_waited_gets_the_batch_without_waiting(
    here: Installation, app: Caller
) -> None:
    keyed: dict[str, Any] = {"channel": "team", "command_id": "x", "wait_ms": 30_000, "attempt": 2}
    waiting = asyncio.create_task(app.answer("subscribe", **keyed))
    while not asked(here, ReadQueue):
        await asyncio.sleep(0)
    await app("publish", channel="team", value=1)
    first = to_builtins((await waiting).value)
    assert [one["value"] for one in first["messages"]] == [1]
    assert len(asked(here, ReadQueue)) == 2
    async with asyncio.timeout(30):
        assert await app("subscribe", **keyed) == first


async def test_a_request_that_waits_gives_up_at_its_time(app: Caller) -> None:
    assert (await app("subscribe", channel="team", wait_ms=1))["messages"] == []


async def test_a_wait_beyond_the_cap_is_cut_and_told() -> None:
    here = Installation(longpoll_cap_ms=1)
    app, agent = here.application(), here.agent()
    assert (await app("subscribe", channel="team", wait_ms=60_000))["wait_capped_ms"] == 1
    assert (await app("await", channels=["team"], wait_ms=60_000))["wait_capped_ms"] == 1
    assert "wait_capped_ms" not in await app("subscribe", channel="team", wait_ms=1)
    outcome = await agent.answer("subscribe", channel="team", wait_ms=60_000)
    assert outcome.waiting is not None
    assert outcome.waiting.until_ms == NOW_MS + 1


@pytest.mark.parametrize(
    "fields",
    [
        {"max_messages": 0},
        {"max_messages": 101},
        {"max_messages": True},
        {"max_messages": 1.5},
        {"wait_ms": -1},
        {"wait_ms": "5"},
        {"reader": "x" * 65},
        {"from_cursor": 3},
    ],
)
async def test_fields_out_of_bounds_are_refused_with_their_name(app: Caller, fields: dict[str, Any]) -> None:
    refused = await app.refused("subscribe", channel="team", **fields)
    assert refused.code == "invalid_request"
    assert next(iter(fields)) in str(refused)


async def test_purge_removes_the_messages_of_all_scope_ids(here: Installation, app: Caller) -> None:
    for user in ("ann", "bob"):
        await here.agent(user_id=user)("publish", channel="inbox", value=user)
    await app("publish", channel="plaza", value=1)
    assert await app("purge", channel="inbox") == {"name": "inbox", "purged": 2}
    assert await app.values("peek", "inbox", scope_id="ann") == []
    assert await app("purge", channel="plaza") == {"name": "plaza", "purged": 1}
    assert (await app.refused("purge", channel="nowhere")).code == "channel_not_found"


async def test_stats_count_all_queues_of_a_channel(here: Installation) -> None:
    for user in ("ann", "bob"):
        await here.agent(user_id=user)("publish", channel="inbox", value=user)
    await here.agent()("publish", channel="work/in", value=1)
    stats = await here.store.stats("acme")
    assert {name: one.message_count for name, one in stats.items()} == {"inbox": 2, "work/in": 1}
    assert stats["inbox"].oldest_visible_ns <= stats["inbox"].newest_visible_ns
    assert list(await here.store.stats("acme", "work/in")) == ["work/in"]


# --- await -----------------------------------------------------------------------------------------------------------


async def test_await_shows_what_is_there_and_takes_nothing(app: Caller) -> None:
    await app("publish", channel="work/out", value="x")
    got = await app("await", channels=["work/in", "work/out"])
    assert (got["satisfied"], got["timed_out"], got["mode"]) == (True, False, "any")
    assert got["fired"] == ["work/out"]
    assert got["total_messages"] == 1
    assert [one["value"] for one in got["results"]["work/out"]["messages"]] == ["x"]
    assert got["results"]["work/in"] == {"messages": [], "next_cursor": ""}
    assert await app.values("subscribe", "work/out") == ["x"]


@pytest.mark.parametrize(
    ("mode", "n", "is_satisfied"),
    [("any", None, True), ("all", None, False), ("at_least", 2, True), ("at_least", 3, False)],
)
async def test_modes_of_await(app: Caller, mode: str, n: int | None, is_satisfied: bool) -> None:
    for number in range(2):
        await app("publish", channel="work/in", value=number)
    got = await app("await", channels=["work/in", "work/out"], mode=mode, n=n)
    assert (got["satisfied"], got["timed_out"]) == (is_satisfied, not is_satisfied)


async def test_await_counts_from_the_shared_cursor_or_a_named_one(app: Caller) -> None:
    await app("publish", channel="team", value=1)
    await app("subscribe", channel="team")
    assert (await app("await", channels=["team"]))["satisfied"] is False
    assert (await app("await", channels=["team"], from_cursor="cur_0"))["satisfied"] is True


async def test_a_request_that_awaits_is_woken(here: Installation, app: Caller) -> None:
    waiting = asyncio.create_task(app.answer("await", channels=["work/in", "work/out"], mode="all", wait_ms=30_000))
    await asyncio.sleep(0)
    await app("publish", channel="work/in", value=1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await app("publish", channel="work/out", value=2)
    async with asyncio.timeout(30):
        got = to_builtins((await waiting).value)
    assert got["satisfied"] is True
    assert got["fired"] == ["work/in", "work/out"]


@pytest.mark.parametrize(
    "fields",
    [
        {"channels": []},
        {"channels": "team"},
        {"channels": ["team"], "mode": "some"},
        {"channels": ["team"], "mode": "at_least"},
        {"channels": ["team"], "mode": "at_least", "n": 0},
        {"channels": ["team"], "mode": "at_least", "n": 101},
    ],
)
async def test_a_bad_await_is_refused(app: Caller, fields: dict[str, Any]) -> None:
    assert (await app.refused("await", **fields)).code == "invalid_request"


# --- reading by runs -------------------------------------------------------------------------------------------------


async def test_a_run_takes_messages_and_settles_them_itself(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="team", value=1)
    outcome = await agent.answer("subscribe", channel="team", command_id="r_1:1.7")
    (lease,), (use,) = outcome.leases, outcome.channels
    assert (lease.lease_id, lease.taken, lease.queue) == ("r_1:1.7", 1, TEAM.to_ref())
    assert (use.kind, use.payload_bytes, use.cursor) == ("delivery", 1, outcome.value.next_cursor)
    assert asked(here, SettleLease) == []
    again = await agent.answer("subscribe", channel="team", command_id="r_1:1.7", attempt=2)
    assert again == outcome


async def test_a_run_whose_batch_is_too_large_gives_the_rest_back(here: Installation, agent: Caller) -> None:
    for _ in range(10):
        await agent("publish", channel="team", value="x" * 60_000)
    outcome = await agent.answer("subscribe", channel="team")
    assert outcome.leases[0].taken == len(outcome.value.messages) == BATCH_BYTES_MAX // 60_002


async def test_a_run_that_does_not_wait_gets_nothing(agent: Caller) -> None:
    outcome = await agent.answer("subscribe", channel="team")
    assert outcome.waiting is None
    assert to_builtins(outcome.value) == {"channel": "team", "messages": [], "next_cursor": ""}
    assert outcome.leases == ()


async def test_a_run_waits_in_the_queue_and_is_served_by_a_publish(here: Installation, agent: Caller) -> None:
    outcome = await agent.answer("subscribe", channel="team", wait_ms=5_000, command_id="r_1:1.7")
    assert outcome.waiting is not None
    assert (outcome.waiting.wait_id, outcome.waiting.until_ms) == ("r_1:1.7", NOW_MS + 5_000)
    assert (outcome.waiting.queues, outcome.waiting.mode) == ((TEAM.to_ref(),), "subscribe")
    await agent("publish", channel="team", value=1)
    answer = here.entities.answers[f"channel:acme/{TEAM.aggregate}", f"r_1:1.{here.numbers}"]
    leased = next(event for event in answer.events if isinstance(event, MessagesLeased))
    assert (leased.lease_id, leased.is_wait_over) == ("r_1:1.7", True)
    served = await here.operations.leased(TEAM, leased.lease_id, deliveries_by_position(leased), after="", wait_ms=0)
    assert [one.value for one in served.value.messages] == [1]
    assert await here.application().values("subscribe", "team") == []


async def test_a_run_awaits_in_each_queue(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="work/in", value=1)
    outcome = await agent.answer(
        "await", channels=["work/in", "work/out"], mode="at_least", n=2, wait_ms=5_000, command_id="r_1:1.7"
    )
    assert outcome.waiting is not None
    assert (outcome.waiting.mode, outcome.waiting.needed) == ("at_least", 2)
    assert [queue.channel for queue in outcome.waiting.queues] == ["work/in", "work/out"]
    assert {command.envelope.command_id for command in asked(here, WatchQueue)} == {"r_1:1.7"}
    again = await agent.answer(
        "await", channels=["work/in", "work/out"], mode="at_least", n=2, wait_ms=9_000, command_id="r_1:1.7", attempt=2
    )
    assert again.waiting == outcome.waiting


async def test_a_run_whose_await_is_satisfied_does_not_wait(here: Installation, agent: Caller) -> None:
    await agent("publish", channel="work/in", value=1)
    outcome = await agent.answer("await", channels=["work/in", "work/out"], wait_ms=5_000)
    assert outcome.waiting is None
    assert outcome.value.fired == ["work/in"]
    assert asked(here, WatchQueue) == []


# --- failures --------------------------------------------------------------------------------------------------------


async def test_no_answer_is_unknown_and_a_repetition_publishes_once(here: Installation, app: Caller) -> None:
    for error in (UNANSWERED, Transient("no broker", kind="unavailable")):
        here.entities.error = error
        with pytest.raises(Unavailable) as caught:
            await app("publish", channel="team", value=1, command_id="x")
        assert caught.value.is_unknown
    here.entities.error = None
    await app("publish", channel="team", value=1, command_id="x", attempt=2)
    assert await app.values("peek", "team") == [1]
    assert len(asked(here, PublishMessage)) == 3


async def test_rows_that_do_not_answer_are_unavailable(here: Installation, app: Caller) -> None:
    await app("publish", channel="team", value=1)
    here.entities.is_owner = False
    here.entities.error = Transient("no rows", kind="unavailable")
    with pytest.raises(Unavailable):
        await app("peek", channel="team")


def test_all_channels_are_named_once() -> None:
    assert len(set(ALL)) == len(ALL)


async def test_a_message_that_is_heard_of_while_rows_lag_is_read(here: Installation, app: Caller) -> None:
    await app("publish", channel="team", value=1)
    message = here.cache.find(TEAM, 1)
    assert message is not None
    here.forget_messages()
    here.entities.unread_rows = True
    reading = asyncio.create_task(here.store.load(TEAM, [1]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    published = here.entities.answers[f"channel:acme/{TEAM.aggregate}", "q:1.1"].events[0]
    here.cache.add(f"channel:acme/{TEAM.aggregate}", published, 1, 1)
    async with asyncio.timeout(30):
        assert [one.value for one in await reading] == [1]


async def test_rows_that_stay_behind_are_unavailable(
    here: Installation, app: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROW_WAIT_S", 0.0)
    await app("publish", channel="team", value=1)
    here.forget_messages()
    here.entities.unread_rows = True
    with pytest.raises(Unavailable, match="position 1"):
        await here.store.load(TEAM, [1])


async def test_values_are_decrypted_and_without_keys_unavailable(here: Installation, app: Caller) -> None:
    async def decrypt(value: Any, tenant: str) -> Any:
        if here.entities.error is not None:
            raise Transient("no keys", kind="unavailable")
        return value.replace("secret", f"plain of {tenant}")

    plain = ChannelStore(here.entities, here.entities, here.cache, clock_ms=lambda: NOW_MS, decrypt=decrypt)
    await app("publish", channel="team", value="secret")
    assert [one.value for one in await plain.load(TEAM, [1])] == ["plain of acme"]
    here.entities.error = UNANSWERED
    with pytest.raises(Unavailable, match="no keys"):
        await plain.load(TEAM, [1])
