"""A runtime process: the real host with everything behind it, over the simulated log, clock and calls.

What is simulated: the wire, the group, the index (over the simulated tables), and the models and tools, which answer by
a script after a while. Everything between is what services/runtime/main.py puts together.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.core.run.react import CallModel, Summarise
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_run_host
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from tests.services.stream.families import add_families
from tests.services.stream.outside import Definitions
from tests.simulation.answers import AGENT, AGENTS, answered
from tests.simulation.books import Books
from tests.simulation.broker import Tail, Wire
from tests.simulation.builds import StoredIndex
from tests.simulation.clients import FAMILIES
from tests.simulation.entities import EntityHost, EntityLoad
from tests.simulation.log import ENTITIES, TOPICS
from tests.simulation.loop import Process
from tests.simulation.membership import Membership
from tests.simulation.store import Store

SLOW_CALL_S = 1.5
"""The longest calls; half take less than a tenth of a second. Runs live long enough for faults to strike in them."""

DEFINITIONS = Definitions()
"""Nobody changes them."""
DEFINITIONS.known = {agent.name: agent for agent in AGENTS}
add_families(DEFINITIONS, *FAMILIES, retry_attempts=AGENT.retry_attempts)


class Witness(Protocol):
    """Sees every call to the outside, and knows who lives."""

    def until_gone(self, holder: Process, lifeline: str) -> Awaitable[bool]: ...

    def ordered(self, command: Any) -> None: ...
    def call_began(self, process: str, run_id: str, key: Any, paid: str = "") -> None: ...
    def call_ended(self, process: str, run_id: str, key: Any) -> None: ...
    def defined(self, process: str, run_id: str, definition: AgentDefinition) -> None: ...


@dataclass(slots=True)
class OwnerProcess:
    """A runtime process with what the world reaches for."""

    process: Process
    host: Host
    membership: Membership
    entities: EntityHost | None
    """In a seed with entities other than budgets."""
    task: "asyncio.Task[None]"


def owner_process(
    wire: Wire,
    store: Store,
    witness: Witness,
    *,
    partitions: int,
    clock_ms: Callable[[], int],
    limited: bool,
    entities: EntityLoad | None = None,
) -> OwnerProcess:
    """Starts a host in the wire's process; beside the runs budgets when there are limits, or other entities."""
    loop, process, family, codec = wire.loop, wire.process, RunFamily(), local_codec()
    letters = DeadLetters(codec, wire, topic=TOPICS.dead_letters, service=process.name, clock_ms=clock_ms)
    standby = StandbyEdges(
        incarnation=process.name,
        readers=StandbyReaders(tail=_paused_tail(wire, TOPICS.events, partitions), ranges=wire),
        wait_for_disconnect=lambda address, connected: witness.until_gone(process, address),
        request_handover=None,
        liveness_address=f"simulated:1/{process.name}",
    )
    books: Books | None = None
    if limited:
        books = Books(
            wire,
            partitions=partitions,
            clock_ms=clock_ms,
            dead_letters=letters,
            standby=standby,
            ordered=witness.ordered,
        )

    async def call(effect: Any, state: Any, tenant: str) -> Any:
        if isinstance(effect, CallModel) and effect.not_before_ms > clock_ms():
            await asyncio.sleep((effect.not_before_ms - clock_ms()) / 1000)
        if books is not None and isinstance(effect, CallModel | Summarise):
            return await books.paid(effect, state, tenant, partial(made, effect, state))
        return await made(effect, state, "")

    async def made(effect: Any, state: Any, paid: str) -> Any:
        witness.call_began(process.name, effect.run_id, effect.key, paid)
        witness.defined(process.name, effect.run_id, state.facts.definition)
        draw = wire.fates.random.random()
        answer = None if entity_host is None else await entity_host.outside(effect, state)
        await asyncio.sleep(SLOW_CALL_S * draw**4)
        witness.call_ended(process.name, effect.run_id, effect.key)
        return answered(effect, state, clock_ms()) if answer is None else answer

    def edges(events_topic: str) -> StandbyEdges:
        return StandbyEdges(
            incarnation=process.name,
            readers=StandbyReaders(tail=_paused_tail(wire, events_topic, partitions), ranges=wire),
            wait_for_disconnect=lambda address, connected: witness.until_gone(process, address),
            request_handover=None,
            liveness_address=f"simulated:1/{process.name}",
        )

    entity_host = None if entities is None else entities.host(wire, edges(ENTITIES.events), clock_ms)
    context = RunContext(
        family=family,
        partitions=partitions,
        definitions=DEFINITIONS if entity_host is None else entity_host.resolver(DEFINITIONS),
        index=StoredIndex(store, wire.round_trip),
        ended_runs=EndedAggregates(family, codec, wire, TOPICS.events),
        run_summaries=RunSummaries(codec, wire, topic="tallies", clock_ms=clock_ms),
        clock_ms=clock_ms,
        budgets=None if books is None else books.spending,
        replicas=books.parts.replicas
        if books is not None
        else entity_host.parts.replicas
        if entity_host is not None
        else None,
        **({} if entity_host is None else entity_host.run_context()),
    )
    membership = Membership()
    host = build_run_host(
        context,
        codec=codec,
        topics=TOPICS,
        appender=wire,
        ranges=wire,
        membership=membership,
        commands=_paused_tail(wire, TOPICS.commands, partitions),
        dead_letters=letters,
        run_effect=call,
        name=process.name,
        standby=standby,
        entities=[books.entities.topic_set]
        if books is not None
        else []
        if entity_host is None
        else [entity_host.entities.topic_set],
    )
    work = host.run() if entity_host is None else entity_host.beside(host, host.run())
    if books is not None:
        books.entities.attach(host)
        work = books.beside(work)
    return OwnerProcess(process, host, membership, entity_host, loop.spawn(process, work))


def _paused_tail(wire: Wire, topic: str, partitions: int) -> Tail:
    tail = Tail(wire, topic, dict.fromkeys(range(partitions), 0))
    tail.pause(range(partitions))
    return tail
