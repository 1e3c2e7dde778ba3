"""The loop that writes the list of acts: each act is one row, found by who, what and when; and a line of a file."""

import asyncio
import stat

import orjson
import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.process import sessions
from loomlog.projections.acts import ActFilter, SqlActReads, acts_schema
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.schemas.generated.act_events import ActBegun, ActEnded, ActRefused
from loomlog.services.projector import family_tail
from loomlog.services.projector.acts import build_act_log
from loomlog.services.projector.settings import ProjectorSettings
from tests.projections.counters import raised
from tests.projections.stories import Partition
from tests.services.families.act.examples import WHO
from tests.waiting import until

TOPIC = "loom.entity.events"
AT_MS = WHO["at_ms"]


def begun(number: int, **changes) -> ActBegun:
    return ActBegun(act_id=f"act{number:03}", **{**WHO, "at_ms": AT_MS + number, "request": '{"a":1}', **changes})


class Stage:
    """A log of one partition and the loop that lists its acts."""

    def __init__(self, options, connecting, prefix: str, folder) -> None:
        self.log = MemoryLog({TOPIC: 1})
        self.partition = Partition()
        self.partition.claim()
        self.stop = asyncio.Event()
        self.connections: list = []
        self.file = folder / "acts.jsonl"
        self.settings = ProjectorSettings(
            kafka=KafkaOptions(bootstrap="nowhere:1"),
            postgres=options,
            owner="tests",
            prefix=prefix,
            audit_log_path=self.file,
        )

        async def connect():
            self.connections.append(await connecting())
            return self.connections[-1]

        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        async def count_partitions():
            return 1

        self.loop = build_act_log(
            self.settings,
            connect=connect,
            open_tail=open_tail,
            count_partitions=count_partitions,
            poll_timeout_s=0.02,
            max_records=4,
        )

    def act(self, *events, tenant: str = "acme") -> None:
        for event in events:
            self.partition.add(f"act:{tenant}/{event.act_id}", event, tenant=tenant)

    async def project(self) -> asyncio.Task[None]:
        self.log.put(TOPIC, 0, self.partition.outgoing(len(self.log.records[TOPIC, 0])))
        task = asyncio.create_task(self.loop.run(self.stop))
        end = len(self.partition.records)
        await until(lambda: self.loop._stored.get(0) is not None and self.loop._stored[0].next_offset == end)
        return task


@pytest.fixture
async def stage(options, connecting, prefix, monkeypatch, tmp_path):
    monkeypatch.setattr(family_tail, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(family_tail, "IDLE_COMMIT_S", 0.01)
    stage = Stage(options, connecting, prefix, tmp_path)
    yield stage
    stage.stop.set()


async def listed(stage: Stage, reader, **chosen) -> list[str]:
    reads = SqlActReads(reader, acts_schema(stage.settings.prefix))
    return [row.act_id for row in (await reads.list(ActFilter(**chosen), limit=50)).rows]


async def test_an_act_is_a_row_with_its_outcome(stage, reader):
    stage.act(begun(1), ActEnded(act_id="act001", outcome="done", before="1", after="2"), begun(2))
    stage.partition.add("counter:acme/c", raised(1), tenant="acme")
    stage.act(ActRefused(act_id="act003", **{**WHO, "at_ms": AT_MS + 3}, code="insufficient_scope", count=7))
    await stage.project()
    page = await SqlActReads(reader, acts_schema(stage.settings.prefix)).list(ActFilter(), limit=50)
    refused, open_one, ended = page.rows
    assert (ended.outcome, ended.before, ended.after, ended.request) == ("done", "1", "2", '{"a":1}')
    assert (ended.who, ended.operation, ended.family, ended.at_ms) == ("ada", "hook.register", "hook", AT_MS + 1)
    assert ended.ended_at_ms > 0
    assert (open_one.outcome, open_one.ended_at_ms) == ("begun", 0)
    assert (refused.outcome, refused.code, refused.times) == ("refused", "insufficient_scope", 7)


async def test_acts_are_found_by_who_what_when_and_tenant_and_paged(stage, reader):
    stage.act(begun(1), begun(2, who="bob"), begun(3, operation="pause.runs"), begun(4, operation="hook.remove"))
    stage.act(begun(5), tenant="globex")
    await stage.project()
    assert await listed(stage, reader) == ["act005", "act004", "act003", "act002", "act001"]
    assert await listed(stage, reader, tenant="acme", what="hook") == ["act004", "act002", "act001"]
    assert await listed(stage, reader, what="hook.register", who="ada") == ["act005", "act001"]
    assert await listed(stage, reader, since_ms=AT_MS + 2, until_ms=AT_MS + 4) == ["act003", "act002"]
    assert await listed(stage, reader, tenant="nobody") == []
    reads = SqlActReads(reader, acts_schema(stage.settings.prefix))
    shown, after = [], ""
    while True:
        page = await reads.list(ActFilter(tenant=EVERY_TENANT), limit=2, after=after)
        shown += [row.act_id for row in page.rows]
        if not (after := page.next):
            break
    assert shown == ["act005", "act004", "act003", "act002", "act001"]
    with pytest.raises(InvalidPageToken):
        await reads.list(ActFilter(), limit=2, after="x")


async def test_a_killed_writer_leaves_each_act_once(stage, reader, connection):
    stage.act(*(begun(number) for number in range(40)))
    stage.log.put(TOPIC, 0, stage.partition.outgoing())
    task = asyncio.create_task(stage.loop.run(stage.stop))
    for bound in (8, 16, 24):
        await until(lambda bound=bound: stage.loop.metrics["events"] >= bound)
        for one in stage.connections:
            await connection.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
        stage.connections.clear()
    await until(lambda: stage.loop._stored[0].next_offset == 41)
    assert await listed(stage, reader) == [f"act{number:03}" for number in reversed(range(40))]
    lines = [orjson.loads(line) for line in stage.file.read_bytes().splitlines()]
    assert {line["offset"] for line in lines} == set(range(1, 41)), "no line is missing; some may be there twice"
    assert not task.done()


async def test_each_event_is_a_line_that_only_its_owner_reads(stage):
    stage.act(begun(1), ActEnded(act_id="act001", outcome="done"))
    await stage.project()
    first, second = (orjson.loads(line) for line in stage.file.read_bytes().splitlines())
    assert (first["event"], first["who"], first["operation"], first["offset"]) == (
        "ActBegun",
        "ada",
        "hook.register",
        1,
    )
    assert (second["event"], second["act_id"], second["outcome"]) == ("ActEnded", "act001", "done")
    assert stat.S_IMODE(stage.file.stat().st_mode) == 0o600


async def test_there_are_no_acts_before_a_projector_has_made_the_table(reader, prefix):
    page = await SqlActReads(reader, acts_schema(prefix)).list(ActFilter(), limit=50)
    assert page == ((), "")


def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path):
    settings = ProjectorSettings(
        kafka=KafkaOptions(bootstrap="nowhere:1"), postgres=None, owner="tests", audit_log_path=tmp_path / "no" / "acts"
    )
    with pytest.raises(Permanent, match=r"LOOMLOG_AUDIT_LOG_PATH is .*, which cannot be written: No such file"):
        build_act_log(settings)
