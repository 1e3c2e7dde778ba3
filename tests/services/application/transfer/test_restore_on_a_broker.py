"""A state taken out of one cluster and into another, with other partition counts: a real broker, a real Postgres."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.projections.runs import RunRow
from loomlog.redpanda.apply import apply
from loomlog.services.application.application import Application
from loomlog.services.application.bootstrap import Endpoints
from loomlog.services.application.resources import ApplicationTopics
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.family import Topics
from tests.services.application.test_bootstrap import layer_of, projecting
from tests.services.application.world import ADMIN_CALLER, pieces_of, types_of
from tests.services.runtime.fakes import AGENT, Scripted
from tests.services.runtime.small_runtime import SmallRuntime, running

WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    layer: Application
    model: Scripted

    async def row_when(self, run_id: str, status: str) -> RunRow:
        while (row := await self.layer.queries.run(ADMIN_CALLER, run_id)).status != status:
            await asyncio.sleep(0.05)
        return row


@asynccontextmanager
async def cluster(kafka: str, postgres: str, folder: Path, *, partitions: int) -> AsyncIterator[Site]:
    """Topics, read models, a projector, a runtime and a command layer; leaving is a crash of the runtime."""
    prefix = f"test-{uuid.uuid4().hex[:12]}"
    await apply(kafka, prefix=prefix, partitions=partitions)
    topics, options = Topics.of("run", prefix), KafkaOptions(bootstrap=kafka)
    places = Endpoints(
        kafka=options,
        postgres=PostgresOptions(dsn=postgres, application_name="tests"),
        blobs=FileBlobs(folder),
        state_files=StateFiles(folder / "states"),
        postgres_connections=2,
        read_model_prefix=f"t{uuid.uuid4().hex[:10]}",
        topics=ApplicationTopics.with_prefix(prefix),
    )
    async with AsyncExitStack() as stack:
        clients = KafkaAppender(options), KafkaRanges(options)
        for client in clients:
            await client.start()
            stack.push_async_callback(client.close)
        commands = KafkaTail(options, topics.commands, dict.fromkeys(range(partitions), 0))
        await commands.start()
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        model = Scripted()
        runtime = SmallRuntime(
            *clients, commands, partitions=partitions, topics=topics, model=model, tracing=NO_TRACING, name="tests"
        )
        await stack.enter_async_context(projecting(places, partitions))
        layer = await stack.enter_async_context(layer_of(places))
        await stack.enter_async_context(running(runtime))
        yield Site(layer, model)
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        for schema in (places.read_model_prefix, f"{places.read_model_prefix}_1"):
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@pytest.mark.integration
async def test_a_run_that_was_under_way_is_finished_by_another_cluster(
    kafka: str, postgres: str, tmp_path: Path
) -> None:
    async with asyncio.timeout(WAIT_S):
        async with cluster(kafka, postgres, tmp_path / "a", partitions=3) as there:
            over = await there.layer.runs.start(ADMIN_CALLER, RunRequest(agent=AGENT.name, prompt="first"))
            assert types_of(await pieces_of(over.stream))[-1] == "done"
            there.model.held = True
            live = await there.layer.runs.start(ADMIN_CALLER, RunRequest(agent=AGENT.name, prompt="second"))
            await there.model.holding.wait()
            made = await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(label="moving"))
            assert (made["runs"], made["live_runs"]) == (2, 1)
            _, file = await there.layer.backups.open(made["id"])
        with file:
            async with cluster(kafka, postgres, tmp_path / "b", partitions=2) as here:
                actual = await here.layer.state_restore.restore(ADMIN_CALLER, file)
                assert (actual.runs, actual.live_runs, actual.failed_runs) == (2, 1, 0)
                row = await here.row_when(live.run_id, "completed")
                assert (row.iterations, row.model_errors, row.told_events) == (2, 1, 0)
                again = await here.layer.state_restore.restore(ADMIN_CALLER, file)
                assert (again.runs, again.skipped_runs, again.positions) == (0, 2, {})
                assert (await here.layer.histories.replay(ADMIN_CALLER, live.run_id)).drift == ()
                old = await here.layer.histories.replay(ADMIN_CALLER, over.run_id)
                assert (old.drift, old.not_compared) == ((), "")
