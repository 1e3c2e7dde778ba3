"""The process over a real broker and a real Postgres, and how it ends."""

import asyncio
import logging
import os
import signal
import sys
import time
from dataclasses import replace

import pytest

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions
from loomlog.connectors.process import logs
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.engine import rebuild as rebuild_module
from loomlog.projections.engine.builds import read_status
from loomlog.projections.entities import load_entities, next_offsets
from loomlog.projections.memory_feed.tables import feed_schema
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import Codec, local_codec
from loomlog.services.families.registry import all_families
from loomlog.services.projector.main import _run, build_projector, build_projectors, main, run, run_rebuild
from loomlog.services.projector.settings import ProjectorSettings
from tests.connectors.tools.web_server import page, running
from tests.projections.counters import Counters, counter
from tests.projections.memory_feed.memory_events import Memories, entry_set
from tests.projections.stories import Partition, many_runs
from tests.waiting import until

CHILD = """
import asyncio, sys
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.projector.main import build_projectors, run
from loomlog.services.projector.settings import ProjectorSettings
kafka, dsn, topics, prefix = sys.argv[1:]
settings = ProjectorSettings(
    kafka=KafkaOptions(bootstrap=kafka),
    postgres=PostgresOptions(dsn=dsn),
    owner="child",
    topic=f"{topics}.run.events",
    entity_topic=f"{topics}.entity.events",
    channel_topic=f"{topics}.channel.events",
    prefix=prefix,
)
sys.exit(asyncio.run(run(*build_projectors(settings))))
"""


@pytest.fixture
async def settings(kafka, postgres, topic_prefix, prefix) -> ProjectorSettings:
    """A log with 40 runs in two of four partitions, and an entity in another."""
    await apply(kafka, prefix=topic_prefix)
    options = KafkaOptions(bootstrap=kafka)
    topic = f"{topic_prefix}.run.events"
    appender = KafkaAppender(options)
    await appender.start()
    for number in (0, 2):
        partition = Partition()
        partition.claim()
        many_runs(partition, [f"r_{number}_{n}" for n in range(20)])
        await appender.append(topic, number, partition.outgoing())
    counters = Counters()
    counters.claim()
    counters.raise_("a", 1, 2, 3)
    await appender.append(f"{topic_prefix}.entity.events", 1, counters.outgoing())
    await appender.close()
    return ProjectorSettings(
        kafka=options,
        postgres=PostgresOptions(dsn=postgres),
        owner="tests",
        topic=topic,
        entity_topic=f"{topic_prefix}.entity.events",
        channel_topic=f"{topic_prefix}.channel.events",
        prefix=prefix,
    )


async def test_it_projects_from_a_broker_and_rebuilds_equal(settings, builds, connection, caplog):
    projector, stop = build_projector(settings), asyncio.Event()
    task = asyncio.create_task(projector.run(stop))
    async with asyncio.timeout(30):
        while projector.metrics["events"] < 480:
            assert not task.done()
            await asyncio.sleep(0.01)
    stop.set()
    await task
    before = await builds.table_hashes(1)
    assert before["runs"].rows == 40
    with caplog.at_level(logging.INFO, "loomlog.projector"):
        assert await run_rebuild(settings, build_projector(settings)) == 0
        assert (await builds.live()).number == 2
        assert await builds.table_hashes(2) == before
        await connection.execute(f"UPDATE {builds.build(2).schema}.transcript SET ts_ns = 1")
        assert await run_rebuild(settings, build_projector(settings)) == 1
    assert (await builds.live()).number == 2
    for message in ("runs: 40 rows live, 40 rows new, equal", "it is live now", "new, DIFFERENT", "build 2 stays live"):
        assert message in caplog.text


async def own_codec() -> Codec:
    return local_codec()


async def no_codec() -> Codec:
    raise Transient("the registry is away", kind="unavailable")


async def test_a_long_log_is_rebuilt_by_several_processes_to_the_same_rows(settings, builds, monkeypatch):
    monkeypatch.setattr(rebuild_module, "FILL_EVENTS", 1)
    projector, stop = build_projector(settings), asyncio.Event()
    task = asyncio.create_task(projector.run(stop))
    async with asyncio.timeout(30):
        await until(lambda: projector.metrics["events"] >= 480)
    stop.set()
    await task
    filled = []
    filling = build_projector(settings, make_codec=own_codec)
    fill = filling._fill

    async def counted(build, target):
        filled.append(await fill(build, target))
        return filled[-1]

    filling._fill = counted
    report = await filling.rebuild(3)
    assert filled == [480], "the processes have projected all of it"
    assert (report.equal, report.switched, report.events) == (True, True, 480)
    with pytest.raises(Transient, match="build 3: the registry is away"):
        await build_projector(settings, make_codec=no_codec).rebuild(3)
    assert (await builds.live()).number == 2


async def test_one_process_projects_both_topics_and_sigterm_ends_it_with_zero(
    settings, kafka, postgres, topic_prefix, builds, entity_builds, entity_reader, reader
):
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, kafka, postgres, topic_prefix, settings.prefix),
        env={**os.environ, "LOOMLOG_FAMILIES": "docs.examples.counter.counter"},
    )
    try:
        async with asyncio.timeout(30):
            while (
                sum((await builds.positions(1, settings.topic)).values()) < 482
                or (await next_offsets(entity_reader, settings.entity_topic, [1])).get(1, 0) < 4
                or not await read_status(entity_reader)
            ):
                assert child.returncode is None
                await asyncio.sleep(0.05)
            child.send_signal(signal.SIGTERM)
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
    assert (await builds.table_hashes(1))["runs"].rows == 40
    for one, topic in ((reader, settings.topic), (entity_reader, settings.entity_topic)):
        assert [(status.topic, status.owner) for status in await read_status(one)] == [(topic, "child")]
    (row,) = await load_entities(entity_reader, [counter("a")])
    assert (row.partition, row.seq, row.quarantine) == (1, 3, "")


async def test_entities_are_rebuilt_by_several_processes_to_the_same_rows(settings, entity_builds, monkeypatch):
    monkeypatch.setattr(rebuild_module, "FILL_EVENTS", 1)
    monkeypatch.setenv("LOOMLOG_FAMILIES", "docs.examples.counter.counter")
    all_families.cache_clear()
    _, projector, _ = build_projectors(settings, make_codec=own_codec)
    stop = asyncio.Event()
    task = asyncio.create_task(projector.run(stop))
    async with asyncio.timeout(30):
        await until(lambda: projector.metrics["events"] >= 3)
    stop.set()
    await task
    report = await projector.rebuild(4)
    all_families.cache_clear()
    assert (report.equal, report.switched, report.events, report.build) == (True, True, 3, 2)


async def test_a_projector_that_fails_ends_the_process_with_its_error(settings):
    broken = build_projector(settings)

    async def fail(stop):
        raise Permanent("the password is wrong", kind="unauthorised")

    broken.run = fail
    with pytest.raises(Permanent, match="password"):
        async with asyncio.timeout(30):
            await run(build_projectors(settings)[1], broken)


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_process_writes_the_feed_of_memory_and_pushes_it(
    settings, connection, tmp_path, monkeypatch, enabled
):
    async with running() as server:
        server.answers["/changes"] = page("")
        (tmp_path / "loomlog.yaml").write_text(
            f"change_subscriptions:\n  crm: {{ callback_url: 'http://127.0.0.1:{server.port}/changes', "
            "secret_env: CRM_SECRET, allow_private_host: true }\n"
        )
        monkeypatch.setenv("CRM_SECRET", "between us")
        read, _ = read_settings({"LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml")}, working_directory=tmp_path)
        memories = Memories(clock_ms=time.time_ns() // 1_000_000)
        memories.claim()
        memories.change("ada", entry_set("ada", "city"))
        appender = KafkaAppender(settings.kafka)
        await appender.start()
        await appender.append(settings.entity_topic, 2, memories.outgoing())
        await appender.close()
        options = replace(settings, change_sub_interval_s=0.05, memory_changes_enabled=enabled)
        task = asyncio.create_task(_run(read, options, rebuild=False))
        if enabled:
            await until(lambda: server.requests or task.done())
            assert '"key":"city"' in server.requests[0]
        else:
            await until(lambda: _is_projected(connection, settings))
        result = await connection.execute("SELECT to_regclass(%s)", (f"{feed_schema(settings.prefix)}.changes",))
        assert ((await result.fetchone())[0] is not None) is enabled
        task.cancel()
        await asyncio.wait({task})


async def _is_projected(connection, settings) -> bool:
    table = f"{settings.prefix}.projector_status"
    result = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
    if not (await result.fetchone())[0]:
        return False
    result = await connection.execute(f"SELECT 1 FROM {table}")
    return await result.fetchone() is not None


def test_an_unknown_argument_prints_the_usage(capsys):
    assert main(["rewind"]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_missing_setting_ends_it_with_one_and_is_named(monkeypatch, caplog):
    monkeypatch.setattr("os.environ", {"LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_LOG_LEVEL": "warning"})
    levels: list[str] = []
    monkeypatch.setattr(logs, "configure_logging", lambda level="info": levels.append(level))
    assert main([]) == 1
    assert "LOOMLOG_POSTGRES is not set" in caplog.text
    assert levels == ["info", "warning"], "as every process of ours logs, at the level of the settings"
