"""The generic host: which partitions this process owns, and the tasks that keep them going.

All tasks live in one TaskGroup: an unexpected exception in any of them ends the process, and whoever supervises it
starts it again (no silent death). The consumer group is a hint: what it assigns is claimed, what the next assignment
lacks is given up, and in between everything is served, because terms make that safe. What a standby claims when an
owner has died is kept until the group has noticed and says who is to have it. A batch that makes no progress although
the broker answers means that our producer is broken: the process leaves.

Before: services/runtime/main.py builds it. After: owner.py, flusher.py, calls.py.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Protocol

from connectors.errors import Transient
from connectors.protocols import Share
from services.stream.alarms import Alarms
from services.stream.flusher import Flusher, claimed_in
from services.stream.owner import Owner
from services.stream.partition import Partition
from services.stream.partition_fold import PartitionFold
from services.stream.progress import CommandProgress
from services.stream.snapshot import Cut
from services.stream.standby import PausableTail, Standby, followed_by
from services.stream.workplace import Figures, Workplace

log = logging.getLogger(__name__)

MAX_PENDING = 20_000
"""Decisions waiting for the log, and commands waiting for a look-up, before further ones are left in their topic;
bounds memory when the broker or the index is slow."""
PENDING_LOOK_S = 0.2
"""How often to look again whether there is room: what waits may also vanish without a flush, with its partition."""
CHECKPOINT_EVERY_EVENTS = 20_000
"""Keeps the tail a take-over reads below half a second (reference prototype.md 4: about 100,000 events a second)."""
CHECKPOINT_EVERY_S = 30.0
"""Also without many events, so that a quiet partition does not keep an old tail."""
CHECKPOINT_LOOK_S = 1.0
SETTLED_S = 10.0
"""Holding a partition for this long forgets earlier failures to hold it."""
STALL_S = 30.0
"""A batch on the wire for this long while the broker answers: our producer is broken, the process ends."""
SUSPICIOUS_S = 2.0
"""From this age of a batch on the broker is asked whether it is there."""
WATCH_EVERY_S = 1.0
DRAIN_S = 10.0
"""How long calls under way may take before their partition is given up."""
ASSIGNED_TOO_S = 2.0
"""A partition is asked for by whom the group told that it is his; we hear of it within so long, or he is wrong."""
NOTE_S = 2.0
"""After the drain, for writing down which calls were due and not begun; one append of each partition."""
LOOK_AROUND_S = 5.0
"""How often an owner that appends nothing looks whether somebody has claimed over it; one small request for each quiet
partition, and the longest a run waits that another owner began and left."""
UNFORCED_EVERY_S = 2.0
"""A partition that the group has not given us is claimed at most so often, however quickly its owners die one after the
other: the next one is then noticed by the group, which is hardly slower."""
FIRST_CLAIMS = frozenset({"assigned", "standby"})
"""Reasons for which somebody claims who did not own before, and so does not wait."""
RECLAIM_BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pause before the next claim after being fenced or refused by the broker; two owners must not fight."""


class AskFor(Protocol):
    """connectors.lifelines.ask_for."""

    async def __call__(self, name: str, number: int, *, timeout_s: float) -> str: ...


class Membership(Protocol):
    """Tells which partitions to own; connectors.kafka.KafkaGroup, or a fixed set."""

    assigned: frozenset[int]
    members: Mapping[str, Share]
    """What everybody is to own, by life; empty when that is not known."""
    changed: asyncio.Event

    async def stay(self) -> None: ...


class Host:
    """Owns partitions of one family. `commands` is a tail over all partitions of the commands topic, all paused."""

    def __init__(
        self,
        work: Workplace,
        *,
        membership: Membership,
        commands: PausableTail,
        standby: Standby | None = None,
        ask_for: AskFor | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """`ask_for` is connectors.lifelines.ask_for, for a process that has a lifeline of its own; `drain_s` is how
        long calls under way may take before their partition is given up."""
        self.figures = Figures()
        self.owners: dict[int, Owner] = {}
        self._work = work
        self._membership = membership
        self._commands = commands
        self._alarms = Alarms(work.clock_ms, self._ring)
        self.flusher = Flusher(work, lambda: list(self.owners.values()), lost=self._lost)
        self._claiming: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        self._checkpointed: dict[int, float] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = False
        self._standby = standby
        self._adopted: dict[int, str] = {}
        """Partitions claimed because their owner had died, with his life, until the group has noticed."""
        self._unforced: dict[int, float] = {}
        """When each was last claimed so, monotonic."""
        self._ask_for = ask_for
        self._drain_s = drain_s
        self._followed = asyncio.Event()
        """The assignment, or whether we stop, may have changed."""
        self._leaving: dict[int, asyncio.Task[None]] = {}
        """Partitions that others are to own, until the calls under way there have ended."""
        if standby is not None:
            standby.owner_died = self._adopt

    @property
    def warm(self) -> int:
        """Partitions of others that are folded along."""
        return self._standby.warm if self._standby is not None else 0

    async def run(self) -> None:
        """Until cancelled; an unexpected exception of any task comes out."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._work.calls.group = group
            group.create_task(self._membership.stay(), name="membership")
            group.create_task(self._follow(), name="assignment")
            group.create_task(self._intake(), name="intake")
            group.create_task(self.flusher.run(), name="flusher")
            group.create_task(self._work.dead_letters.run(), name="dead letters")
            group.create_task(self._checkpoints(), name="checkpoints")
            group.create_task(self._watch(), name="watch")
            group.create_task(self._look_around(), name="look around")
            group.create_task(self._alarms.run(), name="alarms")
            if self._standby is not None:
                group.create_task(self._standby.run(), name="standby")

    def result(self, partition: int, aggregate: str, tenant: str, order: object) -> bool:
        """A call has returned; False when its partition is somebody else's now."""
        owner = self.owners.get(partition)
        if owner is not None:
            owner.result(aggregate, tenant, order)
        return owner is not None

    def look_at_the_time(self) -> None:
        """The clock was moved: give what is due now."""
        self._alarms.look()

    def _ring(self, partition: int, aggregate: str) -> None:
        owner = self.owners.get(partition)
        if owner is not None:
            owner.ring(aggregate)

    def obey(self) -> None:
        """What stands over the aggregates from outside has changed."""
        for owner in list(self.owners.values()):
            owner.obey()

    async def drain(self, timeout_s: float) -> bool:
        """A planned stop: take no more commands, begin no more calls, let those under way finish and reach the log.

        True when all did.
        """
        self._stopping = True
        self._followed.set()
        self.flusher.draining = True
        self._commands.pause(list(self.owners))
        end = time.monotonic() + timeout_s
        finished = await self._settled(end, lambda: self._work.calls.under_way == 0)
        self._note_what_was_not_begun()
        return await self._settled(max(end, time.monotonic() + NOTE_S), lambda: True) and finished

    async def _settled(self, end: float, holds: Callable[[], bool], only: Owner | None = None) -> bool:
        """Everything decided is in the log and it holds; False when not so by `end` (monotonic)."""
        while time.monotonic() < end:
            owners = list(self.owners.values()) if only is None else [only]
            if holds() and all(owner.partition is None or owner.partition.is_idle for owner in owners):
                return True
            self.flusher.drained.clear()
            try:
                async with asyncio.timeout(0.1):
                    await self.flusher.drained.wait()
            except TimeoutError:
                continue  # look again until the time is up
        return False

    def _note_what_was_not_begun(self, only: int | None = None) -> None:
        due: dict[int, dict[str, frozenset[Hashable]]] = {}
        # Taken away, so that whoever asks for a stop twice has it written down once.
        not_begun, self.flusher.not_begun = self.flusher.not_begun, []
        for number, name, key in not_begun:
            if only is not None and number != only:
                self.flusher.not_begun.append((number, name, key))
                continue
            calls = due.setdefault(number, {})
            calls[name] = calls.get(name, frozenset()) | {key}
        for number, calls in due.items():
            if number in self.owners:
                self.owners[number].not_begun(calls)

    # --- ownership ---------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._membership.changed.wait()
            self._membership.changed.clear()
            wanted, members = self._membership.assigned, self._membership.members
            # An assignment that still counts the dead owner in was made before the group noticed.
            self._adopted = {
                number: life
                for number, life in self._adopted.items()
                if number not in wanted and life in members and number in members[life].partitions
            }
            for number in sorted(set(self.owners) - wanted - set(self._adopted)):
                self._leave(number)
            for number in sorted(wanted - set(self.owners)):
                self._own(number, "assigned")
            self._stand_by()
            self._followed.set()

    def _stand_by(self) -> None:
        if self._standby is not None:
            followed = followed_by(self._standby.life, self._membership.members)
            self._standby.follow(followed - set(self.owners))

    def _adopt(self, number: int, life: str) -> None:
        """The owner of a partition, of that life, has died: claim it without asking the group."""
        now = time.monotonic()
        recent = now - self._unforced.get(number, -UNFORCED_EVERY_S) < UNFORCED_EVERY_S
        if self._stopping or number in self.owners or recent:
            return
        self._unforced[number] = now
        self._adopted[number] = life
        self._own(number, "standby")

    def _own(self, number: int, reason: str) -> None:
        folded = self._standby.take(number) if self._standby is not None else None
        self.owners[number] = Owner(
            number, self._work, wake=self.flusher.wake, alarms=self._alarms, figures=self.figures
        )
        self._claim(number, reason, folded)

    def _leave(self, number: int) -> None:
        """Somebody else is to own it, and asks for it; without a lifeline nobody can, and it is given up at once."""
        if self._ask_for is None or number in self._claiming:
            self._release(number)
        elif number not in self._leaving:
            assert self._group is not None
            self.flusher.leaving.add(number)
            self._commands.pause([number])
            self._leaving[number] = self._group.create_task(self._let_go(number))

    async def _let_go(self, number: int) -> None:
        """Begin no more calls, let those under way finish and reach the log, give the partition up."""
        owner = self.owners[number]
        end = time.monotonic() + self._drain_s
        calls = self._work.calls

        def is_lost() -> bool:
            return self.owners.get(number) is not owner

        try:
            await self._settled(end, lambda: is_lost() or calls.under_way_of(number) == 0, owner)
            self._note_what_was_not_begun(number)
            await self._settled(max(end, time.monotonic() + NOTE_S), lambda: True, owner)
        finally:
            del self._leaving[number]
            self.flusher.leaving.discard(number)
        if not is_lost():
            self._release(number)
        self._membership.changed.set()  # meanwhile it may be ours again

    async def asked(self, number: int) -> None:
        """Somebody wants a partition: returns when it is given up. It is not when the group knows nothing of that."""
        try:
            async with asyncio.timeout(ASSIGNED_TOO_S):
                while number in self._membership.assigned and not self._stopping:
                    self._followed.clear()
                    await self._followed.wait()
        except TimeoutError:
            return
        if number in self.owners:
            self._leave(number)
        if number in self._leaving:
            await asyncio.wait({self._leaving[number]})

    async def _ask(self, number: int, lifeline: str) -> None:
        """Before a Claim over somebody who may be at work."""
        assert self._ask_for is not None
        answer = await self._ask_for(lifeline, number, timeout_s=self._drain_s + NOTE_S + ASSIGNED_TOO_S)
        log.info("%s partition %d: asked %s for it: %s", self._work.family.name, number, lifeline, answer)

    def _release(self, number: int) -> None:
        log.info("%s partition %d given up", self._work.family.name, number)
        owner = self.owners.pop(number)
        self._commands.pause([number])
        task = self._claiming.pop(number, None)
        if task is not None:
            task.cancel()
        owner.give_up()

    def _lost(self, owner: Owner, reason: str) -> None:
        if reason == "fenced":
            self.figures.fenced += 1
        else:
            self.figures.unknown_outcomes += 1
        self._commands.pause([owner.number])
        owner.drop()
        if self.owners.get(owner.number) is not owner:
            return
        if owner.number in self._leaving:
            self._release(owner.number)  # whoever is to have it has not waited
            return
        if reason == "fenced" and owner.number in self._adopted:
            # Its owner lives after all, or the group was as quick: it is theirs.
            del self._adopted[owner.number]
            self._release(owner.number)
            self._stand_by()
        else:
            self._claim(owner.number, reason)

    def _claim(self, number: int, reason: str, folded: PartitionFold | None = None) -> None:
        assert self._group is not None
        if number not in self._claiming:
            self._claiming[number] = self._group.create_task(self._keep_claiming(number, reason, folded))

    async def _keep_claiming(self, number: int, reason: str, folded: PartitionFold | None) -> None:
        """Claim until it works or the partition is not ours to claim any more."""
        owner = self.owners[number]
        if reason not in FIRST_CLAIMS:
            await self._back_off(number)
        while self.owners.get(number) is owner:
            first, folded = folded, None  # one that was fed in vain may be fed half
            try:
                before = partial(self._ask, number) if reason == "assigned" and self._ask_for is not None else None
                commands_from = await owner.claim(reason, first, before)
            except Transient as error:
                log.warning("%s partition %d cannot be taken yet: %s", self._work.family.name, number, error)
                await self._back_off(number)
                continue
            self._commands.seek(number, commands_from)
            if not self._stopping:
                self._commands.resume([number])
            self._checkpointed[number] = time.monotonic()
            break
        self._claiming.pop(number, None)

    async def _back_off(self, number: int) -> None:
        tried = self._failures.get(number, 0)
        self._failures[number] = tried + 1
        pause_s = RECLAIM_BACKOFF_S[min(tried, len(RECLAIM_BACKOFF_S) - 1)]
        await asyncio.sleep(pause_s * (0.5 + random.random()))

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _intake(self) -> None:
        while True:
            while self._pending() > MAX_PENDING:
                self.flusher.drained.clear()
                try:
                    async with asyncio.timeout(PENDING_LOOK_S):
                        await self.flusher.drained.wait()
                except TimeoutError:
                    continue  # look again
            found = await self._commands.poll(timeout_s=0.5)
            for number, records in found.items():
                owner = self.owners.get(number)
                if owner is not None and number not in self._claiming:
                    for record in records:
                        owner.take(record)

    def _pending(self) -> int:
        return sum(
            owner.partition.pending_decisions + owner.waiting_commands
            for owner in self.owners.values()
            if owner.partition is not None
        )

    # --- checkpoints -------------------------------------------------------------------------------------------------

    async def _checkpoints(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_LOOK_S)
            for owner in list(self.owners.values()):
                partition = owner.partition
                if partition is None or partition.events_since_checkpoint == 0:
                    continue
                age_s = time.monotonic() - self._checkpointed.get(owner.number, 0.0)
                if age_s > SETTLED_S:
                    self._failures.pop(owner.number, None)
                if partition.events_since_checkpoint >= CHECKPOINT_EVERY_EVENTS or age_s >= CHECKPOINT_EVERY_S:
                    await self.checkpoint(owner)

    async def checkpoint(self, owner: Owner) -> bool:
        """Write a checkpoint of what the owner holds now; False when the partition was lost meanwhile."""
        partition = owner.partition
        if partition is None:
            return False
        cut = Cut.of(partition.aggregates)
        partition.events_since_checkpoint = 0
        if await self._write_checkpoint(owner, partition, cut):
            return True
        # Try again in its time, also when nothing more happens.
        partition.events_since_checkpoint = max(1, partition.events_since_checkpoint)
        return False

    async def _write_checkpoint(self, owner: Owner, partition: Partition, cut: Cut) -> bool:
        reached: asyncio.Future[tuple[int, CommandProgress]] = asyncio.get_running_loop().create_future()

        def mark(offset: int) -> None:
            if not reached.done():
                reached.set_result((offset, CommandProgress(partition.progress.low, partition.progress.above)))

        partition.mark(mark)
        self.flusher.wake()
        while not reached.done():
            await asyncio.wait([reached], timeout=CHECKPOINT_LOOK_S)
            if owner.partition is not partition:
                return False
        next_offset, progress = reached.result()
        self._checkpointed[owner.number] = time.monotonic()
        try:
            return await self._work.snapshots.write(
                owner.number,
                term=partition.term,
                next_offset=next_offset,
                progress=progress,
                cut=cut,
                at_ms=self._work.clock_ms(),
                issued_until_ms=owner.issued_until_ms,
            )
        except Transient as error:
            log.warning("%s partition %d: no checkpoint: %s", self._work.family.name, owner.number, error)
            return False

    # --- liveness ----------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        """An owner learns from its next append that it was fenced; one that has nothing to append must look."""
        while True:
            await asyncio.sleep(LOOK_AROUND_S)
            for owner in list(self.owners.values()):
                partition = owner.partition
                if partition is None or not partition.is_idle:
                    continue
                if await self._is_fenced(partition) and owner.partition is partition:
                    self._lost(owner, "fenced")

    async def _is_fenced(self, partition: Partition) -> bool:
        work, start = self._work, partition.next_offset
        try:
            end = await work.ranges.end_offset(work.topics.events, partition.number)
            return end > start and await claimed_in(
                work.ranges, work.codec, work.topics.events, partition.number, start, end
            )
        except Transient:
            return False  # the next look may be luckier

    async def _watch(self) -> None:
        """Ends the process when a batch is stuck. Time in which the broker was away does not count: it is asked."""
        answers_since = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            since, now = self.flusher.in_flight_since, time.monotonic()
            if since is None or now - since < SUSPICIOUS_S:
                continue
            if not await self._broker_answers():
                answers_since = time.monotonic()
            elif now - max(since, answers_since) > STALL_S:
                raise RuntimeError(f"a batch made no progress in {STALL_S:.0f} s although the broker answers")

    async def _broker_answers(self) -> bool:
        try:
            async with asyncio.timeout(5.0):
                await self._commands.end_offsets()
        except (Transient, TimeoutError):
            return False
        return True


class FixedMembership:
    """Owns the given partitions for ever: for tests, simulation and a single process."""

    def __init__(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        self.members: Mapping[str, Share] = {}
        self.changed = asyncio.Event()
        self.changed.set()

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()


Clock = Callable[[], int]
"""UTC milliseconds."""
