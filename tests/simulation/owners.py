"""A runtime process: the real host with everything behind it, over the simulated log, clock and calls.

What is simulated: the wire, the group, the index (over the simulated tables), and the models and tools, which answer by
a script after a while. Everything between is what services/runtime/main.py puts together.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol
from zlib import crc32

from connectors.protocols import Share
from schemas.codec import local_codec
from schemas.values import AgentDefinition, InterruptionTerms, ModelChoice, ToolCall
from services.core.run.interrupting import TOOL, wish_of
from services.core.run.orders import Alternative, ModelAnswered, ModelErred
from services.core.run.react import CallModel
from services.runtime.desk import RunDesk
from services.runtime.run_family import RunFamily
from services.runtime.tally import Tallies
from services.stream.calls import Calls
from services.stream.dead_letters import DeadLetters
from services.stream.host import Host
from services.stream.past import Past
from services.stream.snapshot import Snapshots
from services.stream.standby import Standby
from services.stream.workplace import Workplace
from tests.services.stream.families import add_families, family_script
from tests.services.stream.outside import Definitions
from tests.services.stream.script import answer
from tests.simulation.broker import Tail, Wire
from tests.simulation.builds import StoredIndex
from tests.simulation.clients import FAMILIES, expires
from tests.simulation.log import TOPICS
from tests.simulation.loop import Process
from tests.simulation.store import Store

CANDIDATES = tuple(ModelChoice(provider=name, model="large") for name in ("acme", "other"))
AGENT = AgentDefinition(
    name="helper",
    provider="acme",
    model="large",
    tools=("T", TOOL),
    retry_attempts=1,
    candidates=CANDIDATES,
    fallback_on_error=True,
    max_fallback_attempts=9,
    max_iterations=64,
    interruption=InterruptionTerms(enabled=True),
)
QUESTION_S = 4.0
"""How long a question waits that nobody answers."""
SLOW_CALL_S = 1.5
"""The longest calls; half take less than a tenth of a second. Runs live long enough for faults to strike in them."""
BUSY_SHARE = 13
"""One in so many model calls is answered with a failure that may be tried again."""
BROKEN_SHARE = 7
"""One in so many runs finds its first provider broken."""
BUSY_ATTEMPTS = 5
"""Attempts of a turn that may fail so, so that no run fails for good: one is retried, and two end in a fallback."""


class Membership:
    """What the group says, as far as this process has heard (protocol services.stream.host.Membership)."""

    def __init__(self) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.members: Mapping[str, Share] = {}
        self.changed = asyncio.Event()
        self._generation = 0

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()

    def hear(self, generation: int, life: str, members: Mapping[str, Share]) -> None:
        """What everybody is to own, as the one of that life hears it. Rebalances come in order; one that was overtaken
        is never heard of."""
        if generation < self._generation:
            return
        self._generation = generation
        if members != self.members:
            self.assigned, self.members = members[life].partitions, members
            self.changed.set()


class Witness(Protocol):
    """Sees every call to the outside, and knows who lives."""

    def until_gone(self, holder: Process, lifeline: str) -> Awaitable[bool]: ...

    def call_began(self, process: str, run_id: str, key: Any) -> None: ...
    def call_ended(self, process: str, run_id: str, key: Any) -> None: ...


@dataclass(slots=True)
class OwnerProcess:
    """A runtime process with what the world reaches for."""

    process: Process
    host: Host
    membership: Membership
    task: "asyncio.Task[None]"


def owner_process(
    wire: Wire, store: Store, witness: Witness, *, partitions: int, clock_ms: Callable[[], int]
) -> OwnerProcess:
    """Starts a host in the wire's process."""
    loop, process, family, codec = wire.loop, wire.process, RunFamily(), local_codec()
    past = Past(family, codec, wire, TOPICS.events)
    tallies = Tallies(codec, wire, topic="tallies", clock_ms=clock_ms)
    index = StoredIndex(store, wire.round_trip)
    definitions = Definitions()
    definitions.known = {AGENT.name: AGENT}
    add_families(definitions, *FAMILIES, retry_attempts=AGENT.retry_attempts)

    def desk(number: int, term: int, known_since_ms: int, forgotten_until: int) -> RunDesk:
        return RunDesk(
            number=number,
            partitions=partitions,
            known_since_ms=known_since_ms,
            forgotten_until=forgotten_until,
            definitions=definitions,
            index=index,
            past=past,
            tallies=tallies,
            clock_ms=clock_ms,
            absent=family.absent,
        )

    async def call(effect: Any, state: Any, tenant: str) -> Any:
        del tenant
        if isinstance(effect, CallModel) and effect.not_before_ms > clock_ms():
            await asyncio.sleep((effect.not_before_ms - clock_ms()) / 1000)
        witness.call_began(process.name, effect.run_id, effect.key)
        draw = wire.fates.random.random()
        await asyncio.sleep(SLOW_CALL_S * draw**4)
        witness.call_ended(process.name, effect.run_id, effect.key)
        return answered(effect, state, clock_ms())

    host: Host
    work = Workplace(
        family=family,
        codec=codec,
        topics=TOPICS,
        appender=wire,
        ranges=wire,
        snapshots=Snapshots(family, codec, appender=wire, ranges=wire, topic=TOPICS.snapshots),
        past=past,
        dead_letters=DeadLetters(codec, wire, topic=TOPICS.dead_letters, service=process.name, clock_ms=clock_ms),
        calls=Calls(family, run=call, done=lambda *result: host.result(*result), clock_ms=clock_ms),
        desk=desk,
        clock_ms=clock_ms,
        name=process.name,
        lifeline=f"simulated:1/{process.name}",
    )
    events = Tail(wire, TOPICS.events, dict.fromkeys(range(partitions), 0))
    events.pause(range(partitions))
    standby = Standby(
        work,
        life=process.name,
        tail=events,
        ranges=wire,
        until_gone=lambda lifeline, met: witness.until_gone(process, lifeline),
    )
    membership = Membership()
    commands = Tail(wire, TOPICS.commands, dict.fromkeys(range(partitions), 0))
    commands.pause(range(partitions))
    host = Host(work, membership=membership, commands=commands, standby=standby)
    return OwnerProcess(process, host, membership, loop.spawn(process, host.run()))


def answered(effect: Any, state: Any, at_ms: int) -> Any:
    """What the outside says: the same to the same attempt of the same run, whoever asks."""
    if isinstance(effect, CallModel) and is_busy(effect, state.facts.definition):
        return ModelErred(
            at_ms=at_ms,
            turn=effect.turn,
            attempt=effect.attempt,
            kind="overloaded",
            transient=True,
            message="acme 529: busy",
            retry_after_ms=0,
            retries_rate_limits=True,
            duration_ms=1,
            alternatives=tuple(Alternative(choice=choice, sees_images=True) for choice in CANDIDATES),
        )
    family = family_script(effect, state, at_ms)
    if family is not None:
        return family
    said = answer(effect, turns_of(effect.run_id), at_ms)
    if "ask" in effect.run_id and isinstance(said, ModelAnswered) and effect.turn == 1:
        return asking(said, effect.run_id)
    return said


def asking(said: ModelAnswered, run_id: str) -> ModelAnswered:
    """The answer with a question to a person beside the tools it asks for."""
    timeout = {"timeout_ms": int(QUESTION_S * 1000)} if expires(run_id) else {}
    asked = {"op": "ask", "question": "Shall I?", "options": ["yes", "no"], **timeout}
    call = ToolCall(id="ask", name=TOOL, input=json.dumps(asked))
    return replace(
        said,
        tool_calls=(*said.tool_calls, call),
        effect_classes=(*said.effect_classes, "pure"),
        wishes=(wish_of(len(said.tool_calls), call.input),),
        stop_reason="tool_use",
    )


def is_busy(effect: CallModel, definition: AgentDefinition) -> bool:
    """Whether this call fails: any may, and for some runs that can fall back every call to the first provider does."""
    falls_back = definition.fallback_on_error
    if effect.attempt > (BUSY_ATTEMPTS if falls_back else definition.retry_attempts):
        return False
    if (
        falls_back
        and effect.provider == AGENT.provider
        and crc32(f"{effect.run_id}/broken".encode()) % BROKEN_SHARE == 0
    ):
        return True
    return crc32(f"{effect.run_id}/{effect.key}".encode()) % BUSY_SHARE == 0


def turns_of(run_id: str) -> int:
    """Model turns of a run: one for those that talk (their turns end with the text), otherwise up to three. One that
    asks a person has a further turn for the answer."""
    if "ask" in run_id:
        return 2 + crc32(run_id.encode()) % 2
    return 1 if "talk" in run_id else 1 + crc32(run_id.encode()) % 3
