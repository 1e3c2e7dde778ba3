"""The partitions this process owns, and how each is claimed and released.

Assigned partitions are claimed, partitions missing in the next assignment are released, and all are served in between,
because terms make that safe. A partition that a standby or spare claims after the death of its owner is kept until the
group has noticed and assigns it. A lost partition is claimed again while it is assigned, with back-off, because two
owners must not fight. One that is to move stays until the calls under way there have ended, and its next owner waits
for it, if both have liveness sockets.

Before: membership.py, standby.py and spare.py name the partitions to own. After: owner.py claims, drain.py waits
before a release.
"""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from loomlog.connectors.errors import Transient
from loomlog.services.stream.context import HostContext, HostMetrics
from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.drain import NOTE_TIMEOUT_S, Drain
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail, Standby
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.partition.timers import Timers

log = logging.getLogger(__name__)

ASSIGNMENT_WAIT_S = 2.0
"""How long to wait until our own assignment confirms that the requester owns the partition; after that the request is
ignored.
"""
ADOPTION_RETRY_S = 2.0
"""Minimum interval of claims of a partition that is not assigned to us, however quickly its owners die: the next death
is then noticed by the group, which is hardly slower.
"""
CONCURRENT_CLAIMS = frozenset({"assigned", "standby"})
"""Claim reasons of a process that did not own before, and so does not wait."""
RECLAIM_BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before the next claim after being fenced or refused by the broker; two owners must not fight."""
SETTLED_S = 10.0
"""Ownership of this duration resets the back-off."""


class RequestHandover(Protocol):
    """loomlog.connectors.process.liveness_sockets.request_handover."""

    async def __call__(self, name: str, number: int, *, timeout_s: float) -> str: ...


class PartitionAssignment:
    """Keeps `owners` in line with the assignment: one for each owned partition, by number."""

    def __init__(
        self,
        owners: dict[int, PartitionOwner],
        context: HostContext,
        *,
        membership: Membership,
        commands: PausableTail,
        flusher: Flusher,
        drain: Drain,
        timers: Timers,
        metrics: HostMetrics,
        standby: Standby | Spare | None,
        request_handover: RequestHandover | None,
        drain_s: float,
    ) -> None:
        """`commands`, `standby`, `request_handover` and `drain_s` are those of the Host."""
        self._owners = owners
        self._context = context
        self._membership = membership
        self._commands = commands
        self._flusher = flusher
        self._drain = drain
        self._timers = timers
        self._metrics = metrics
        self._standby = standby
        self._request_handover_from = request_handover
        self._drain_s = drain_s
        self._claiming: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        self._stopping = False
        self._adopted: dict[int, str] = {}
        """Partitions claimed because their owner had died, with its incarnation, until the group has noticed."""
        self._unforced: dict[int, float] = {}
        """Time of the last such claim of each, monotonic."""
        self._followed = asyncio.Event()
        """The assignment, or whether we stop, may have changed."""
        self._leaving: dict[int, asyncio.Task[None]] = {}
        """Handovers of partitions, until the calls under way there have ended."""
        if standby is not None:
            standby.owner_died = self.claim_orphaned

    def stop(self) -> None:
        """Claim no more as a standby, and let no claim under way lead to commands."""
        self._stopping = True
        self._followed.set()

    # --- assignment --------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Follow the assignment until cancelled."""
        while True:
            await self._membership.changed.wait()
            self._membership.changed.clear()
            assigned, members = self._membership.assigned, self._membership.members
            # An assignment that still counts the dead owner in was made before the group noticed.
            self._adopted = {
                number: life
                for number, life in self._adopted.items()
                if number not in assigned and life in members and number in members[life].partitions
            }
            for number in sorted(set(self._owners) - assigned - set(self._adopted)):
                self._start_handover(number)
            for number in sorted(assigned - set(self._owners)):
                self._add_owner(number, "assigned")
            self._update_standby()
            self._followed.set()

    def _update_standby(self) -> None:
        if self._standby is not None:
            self._standby.update(self._membership.members, frozenset(self._owners))

    def claim_orphaned(self, number: int, life: str) -> None:
        """Claim a partition whose owner, of that incarnation, has died, without waiting for the group."""
        now = time.monotonic()
        recent = now - self._unforced.get(number, -ADOPTION_RETRY_S) < ADOPTION_RETRY_S
        if self._stopping or number in self._owners or recent:
            return
        self._unforced[number] = now
        self._adopted[number] = life
        self._add_owner(number, "standby")

    def _add_owner(self, number: int, reason: str) -> None:
        folded = self._standby.take(number) if self._standby is not None else None
        self._owners[number] = PartitionOwner(
            number, self._context, wake=self._flusher.wake, timers=self._timers, metrics=self._metrics
        )
        self._claim(number, reason, folded)

    # --- claiming ----------------------------------------------------------------------------------------------------

    def _claim(self, number: int, reason: str, folded: PartitionFold | None = None) -> None:
        if number not in self._claiming:
            self._claiming[number] = self._spawn(self._keep_claiming(number, reason, folded))

    async def _keep_claiming(self, number: int, reason: str, folded: PartitionFold | None) -> None:
        """Claim until it succeeds or the partition is not ours to claim."""
        owner = self._owners[number]
        if reason not in CONCURRENT_CLAIMS:
            await self._back_off(number)
        while self._owners.get(number) is owner:
            first, folded = folded, None  # a fold that was fed in vain may be incomplete
            try:
                before = (
                    partial(self._request_handover, number)
                    if reason == "assigned" and self._request_handover_from is not None
                    else None
                )
                commands_from = await owner.claim(reason, first, before)
            except Transient as error:
                log.warning("%s partition %d cannot be taken yet: %s", self._context.family.name, number, error)
                await self._back_off(number)
                continue
            self._commands.seek(number, commands_from)
            if not self._stopping:
                self._commands.resume([number])
            break
        self._claiming.pop(number, None)

    async def _request_handover(self, number: int, address: str) -> None:
        """Request the partition before a Claim over an owner that may be active."""
        assert self._request_handover_from is not None
        answer = await self._request_handover_from(
            address, number, timeout_s=self._drain_s + NOTE_TIMEOUT_S + ASSIGNMENT_WAIT_S
        )
        log.info("%s partition %d: asked %s for it: %s", self._context.family.name, number, address, answer)

    async def _back_off(self, number: int) -> None:
        tried = self._failures.get(number, 0)
        self._failures[number] = tried + 1
        pause_s = RECLAIM_BACKOFF_S[min(tried, len(RECLAIM_BACKOFF_S) - 1)]
        await asyncio.sleep(pause_s * (0.5 + random.random()))

    # --- loss and release --------------------------------------------------------------------------------------------

    def lost(self, owner: PartitionOwner, reason: str) -> None:
        """An owner must read the log again: it was fenced, or does not know the outcome of an append."""
        if reason == "fenced":
            self._metrics.fenced += 1
        else:
            self._metrics.unknown_outcomes += 1
        self._commands.pause([owner.number])
        owner.drop()
        if self._owners.get(owner.number) is not owner:
            return
        if owner.number in self._leaving:
            self._release(owner.number)  # its next owner has not waited
            return
        if reason == "fenced" and owner.number in self._adopted:
            # Its owner lives after all, or the group was as quick: it belongs to them.
            del self._adopted[owner.number]
            self._release(owner.number)
            self._update_standby()
        else:
            if time.monotonic() - owner.claimed_at_s > SETTLED_S:
                self._failures.pop(owner.number, None)
            self._claim(owner.number, reason)

    def _start_handover(self, number: int) -> None:
        """Start the handover of a partition to its next owner, which requests it; without a liveness socket it is
        released at once.
        """
        if self._request_handover_from is None or number in self._claiming:
            self._release(number)
        elif number not in self._leaving:
            self._flusher.leaving.add(self._owners[number])
            self._commands.pause([number])
            self._leaving[number] = self._spawn(self._hand_over(number))

    async def _hand_over(self, number: int) -> None:
        """Start no more calls, let those under way finish and be recorded, release the partition."""
        owner = self._owners[number]
        calls = self._context.effect_runner

        def is_lost() -> bool:
            return self._owners.get(number) is not owner

        try:
            await self._drain.run(self._drain_s, lambda: is_lost() or calls.running_calls_of(number) == 0, only=owner)
        finally:
            del self._leaving[number]
            self._flusher.leaving.discard(owner)
        if not is_lost():
            self._release(number)
        self._membership.changed.set()  # it may be assigned to us again

    async def handover_requested(self, number: int) -> None:
        """Handle the request of another process: returns when the partition is released, or at once if the group does
        not assign it elsewhere.
        """
        try:
            async with asyncio.timeout(ASSIGNMENT_WAIT_S):
                while number in self._membership.assigned and not self._stopping:
                    self._followed.clear()
                    await self._followed.wait()
        except TimeoutError:
            return
        if number in self._owners:
            self._start_handover(number)
        if number in self._leaving:
            await asyncio.wait({self._leaving[number]})

    def _release(self, number: int) -> None:
        log.info("%s partition %d given up", self._context.family.name, number)
        owner = self._owners.pop(number)
        self._commands.pause([number])
        task = self._claiming.pop(number, None)
        if task is not None:
            task.cancel()
        owner.release()

    def _spawn(self, context: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        group = self._context.effect_runner.group
        assert group is not None, "partitions are owned inside the host's task group"
        return group.create_task(context)
