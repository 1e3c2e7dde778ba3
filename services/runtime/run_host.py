"""Composition of the runs' host: the one place that says how a process that owns run partitions is put together.

The runtime passes real clients; tests, benchmarks and the simulation pass fakes at these edges and get the same parts.

Before: process.py. After: services/stream/host.py.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.protocols import LogAppender, LogRanges
from loomlog.schemas.codec import Codec
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.late_results import ResultForwarder
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.assignment import RequestHandover
from loomlog.services.stream.ownership.drain import DRAIN_S
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail, Standby
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.snapshots.snapshots import Snapshots
from loomlog.services.stream.topic_set import TopicSetHost


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyReaders:
    """Readers of the events with which a standby folds; used for that alone."""

    tail: PausableTail
    ranges: LogRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyEdges:
    """What a process needs to take over from other owners at their death.

    `readers` None: it folds nothing in advance, and takes over as a spare.
    """

    incarnation: str
    readers: StandbyReaders | None
    wait_for_disconnect: Callable[[str, Callable[[], None]], Awaitable[bool]]
    request_handover: RequestHandover | None
    liveness_address: str


def build_run_host(
    context: RunContext,
    *,
    codec: Codec,
    topics: Topics,
    appender: LogAppender,
    ranges: LogRanges,
    membership: Membership,
    commands: PausableTail,
    dead_letters: DeadLetters,
    run_effect: Callable[[Any, Any, str], Awaitable[Any]],
    name: str,
    standby: StandbyEdges | None = None,
    drain_s: float = DRAIN_S,
    entities: Sequence[TopicSetHost] = (),
) -> Host:
    """Return a host of runs, and of the topic sets of entities if there are any.

    `run_effect` takes (effect, state, tenant) and returns the command with its result.
    """

    def make_handler(folded: PartitionFold, number: int, term: int) -> RunCommandHandler:
        context.run_summaries.set_term(number, term)
        return RunCommandHandler(
            context,
            number=number,
            known_since_ms=folded.known_since_ms,
            forgotten_until=folded.forgotten_until,
        )

    forwarder = ResultForwarder(
        codec,
        appender,
        topic=topics.commands,
        partitions=context.partitions,
        clock_ms=context.clock_ms,
        name=name,
    )
    effect_runner = EffectRunner(
        context.family,
        run=run_effect,
        done=lambda *result: host.result(*result),
        clock_ms=context.clock_ms,
        hand_over=forwarder.forward,
        describe=context.encryption.describe_error,
    )
    host_context = HostContext(
        family=context.family,
        codec=codec,
        topics=topics,
        appender=appender,
        ranges=ranges,
        snapshots=Snapshots(
            context.family,
            codec,
            appender=appender,
            ranges=ranges,
            topic=topics.snapshots,
            omits_large_states=True,
            **({} if context.end_actions is None else {"is_done_below": context.end_actions.is_done_below}),
        ),
        dead_letters=dead_letters,
        effect_runner=effect_runner,
        make_handler=make_handler,
        clock_ms=context.clock_ms,
        name=name,
        liveness_address="" if standby is None else standby.liveness_address,
    )
    runs = TopicSetHost(
        host_context,
        commands=commands,
        standby=None if standby is None else build_standby(host_context, standby),
        request_handover=None if standby is None else standby.request_handover,
        drain_s=drain_s,
    )
    host = Host(runs, *entities, membership=membership)
    return host


def build_standby(context: HostContext, edges: StandbyEdges) -> Standby | Spare:
    """Return what takes over from the owners of a topic set at their death."""
    if edges.readers is None:
        return Spare(context.family.name, life=edges.incarnation, until_gone=edges.wait_for_disconnect)
    return Standby(
        context,
        life=edges.incarnation,
        tail=edges.readers.tail,
        ranges=edges.readers.ranges,
        until_gone=edges.wait_for_disconnect,
    )
