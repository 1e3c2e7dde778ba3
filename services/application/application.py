"""The way in: all use cases over one log, one set of read models and one hub.

A process makes one Application (bootstrap.py over Kafka and Postgres, or over the in-memory twins) and keeps `run`
going beside its transport. Whatever the transport, it asks `gate` who is calling and then one of

    runs      start, continue_session            -> Accepted, with the run's stream
    forks     fork                              -> Accepted, with the fork's stream
    imports   take_in
    batches   join, detach
    control   post_input, cancel, close_resident, resolve, pause, resume, quarantine, release
    interrupts resolve, cancel_turn, of_run, of_all   (questions to people)
    compactions compact, replay                (a summary for the older part; a session for another agent)
    bulk      preview, act                      (one of those orders, to the runs of a filter)
    reads     run, agent, runs, transcript, stream
    run_states follow
    audit     events, record
    histories replay, at, compare, export
    snapshots create, list, manifest, open, remove   (state files)
    restoring restore
    hooks     register, listed, remove
    pausing   pause, resume, state   (wider than a run; control has those of one run)
    budgets   limits, set, remove, usage
    probing   probe                  (of the providers of models)
    clients   serve                  (a connection of a client that carries tools out)
    erasing   report, erase, subjects, wrap_anew

and every one of them raises Declined and nothing else for what a caller can cause.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.protocols import Blobs, LogAppender, LogRanges, LogTail
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import fresh_token, partition_key
from loomlog.services.application import limits
from loomlog.services.application.admin.budget_limits import BudgetLimits
from loomlog.services.application.admin.erasure import SubjectErasure
from loomlog.services.application.admin.hooks import HookRegistry
from loomlog.services.application.admin.pauses import Pauses
from loomlog.services.application.admin.probes import ModelProbes
from loomlog.services.application.authentication import Gate
from loomlog.services.application.clients.connections import ClientConnections, ClientLimits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.queries.audit_log import AuditLog
from loomlog.services.application.queries.read_models import Positions, ReadModels
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.batch import Batches
from loomlog.services.application.runs.bulk import BulkActions
from loomlog.services.application.runs.compactions import SessionCompactions
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.runs.forks import Forks
from loomlog.services.application.runs.interrupts import InterruptActions
from loomlog.services.application.runs.start import RunStarts
from loomlog.services.application.streaming.event_hub import EventHub
from loomlog.services.application.streaming.run_states import RunStates
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.transfer.imports import RunImports
from loomlog.services.application.transfer.restore import StateRestore
from loomlog.services.application.transfer.state_files import Backups
from loomlog.services.families.budget.client import BudgetClient
from loomlog.services.families.budget.family import BudgetFamily
from loomlog.services.families.budget.family import topics_of as budget_topics
from loomlog.services.families.budget.replica import BudgetReplica
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.family import Topics
from loomlog.services.stream.global_tables.hooks import HookGlobalTable
from loomlog.services.stream.global_tables.pauses import PauseGlobalTable
from loomlog.services.stream.global_tables.providers import ProviderGlobalTable
from loomlog.services.stream.snapshots.snapshots import Snapshots as BooksSnapshots

log = logging.getLogger(__name__)

TOPIC_PREFIX = "loom"
RANDOM_BYTES = 10
"""Of a fresh token; loomlog.schemas.ids takes that many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTopics:
    """The topics of the run family and of budgets, and of wider pauses, hooks, keys of subjects, providers, clients."""

    commands: str
    events: str
    previews: str
    control: str
    hooks: str
    subjects: str
    budgets: Topics
    providers: str
    clients: str

    @classmethod
    def under(cls, prefix: str) -> "RunTopics":
        return cls(
            commands=f"{prefix}.run.commands",
            events=f"{prefix}.run.events",
            previews=f"{prefix}.run.deltas",
            control=f"{prefix}.control.events",
            hooks=f"{prefix}.hook.events",
            subjects=f"{prefix}.subject.keys",
            budgets=budget_topics(prefix),
            providers=f"{prefix}.provider.events",
            clients=f"{prefix}.client.events",
        )


TOPICS = RunTopics.under(TOPIC_PREFIX)


def clock_ms() -> int:
    """UTC milliseconds."""
    return time.time_ns() // 1_000_000


def new_token() -> str:
    """A fresh token for ids."""
    return fresh_token(clock_ms(), os.urandom(RANDOM_BYTES))


class Application:
    """The use cases. Built from parts that are open already; `run` works until cancelled."""

    def __init__(
        self,
        *,
        gate: Gate,
        hub: EventHub,
        appender: LogAppender,
        ranges: LogRanges,
        projection: ReadModels,
        positions: Positions,
        blobs: Blobs,
        codec: Codec,
        keepalive_s: float,
        state_files: StateFiles | None = None,
        topics: RunTopics = TOPICS,
        clock_ms: Callable[[], int] = clock_ms,
        new_token: Callable[[], str] = new_token,
        publish_wait_s: float = limits.PUBLISH_WAIT_S,
        decision_wait_s: float = limits.DECISION_WAIT_S,
        control_wait_s: float = limits.CONTROL_WAIT_S,
        spent_wait_s: float = limits.SPENT_WAIT_S,
        compaction_wait_s: float = limits.COMPACTION_WAIT_S,
        on_batch: Callable[[int], None] = lambda records: None,
        keys: SubjectKeys | None = None,
        secret: SecretKey | None = None,
        credentials: RunCredentials | None = None,
        client_bounds: ClientLimits | None = None,
    ) -> None:
        """`keys` None: content is not encrypted. `secret` None: callbacks are not signed. `credentials` None: requests
        that bring some are refused."""
        self.keys = keys
        self.gate = gate
        self.hub = hub
        self.projection = projection
        self.publisher = CommandPublisher(
            appender, codec, topic=topics.commands, wait_s=publish_wait_s, on_batch=on_batch
        )
        self.barrier = PositionBarrier(hub, positions, topic=topics.events)
        self.sources = sources = StreamSources(
            hub=hub,
            projection=projection,
            barrier=self.barrier,
            blobs=blobs,
            partition_of=lambda any_id: self.publisher.partition_of(partition_key(any_id)),
            keepalive_s=keepalive_s,
            content=ContentAccess(keys),
        )
        self.reads = RunQueries(sources)
        self.pauses = PauseGlobalTable(codec, topics.control)
        self.pausing = Pauses(sources, self.pauses, appender, codec, clock_ms=clock_ms, fresh_token=new_token)
        self.hook_board = HookGlobalTable(codec, topics.hooks)
        self.hooks = HookRegistry(
            self.hook_board, appender, codec, clock_ms=clock_ms, fresh_token=new_token, secret=secret
        )
        self.providers = ProviderGlobalTable(codec, topics.providers)
        self.probing = ModelProbes(self.providers, appender, codec, clock_ms=clock_ms, fresh_token=new_token)
        self.clients = ClientConnections(
            appender,
            codec,
            topic=topics.clients,
            clock_ms=clock_ms,
            fresh_token=new_token,
            bounds=client_bounds or ClientLimits(),
        )
        self.runs = RunStarts(
            sources,
            self.reads,
            self.publisher,
            clock_ms=clock_ms,
            fresh_token=new_token,
            decision_wait_s=decision_wait_s,
            admit=self.pausing.admit,
            credentials=credentials,
            books_offset=lambda: self.books.limits_offset,
        )
        self.forks = Forks(self.runs, self.reads, clock_ms=clock_ms, fresh_token=new_token)
        self.imports = RunImports(sources, self.publisher, clock_ms=clock_ms, wait_s=decision_wait_s)
        family = BudgetFamily()
        saved = BooksSnapshots(family, codec, appender=appender, ranges=ranges, topic=topics.budgets.snapshots)
        self.books = BudgetReplica(codec, topics.budgets, saved, ranges)
        self.clerk = BudgetClient(
            self.books, appender, codec, topics.budgets, clock_ms=clock_ms, fresh_token=new_token, name="api"
        )
        self.budgets = BudgetLimits(
            sources,
            self.clerk,
            ends=partial(ranges.end_offset, topics.events),
            clock_ms=clock_ms,
            wait_s=control_wait_s,
            spent_wait_s=spent_wait_s,
        )
        self.snapshots = Backups(
            sources, ranges, codec, self.pauses, state_files, self.books, events_topic=topics.events, clock_ms=clock_ms
        )
        self.restoring = StateRestore(
            sources, self.publisher, self.pausing, self.budgets, clock_ms=clock_ms, wait_s=decision_wait_s
        )
        self.control = RunControl(
            sources, self.reads, self.publisher, clock_ms=clock_ms, fresh_token=new_token, wait_s=control_wait_s
        )
        self.run_states = RunStates(sources)
        self.interrupts = InterruptActions(sources, self.reads, self.control)
        self.compactions = SessionCompactions(
            self.runs, self.control, self.reads, clock_ms=clock_ms, fresh_token=new_token, wait_s=compaction_wait_s
        )
        self.erasing = SubjectErasure(sources, self.reads, self.control, fresh_token=new_token)
        self.batches = Batches(sources, self.runs, self.control)
        self.bulk = BulkActions(self.reads, self.control, clock_ms=clock_ms)
        self.audit = AuditLog(sources, ranges, codec, events_topic=topics.events, commands_topic=topics.commands)
        self.histories = RunHistories(sources, self.reads, ranges, codec, events_topic=topics.events, clock_ms=clock_ms)

    async def run(self, events: LogTail, previews: LogTail, *beside: Callable[[], Awaitable[None]]) -> None:
        """Publishes and reads until cancelled; `beside` are tasks that belong to the same life."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.publisher.run(), name="publisher")
            group.create_task(self.hub.run(events, previews), name="hub")
            group.create_task(self.clerk.run(), name="commands for the books")
            for task in beside:
                group.create_task(_awaited(task))


async def _awaited(task: Callable[[], Awaitable[None]]) -> None:
    await task()
