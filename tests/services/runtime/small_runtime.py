"""A runtime of a few objects in this process, over any log: for tests that want a run to go through it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.models.pricing import Price
from loomlog.connectors.protocols import (
    LogAppender,
    LogRanges,
    Model,
    ProducerRecord,
    Tool,
)
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, QueueRef
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.budget.reservations import BudgetReservations
from loomlog.services.families.pause.state import PauseTable
from loomlog.services.families.ports.compactions import DialogueKeeper
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.families.ports.prompts import PromptAdditions
from loomlog.services.families.ports.tool_hooks import ToolHooks
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, Credentials
from loomlog.services.runtime.effects import EffectHandlers
from loomlog.services.runtime.models.availability import AvailabilityTracker
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.models.model_calls import ModelCalls, RuntimeProvider
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.summary_calls import SummaryCalls
from loomlog.services.runtime.run.context import (
    Interruption,
    RunContext,
    WaitResults,
    ignore_end,
    ignore_lease,
)
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.run_host import build_run_host
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.telemetry.tracing import NO_TRACING, Tracing
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.replicas import Replicas
from loomlog.services.stream.family import Topics
from loomlog.services.stream.ownership.standby import PausableTail
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.topic_set import TopicSetHost
from tests.run_options import grouped
from tests.services.runtime.fakes import AGENT, SECRET, Echo, EmptyIndex, OneAgent, Scripted
from tests.services.stream.membership import FixedMembership

TOPICS = Topics.of("run")
RUN = "r_one"
WAIT_S = 30.0


class SmallRuntime:
    """The parts of one process that tests look at."""

    def __init__(
        self,
        appender: LogAppender,
        ranges: LogRanges,
        commands: PausableTail,
        *,
        partitions: int,
        topics: Topics,
        model: Model,
        tracing: Tracing,
        name: str,
        pauses: Callable[[], PauseTable] | None = None,
        secrecy: ContentEncryption = PLAINTEXT,
        blobs: MemoryBlobs | None = None,
        previews_topic: str = "unused",
        tools: Mapping[str, Tool] | None = None,
        agent: AgentDefinition = AGENT,
        budgets: BudgetReservations | None = None,
        replicas: Replicas | None = None,
        entities: Sequence[TopicSetHost] = (),
        prices: Mapping[tuple[str, str], Price] | None = None,
        held: frozenset[int] | None = None,
        door: AdmissionQueue | None = None,
        hooks: ToolHooks | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        definitions: DefinitionResolver | None = None,
        providers: Mapping[str, RuntimeProvider] | None = None,
        availability: AvailabilityTracker | None = None,
        made_volumes: MadeVolumes | None = None,
        on_run_ended: Callable[[str, RunFacts], None] = ignore_end,
        prompt_memory: Callable[[DefinitionTexts], PromptAdditions] | None = None,
        compaction_memory: DialogueKeeper | None = None,
        wait_results: WaitResults | None = None,
        release_lease: Callable[[QueueRef, str, int], None] = ignore_lease,
        end_actions: Callable[[EndedAggregates], RunEndActions] | None = None,
        on_interruption: Sequence[Callable[[str, RunFacts, Interruption, bool], None]] = (),
    ) -> None:
        """`held` are the partitions it owns; None: all."""
        family, codec = RunFamily(), local_codec()
        blobs = MemoryBlobs() if blobs is None else blobs
        shelf = ProcessToolset({"Echo": Echo()} if tools is None else tools)

        def term_of(partition: int) -> int:
            owner = self.host.owners.get(partition)
            return -1 if owner is None or owner.partition is None else owner.partition.term

        self.previews = previews = Previews(
            codec, appender, topic=previews_topic, partitions=partitions, term_of=term_of
        )
        models = ModelCalls(
            {"mock": RuntimeProvider(model=model)} if providers is None else providers,
            prices=prices or {},
            currency="USD" if prices else "",
            tools=shelf,
            blobs=blobs,
            previews=previews,
            tracing=tracing,
            clock_ms=clock_ms,
            encryption=secrecy,
            budgets=budgets,
            availability=availability,
        )
        work = EffectHandlers(
            models,
            ToolCalls(
                shelf,
                volumes={},
                operator_hosts=(),
                parallelism=4,
                blobs=blobs,
                tracing=tracing,
                clock_ms=clock_ms,
                encryption=secrecy,
                hooks=hooks,
                credentials=credentials,
                made_volumes=made_volumes,
            ),
            SummaryCalls(models, blobs=blobs, clock_ms=clock_ms, encryption=secrecy, memory=compaction_memory),
        )
        self.dead_letters = DeadLetters(codec, appender, topic=topics.dead_letters, service=name, clock_ms=clock_ms)
        ended_runs = EndedAggregates(family, codec, ranges, topics.events)
        context = RunContext(
            family=family,
            partitions=partitions,
            definitions=OneAgent(agent) if definitions is None else definitions,
            index=EmptyIndex(),
            ended_runs=ended_runs,
            run_summaries=RunSummaries(codec, appender, topic="unused", clock_ms=clock_ms),
            clock_ms=clock_ms,
            tracing=tracing,
            pauses=pauses,
            encryption=secrecy,
            read_partial_output=work.partial_outputs.read,
            budgets=budgets,
            replicas=replicas,
            admission_queue=door,
            credentials=credentials,
            definition_texts=models.definition_texts,
            prompt_memory=None if prompt_memory is None else prompt_memory(models.definition_texts),
            on_run_ended=on_run_ended,
            wait_results=wait_results,
            complete_call=work.complete_call,
            release_lease=release_lease,
            end_actions=None if end_actions is None else end_actions(ended_runs),
            on_interruption=on_interruption,
        )
        self.host = build_run_host(
            context,
            codec=codec,
            topics=topics,
            appender=appender,
            ranges=ranges,
            membership=FixedMembership(frozenset(range(partitions)) if held is None else held),
            commands=commands,
            dead_letters=self.dead_letters,
            run_effect=work.run,
            name=name,
            entities=entities,
        )
        self.calls = self.host.context.effect_runner


@asynccontextmanager
async def running(runtime: SmallRuntime) -> AsyncIterator[SmallRuntime]:
    """The host as a task; leaving is a crash: what is under way is lost."""
    task = asyncio.create_task(runtime.host.run())
    try:
        yield runtime
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]  # it is not None


class Stage:
    """A log in memory on which runtimes work one after the other or together, and the model they all ask."""

    def __init__(self, agent: AgentDefinition = AGENT, tools: Mapping[str, Tool] | None = None) -> None:
        self.agent = agent
        self.tools = tools
        self.log = MemoryLog({TOPICS.commands: 1, TOPICS.events: 1})
        self.model = Scripted()
        self.instead: Model | None = None
        """A model of another kind, which owners then ask."""
        self.definitions: DefinitionResolver | None = None
        self.pauses = PauseTable()

    def send(self, command: Any, *headers: tuple[str, bytes]) -> None:
        value = local_codec().encode(command)
        key = partition_key(command.run_id).encode()
        self.log.put(TOPICS.commands, 0, [ProducerRecord(key=key, value=value, headers=headers)])

    def start(self, *headers: tuple[str, bytes], agent: str = AGENT.name, run_id: str = RUN, **more: Any) -> None:
        envelope = CommandEnvelope(command_id=run_id, tenant="acme", subject="someone", issued_at_ms=1)
        self.send(StartRun(envelope=envelope, agent=agent, prompt=SECRET, run_id=run_id, **grouped(more)), *headers)

    @asynccontextmanager
    async def owner(self, name: str, tracing: Tracing | None = None, **parts: Any) -> AsyncIterator[SmallRuntime]:
        """A runtime that holds the partition; leaving is a crash. `parts` go to SmallRuntime."""
        commands = self.log.tail(TOPICS.commands, {0: 0})
        commands.pause([0])
        runtime = SmallRuntime(
            self.log,
            self.log,
            commands,
            partitions=1,
            topics=TOPICS,
            model=self.instead or self.model,
            tracing=tracing or NO_TRACING,
            name=name,
            pauses=lambda: self.pauses,
            agent=self.agent,
            **{"tools": self.tools, "definitions": self.definitions, **parts},
        )
        async with running(runtime):
            owners = runtime.host.owners
            await self.until(lambda: 0 in owners and owners[0].partition is not None)
            yield runtime

    def events(self) -> list[Any]:
        reader = TermReader()
        events = [reader.read(record.offset, record.value) for record in self.log.records[TOPICS.events, 0]]
        return [event.decode().record for event in events if event is not None]

    def has(self, *kinds: type[Any]) -> bool:
        """An event of one of these kinds is in the log."""
        return any(isinstance(event, kinds) for event in self.events())

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                await asyncio.sleep(0.001)
