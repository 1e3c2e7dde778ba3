"""Actions at the end of a run over a log in memory: done once, although owners die; callbacks against a server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.configuration.secret_registry import ANY, Purpose, SecretRegistry, SecretUse
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunCompleted, RunRefused, ToolReturned
from loomlog.schemas.generated.values import RunOptions
from loomlog.services.core.refusals import Unavailable
from loomlog.services.families.callback import FAMILY
from loomlog.services.families.callback.limits import PAUSES_MS
from loomlog.services.families.callback.posts import CallbackPosts
from loomlog.services.families.callback.sends import RECEIVER
from loomlog.services.runtime.run import run_end_actions as module
from loomlog.services.runtime.run.run_end_actions import RunEnd, RunEndActions
from loomlog.services.stream.entities.answers import CommandUnanswered
from loomlog.services.stream.entities.reads import EntityRow
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.snapshots.schedule import SnapshotSchedule
from tests.connectors.tools.web_server import Names, Server, page, running
from tests.services.runtime.small_runtime import RUN, TOPICS, SmallRuntime, Stage
from tests.services.stream.entities.world import EntityWorld, Process

HOOK = '{"kind":"channel.publish","channel":"done"}'
OPTIONS = RunOptions(on_complete=(HOOK,), trigger="schedule:acme/nightly")


class Outside:
    """Channels and schedules, which do each command once, and do not answer while they are away."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.published: dict[str, str] = {}
        self.notes: dict[str, Mapping[str, Any]] = {}

    async def carry_out(self, text: str, end: RunEnd, state: Any, number: int) -> bool:
        self.asked += 1
        if self.away:
            raise Unavailable("no owner")
        self.published.setdefault(f"{end.run_id}:end:{number}", state.facts.definition.name)
        return True

    async def ask(self, command: Any, *, wait_s: float) -> Any:
        self.asked += 1
        if self.away:
            raise CommandUnanswered("no owner")
        self.notes.setdefault(command["envelope"].command_id, command)
        return Nothing()


class Nothing:
    events = ()


class Note(dict[str, Any]):
    """NoteRunEnded."""


class Ends(Stage):
    """Runtimes one after the other, whose runs have hooks and a trigger."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog(dict.fromkeys((TOPICS.commands, TOPICS.events, TOPICS.snapshots), 1))
        self.outside = Outside()

    @asynccontextmanager
    async def acting(self, name: str) -> AsyncIterator[tuple[SmallRuntime, RunEndActions]]:
        """A runtime that carries out actions; leaving is a crash."""
        made: list[RunEndActions] = []

        def build(ended_runs: EndedAggregates) -> RunEndActions:
            made.append(
                RunEndActions(self.outside, self.outside, ended_runs, local_codec(), triggers={"schedule": Note})
            )
            return made[0]

        async with self.owner(name, end_actions=build) as runtime:
            task = asyncio.create_task(made[0].run())
            try:
                yield runtime, made[0]
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def snapshot(self, runtime: SmallRuntime) -> bool:
        """Make a partition snapshot now; whether it was made."""
        owner = runtime.host.owners[0]
        return await SnapshotSchedule(owner.context, {0: owner}, lambda: None).make(owner)

    def start_with_actions(self, **more: Any) -> None:
        self.start(**{"on_complete": OPTIONS.on_complete, "trigger": OPTIONS.trigger, **more})


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr("loomlog.services.stream.snapshots.snapshots.DONE_WAIT_S", 0.05)
    return Ends()


def done(ends: Ends) -> bool:
    return bool(ends.outside.published and ends.outside.notes)


async def test_a_run_that_ends_is_told_and_its_hooks_are_carried_out(ends: Ends) -> None:
    async with ends.acting("a") as (_, actions):
        ends.start_with_actions()
        await ends.until(lambda: done(ends))
        await ends.until(lambda: actions.pending_count() == 0)
    assert ends.outside.published == {f"{RUN}:end:0": "helper"}
    note = ends.outside.notes[f"{RUN}:ended"]
    assert (note["name"], note["run_id"], note["status"]) == ("nightly", RUN, "completed")


async def test_an_owner_that_dies_between_the_end_and_its_actions_loses_none(ends: Ends) -> None:
    ends.outside.away = True
    async with ends.acting("a"):
        ends.start_with_actions()
        await ends.until(lambda: ends.has(RunCompleted) and ends.outside.asked > 0)
    assert not done(ends)
    ends.outside.away = False
    for name in ("b", "c"):  # the second one finds the end in the tail too, and changes nothing
        async with ends.acting(name) as (_, actions):
            await ends.until(lambda: done(ends) and actions.pending_count() == 0)
    assert ends.outside.published == {f"{RUN}:end:0": "helper"}
    assert list(ends.outside.notes) == [f"{RUN}:ended"]


async def test_no_snapshot_is_made_past_an_end_whose_actions_are_not_done(ends: Ends) -> None:
    ends.outside.away = True
    async with ends.acting("a") as (runtime, actions):
        ends.start_with_actions()
        await ends.until(lambda: ends.has(RunCompleted) and actions.pending_count() == 1)
        assert not await ends.snapshot(runtime)
        ends.outside.away = False
        await ends.until(lambda: actions.pending_count() == 0)
        assert await ends.snapshot(runtime)
    asked = ends.outside.asked
    async with ends.acting("b") as (_, actions):
        assert actions.pending_count() == 0
    assert ends.outside.asked == asked


async def test_a_run_that_began_before_the_snapshot_and_ended_after_it_is_seen(ends: Ends) -> None:
    ends.model.held = True
    async with ends.acting("a") as (runtime, _):
        ends.start_with_actions()
        ends.start(run_id="r_plain")
        await ends.until(lambda: sum(isinstance(event, ToolReturned) for event in ends.events()) == 2)
        await ends.model.holding.wait()
        assert await ends.snapshot(runtime)
        ends.outside.away = True
        ends.model.let_go.set()
        await ends.until(lambda: sum(isinstance(event, RunCompleted) for event in ends.events()) == 2)
    assert not done(ends)
    ends.outside.away = False
    async with ends.acting("b") as (_, actions):
        await ends.until(lambda: done(ends) and actions.pending_count() == 0)
    assert list(ends.outside.published) == [f"{RUN}:end:0"]
    assert list(ends.outside.notes) == [f"{RUN}:ended"]


async def test_the_trigger_of_a_refused_run_is_told_also_by_the_next_owner(ends: Ends) -> None:
    ends.outside.away = True
    async with ends.acting("a"):
        ends.start_with_actions(agent="stranger")
        await ends.until(lambda: ends.has(RunRefused) and ends.outside.asked > 0)
    ends.outside.away = False
    async with ends.acting("b"):
        await ends.until(lambda: bool(ends.outside.notes))
    note = ends.outside.notes[f"{RUN}:ended"]
    assert (note["status"], note["code"]) == ("refused", "unknown_agent")
    assert ends.outside.published == {}


async def test_an_owner_without_the_partition_does_nothing_more(ends: Ends) -> None:
    ends.outside.away = True
    async with ends.acting("a") as (runtime, actions):
        ends.start_with_actions()
        await ends.until(lambda: actions.pending_count() == 1)
        runtime.host.owners[0].drop()
        assert actions.pending_count() == 0
        assert not actions.is_done_below(0, 1 << 40)


# --- callbacks -------------------------------------------------------------------------------------------------------


class OwnCallbacks:
    """Reads of the callbacks that a process owns."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def local(self, family: str, tenant: str, name: str, **more: Any) -> EntityRow | None:
        entities = self._process.entities
        entity = await entities.local_entity(0, f"{family}:{tenant}/{name}", -1)
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def show(self, family: str, tenant: str, name: str, **more: Any) -> EntityRow | None:
        return None


@asynccontextmanager
async def posting(world: EntityWorld, process: Process, receiver: Any) -> AsyncIterator[CallbackPosts]:
    reads: Any = OwnCallbacks(process)

    async def decrypt(text: str, tenant: str) -> str:
        return text

    posts = CallbackPosts(
        process.entities.parts.client,
        reads,
        receiver,
        decrypt=decrypt,
        secrets=SecretRegistry(
            [SecretUse("CALLBACK_SECRET_A", Purpose.CALLBACK_SIGNATURE, "acme", ANY, ())],
            {"CALLBACK_SECRET_A": "secret"},
        ),
        clock_ms=world.clock,
    )
    process.entities.receivers[RECEIVER] = posts.receive
    task = asyncio.create_task(posts.run())
    try:
        yield posts
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld(partitions=1, families=(FAMILY,))
    yield made
    await made.close()


def callback(world: EntityWorld, url: str) -> Any:
    record = FAMILY.commands[0].record
    return record(
        envelope=world.envelope("r_1:end:0"),
        run_id="r_1",
        hook=0,
        url=url,
        body='{"run_id":"r_1"}',
        secret_env="CALLBACK_SECRET_A",
    )


def state_of(process: Process) -> Any:
    partition = process.entities.topic_set.owners[0].partition
    assert partition is not None
    return partition.aggregates["callback:acme/r_1/0"].state.state


async def eventually(world: EntityWorld, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


def requests(server: Server) -> list[tuple[str, str]]:
    """Id and body of each request."""
    return [
        (server.header("webhook-id", number) or "", one.rpartition("\r\n\r\n")[2])
        for number, one in enumerate(server.requests)
    ]


async def test_a_callback_is_made_again_after_an_error_with_the_same_id(world: EntityWorld) -> None:
    names = Names()
    client = CallbackClient(resolve=names.resolve, network=names)
    async with running() as server:
        server.answers["/x"] = page("", status="500 No")
        process = await world.process(name="a")
        async with posting(world, process, client):
            await world.ask(process, callback(world, f"http://hooks.example:{server.port}/x"))
            await eventually(world, lambda: state_of(process).status == "waiting")
            assert state_of(process).error == "it answered 500"
            server.answers["/x"] = page("ok")
            world.now += PAUSES_MS[0]
            await eventually(world, lambda: state_of(process).status == "delivered")
        await client.close()
    assert requests(server) == [("r_1:end:0", '{"run_id":"r_1"}')] * 2
    assert (server.header("webhook-signature") or "").startswith("v1,")
    assert json.loads(requests(server)[0][1]) == {"run_id": "r_1"}


async def test_a_process_that_dies_before_it_records_the_answer_has_it_posted_again(world: EntityWorld) -> None:
    class Slow:
        """A receiver that takes the request and never answers."""

        def __init__(self) -> None:
            self.ids: list[str] = []

        async def notify(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
            self.ids.append(headers["webhook-id"])
            if len(self.ids) == 1:
                await asyncio.Event().wait()
            return 200

    receiver = Slow()
    first = await world.process(name="a")
    async with posting(world, first, receiver):
        await world.ask(first, callback(world, "https://a.example/x"))
        await eventually(world, lambda: bool(receiver.ids))
    await first.kill()
    second = await world.start(name="b")
    async with posting(world, second, receiver):
        await eventually(world, lambda: _has_partition(second))
        for _ in range(3):  # what a takeover has left is loaded by its timers
            await second.entities.read_ahead(second.entities.topic_set.owners[0])
        await eventually(world, lambda: _is_hot(second) and state_of(second).status == "delivered")
    assert receiver.ids == ["r_1:end:0"] * 2


def _has_partition(process: Process) -> bool:
    owner = process.entities.topic_set.owners.get(0)
    return owner is not None and owner.partition is not None


def _is_hot(process: Process) -> bool:
    partition = process.entities.topic_set.owners[0].partition
    return partition is not None and "callback:acme/r_1/0" in partition.aggregates
