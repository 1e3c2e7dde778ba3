"""Budgets in a runtime process: it reads them, sends commands to them, and is a candidate for owning them.

One of the runtimes owns the only partition of the budget family, with the same loop as runs (services/stream/host.py);
when it dies another one takes over: a spare at once, otherwise the one that the group names. Until then calls that a
limit applies to wait; all others continue.

Before: main.py opens it. After: services/runtime/models/budget_reservation.py for model calls,
services/runtime/run/command_handler.py for starts.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.kafka import KafkaGroup, KafkaTail, open_tail
from loomlog.connectors.process.liveness_sockets import wait_for_disconnect
from loomlog.connectors.protocols import LogAppender, LogRanges
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import fresh_token
from loomlog.services.families.budget.client import BudgetClient
from loomlog.services.families.budget.family import PARTITION, BudgetCommandHandler, BudgetFamily
from loomlog.services.families.budget.replica import BudgetReplica
from loomlog.services.runtime.models.budget_reservation import BudgetReservations
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail
from loomlog.services.stream.snapshots.snapshots import Snapshots
from loomlog.services.stream.topic_set import TopicSetHost

TOKEN_BYTES = 10
"""Random bytes in a command id; the number that loomlog.schemas.ids takes."""


def build_budget_host(
    codec: Codec,
    topics: Topics,
    *,
    appender: LogAppender,
    ranges: LogRanges,
    commands: PausableTail,
    membership: Membership,
    dead_letters: DeadLetters,
    clock_ms: Callable[[], int],
    name: str,
    spare: Spare | None = None,
) -> Host:
    """Build the host of the budget family. `commands` is a tail of the commands topic, paused."""
    family = BudgetFamily()

    async def no_call(effect: Any, state: Any, tenant: str) -> Any:
        raise AssertionError("the budget family has no calls")

    books = TopicSetHost(
        HostContext(
            family=family,
            codec=codec,
            topics=topics,
            appender=appender,
            ranges=ranges,
            snapshots=Snapshots(family, codec, appender=appender, ranges=ranges, topic=topics.snapshots),
            dead_letters=dead_letters,
            effect_runner=EffectRunner(family, run=no_call, done=lambda *result: False, clock_ms=clock_ms),
            make_handler=lambda folded, number, term: BudgetCommandHandler(clock_ms),
            clock_ms=clock_ms,
            name=name,
        ),
        commands=commands,
        standby=spare,
    )
    return Host(books, membership=membership)


def build_budget_replica(codec: Codec, topics: Topics, *, appender: LogAppender, ranges: LogRanges) -> BudgetReplica:
    """Build a budget replica that has not been read yet."""
    snapshots = Snapshots(BudgetFamily(), codec, appender=appender, ranges=ranges, topic=topics.snapshots)
    return BudgetReplica(codec, topics, snapshots, ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedBudgets:
    """Everything about budgets in this process; `tail` is what the replica follows."""

    replica: BudgetReplica
    client: BudgetClient
    reservations: BudgetReservations
    host: Host
    tail: KafkaTail


async def open_hosted_budgets(
    stack: AsyncExitStack,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    topics: Topics,
    *,
    group_name: str,
    incarnation: str,
    address: str,
    clock_ms: Callable[[], int],
) -> HostedBudgets:
    """Open all budget resources, to be closed with the stack, and read the budgets. Raises Transient.

    The assignments of the consumer group `group_name` hint at the owner of the budgets; `address` is the liveness
    endpoint of this process, empty without one.
    """
    board = build_budget_replica(codec, topics, appender=appender, ranges=ranges)
    await board.open()
    tail = await open_tail(settings.kafka, topics.events, {PARTITION: board.next_offset})
    stack.push_async_callback(tail.close)
    commands = await open_tail(settings.kafka, topics.commands, {PARTITION: 0})
    stack.push_async_callback(commands.close)
    commands.pause([PARTITION])
    is_spare_ready = bool(address) and settings.spares > 0
    group = KafkaGroup(
        settings.kafka,
        topics.commands,
        group_name,
        session_timeout_ms=settings.session_timeout_ms,
        incarnation=incarnation,
        is_standby=is_spare_ready,
        address=address,
        spares=settings.spares,
    )
    await group.start()
    stack.push_async_callback(group.close)
    client = BudgetClient(
        board,
        appender,
        codec,
        topics,
        clock_ms=clock_ms,
        fresh_token=lambda: fresh_token(clock_ms(), os.urandom(TOKEN_BYTES)),
        name=settings.name,
    )
    host = build_budget_host(
        codec,
        topics,
        appender=appender,
        ranges=ranges,
        commands=commands,
        membership=group,
        dead_letters=DeadLetters(codec, appender, topic=topics.dead_letters, service="runtime", clock_ms=clock_ms),
        clock_ms=clock_ms,
        name=settings.name,
        spare=Spare("budget", life=incarnation, until_gone=wait_for_disconnect) if is_spare_ready else None,
    )
    group.report_held_partitions(lambda: host.owners)
    return HostedBudgets(
        replica=board, client=client, reservations=BudgetReservations(client, clock_ms), host=host, tail=tail
    )
