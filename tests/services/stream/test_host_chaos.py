"""Everything at once, drawn from a seed: deaths, zombies, lost acknowledgements, checkpoints, rest, poison, repeats.

The judge reads nothing but the log. A failing seed is repeated with `-k "[SEED]"`.
"""

from collections.abc import Callable
from random import Random

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.run_events import RunFailed, RunStarted
from tests.services.stream.given import compact
from tests.services.stream.hosted import Hosted
from tests.services.stream.judge import dead_letters, every_start_has_its_run
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import World

Worlds = Callable[..., World]
SEEDS = range(50)
STEPS = 25
PARTITIONS = 2


class Chaos:
    """Drives one world by a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.started: list[str] = []
        self.chats: list[str] = []
        self.garbage = 0
        self.said = 0
        self.alive: list[Hosted] = []
        self._hosts = 0

    async def storm(self) -> None:
        self._new_host()
        acts = [self._start, self._start, self._repeat, self._cancel, self._poison, self._die, self._zombie]
        acts += [self._lose_acks, self._checkpoint, self._lag, self._foreign]
        acts += [self._rest, self._rest, self._say, self._compact]
        for _ in range(STEPS):
            await self.random.choice(acts)()
            await self.world.ticks(self.random.randint(0, 12))

    async def calm(self) -> None:
        """One host without faults finishes whatever is left."""
        self.world.index.limits.clear()
        for hosted in self.alive:
            await hosted.kill()
        last = self.world.host("last")
        await self.world.until(lambda: all(last.partition(number) for number in range(PARTITIONS)))
        for name in self.chats:  # they would wait for ever
            self.world.cancel_run(name)
        commands = {n: len(self.world.log.records[TOPICS.commands, n]) for n in range(PARTITIONS)}
        await self.world.until(
            lambda: all(last.handled(at, n) for n, end in commands.items() for at in range(end)), "commands"
        )
        await self.world.finished()
        await self.world.until(last.settled)

    def _new_host(self) -> None:
        self._hosts += 1
        hosted = self.world.host(f"h{self._hosts}")
        hosted.wire.delay = self.random.choice([0, 0, 2, 6])
        hosted.wire.lose_acks = self.random.choice([0.0, 0.0, 0.03])
        hosted.wire.lose_batches = self.random.choice([0.0, 0.0, 0.03])
        self.alive.append(hosted)

    async def _start(self) -> None:
        name = f"r_{len(self.started)}"
        self.started.append(name)
        agent = "nobody" if self.random.random() < 0.1 else "helper"
        is_chat = self.random.random() < 0.4
        if is_chat:
            self.chats.append(name)
        self.world.start_run(name, agent=agent, idempotency_key=f"key-{name}", interactive=is_chat)

    async def _repeat(self) -> None:
        if self.started:
            name = self.random.choice(self.started)
            self.world.start_run(name, idempotency_key=f"key-{name}", interactive=name in self.chats)

    async def _cancel(self) -> None:
        if self.started:
            self.world.cancel_run(self.random.choice(self.started))

    async def _poison(self) -> None:
        self.garbage += 1
        value = self.random.choice([b"garbage", None, b"\0\0\0\0\1\xff\xff", b"\0\0\0\xff\0"])
        partition = self.random.randrange(PARTITIONS)
        self.world.log.put(TOPICS.commands, partition, [ProducerRecord(key=b"k", value=value)])

    async def _foreign(self) -> None:
        """Somebody who must not writes into the events topic; it is no event of anybody."""
        value = self.random.choice([b"garbage", None, b""])
        self.world.log.put(TOPICS.events, self.random.randrange(PARTITIONS), [ProducerRecord(key=b"k", value=value)])

    async def _die(self) -> None:
        await self.random.choice(self.alive).kill()
        self.alive = [hosted for hosted in self.alive if not hosted.task.done()]
        if not self.alive:
            self._new_host()

    async def _zombie(self) -> None:
        """A second host claims while the first one lives; later the group lets one go, with a batch on the wire."""
        if len(self.alive) == 1:
            self._new_host()
            return
        loser = self.random.choice(self.alive)
        loser.reassign()
        self.alive.remove(loser)

    async def _lose_acks(self) -> None:
        self.world.log.lose_acks += self.random.randint(1, 2)

    async def _checkpoint(self) -> None:
        hosted = self.random.choice(self.alive)
        for owner in list(hosted.host.owners.values()):
            hosted.task.get_loop().create_task(hosted.host.checkpoints.make(owner))

    async def _rest(self) -> None:
        for owner in list(self.random.choice(self.alive).host.owners.values()):
            owner.let_idle_rest()

    async def _say(self) -> None:
        if self.chats:
            self.said += 1
            self.world.say(self.random.choice(self.chats), f"text {self.said}")

    async def _compact(self) -> None:
        compact(self.world.log, TOPICS.snapshots, self.random.randrange(PARTITIONS))

    async def _lag(self) -> None:
        number = self.random.randrange(PARTITIONS)
        if self.random.random() < 0.5:
            self.world.index.limits.pop(number, None)
        else:
            self.world.index.limits[number] = len(self.world.log.records[TOPICS.events, number]) // 2


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_every_accepted_run_ends_once(world_of: Worlds, seed: int) -> None:
    world = world_of(partitions=PARTITIONS, seed=seed, effect_delay=4)
    chaos = Chaos(world, seed)
    await chaos.storm()
    await chaos.calm()
    story = world.story()
    assert story.live == []
    assert set(story.runs) == set(chaos.started)
    every_start_has_its_run(world.log, story, TOPICS.commands, TOPICS.dead_letters, PARTITIONS)
    for run in story.runs.values():
        assert not any(isinstance(event, RunFailed) for event in run.events), run.events[-1]
        assert sum(isinstance(event, RunStarted) for event in run.events) <= 1
    parked = {
        (letter.topic, letter.partition, letter.offset) for letter in dead_letters(world.log, TOPICS.dead_letters)
    }
    assert sum(topic == TOPICS.commands for topic, _, _ in parked) == chaos.garbage
