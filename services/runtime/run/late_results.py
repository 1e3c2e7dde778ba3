"""Forwarding of results that arrive after this process lost the partition: a command under the run's key, for the
current owner.

The owner of a run accepts the result if that attempt is still open, so a call that was slower than a rebalance, or
whose owner was only considered dead, need not be repeated. Only answers are forwarded: a failed attempt has no use, and
a reconciler can be queried again. Losing a result costs what losing its process would have cost.

Before: services/stream/effect_calls.py, for a partition this process does not hold. After: command_handler.py of the
current owner.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.process.logs import about
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.connectors.retries import until_answered
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.run_commands import HandOverModelReply, HandOverToolResult
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import copy_as
from loomlog.services.core.run.commands import ModelAnswered, ToolCompleted

log = logging.getLogger(__name__)

RETRY_S = 0.1
"""Seconds before an append with an unknown outcome is retried; a duplicate result is accepted once. EffectRunner limits
the total.
"""


class ResultForwarder:
    """Appends late results to the commands topic. `name` is the name of this process."""

    def __init__(
        self,
        codec: Codec,
        appender: LogAppender,
        *,
        topic: str,
        partitions: int,
        clock_ms: Callable[[], int],
        name: str,
    ) -> None:
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._partitions = partitions
        self._clock_ms = clock_ms
        self._name = name
        self.forwarded = 0

    async def forward(self, run_id: str, tenant: str, order: Any) -> None:
        """Append the result, retrying until it is in the log or the caller's timeout ends."""
        envelope = CommandEnvelope(
            command_id=f"h_{run_id}:{'.'.join(map(str, order.key))}",
            tenant=tenant,
            subject=self._name,
            issued_at_ms=self._clock_ms(),
        )
        command = encode_result(envelope, run_id, order)
        if command is None:
            return
        key = partition_key(run_id).encode()
        record = ProducerRecord(key=key, value=self._codec.encode(command))
        append = partial(self._appender.append, self._topic, partition_of(key, self._partitions), [record])
        await until_answered(append, f"{run_id}: a late result", failures=(UnknownOutcome,), retry_s=RETRY_S)
        self.forwarded += 1
        log.info("%s: the late result of %s was handed over", run_id, order.key, extra=about(run_id, tenant))


def encode_result(envelope: CommandEnvelope, run_id: str, order: Any) -> HandOverModelReply | HandOverToolResult | None:
    """Return the command that carries a result; None for results that are not worth forwarding."""
    match order:
        case ModelAnswered():
            return copy_as(HandOverModelReply, order, envelope=envelope, run_id=run_id)
        case ToolCompleted():
            return copy_as(HandOverToolResult, order, envelope=envelope, run_id=run_id)
        case _:
            return None


def decode_result(command: HandOverModelReply | HandOverToolResult, at_ms: int) -> ModelAnswered | ToolCompleted:
    """Return the result as from a call of this process. Raises ValueError when it is inconsistent."""
    if isinstance(command, HandOverToolResult):
        return copy_as(ToolCompleted, command, at_ms=at_ms)
    calls = len(command.tool_calls)
    if len(command.effect_classes) != calls or len(command.reconcilable) not in (0, calls):
        raise ValueError(f"{calls} tool calls with {len(command.effect_classes)} effect classes")
    if any(not 0 <= request.index < calls for request in command.interruption_requests):
        raise ValueError(f"{calls} tool calls with an interruption request for another")
    return copy_as(ModelAnswered, command, at_ms=at_ms)
