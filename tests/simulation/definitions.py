"""Definitions in the simulation: lines of agents that change while runs of them start, live and are forked.

    create     a version with content of its own, active
    fork       a version made from an earlier one, active or not
    promote    an earlier version, which may not exist, or be retired
    rollback   the version before
    retire     an earlier version, perhaps the active one
    restore    a retired version
    apply      a version of each line, all at once: through the outbox

Half of the orders are followed by a run of the line, whose start carries the position of the order's answer; half of
these by a fork of it. The real resolver of every owner has a table of its own, over the replicas of its process.

Before: world.py, in the seeds with definitions. After: entities.py; definition_ledger.py checks what is in the log.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.definitions import canonical_json
from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import Blobs, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.definition_commands import (
    ApplyDefinitions,
    DefineVersion,
    ForkVersion,
    PromoteVersion,
    RetireVersion,
    RollBack,
)
from loomlog.schemas.generated.run_commands import ForkRun, StartRun
from loomlog.schemas.generated.values import AgentDefinition, ApprovalPolicy, CommandEnvelope, DefinitionChange
from loomlog.schemas.ids import partition_key
from loomlog.services.core.definitions import def_id
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.definition.views import DefinedAgents
from loomlog.services.runtime.models.agent_definitions import AgentDefinitions
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run_host import StandbyEdges
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.reads import EntityReads
from tests.simulation.broker import Wire
from tests.simulation.definition_ledger import DefinitionLedger, Start
from tests.simulation.entities import LOOK_S, ORDERS_UNTIL, EntityHost, EntityLoad, plan_acts
from tests.simulation.entity_ledger import Order
from tests.simulation.faults import CALM_S, Faults
from tests.simulation.log import TOPICS, SimulatedLog

DEFINITION_SHARE = 0.35
"""Of the seeds with neither a limit nor counters: those with definitions."""
LINES = ("writer", "critic")
KIND = "agent"
TENANT = "t"
MOST_ORDERS = 12
KINDS = (
    *("create", "create", "fork", "fork", "promote", "promote", "promote"),
    *("rollback", "retire", "retire", "restore", "apply", "apply"),
)
MOST_NUMBER = 4
"""Of the versions that orders name; some are not there yet, or never."""
THEN = ("", "run", "fork", "fork")
FORK_WITH = ("", "current", "version")
FORKED_AT_SEQ = 1
"""Right after the start: the turns of the fork are counted as those of any run."""
NO_CONTENT = cast(EntityReads, None)
"""The contents are short, so all of them are in the states."""


@dataclass(slots=True, kw_only=True)
class Change(Order):
    """A change of a line. `then`: a run of the line follows, perhaps with a fork, which has `fork_with`."""

    kind: str
    line: str
    number: int
    promote: bool
    then: str
    fork_with: str


def definitions_of(faults: Faults) -> "Definitions | None":
    """The definitions of a seed, if it has any."""
    random = Random(f"{faults.seed}/definitions")
    if random.random() >= DEFINITION_SHARE:
        return None
    orders = []
    for number in range(random.randint(len(LINES), MOST_ORDERS)):
        kind = "create" if number < len(LINES) else random.choice(KINDS)
        order = Change(
            name=f"definition {number} ({kind})",
            id=f"d{number}",
            at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL / (1 if number >= len(LINES) else 4)),
            by_topic=random.random() < 0.5,
            kind=kind,
            line=LINES[number] if number < len(LINES) else random.choice(LINES),
            number=random.randint(1, MOST_NUMBER),
            promote=random.random() < 0.7,
            then=random.choice(THEN),
            fork_with=random.choice(FORK_WITH),
        )
        if order.name not in faults.without:
            orders.append(order)
    plan_acts(faults, random, "definition")
    return Definitions(orders)


class Definitions(EntityLoad):
    """The definitions of a seed, and the runs that are pinned to them."""

    ledger: DefinitionLedger

    def __init__(self, orders: Sequence[Change]) -> None:
        super().__init__(FAMILY, orders)
        self.unsent = sum(bool(order.then) for order in orders)
        """Orders whose run is not started yet."""
        self._log: SimulatedLog

    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> DefinitionLedger:
        self._log = log
        return DefinitionLedger(self.orders, complain)

    def host(self, wire: Wire, edges: StandbyEdges, clock_ms: Callable[[], int]) -> "DefinitionHost":
        return DefinitionHost(wire, self, edges, clock_ms)

    # --- changes -----------------------------------------------------------------------------------------------------

    def command(self, order: Change) -> Any:
        envelope = CommandEnvelope(command_id=order.id, tenant=TENANT, issued_at_ms=order.issued_at_ms)
        content, wanted = content_of(order, order.line), def_id(TENANT, KIND, order.line, order.number)
        line: dict[str, Any] = {"envelope": envelope, "kind": KIND, "name": order.line}
        match order.kind:
            case "create":
                return DefineVersion(**line, content=content, tools=("T",), promote=order.promote)
            case "fork":
                return ForkVersion(**line, content=content, tools=("T",), promote=order.promote, parent_def_id=wanted)
            case "promote":
                return PromoteVersion(**line, def_id=wanted)
            case "rollback":
                return RollBack(**line)
            case "retire" | "restore":
                return RetireVersion(**line, def_id=wanted, retired=order.kind == "retire")
            case "apply":
                changes = tuple(
                    DefinitionChange(kind=KIND, name=name, content=content_of(order, name), tools=("T",))
                    for name in LINES
                )
                return ApplyDefinitions(envelope=envelope, kind="apply", name=order.id, changes=changes)
            case _:
                raise AssertionError(f"no such change: {order.kind}")

    # --- runs --------------------------------------------------------------------------------------------------------

    async def client(self, wire: Wire, clock_ms: Callable[[], int]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().client(wire, clock_ms))
            for order in self.orders:
                if order.then:
                    group.create_task(self._run_after(order, wire, clock_ms))

    async def _run_after(self, order: Change, wire: Wire, clock_ms: Callable[[], int]) -> None:
        """Start a run of the line once the order is answered, and fork it once it has begun."""
        while not self.ledger.is_answered(order):
            await asyncio.sleep(LOOK_S)
        run_id = f"r_def{order.id}"
        after = (self.ledger.answered_at(order),)
        self.ledger.starts[run_id] = Start(line=order.line, after=after)
        envelope = CommandEnvelope(command_id=f"start-{run_id}", tenant=TENANT, issued_at_ms=clock_ms())
        start = StartRun(envelope=envelope, agent=order.line, prompt="go", run_id=run_id, after=after)
        await self._send(wire, run_id, start)
        self.unsent -= 1
        if order.then == "fork":
            while run_id not in self.ledger.called_for:  # forever, if it is refused
                await asyncio.sleep(LOOK_S)
            await self._fork(order, run_id, wire, clock_ms)

    async def _fork(self, order: Change, origin: str, wire: Wire, clock_ms: Callable[[], int]) -> None:
        run_id = f"{origin}-f"
        after, wanted = (self.ledger.answered_at(order),), self.ledger.pins[origin]
        definition = ""
        if order.fork_with == "current":
            wanted, definition = "", "current"
        elif order.fork_with == "version":
            wanted = definition = def_id(TENANT, KIND, order.line, order.number)
        self.ledger.starts[run_id] = Start(line=order.line, after=after, def_id=wanted)
        envelope = CommandEnvelope(command_id=f"fork-{run_id}", tenant=TENANT, issued_at_ms=clock_ms())
        fork = ForkRun(
            envelope=envelope,
            origin_run_id=origin,
            at_seq=FORKED_AT_SEQ,
            run_id=run_id,
            definition=definition,
            after=after,
        )
        await self._send(wire, run_id, fork)

    async def _send(self, wire: Wire, run_id: str, command: Any) -> None:
        key = partition_key(run_id).encode()
        record = ProducerRecord(key=key, value=local_codec().encode(command))
        while True:
            try:
                await wire.append(TOPICS.commands, partition_of(key, self.partitions), [record])
                return
            except UnknownOutcome:
                continue  # again: the command's id makes that safe

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self, hosts: Sequence[EntityHost]) -> str:
        if self.unsent:
            return f"{self.unsent} runs of definitions are not started"
        return super().open_ends(hosts)

    def compare(self, hosts: Sequence[EntityHost]) -> None:
        folded, states = self.compare_rows(self._log)
        encode = FamilySet((FAMILY,)).by_name[FAMILY.name].states.encode
        for host in hosts:
            assert isinstance(host, DefinitionHost)
            entities = {name: host.parts.replicas.entity(name) for name in folded}
            replica = {name: encode(entity) for name, entity in entities.items() if entity is not None}
            if replica != states:
                self.ledger.complain("replica", f"a replica says {replica}; the log folds to {states}")
            for name in LINES:
                self._compare_line(host.table, name)

    def _compare_line(self, table: DefinitionTable, name: str) -> None:
        """Is one version active at most, and is it the one that the log says?"""
        story, line = self.ledger.lines.get(name), table.line(KIND, TENANT, name)
        if story is None or line is None:
            if story is not None or line is not None:
                self.ledger.complain("replica", f"{name} is {line} in a replica, the log says {story}")
            return
        found = table.resolve(KIND, TENANT, name)
        staged = [line.id_of(line.staged)] if line.staged else []
        active = {line.id_of(line.active), *staged, found.def_id if found is not None else ""}
        if active != {self.ledger.active(story)}:
            self.ledger.complain("two actives", f"{name}: {active} are active in a replica, the log says {story}")


class DefinitionHost(EntityHost):
    """The definitions of one runtime process, with its table."""

    def __init__(self, wire: Wire, load: Definitions, edges: StandbyEdges, clock_ms: Callable[[], int]) -> None:
        super().__init__(wire, load, edges, clock_ms)
        self.table = DefinitionTable(self.parts.replicas, {}, blobs=cast(Blobs, None), reads=NO_CONTENT)

    def resolver(self, static: DefinitionResolver) -> DefinitionResolver:
        return SimulatedAgents(static, self.table)


class SimulatedAgents:
    """Resolves the agents of the lines as a runtime does, and all others as before (protocol DefinitionResolver)."""

    def __init__(self, static: DefinitionResolver, table: DefinitionTable) -> None:
        self._static = static
        self._defined = AgentDefinitions(_configuration(), ["mock"])
        self._defined.versions = DefinedAgents(table)

    def resolve(self, agent: str, **request: Any) -> AgentDefinition | CommandRefusal:
        return self._of(agent).resolve(agent, **request)

    def is_loaded(self, agent: str, **request: Any) -> bool:
        return self._of(agent).is_loaded(agent, **request)

    async def load(self, agent: str, **request: Any) -> None:
        await self._of(agent).load(agent, **request)

    def policies_in_force(self, agent: str, tenant: str) -> tuple[ApprovalPolicy, ...]:
        return self._of(agent).policies_in_force(agent, tenant)

    def providers(self) -> frozenset[str]:
        return frozenset(self._static.providers() | self._defined.providers())

    def _of(self, agent: str) -> DefinitionResolver:
        return self._defined if agent in LINES else self._static


def content_of(order: Change, line: str) -> str:
    """Return the content of the version that an order makes: no other has that prompt."""
    content: Mapping[str, Any] = {
        "provider": "mock",
        "model": "large",
        "tools": ["T"],
        "disable_context": True,
        "system_prompt": f"You are {line} by order {order.id}.",
    }
    return canonical_json(content)


@cache
def _configuration() -> Configuration:
    """That of a process without files."""
    return load({}, working_directory=Path(__file__).parent, paths=[]).configuration
