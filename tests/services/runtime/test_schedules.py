"""Schedules in a runtime over a log in memory: definitions arm them, instants start runs, and ends come back."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.secret_registry import build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunCompleted, RunStarted
from loomlog.schemas.generated.schedule_commands import NoteRunEnded, RunScheduleNow
from loomlog.schemas.generated.schedule_events import (
    FireSettled,
    InstantsSkipped,
    ScheduleArmed,
    ScheduleDisarmed,
    ScheduleFired,
)
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.bounded_resources import SCHEDULE_FIRES, SCHEDULES
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import ShareLimits
from loomlog.services.families.definition import FAMILY as DEFINITION
from loomlog.services.families.definition import schedule_shares
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.table import DefinitionTable, FileDefinition, file_definition
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.schedule import FAMILY as SCHEDULE
from loomlog.services.families.schedule.arming import ActiveSchedules, ScheduleArming, schedule_options
from loomlog.services.families.schedule.credentials import ScheduleCredentials
from loomlog.services.families.schedule.reconciler import ScheduleReconciler
from loomlog.services.families.schedule.state import Schedule
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.entities.client import EntityClient
from loomlog.services.stream.entities.reads import EntityRow
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from tests.services.families.definition.opened import Opened, fields_of
from tests.services.runtime.fakes import Scripted
from tests.services.runtime.small_runtime import TOPICS, SmallRuntime, running
from tests.services.stream.entities.hosts import TOPICS as ENTITIES
from tests.services.stream.entities.hosts import Entities
from tests.services.stream.entities.world import FoldedRows
from tests.waiting import until

KIND = KINDS["schedule"]
DAY_MS = 86_400_000
VARIABLE = "LOOMLOG_TEST_GITHUB"


class Reads:
    """The part of EntityReads that arming uses, from the rows or from the owner of this process."""

    topic = ENTITIES.events

    def __init__(self, rows: FoldedRows, client: EntityClient) -> None:
        self.away = False
        self._rows, self._client = rows, client

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        full = aggregate_id(family, tenant, name)
        entity = await self._client.local_entity(partition_of(aggregate_key(full), 1), full, -1)
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        if self.away:
            raise Transient("the database is away", kind="unavailable")
        start = aggregate_id(family, tenant, "")
        folded = await self._rows._folded(0, await self._rows.next_offset(0))  # as `load` reads them
        names = sorted(name.removeprefix(start) for name in folded if name.startswith(start))
        return [EntityRow(name=name, entity=folded[start + name].state) for name in names if name > after][:limit]


class Store:
    """A store of credentials."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Mapping[str, str]] = {}
        self.failures = 0

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None:
        if self.failures:
            self.failures -= 1
            raise Transient("the database is away", kind="unavailable")
        self.values[tenant, run_id] = credentials

    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]:
        return self.values.get((tenant, run_id), {})

    async def delete(self, run_ids: Sequence[str]) -> None: ...
    async def sweep(self) -> int:
        return 0


class NoHooks:
    async def carry_out(self, text: str, end: Any, state: Any, number: int) -> bool:
        raise AssertionError("no run has hooks")


class Process:
    """A runtime that owns everything; leaving its context is a crash."""

    def __init__(self, opened: Opened, reconciler: ScheduleReconciler, reads: Reads, client: EntityClient) -> None:
        self.opened, self.reconciler, self.reads, self.client = opened, reconciler, reads, client
        self.table: DefinitionTable = opened.get(DefinitionTable)


class World:
    """A log with runs, definitions and schedules."""

    def __init__(self) -> None:
        topics = (TOPICS.commands, TOPICS.events, TOPICS.snapshots)
        self.now_ms = clock_ms
        self.log = MemoryLog({**dict.fromkeys(topics, 1), **Entities.partitions})
        self.entities = Entities(self.log, (DEFINITION, SCHEDULE), lambda: self.now_ms())
        self.model = Scripted()
        self.store = Store()
        self.number = 0

    @asynccontextmanager
    async def process(
        self, name: str, blocks: Mapping[str, ScheduleBlock] | None = None, allowed: Collection[str] = (VARIABLE,)
    ) -> AsyncIterator[Process]:
        parts = self.entities.parts()
        hosted = self.entities.hosted(parts, name)
        await parts.replicas.open()
        blocks = blocks or {}
        files: dict[tuple[str, str], FileDefinition] = {
            ("schedule", one): file_definition("schedule", one, KIND.content_of(block)) for one, block in blocks.items()
        }
        reads = Reads(self.entities.rows, parts.client)
        any_reads: Any = reads
        opened = Opened(parts.replicas, parts.client, any_reads, files=files)
        table: DefinitionTable = opened.get(DefinitionTable)
        settings = Settings(scheduler_env_allowlist=tuple(allowed))
        secrets = build_secret_registry(Configuration(), settings, os.environ)

        def now_ms() -> int:
            return self.now_ms()

        options = schedule_options(blocks, is_enabled=True, secrets=secrets)
        arming = ScheduleArming(ActiveSchedules(table, parts.replicas, options), parts.client, clock_ms=now_ms)
        opened.get(DefinitionOperations).after_change = arming.after_change
        reconciler = ScheduleReconciler(
            arming,
            parts.replicas,
            any_reads,
            self.entities.rows,
            owned_terms=hosted.owned_terms,
            clock_ms=now_ms,
        )
        made: list[RunEndActions] = []

        def end_actions(ended: EndedAggregates) -> RunEndActions:
            triggers = {"schedule": NoteRunEnded}
            made.append(RunEndActions(parts.client, NoHooks(), ended, local_codec(), triggers=triggers))
            return made[0]

        credentials = Credentials(self.store)
        stored = CredentialReader(Directory(parts.replicas, None, clock_ms=now_ms), None)
        hosted.put_credentials = ScheduleCredentials(credentials, secrets, stored).put
        commands = self.log.tail(TOPICS.commands, {0: 0})
        commands.pause([0])
        small = SmallRuntime(
            self.log,
            self.log,
            commands,
            partitions=1,
            topics=TOPICS,
            model=self.model,
            tracing=NO_TRACING,
            name=name,
            entities=[hosted.topic_set],
            credentials=credentials,
            end_actions=end_actions,
        )
        hosted.attach(small.host)
        tail = self.log.tail(ENTITIES.events, parts.replicas.next_offsets)
        tasks = [asyncio.create_task(one) for one in (parts.replicas.follow(tail), made[0].run(), hosted.run())]
        try:
            async with running(small):
                await until(lambda: 0 in small.host.owners and bool(hosted.owned_terms()))
                await reconciler.step()
                yield Process(opened, reconciler, reads, parts.client)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def define(self, process: Process, op: str, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        author = Author(tenant="acme", subject="op", command_id=f"c{self.number}", issued_at_ms=clock_ms())
        return fields_of(await process.opened.ask(KIND.tool, op, author, **fields))

    async def create(self, process: Process, times: str, name: str = "nightly", **overlay: Any) -> Mapping[str, Any]:
        prompt = [{"role": "user", "content": [{"type": "trusted-text", "text": "tick"}]}]
        overlay = {"agent": "helper", "schedule": times, "prompt": prompt, **overlay}
        return await self.define(process, "create", name=name, overlay=overlay)

    def events(self, kind: type[Any], topic: str = ENTITIES.events) -> list[Any]:
        reader, events = TermReader(), list[Any]()
        for record in self.log.records[topic, 0]:
            event = reader.read(record.offset, record.value)
            if event is not None:
                decoded = event.decode().record
                events += [decoded] if isinstance(decoded, kind) else []
        return events

    def runs(self) -> list[RunStarted]:
        return self.events(RunStarted, TOPICS.events)

    async def state(self, process: Process, tenant: str = "acme", name: str = "nightly") -> Schedule:
        rows = await process.reads.list(SCHEDULE.name, tenant, limit=100)
        state: Schedule = next(row.entity.state for row in rows if row.name == name)
        return state


@pytest.fixture
def world() -> World:
    return World()


async def test_an_instant_starts_a_run_whose_end_is_told(world: World) -> None:
    async with world.process("a") as process:
        made = await world.create(process, "@every 1s", user_id="ada", metadata={"team": "red"}, max_fires=1)
        await until(lambda: bool(world.events(FireSettled)))
        (fired,), (settled,), (run,) = world.events(ScheduleFired), world.events(FireSettled), world.runs()
        assert fired.def_id == made["def_id"]
        assert (run.options.trigger, run.user_id) == ("schedule:acme/nightly", "ada")
        assert run.options.metadata == {"team": '"red"'}
        assert (settled.run_id, settled.status, settled.number) == (fired.run_id, "completed", 1)
        # After the last fire its definition is retired, so nothing is armed again.
        await until(lambda: process.table.resolve("schedule", "acme", "nightly") is None)
        await process.reconciler.step()
        assert (await world.state(process)).is_spent
    assert len(world.events(ScheduleArmed)) == 1


async def test_a_principal_has_its_share_of_schedules_and_of_fires_and_others_are_not_affected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fires = replace(SCHEDULE_FIRES, limits=ShareLimits.of(1_000, per_principal=48))
    monkeypatch.setattr(schedule_shares, "SCHEDULE_FIRES", fires)
    async with world.process("a") as process:

        async def ask(op: str, subject: str, tenant: str = "acme", **fields: Any) -> Mapping[str, Any]:
            world.number += 1
            command_id = f"c{world.number}"
            author = Author(tenant=tenant, subject=subject, command_id=command_id, issued_at_ms=clock_ms())
            return fields_of(await process.opened.ask(KIND.tool, op, author, **fields))

        def overlay(times: str, **more: Any) -> dict[str, Any]:
            return {"agent": "helper", "schedule": times, **more}

        async def create(name: str, subject: str, times: str, tenant: str = "acme") -> Mapping[str, Any]:
            return await ask("create", subject, tenant, name=name, overlay=overlay(times))

        often = await create("one", "ada", "@every 30m")
        seldom = await create("two", "bob", "@daily")
        for name, subject, times in (("three", "ada", "@every 30m"), ("four", "ada", "@hourly")):
            text = "ada of acme would fire .* times a day, and may 48 times: let them"
            with pytest.raises(Refused, match=text) as no:
                await create(name, subject, times)
            assert no.value.code == "too_many"
        await ask("fork", "op", name="two", parent_def_id=seldom["def_id"], overlay={"schedule": "@every 30m"})
        with pytest.raises(Refused, match="bob of acme would fire"):
            await create("five", "bob", "@daily")
        await create("one", "eve", "@every 30m", tenant="globex")
        await ask("fork", "op", name="one", parent_def_id=often["def_id"], overlay={"schedule": "@daily"})
        six = await create("six", "ada", "@hourly")
        with pytest.raises(Refused, match="ada of acme would fire"):
            await ask("promote", "op", def_id=often["def_id"])
        few = replace(SCHEDULES, limits=ShareLimits.of(4, per_tenant=3, per_principal=2))
        monkeypatch.setattr(schedule_shares, "SCHEDULES", few)
        with pytest.raises(Refused, match="ada of acme would have 3 schedules, and may have 2: delete some"):
            await create("seven", "ada", "@daily")
        with pytest.raises(Refused, match="the tenant acme would have 4 schedules, and may have 3"):
            await create("eight", "cat", "@daily")
        await ask("retire", "op", def_id=six["def_id"], retired=True)
        await create("seven", "ada", "@daily")


async def test_an_unknown_agent_is_told_and_uses_no_fire_up(world: World) -> None:
    async with world.process("a") as process:
        await world.create(process, "@every 1h", agent="missing", max_fires=1)
        envelope = CommandEnvelope(command_id="now", tenant="acme", issued_at_ms=clock_ms())
        await process.client.ask(RunScheduleNow(envelope=envelope, name="nightly"), wait_s=30)
        await until(lambda: bool(world.events(FireSettled)))
        (settled,) = world.events(FireSettled)
        assert (settled.status, settled.counts) == ("failed", False)
        assert "unknown_agent" in settled.error
        assert (await world.state(process)).is_armed


async def test_instants_that_passed_while_every_process_was_away_become_one_run(world: World) -> None:
    async with world.process("a") as process:
        await world.create(process, "@every 1h")
    world.now_ms = lambda: clock_ms() + 5 * 3_600_000 + 1_000
    async with world.process("b"):
        await until(lambda: bool(world.events(FireSettled)))
        (skipped,) = world.events(InstantsSkipped)
        assert (skipped.count, skipped.reason) == (4, "catch_up")
        assert len(world.runs()) == 1


async def test_an_owner_that_dies_after_a_fire_starts_its_run_once(world: World) -> None:
    async with world.process("a") as process:
        await world.create(process, "@every 1h")
        envelope = CommandEnvelope(command_id="now", tenant="acme", issued_at_ms=clock_ms())
        await process.client.ask(RunScheduleNow(envelope=envelope, name="nightly"), wait_s=30)
    for name in ("b", "c"):
        async with world.process(name):
            await until(lambda: bool(world.events(FireSettled)))
    assert len(world.runs()) == 1
    assert len(world.events(RunCompleted, TOPICS.events)) == 1
    assert [one.run_id for one in world.events(FireSettled)] == [world.events(ScheduleFired)[0].run_id]


async def test_schedules_of_files_are_armed_at_the_start_and_disarmed_when_they_are_gone(world: World) -> None:
    one = ScheduleBlock(agent="helper", schedule="0 3 * * *", enabled=True, tenant_id="acme")
    other = ScheduleBlock(agent="helper", schedule="0 4 * * *", enabled=True, tenant_id="acme")
    off = ScheduleBlock(agent="helper", schedule="0 3 * * *")
    async with world.process("a", {"nightly": one, "off": off}) as process:
        state = await world.state(process)
        assert (state.is_armed, state.spec and state.spec.times) == (True, "0 3 * * *")
        state = await world.state(process, "default", "off")
        assert (state.is_armed, state.next_ms) == (True, 0)
    for blocks, times in (({"nightly": other}, "0 4 * * *"), ({"nightly": one}, "0 3 * * *")):
        async with world.process("b", blocks) as process:
            state = await world.state(process)
            assert state.spec is not None
            assert state.spec.times == times
    async with world.process("c") as process:
        assert not (await world.state(process)).is_armed
    async with world.process("d", {"nightly": one}) as process:
        assert (await world.state(process)).is_armed
    assert world.events(ScheduleFired) == []


async def test_a_start_of_the_same_process_arms_nothing_twice(world: World) -> None:
    block = ScheduleBlock(agent="helper", schedule="0 3 * * *", enabled=True)
    async with world.process("a", {"filed": block}) as process:
        await world.create(process, "@daily")
    async with world.process("b", {"filed": block}) as process:
        await process.reconciler.step()
    assert len(world.events(ScheduleArmed)) == 2


async def test_a_change_that_its_author_could_not_arm_is_armed_by_the_owner(world: World) -> None:
    async with world.process("a") as process:
        process.opened.get(DefinitionOperations).after_change = None
        made = await world.create(process, "@daily")
        assert world.events(ScheduleArmed) == []
        await process.reconciler.step()
        assert (await world.state(process)).def_id == made["def_id"]
        await world.define(process, "retire", def_id=made["def_id"], retired=True)
        await process.reconciler.step()
        assert not (await world.state(process)).is_armed


async def test_a_reconciliation_that_fails_is_done_later(world: World) -> None:
    block = ScheduleBlock(agent="helper", schedule="0 3 * * *", enabled=True, tenant_id="acme")
    async with world.process("a") as process:
        await world.create(process, "@daily", "other")
    async with world.process("b", {"nightly": block}) as process:
        process.reconciler._checked.clear()  # as after a takeover
        process.opened.get(DefinitionOperations).after_change = None
        process.reads.away = True
        made = await world.create(process, "@hourly", "other")
        with pytest.raises(Transient):
            await process.reconciler.step()
        process.reads.away = False
        await process.reconciler.step()
        assert (await world.state(process, name="other")).def_id == made["def_id"]


async def test_values_of_the_environment_are_beside_the_log_before_the_run_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a-secret-value")
    monkeypatch.setattr("loomlog.connectors.retries.RETRY_S", 0.01)
    world.store.failures = 2
    async with world.process("a") as process:
        await world.create(process, "@every 1s", user_credentials_from_env={"github": VARIABLE})
        await until(lambda: bool(world.runs()))
        run_id = world.events(ScheduleFired)[0].run_id
        assert world.runs()[0].options.credentials == ("github",)
        assert world.store.values["acme", run_id] == {"github": "a-secret-value"}
    records = [record.value or b"" for records in world.log.records.values() for record in records]
    assert not any(b"a-secret-value" in value for value in records)


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        ({"user_credentials": {"github": "$cred:git"}}, "$cred:git names no stored credential"),
        ({"user_credentials": {"github": "$ghapp:bot"}}, "$ghapp:bot names no stored credential"),
        ({"user_credentials_from_env": {"github": VARIABLE}}, f"{VARIABLE} is not set"),
    ],
)
async def test_a_fire_whose_credential_is_not_there_fails_and_starts_nothing(
    credentials: Mapping[str, Any], reason: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    async with world.process("a") as process:
        await world.create(process, "@every 1h", max_fires=1, **credentials)
        envelope = CommandEnvelope(command_id="now", tenant="acme", issued_at_ms=clock_ms())
        await process.client.ask(RunScheduleNow(envelope=envelope, name="nightly"), wait_s=30)
        await until(lambda: bool(world.events(FireSettled)))
        (settled,) = world.events(FireSettled)
        assert (settled.status, settled.counts) == ("failed", False)
        assert settled.error.startswith("credential_unavailable: user_credentials.github: ")
        assert reason in settled.error
        assert (await world.state(process)).is_armed
    assert world.runs() == []
    assert world.store.values == {}


async def test_what_a_clock_ahead_has_decided_begins_again_at_the_next_takeover(world: World) -> None:
    world.now_ms = lambda: clock_ms() + DAY_MS
    async with world.process("ahead") as process:
        await world.create(process, "@every 1s")
        await until(lambda: len(world.events(ScheduleFired)) == 2)
    world.now_ms = clock_ms
    async with world.process("right") as process:
        await until(lambda: len(world.events(ScheduleFired)) == 4)
        state = await world.state(process)
    assert state.next_ms < clock_ms() + 10_000
    assert len(world.events(ScheduleArmed)) == 2


async def test_what_a_clock_ahead_has_decided_begins_again_when_it_is_set_back(world: World) -> None:
    world.now_ms = lambda: clock_ms() + DAY_MS
    async with world.process("a") as process:
        await world.create(process, "@every 1s")
        await until(lambda: len(world.events(ScheduleFired)) == 2)
        await process.reconciler.step()
        assert len(world.events(ScheduleArmed)) == 1
        world.now_ms = clock_ms
        await process.reconciler.step()
        assert len(world.events(ScheduleArmed)) == 2
        await until(lambda: len(world.events(ScheduleFired)) == 4)
        await process.reconciler.step()
    assert len(world.events(ScheduleArmed)) == 2


async def test_a_schedule_that_is_armed_after_a_clock_ahead_has_decided_begins_now(world: World) -> None:
    world.now_ms = lambda: clock_ms() + DAY_MS
    blocks = {"nightly": ScheduleBlock(agent="helper", schedule="@every 1s", enabled=True)}
    async with world.process("ahead", blocks):
        await until(lambda: len(world.events(ScheduleFired)) == 1)
    async with world.process("ahead, without the file"):
        assert world.events(ScheduleDisarmed)
    world.now_ms = clock_ms
    async with world.process("right", blocks) as process:
        state = await world.state(process, tenant="default")
    assert state.next_ms < clock_ms() + 10_000
