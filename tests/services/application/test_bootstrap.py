"""The command layer over a real broker and a real Postgres, with an owner and a projector of a few lines."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaTail
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.projections.engine.builds import ENTITY_SUFFIX, ENTITY_TABLES, Builds
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.run_queries import RunFilter
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import ModelCallRequested, ModelReplied, RunCompleted, RunStarted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import AgentDefinition, Envelope, Usage
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.bootstrap import Endpoints, Readiness, open_application, wait_for
from loomlog.services.application.queries.audit_log import EventQuery
from loomlog.services.application.resources import ApplicationTopics
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.families.entity_folds import entity_model
from tests.services.application.world import ADMIN_CALLER, pieces_of, tokens, types_of

PARTITIONS = 2
WAIT_S = 30.0


class Owner:
    """Answers every start with a whole run."""

    def __init__(self, options: KafkaOptions, topics: ApplicationTopics) -> None:
        self.appender = KafkaAppender(options)
        self.commands = KafkaTail(options, topics.commands, dict.fromkeys(range(PARTITIONS), 0))
        self.topics = topics
        self.terms: dict[int, int] = {}

    async def open(self) -> None:
        await self.appender.start()
        await self.commands.start()
        for partition in range(PARTITIONS):
            envelope = Envelope(term=-1, seq=0, aggregate="", tenant="", at_ms=1, prev=bytes(16))
            claim = ProducerRecord(key=b"claim", value=local_codec().encode_event(envelope, Claim(owner="tests")))
            self.terms[partition] = await self.appender.append(self.topics.events, partition, [claim])

    async def work(self) -> None:
        while True:
            for partition, records in (await self.commands.poll(timeout_s=0.2)).items():
                for record in records:
                    command = local_codec().decode(record.value or b"").record
                    assert isinstance(command, StartRun)
                    await self._run(partition, command)

    async def _run(self, partition: int, command: StartRun) -> None:
        started = RunStarted(
            session_id=command.session_id or f"s_{command.run_id[2:]}",
            agent_id=command.agent_id,
            user_id=command.user_id,
            definition=AgentDefinition(name=command.agent, provider="mock", model="m"),
            segments=command.segments,
        )
        requested = ModelCallRequested(turn=1, attempt=1, provider="mock", model="m")
        await self._append(partition, command, 1, bytes(16), [started, requested])
        delta = ModelDelta(term=self.terms[partition], run_id=command.run_id, turn=1, attempt=1, start=0, text="hel")
        preview = ProducerRecord(key=b"k", value=local_codec().encode(delta))
        await self.appender.append(self.topics.previews, partition, [preview])
        replied = ModelReplied(
            turn=1, attempt=1, text="hello", stop_reason="end_turn", usage=Usage(), provider="mock", model="m",
            duration_ms=1,
        )  # fmt: skip
        completed = RunCompleted(stop_reason="end_turn", usage=Usage())
        await self._append(partition, command, 3, self.tail, [replied, completed])

    async def _append(self, partition: int, command: StartRun, seq: int, prev: bytes, events: list[Any]) -> None:
        records = []
        for number, event in enumerate(events):
            envelope = Envelope(
                term=self.terms[partition], seq=seq + number, aggregate=command.run_id,
                tenant=command.envelope.tenant, at_ms=command.envelope.issued_at_ms, prev=prev,
            )  # fmt: skip
            value = local_codec().encode_event(envelope, event)
            prev = self.tail = digest(value)
            records.append(ProducerRecord(key=command.run_id[2:].encode(), value=value))
        await self.appender.append(self.topics.events, partition, records)

    async def close(self) -> None:
        await self.commands.close()
        await self.appender.close()


@pytest_asyncio.fixture(loop_scope="session")
async def places(kafka: str, postgres: str, topic_prefix: str) -> AsyncIterator[Endpoints]:
    await apply(kafka, prefix=topic_prefix, partitions=PARTITIONS)
    prefix = f"t{uuid.uuid4().hex[:10]}"
    yield Endpoints(
        kafka=KafkaOptions(bootstrap=kafka),
        postgres=PostgresOptions(dsn=postgres, application_name="tests"),
        blobs=MemoryBlobs(),
        postgres_connections=2,
        read_model_prefix=prefix,
        topics=ApplicationTopics.with_prefix(topic_prefix),
    )
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        for schema in (prefix, f"{prefix}_1"):
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@contextlib.asynccontextmanager
async def layer_of(places: Endpoints, readiness: Readiness | None = None) -> AsyncIterator[Application]:
    ready = readiness or Readiness()
    async with open_application(places, Authenticator(tokens()), local_codec(), keepalive_s=10.0, readiness=ready) as (
        layer,
        work,
    ):
        assert not ready.missing
        async with background(work):
            yield layer


@contextlib.asynccontextmanager
async def background(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def forever() -> None:
        await work()

    task = asyncio.create_task(forever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task


@contextlib.asynccontextmanager
async def projecting(places: Endpoints, partitions: int = PARTITIONS) -> AsyncIterator[None]:
    """Projectors of runs and of entities into the places' builds."""
    async with await connect(places.postgres) as connection, await connect(places.postgres) as second:
        of_entities = Builds(second, places.read_model_prefix + ENTITY_SUFFIX, ENTITY_TABLES)
        await of_entities.prepare()
        topic = places.topics.entities.events
        model = entity_model(places.installation_key)
        entities = model.projection(second, of_entities.build(1), topic, owner="tests", codec=None)
        entity_tail = KafkaTail(places.kafka, topic, await entities.claim(range(partitions)))
        await entity_tail.start()
        builds = Builds(connection, places.read_model_prefix)
        await builds.prepare()
        projection = RunProjection(connection, builds.build(1), places.topics.events, owner="tests")
        tail = KafkaTail(places.kafka, places.topics.events, await projection.claim(range(partitions)))
        await tail.start()

        async def project() -> None:
            while True:
                await projection.apply(await tail.poll(timeout_s=0.1))

        async def project_entities() -> None:
            while True:
                await entities.apply(await entity_tail.poll(timeout_s=0.1))

        async with background(project), background(project_entities):
            yield
        await tail.close()
        await entity_tail.close()


@pytest.mark.integration
async def test_a_run_goes_through_a_real_broker_and_is_read_back_from_real_read_models(places: Endpoints) -> None:
    owner = Owner(places.kafka, places.topics)
    async with asyncio.timeout(WAIT_S):
        await owner.open()
        try:
            async with background(owner.work), projecting(places), layer_of(places) as layer:
                run = await layer.runs.start(ADMIN_CALLER, RunRequest(agent="soaker", prompt="go"))
                pieces = await pieces_of(run.stream)
                assert types_of(pieces)[:3] == ["session", "agent", "started"]
                assert types_of(pieces)[-2:] == ["usage", "done"]
                await layer.barrier.wait_for([run.position])
                row = await layer.queries.agent(ADMIN_CALLER, run.agent_id)
                assert (row.run_id, row.status) == (run.run_id, "completed")
                assert len((await layer.queries.runs(ADMIN_CALLER, RunFilter(agent="soaker"))).rows) == 1
                transcript = await layer.queries.transcript(ADMIN_CALLER, run.session_id)
                assert [frame.type for frame in transcript.rows] == ["user_input", "started", "text", "usage", "done"]
                replay = await pieces_of(await layer.queries.stream(ADMIN_CALLER, run.run_id))
                assert types_of(replay) == ["agent", "steer", "started", "text", "usage", "done"]
                events = await layer.audit_log.events(ADMIN_CALLER, EventQuery(run_id=run.run_id))
                assert [view.seq for view in events.events] == [1, 2, 3, 4]
                more = await layer.runs.continue_session(ADMIN_CALLER, run.session_id, RunRequest(prompt="more"))
                assert types_of(await pieces_of(more.stream))[-1] == "done"
                assert not layer.hub.live_runs
            async with projecting(places), layer_of(places) as again:
                # Another process, later: it begins where the read models stand and answers the same.
                assert (await again.queries.run(ADMIN_CALLER, run.run_id)).status == "completed"
                assert sum(again.hub.position(number) for number in again.hub.partitions) == 8 + PARTITIONS
        finally:
            await owner.close()


@pytest.mark.integration
async def test_without_read_models_the_hub_reads_from_the_beginning(places: Endpoints) -> None:
    owner = Owner(places.kafka, places.topics)
    async with asyncio.timeout(WAIT_S):
        await owner.open()
        try:
            async with background(owner.work), layer_of(places) as layer:
                run = await layer.runs.start(ADMIN_CALLER, RunRequest(agent="soaker", prompt="go"))
                assert types_of(await pieces_of(run.stream))[-1] == "done"
        finally:
            await owner.close()


async def test_what_is_not_there_yet_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.retries.RETRY_S", 0.0)
    readiness = Readiness()
    options: list[str] = []
    errors = [Transient("starting", kind="unavailable"), Permanent("wrong password", kind="unauthorised")]

    async def open_it() -> str:
        options.append(readiness.missing.get("broker", ""))
        if errors:
            raise errors.pop(0)
        return "open"

    assert await wait_for("broker", readiness, open_it) == "open"
    assert options == ["", "starting", "wrong password"]
    assert readiness.missing == {}
