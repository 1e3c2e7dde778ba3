"""Runtimes in this process that share one set of books over a log in memory, as if they were processes of their own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog, MemoryTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.models.pricing import Price
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.budget_events import LimitSet
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import ModelReplied, RunCompleted, RunFailed, RunRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.core.entity import GENERIC_EVENTS
from loomlog.services.families.budget import FAMILY, INSTALLATION
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.reservations import BudgetReservations
from loomlog.services.families.budget.state import AccountUsage, BudgetState, account_key, evolve
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.host import Host
from tests.run_options import grouped
from tests.services.runtime.fakes import AGENT, Scripted
from tests.services.runtime.small_runtime import TOPICS, SmallRuntime, running
from tests.services.stream.entities.hosts import TOPICS as BUDGETS
from tests.services.stream.entities.hosts import Entities
from tests.services.stream.membership import FixedMembership
from tests.waiting import until

ACME = account_key("tenant", "acme", "acme")
PRICES = {("mock", "m-1"): Price(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000)}
"""One millionth a token, whatever kind."""
WAIT_S = 30.0
ENDS = (RunCompleted, RunFailed, RunRefused)


class Clerkship:
    """The books as one process reads and asks them."""

    def __init__(self, world: "BudgetWorld", name: str) -> None:
        self.parts = world.entities.parts()
        self.replicas = self.parts.replicas
        self.accounts = BudgetAccounts(
            self.parts, clock_ms=world.clock, fresh_token=lambda: f"{name}{next(world.tokens)}", name=name
        )
        self.spending = BudgetReservations(self.accounts, world.clock)

    @property
    def books(self) -> BudgetState:
        return self.accounts.state


class Shaded(MemoryTail):
    """A tail of the books that gives nothing while its process is blind."""

    def __init__(self, world: "BudgetWorld", name: str, offsets: Mapping[int, int]) -> None:
        super().__init__(world.log, BUDGETS.events, offsets)
        self._world, self._name = world, name

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
        recordses = await super().poll(timeout_s=timeout_s, max_records=max_records)
        while self._name in self._world.blind:
            await self._world.sees.wait()
        return recordses


class BudgetWorld:
    """A log with the topics of runs and of entities; `partitions` of runs. `clock` is that of the books."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.log = MemoryLog({TOPICS.commands: partitions, TOPICS.events: partitions, **Entities.partitions})
        self.entities = Entities(self.log, (FAMILY,), self.clock)
        self.tokens = count(1)
        self.model: Scripted = Scripted()
        self.parts: dict[str, Any] = {}
        """What runtimes are made of besides, as SmallRuntime takes it."""
        self.later_ms = 0
        self.blind: set[str] = set()
        """Processes that read nothing of the books until `see`."""
        self.sees = asyncio.Event()

    def clock(self) -> int:
        return clock_ms() + self.later_ms

    # --- processes ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def owner_of_the_books(self, name: str) -> AsyncIterator[Host]:
        """Somebody who claims the books, over whoever has them; leaving is a crash."""
        entities = self.entities.hosted(self.entities.parts(), name)
        host = Host(entities.topic_set, membership=FixedMembership(frozenset({0})))
        async with _task(host.run()):
            await until(lambda: 0 in host.owners and host.owners[0].partition is not None)
            yield host

    @asynccontextmanager
    async def reader_of_the_books(self, name: str) -> AsyncIterator[Clerkship]:
        clerkship = Clerkship(self, name)
        await clerkship.replicas.open()
        tail = Shaded(self, name, clerkship.replicas.next_offsets)
        async with _task(clerkship.replicas.follow(tail)):
            yield clerkship

    @asynccontextmanager
    async def runtime(
        self, name: str, *partitions: int, books: Clerkship | None = None, owns_books: bool = False
    ) -> AsyncIterator[tuple[SmallRuntime, Clerkship]]:
        """A runtime that owns these partitions of runs; leaving is a crash. `books`: it has read them before."""
        async with AsyncExitStack() as stack:
            books = books or await stack.enter_async_context(self.reader_of_the_books(name))
            commands = self.log.tail(TOPICS.commands, dict.fromkeys(range(self.partitions), 0))
            commands.pause(range(self.partitions))
            held = frozenset(partitions or range(self.partitions))
            entities = self.entities.hosted(books.parts, name) if owns_books else None
            runtime = SmallRuntime(
                self.log,
                self.log,
                commands,
                partitions=self.partitions,
                topics=TOPICS,
                model=self.model,
                tracing=NO_TRACING,
                name=name,
                budgets=books.spending,
                replicas=books.replicas,
                entities=[] if entities is None else [entities.topic_set],
                prices=PRICES,
                held=held,
                **self.parts,
            )
            if entities is not None:
                entities.attach(runtime.host)
            await stack.enter_async_context(running(runtime))
            owners = runtime.host.owners
            await until(lambda: all(n in owners and owners[n].partition is not None for n in held))
            yield runtime, books

    # --- what happens ------------------------------------------------------------------------------------------------

    def see(self) -> None:
        """Nobody is blind any more."""
        self.blind.clear()
        self.sees.set()

    async def limit(self, clerkship: Clerkship, tenant: str = "acme", **amounts: Any) -> None:
        """A limit of that tenant, known to that process."""
        command = SetLimit(
            envelope=clerkship.accounts.envelope("root"), tenant=tenant, scope="tenant", scope_id=tenant, **amounts
        )
        answer = await clerkship.accounts.request(command, wait_s=WAIT_S)
        assert isinstance(answer.events[-1], LimitSet)

    def start(self, run_id: str, **more: Any) -> None:
        envelope = CommandEnvelope(command_id=run_id, tenant="acme", subject="someone", issued_at_ms=1)
        command = StartRun(envelope=envelope, agent=AGENT.name, prompt="go", run_id=run_id, **grouped(more))
        key = partition_key(run_id).encode()
        self.log.put(
            TOPICS.commands,
            partition_of(key, self.partitions),
            [ProducerRecord(key=key, value=local_codec().encode(command))],
        )

    # --- what is in the log ------------------------------------------------------------------------------------------

    def events(self) -> list[tuple[str, Any]]:
        """Of runs, with their run."""
        result = []
        for partition in range(self.partitions):
            reader = TermReader()
            for record in self.log.records[TOPICS.events, partition]:
                event = reader.read(record.offset, record.value)
                if event is not None:
                    result.append((event.aggregate, event.decode().record))
        return result

    def appends(self, topic: str) -> Callable[[], int]:
        """Counts the appends to a topic from now on."""
        append, count = self.log.append, Counter[str]()

        async def counted(topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
            count[topic] += 1
            return await append(topic, partition, records)

        self.log.append = counted  # type: ignore[method-assign]
        return lambda: count[topic]

    def ends(self) -> Counter[str]:
        return Counter(type(event).__name__ for _, event in self.events() if isinstance(event, ENDS))

    def spent(self) -> int:
        """What answers in the log have cost."""
        return sum(event.cost_micros for _, event in self.events() if isinstance(event, ModelReplied))

    def history(self) -> list[tuple[Any, BudgetState]]:
        """Every legal event of the books, and the books after it."""
        reader, books, result = TermReader(), BudgetState(), []
        for record in self.log.records[BUDGETS.events, 0]:
            event = reader.read(record.offset, record.value)
            if event is not None and event.aggregate == INSTALLATION:
                decoded = event.decode()
                assert decoded.envelope is not None
                if isinstance(decoded.record, GENERIC_EVENTS):
                    continue
                books = evolve(books, decoded.record, decoded.envelope.at_ms)
                result.append((decoded.record, books))
        return result

    def kinds(self) -> list[str]:
        """Of the events of the books; those that settle with the kind of settlement."""
        return [getattr(event, "kind", "") or type(event).__name__ for event, _ in self.history()]

    def account(self) -> AccountUsage:
        return self.history()[-1][1].accounts[ACME]


@asynccontextmanager
async def _task(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]  # it is not None
