"""A campaign: rounds of load and faults on one rig, then everything is read and judged.

Before: main, test_kill_anything.  After: stack, load, faults, striker, evidence, checker.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions
from loomlog.schemas.generated.run_commands import StartRun
from tests.chaos import evidence, standstill
from tests.chaos.checker import Verdict, check
from tests.chaos.definitions import AUTHORS, Authors
from tests.chaos.evidence import (
    CHANNEL_EVENTS,
    COMMANDS,
    DEAD_LETTERS,
    ENTITY_EVENTS,
    EVENTS,
    Evidence,
    Handoff,
    Probe,
    Promise,
    Row,
    Shipped,
    Strike,
)
from tests.chaos.faults import plan
from tests.chaos.load import HTTP_TIMEOUT_S, IN_FLIGHT, RUN_TIMEOUT_S, Load
from tests.chaos.memory import ask_memory
from tests.chaos.payments import PAYERS, TELLERS, Payments
from tests.chaos.rig import Rig
from tests.chaos.stack import PARTITIONS, open_rig
from tests.chaos.striker import Striker
from tests.chaos.triggers import PAIRS, SENDERS, Outsiders, come_to_rest
from tests.chaos.witness import Witness

SESSION_S = 1.0
"""Of the owners' group: take-overs within a second or two; in production it is three times that."""
PROJECTED_TIMEOUT_S = 30.0
"""A projector that was just started again reads what it missed in a second or two."""
LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a campaign is to do.

    Rounds of at least `runs` runs with every target struck once in each: `rounds` of them, or with `minutes` as many as
    fit into that time, at least one.
    """

    seed: int
    runs: int
    rounds: int
    targets: Sequence[str]
    brokers: int = 1
    minutes: float = 0.0
    session_s: float = SESSION_S
    standby: bool = True
    """Off: whoever is killed is noticed by the group alone."""
    effect: str = "unsafe"
    in_flight: int = IN_FLIGHT
    run_timeout_s: float = RUN_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out. `seeds` of the rounds done; `met`: what clients met; `own_ends`: processes that ended although
    nobody struck them."""

    order: Order
    seeds: tuple[int, ...]
    took_s: float
    verdict: Verdict
    met: Counter[str]
    own_ends: Counter[str]


async def campaign(folder: Path, order: Order, *, say: Callable[[str], None]) -> Outcome:
    """All rounds in `folder`, and the verdict. `say` gets a line for each strike."""
    began_s = time.monotonic()
    seeds: list[int] = []
    promises: list[Promise] = []
    strikes: list[Strike] = []
    probes: list[Probe] = []
    shipped: list[Shipped] = []
    handoffs: list[Handoff] = []
    delivered: list[str] = []
    old: Sequence[StartRun] = ()
    met: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(
            open_rig(
                folder,
                brokers=order.brokers,
                effect=order.effect,
                session_s=order.session_s,
                standby=order.standby,
                say=say,
            )
        )
        appender = KafkaAppender(KafkaOptions(bootstrap=rig.kafka, client_id="chaos-load"))
        stack.push_async_callback(appender.close)
        await appender.start()
        limits = httpx.Limits(max_connections=order.in_flight + AUTHORS + 2 * (PAIRS + SENDERS) + PAYERS + TELLERS + 2)
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=rig.api, timeout=HTTP_TIMEOUT_S, limits=limits, trust_env=False)
        )
        witness = Witness(rig.kafka, PARTITIONS)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = [tasks.create_task(witness.run()), tasks.create_task(standstill.watch(strikes))]
        while _goes_on(order, len(seeds), time.monotonic() - began_s):
            seed = order.seed + len(seeds)
            seeds.append(seed)
            faults = plan(seed, order.runs, order.targets, brokers=order.brokers)
            say(f"round {len(seeds)}, seed {seed}: {', '.join(fault.target for fault in faults)}")
            load = Load(appender, client, witness, label=str(seed), old=old, run_timeout_s=order.run_timeout_s)
            authors = Authors(client, load, label=str(seed))
            outsiders = Outsiders(client, load, label=str(seed), first=len(handoffs))
            payments = Payments(client, load, label=str(seed))
            striker = Striker(rig, load, witness, client, say=say)
            async with asyncio.TaskGroup() as both:
                done = asyncio.Event()
                both.create_task(load.run(order.runs, until=done, in_flight=order.in_flight))
                both.create_task(authors.run(until=done))
                both.create_task(outsiders.run(until=done))
                both.create_task(payments.run(until=done))
                await striker.run(faults)
                done.set()
            promises += load.promises
            strikes += striker.strikes
            probes += striker.probes
            old = load.orders
            shipped += authors.shipped
            handoffs += outsiders.handoffs
            delivered += outsiders.delivered
            met += load.met + authors.met + outsiders.met + payments.met
        await come_to_rest(client, witness, rig.kafka, PARTITIONS)
        result = replace(
            await collected(rig, client, promises, strikes, probes, witness, shipped),
            handoffs=handoffs,
            delivered=delivered,
        )
        for task in watching:
            task.cancel()
    return Outcome(
        order=order,
        seeds=tuple(seeds),
        took_s=time.monotonic() - began_s,
        verdict=check(result),
        met=met,
        own_ends=rig.own_ends,
    )


def _goes_on(order: Order, done: int, elapsed_s: float) -> bool:
    if done == 0:
        return True
    if order.minutes:
        # Another one takes about as long as those before it.
        return elapsed_s + elapsed_s / done <= order.minutes * 60
    return done < order.rounds


async def collected(
    rig: Rig,
    client: httpx.AsyncClient,
    promises: list[Promise],
    strikes: list[Strike],
    probes: list[Probe],
    witness: Witness,
    shipped: list[Shipped],
) -> Evidence:
    """Everything there is to find, once the projector has caught up (or has had the time to)."""
    events = await evidence.read_topic(rig.kafka, EVENTS, PARTITIONS)
    rows = await _projected_rows(rig.postgres, {number: len(records) for number, records in events.items()})
    entity_events = await evidence.read_topic(rig.kafka, ENTITY_EVENTS, PARTITIONS)
    return Evidence(
        commands=await evidence.read_topic(rig.kafka, COMMANDS, PARTITIONS),
        events=events,
        dead_letters=await evidence.read_topic(rig.kafka, DEAD_LETTERS, 1),
        promises=promises,
        effects=await asyncio.to_thread(evidence.read_ledger, rig.ledger),
        notes=await asyncio.to_thread(evidence.read_ledger, rig.notes),
        rows=rows,
        spent=await evidence.read_spent(rig.postgres),
        strikes=strikes,
        sightings=witness.sightings,
        probes=probes,
        entity_events=entity_events,
        channel_events=await evidence.read_topic(rig.kafka, CHANNEL_EVENTS, PARTITIONS),
        shipped=shipped,
        remembered=await ask_memory(client, entity_events, timeout_s=PROJECTED_TIMEOUT_S),
    )


async def _projected_rows(dsn: str, ends: dict[int, int]) -> dict[str, Row]:
    """The rows when they hold everything below `ends`; whatever they hold when that takes too long."""
    try:
        async with asyncio.timeout(PROJECTED_TIMEOUT_S):
            while True:
                reached = await evidence.read_cursors(dsn)
                if all(reached.get(number, 0) >= end for number, end in ends.items()):
                    break
                await asyncio.sleep(LOOK_S)  # another process's rows: nobody here could set an event
    except TimeoutError:
        pass  # the rows then differ from the log, which is what the checker says
    return await evidence.read_rows(dsn)
