"""A campaign: rounds of load and faults on one rig, then everything is read and judged.

Before: main, test_kill_anything.  After: rig, load, faults, evidence, checker.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from connectors.kafka import KafkaAppender, KafkaOptions
from tests.chaos import evidence
from tests.chaos.checker import Verdict, check
from tests.chaos.evidence import COMMANDS, DEAD_LETTERS, EVENTS, Evidence, Promise, Row, Strike
from tests.chaos.faults import Striker, plan
from tests.chaos.load import HTTP_TIMEOUT_S, IN_FLIGHT, RUN_TIMEOUT_S, Load
from tests.chaos.rig import PARTITIONS, Rig, open_rig
from tests.chaos.witness import Witness

PROJECTED_TIMEOUT_S = 30.0
"""A projector that was just started again reads what it missed in a second or two."""
LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out. `met`: what clients met; `own_ends`: processes that ended although nobody struck them."""

    verdict: Verdict
    met: Counter[str]
    own_ends: Counter[str]


async def campaign(
    folder: Path,
    *,
    runs: int,
    rounds: int,
    targets: Sequence[str],
    seed: int,
    say: Callable[[str], None],
    effect: str = "unsafe",
    in_flight: int = IN_FLIGHT,
    run_timeout_s: float = RUN_TIMEOUT_S,
) -> Outcome:
    """Rounds of `runs` runs with every target struck once in each, in `folder`."""
    promises: list[Promise] = []
    strikes: list[Strike] = []
    met: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(open_rig(folder, effect=effect, say=say))
        appender = KafkaAppender(KafkaOptions(bootstrap=rig.kafka, client_id="chaos-load"))
        stack.push_async_callback(appender.close)
        await appender.start()
        limits = httpx.Limits(max_connections=in_flight)
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=rig.api, timeout=HTTP_TIMEOUT_S, limits=limits, trust_env=False)
        )
        witness = Witness(rig.kafka, PARTITIONS)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(witness.run())
        for number in range(rounds):
            faults = plan(seed + number, runs, targets)
            say(f"round {number + 1}, seed {seed + number}: {', '.join(fault.target for fault in faults)}")
            load = Load(appender, client, witness, label=f"{seed}-{number}", run_timeout_s=run_timeout_s)
            striker = Striker(rig, load, witness, say=say)
            async with asyncio.TaskGroup() as both:
                both.create_task(load.run(runs, in_flight=in_flight))
                both.create_task(striker.run(faults))
            promises += load.promises
            strikes += striker.strikes
            met += load.met
        found = await collected(rig, promises, strikes, witness)
        watching.cancel()
    return Outcome(verdict=check(found), met=met, own_ends=rig.own_ends)


async def collected(rig: Rig, promises: list[Promise], strikes: list[Strike], witness: Witness) -> Evidence:
    """Everything there is to find, once the projector has caught up (or has had the time to)."""
    events = await evidence.read_topic(rig.kafka, EVENTS, PARTITIONS)
    return Evidence(
        commands=await evidence.read_topic(rig.kafka, COMMANDS, PARTITIONS),
        events=events,
        dead_letters=await evidence.read_topic(rig.kafka, DEAD_LETTERS, 1),
        promises=promises,
        effects=await asyncio.to_thread(evidence.read_ledger, rig.ledger),
        rows=await _projected_rows(rig.postgres, {number: len(records) for number, records in events.items()}),
        strikes=strikes,
        sightings=witness.sightings,
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
