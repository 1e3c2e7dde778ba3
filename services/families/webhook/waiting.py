"""Waiting for what owners answer to a delivery that is about to be appended to loom.ingress.

Before: handlers.py, receiving.py. After: services/stream/entities/replicas.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.services.stream.entities.replicas import Replicas


class AwaitedAnswers:
    """The events with which owners answer a delivery. Close it after use."""

    def __init__(self, expected: Sequence[tuple[Replicas, str, str]]) -> None:
        """`expected`: aggregates and the ids of commands that they answer; the first one is that of the delivery."""
        self._expected = expected
        self.position = ""
        """Position of the event that decides the delivery; empty while it is not known."""
        self.answers = [replicas.expect(aggregate, command_id) for replicas, aggregate, command_id in expected]

    async def decision(self, deadline: float) -> Any:
        """Return the last event that answers the delivery; None when there is none in time."""
        try:
            async with asyncio.timeout_at(deadline):
                answer = await asyncio.shield(self.answers[0])
        except (TimeoutError, ConnectorError):
            return None
        self.position = answer.position
        return answer.events[-1]

    def close(self) -> None:
        """Wait for nothing more."""
        for (replicas, aggregate, command_id), answer in zip(self._expected, self.answers, strict=True):
            replicas.forget(aggregate, command_id, answer)
            answer.cancel()
