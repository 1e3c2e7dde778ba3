"""The deliveries that this process has taken or refused, so that a list of a webhook's deliveries has them.

A delivery is a record of loom.ingress, or a refusal that its webhook is told of beside the answer. Its row comes from
the event with which the owner answers, wherever that is. The sender may have its answer first, when the owner takes its
time, and ask for the list; so a list waits a moment for what is under way here, and includes what was decided.

Before: receiving.py. After: handlers.py.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import Any

from loomlog.services.families.webhook.waiting import AwaitedAnswers

SETTLE_S = 2.0
"""How long a list waits for what is under way."""
LATE_S = 10.0
"""How long a decision is waited for whose sender has its answer."""
LATE_MAX, UNDER_WAY_MAX = 200, 400
"""Decisions that are waited for so, and with them refusals on their way. Lists may lack further ones."""
WEBHOOKS_MAX = 1_000
"""Webhooks whose last decision is remembered; a list that follows its delivery does so within seconds."""


class OwnDeliveries:
    """Webhooks are named by their aggregates."""

    def __init__(self) -> None:
        self._positions: OrderedDict[str, str] = OrderedDict()
        self._under_way: dict[asyncio.Task[None], str] = {}

    def leave(self, aggregate: str, answers: AwaitedAnswers) -> None:
        """The sender of a delivery waits for its decision no more: remember it, or wait on for it."""
        if answers.position or len(self._under_way) >= LATE_MAX:
            self._close(aggregate, answers)
        else:
            self.start(aggregate, self._wait_on(aggregate, answers))

    def start(self, aggregate: str, work: Coroutine[Any, Any, None]) -> bool:
        """Start work that a list waits for; False when there is too much of it, and it is not done."""
        if len(self._under_way) >= UNDER_WAY_MAX:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._under_way[task] = aggregate
        task.add_done_callback(self._under_way.pop)
        return True

    async def settle(self, aggregate: str) -> Sequence[str]:
        """Wait a moment for what is under way of a webhook; return the positions that a list of its deliveries has to
        include.
        """
        tasks = [task for task, its in self._under_way.items() if its == aggregate]
        if tasks:
            await asyncio.wait(tasks, timeout=SETTLE_S)
        position = self._positions.get(aggregate)
        return () if position is None else (position,)

    async def _wait_on(self, aggregate: str, answers: AwaitedAnswers) -> None:
        try:
            await answers.decision(asyncio.get_running_loop().time() + LATE_S)
        finally:
            self._close(aggregate, answers)

    def _close(self, aggregate: str, answers: AwaitedAnswers) -> None:
        answers.close()
        if answers.position:
            self._positions[aggregate] = answers.position
            self._positions.move_to_end(aggregate)
            if len(self._positions) > WEBHOOKS_MAX:
                self._positions.popitem(last=False)
