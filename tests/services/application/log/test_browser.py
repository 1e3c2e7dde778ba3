from dataclasses import replace
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.log import browser as module
from loomlog.services.application.log.browser import LogBrowser, RecordQuery
from loomlog.services.application.log.json_types import LogPage
from loomlog.services.application.log.records import EVENTS_TOPIC
from loomlog.services.application.queries.log_pages import LogReadQueue
from loomlog.services.core.refusals import Refused
from tests.projections.stories import Partition
from tests.services.application.log.memory_access import memory_access
from tests.services.application.log.test_records import COMMANDS, two_owners
from tests.services.application.world import ADMIN_CALLER, declined


def browser_of(log: MemoryLog, prefix: str = "loom") -> LogBrowser:
    return LogBrowser(memory_access(log), local_codec(), ContentAccess(None), LogReadQueue(), prefix=prefix)


def log_of(partition: Partition) -> MemoryLog:
    log = MemoryLog({EVENTS_TOPIC: 2, COMMANDS: 2})
    log.put(EVENTS_TOPIC, 0, partition.outgoing())
    return log


async def page(log: MemoryLog, **query: Any) -> LogPage:
    return await browser_of(log).records(ADMIN_CALLER, RecordQuery(**{"topic": EVENTS_TOPIC, "partition": 0, **query}))


def offsets(page: LogPage) -> list[int]:
    return [record["offset"] for record in page["records"]]


async def test_topics_have_their_partitions_retention_and_kind() -> None:
    log = log_of(two_owners())
    log.delete_before(EVENTS_TOPIC, 0, 2)
    topics = {topic["name"]: topic for topic in (await browser_of(log).topics(ADMIN_CALLER))["topics"]}
    events, commands = topics[EVENTS_TOPIC], topics[COMMANDS]
    assert (events["kind"], events["has_terms"], events["retention_ms"], events["offsets"]) == ("events", True, None, 5)
    assert events["partitions"] == [
        {"partition": 0, "beginning_offset": 2, "next_offset": 7, "offsets": 5},
        {"partition": 1, "beginning_offset": 0, "next_offset": 0, "offsets": 0},
    ]
    assert (commands["kind"], commands["has_terms"], commands["retention_ms"]) == ("commands", False, 14 * 86_400_000)
    snapshots = topics["loom.run.snapshots"]
    assert (snapshots["is_compacted"], snapshots["retention_ms"], snapshots["partitions"]) == (True, None, [])
    assert (topics["loom.run.deltas"]["kind"], topics["loom.dead-letter"]["kind"]) == ("previews", "dead_letters")


async def test_the_newest_records_come_first_when_no_place_is_named() -> None:
    actual = await page(log_of(two_owners()), limit=3)
    assert (offsets(actual), actual["next"], actual["next_offset"]) == ([4, 5, 6], None, 7)
    assert [record["kind"] for record in actual["records"]] == ["stale", "legal", "legal"]
    assert (actual["beginning_offset"], actual["end_offset"]) == (0, 7)


async def test_a_page_goes_on_where_the_one_before_ended_under_its_term() -> None:
    log = log_of(two_owners())
    first = await page(log, from_offset=0, limit=4)
    assert (offsets(first), first["next_offset"]) == ([0, 1, 2, 3], 4)
    second = await page(log, cursor=first["next"])
    assert [(record["offset"], record["kind"]) for record in second["records"]] == [
        (4, "stale"),
        (5, "legal"),
        (6, "legal"),
    ]
    assert second["next"] is None


async def test_the_last_offsets_and_offsets_beyond_the_ends_are_bounded_by_what_is_there() -> None:
    log = log_of(two_owners())
    log.delete_before(EVENTS_TOPIC, 0, 2)
    assert offsets(await page(log, tail=2)) == [5, 6]
    assert offsets(await page(log, tail=99)) == [2, 3, 4, 5, 6]
    assert offsets(await page(log, from_offset=0, limit=1)) == [2]
    assert offsets(await page(log, from_offset=99)) == []


async def test_a_time_begins_at_the_first_record_of_then() -> None:
    log = MemoryLog({COMMANDS: 1})
    for at_ms in (10, 20, 30):
        log.clock_ms = at_ms
        log.put(COMMANDS, 0, [ProducerRecord(key=b"k", value=b"x")])
    assert offsets(await page(log, topic=COMMANDS, from_ms=15)) == [1, 2]
    assert offsets(await page(log, topic=COMMANDS, from_ms=31)) == []


async def test_records_of_one_run_or_type_are_chosen_and_stay_judged_by_the_claims_between() -> None:
    partition = two_owners()
    log = log_of(partition)
    of_run = await page(log, from_offset=0, run_id="r_1")
    assert [(record["offset"], record["kind"]) for record in of_run["records"]] == [
        (1, "legal"),
        (2, "legal"),
        (4, "stale"),
        (5, "legal"),
        (6, "legal"),
    ]
    assert offsets(await page(log, from_offset=0, type="Claim")) == [0, 3]
    assert offsets(await page(log, from_offset=0, type="loom.run.events.RunStarted")) == [1]
    assert (await page(log, from_offset=0, run_id="r_9"))["records"] == []


async def test_the_work_of_a_page_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(two_owners())
    monkeypatch.setattr(module, "SCANNED_MAX", 2)
    first = await page(log, from_offset=0, run_id="r_9")
    assert (first["records"], first["scanned"], first["next_offset"]) == ([], 2, 2)
    assert first["next"] is not None
    monkeypatch.setattr(module, "SCANNED_MAX", 99)
    monkeypatch.setattr(module, "VALUE_BYTES_MAX", 1)
    assert offsets(await page(log, from_offset=0)) == [0]
    monkeypatch.setattr(module, "SCAN_S", -1.0)
    assert (await page(log, from_offset=0, run_id="r_9"))["scanned"] == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"topic": "secrets"}, "not_found"),
        ({"topic": "loom.run.snapshots"}, "not_found"),
        ({"partition": 2}, "not_found"),
        ({"cursor": "x!"}, "bad_request"),
    ],
)
async def test_a_place_that_is_not_there_is_said(query: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as caught:
        await page(log_of(two_owners()), **query)
    assert caught.value.code == code


async def test_a_cursor_of_another_partition_is_refused() -> None:
    log = log_of(two_owners())
    cursor = (await page(log, from_offset=0, limit=1))["next"]
    assert (await declined(page(log, partition=1, cursor=cursor))).code == "bad_request"


async def test_a_topic_may_be_named_without_the_prefix() -> None:
    assert (await page(log_of(two_owners()), topic="run.events"))["topic"] == EVENTS_TOPIC


async def test_a_broker_that_is_away_is_told() -> None:
    async def away(*_: object) -> Any:
        raise Transient("the broker is away", kind="unavailable")

    access = replace(memory_access(MemoryLog({})), existing_topics=away, count_partitions=away)
    browser = LogBrowser(access, local_codec(), ContentAccess(None), LogReadQueue(), prefix="loom")
    query = RecordQuery(topic=EVENTS_TOPIC, partition=0)
    for asked in (browser.topics(ADMIN_CALLER), browser.records(ADMIN_CALLER, query)):
        assert (await declined(asked)).code == "log_unavailable"
