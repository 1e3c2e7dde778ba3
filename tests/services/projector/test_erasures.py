"""The loop that deletes rows of people who were erased: of every build, once, and again after a rebuild."""

import asyncio

import pytest

from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.process import sessions
from loomlog.projections.engine.rebuild import rebuild
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.erasures import SqlErasures, erasures_schema
from loomlog.schemas.generated.erasure_events import RunsErased
from loomlog.services.projector import family_tail
from loomlog.services.projector.erasures import build_erasures
from loomlog.services.projector.settings import ProjectorSettings
from tests.projections.stories import TOPIC, Partition, many_runs

ENTITIES = "loom.entity.events"
ROWS = ("runs", "transcript", "audit")


class Stage:
    """Three projected runs, and the loop."""

    def __init__(self, options, connecting, prefix: str, reader) -> None:
        self.log = MemoryLog({ENTITIES: 1, TOPIC: 1})
        self.runs, self.events = Partition(), Partition()
        self.events.claim()
        self.stop = asyncio.Event()
        self.erasures = SqlErasures(reader, erasures_schema(prefix))
        settings = ProjectorSettings(
            kafka=KafkaOptions(bootstrap="nowhere:1"), postgres=options, owner="tests", prefix=prefix
        )

        self.backends: list[int] = []

        async def connect():
            opened = await connecting()
            self.backends.append(opened.info.backend_pid)
            return opened

        async def open_tail(starts):
            return self.log.tail(ENTITIES, starts)

        async def count_partitions():
            return 1

        self.loop = build_erasures(
            settings, connect=connect, open_tail=open_tail, count_partitions=count_partitions, poll_timeout_s=0.02
        )

    def erase(self, erasure_id: str, *run_ids: str) -> None:
        event = RunsErased(erasure_id=erasure_id, subject="ivy", run_ids=run_ids, in_clear=False, by="op")
        self.events.add("erasure:default/ivy", event, tenant="default")
        self.log.put(ENTITIES, 0, self.events.outgoing(len(self.log.records[ENTITIES, 0])))

    async def until_done(self, erasure_id: str) -> None:
        while not await self.erasures.is_done("default", erasure_id):
            await asyncio.sleep(0)


@pytest.fixture
async def stage(options, connecting, prefix, reader, connection, builds, monkeypatch):
    monkeypatch.setattr(family_tail, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(family_tail, "IDLE_COMMIT_S", 0.01)
    stage = Stage(options, connecting, prefix, reader)
    stage.runs.claim()
    many_runs(stage.runs, ["r_1", "r_2", "r_3"])
    stage.log.put(TOPIC, 0, stage.runs.outgoing())
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    await projection.apply({0: stage.log.records[TOPIC, 0]})
    task = asyncio.create_task(stage.loop.run(stage.stop))
    yield stage
    stage.stop.set()
    await task


async def left(connection, schema: str) -> dict[str, set[str]]:
    found = {}
    for table in ROWS:
        result = await connection.execute(f'SELECT DISTINCT run_id FROM "{schema}"."{table}"')
        found[table] = {run_id for (run_id,) in await result.fetchall()}
    return found


async def test_the_rows_of_erased_runs_go_and_those_of_others_stay(stage, connection, builds):
    schema = builds.build(1).schema
    before = await left(connection, schema)
    assert before["runs"] == before["transcript"] == {"r_1", "r_2", "r_3"}
    usage = await (await connection.execute(f'SELECT * FROM "{schema}".usage')).fetchall()
    assert not await stage.erasures.is_done("default", "e_1")
    stage.erase("e_1", "r_1", "r_3")
    await stage.until_done("e_1")
    (told,) = await stage.erasures.of_subject("default", "ivy")
    assert (told.erasure_id, told.asked_by, told.in_clear, told.position) == ("e_1", "op", False, f"{ENTITIES}/0:1")
    after = await left(connection, schema)
    assert after == {table: run_ids & {"r_2"} for table, run_ids in before.items()}
    assert await (await connection.execute(f'SELECT * FROM "{schema}".usage')).fetchall() == usage, "it was spent"


async def test_a_rebuild_from_the_log_does_not_bring_them_back(stage, connection, builds, connecting, prefix):
    stage.erase("e_1", "r_1")
    await stage.until_done("e_1")

    async def open_tail(starts):
        return stage.log.tail(TOPIC, starts)

    report = await rebuild(connecting, open_tail, TOPIC, 1, owner="rebuild", prefix=prefix)
    assert (report.equal, report.switched) == (True, True)
    assert (await left(connection, builds.build(report.build).schema))["transcript"] == {"r_2", "r_3"}


async def test_a_loop_that_is_killed_deletes_the_rest_when_it_is_back(stage, connection, builds):
    stage.erase("e_1", "r_1")
    await stage.until_done("e_1")
    for backend in stage.backends:
        await connection.execute("SELECT pg_terminate_backend(%s)", (backend,))
    stage.erase("e_2", "r_2")
    await stage.until_done("e_2")
    assert (await left(connection, builds.build(1).schema))["runs"] == {"r_3"}


async def test_a_blob_is_shared_while_a_run_of_another_has_it(stage):
    text = "hello"  # in the transcripts of all three
    assert await stage.erasures.shared_blobs([text, "0" * 64], ["r_1", "r_2"]) == {text}
    assert await stage.erasures.shared_blobs([text], ["r_1", "r_2", "r_3"]) == set()
