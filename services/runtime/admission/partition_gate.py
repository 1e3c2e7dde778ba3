"""The door of the process as one partition sees it: which of its runs are at work, and starts that wait for a place.

A start that would be refused anyway, or begins paused, does not wait. The others are decided when they are let in, or
refused when they are not. Before: desk.py prepares a StartRun. After: admission.py keeps the door.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from loomlog.schemas.generated.run_commands import StartRun
from loomlog.services.core.admission import Place
from loomlog.services.core.run.commands import CommandRefusal, StartCommand
from loomlog.services.core.run.lifecycle.activity import ACTIVITY_EVENTS, is_active
from loomlog.services.core.run.lifecycle.start import start_refusal
from loomlog.services.runtime.admission.queue import Door
from loomlog.services.stream.context import Prepared
from loomlog.services.stream.partition.partition import Aggregate, Partition


class Doorway:
    """One partition's. `door` None: everybody goes in."""

    def __init__(self, door: Door | None) -> None:
        self._door = door
        self._inside: set[str] = set()

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        """An event was decided; the aggregate is as it is after all of its decision."""
        if self._door is not None and type(event) in ACTIVITY_EVENTS:
            self.look_at(aggregate)

    def look_at(self, aggregate: Aggregate) -> None:
        """Whether the run is at work now."""
        if self._door is None:
            return
        if not is_active(aggregate.state):
            self._left(aggregate.id)
        elif aggregate.id not in self._inside:
            facts = aggregate.state.facts
            place = Place(tenant=aggregate.tenant, user_id=facts.user_id, provider=facts.definition.provider)
            self._inside.add(aggregate.id)
            self._door.at_work(aggregate.id, place)

    def closed(self) -> None:
        """The partition is not held any more; its runs are at work elsewhere."""
        for run_id in list(self._inside):
            self._left(run_id)

    def through(
        self, starting: Prepared | Coroutine[Any, Any, Prepared], command: StartRun, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        """The start, when its run may begin."""
        if self._door is None:
            return starting
        if not isinstance(starting, Prepared):
            return self._when_ready(starting, command, partition)
        return (
            self._wait(self._door, starting, partition) if self._must_wait(starting, command, partition) else starting
        )

    async def _when_ready(
        self, starting: Coroutine[Any, Any, Prepared], command: StartRun, partition: Partition
    ) -> Prepared:
        found = self.through(await starting, command, partition)
        return found if isinstance(found, Prepared) else await found

    def _must_wait(self, prepared: Prepared, command: StartRun, partition: Partition) -> bool:
        """The usual start does not, and this costs it a microsecond."""
        aggregate, door = prepared.aggregate, self._door
        if door is None or aggregate is None or prepared.order is None or aggregate.id in partition.aggregates:
            return False  # it is handled already, or has no place
        provider = ""
        if door.asks_for_providers:
            definition = prepared.order().definition
            provider = "" if definition is None else definition.provider
        place = Place(tenant=aggregate.tenant, user_id=command.user_id, provider=provider)
        return not door.admission.has_room(place)

    async def _wait(self, door: Door, prepared: Prepared, partition: Partition) -> Prepared:
        aggregate, order = prepared.aggregate, prepared.order
        assert aggregate is not None
        assert order is not None
        trial: StartCommand = order()
        if start_refusal(trial, aggregate.state.history) is not None or trial.pauses or trial.definition is None:
            return prepared
        place = Place(tenant=aggregate.tenant, user_id=trial.command.user_id, provider=trial.definition.provider)
        turned_away = await door.admitted(aggregate.id, place)
        if turned_away is None:
            self._inside.add(aggregate.id)
            # Decided right after this; should nothing come of it, its place must not be lost.
            asyncio.get_running_loop().call_soon(self._check, aggregate.id, partition)
            return prepared
        why = CommandRefusal(
            code=turned_away.code, message=turned_away.message, about=turned_away.about, cap=turned_away.cap
        )
        prepared.order = lambda: replace(order(), admission_refusal=why)
        return prepared

    def _check(self, run_id: str, partition: Partition) -> None:
        if run_id not in partition.aggregates:
            self._left(run_id)

    def _left(self, run_id: str) -> None:
        if run_id in self._inside:
            assert self._door is not None
            self._inside.discard(run_id)
            self._door.rests(run_id)
