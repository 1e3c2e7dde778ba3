"""A small loomlog in memory: the log's twin, an owner with the real rules, the read models' twin, and a command layer.

The owner takes commands at once and does what the name of the agent says:

    soaker   answers "ok" and is done       parker   answers and parks until it gets input
    silent   starts and then does nothing   deaf     its commands are not even read

Tests write any other event with `world.happen`. `world.projecting = False` stops the read models where they are.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from loomlog.connectors.configuration.principals import Principal, TokenTable
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, key_encryption_key_id
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.audit import AuditRow
from loomlog.projections.engine.cursors import CursorRow, Position
from loomlog.projections.engine.positions import WaitResult
from loomlog.projections.frames.frame import FRAMES_PER_EVENT, FrameMemory
from loomlog.projections.interrupts import InterruptFilter, InterruptPage, InterruptRow
from loomlog.projections.run_queries import SAME_HANDLE_MAX, ActiveRuns, RunFilter, RunPage
from loomlog.projections.runs import RunRow, frame_memory
from loomlog.projections.tables import EVERY_TENANT, Scope, page_token, parse_page_token, parse_token_number
from loomlog.projections.transcript import TranscriptPage, TranscriptRow, open_calls
from loomlog.projections.usage import SUMS, UsageRow
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    Command,
    CompactRun,
    ForkRun,
    ImportRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResolveInterruption,
    ResumeRun,
    StartRun,
)
from loomlog.schemas.generated.run_events import RunStarted, ToolOutcomeAsked
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import AgentDefinition, Envelope, ForkPoint, InterruptionTerms, ToolCall, Usage
from loomlog.schemas.ids import fresh_token, partition_key
from loomlog.schemas.records import replace
from loomlog.services.application.application import TOPICS, Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.errors import RequestRefused, unavailable
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ, TENANT, USER
from loomlog.services.core.run.commands import (
    CancelCommand,
    CancelTurnCommand,
    CloseCommand,
    CommandRefusal,
    CompactCommand,
    ForkCommand,
    ForkOrigin,
    ImportCommand,
    InputCommand,
    ModelAnswered,
    PauseCommand,
    QuarantineCommand,
    ReleaseCommand,
    ResolveCallCommand,
    ResumeCommand,
    SummaryCompleted,
    SummaryFailed,
)
from loomlog.services.core.run.commands import StartCommand as StartOrder
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts.interruptions import TOOL_NAME, interrupt_id_for, parse_request
from loomlog.services.core.run.lifecycle.fork import override_definition
from loomlog.services.core.run.state import Absent, AwaitingModel, Compacting, Ended, Refused, State
from loomlog.services.runtime.budget_hosting import build_budget_host
from loomlog.services.runtime.run.history_handler import decode_import
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.membership import FixedMembership
from tests.projections.twin import Twin

PARTITIONS = 4
BUDGETS = TOPICS.budgets
KEK = b"k" * 32
NOW_MS = 1_780_000_000_000
WAIT_S = 30.0
"""Longest wait of any test; nothing here takes a tenth of a second."""

ADMIN_CALLER = Caller(name="shared", tenant="default", subject="default", scopes=frozenset({ADMIN}), legacy=True)
ACME = Caller(name="acme", tenant="acme", subject="acme-op", scopes=frozenset({TENANT}))
GLOBEX = Caller(name="globex", tenant="globex", subject="globex-op", scopes=frozenset({TENANT}))
IVY = Caller(name="ivy", tenant="acme", subject="ivy", scopes=frozenset({USER}))
READER = Caller(name="rob", tenant="acme", subject="rob", scopes=frozenset({RUNS_READ}))
STARTER = Caller(name="mem", tenant="acme", subject="mem", scopes=frozenset({RUNS_CREATE}))
CALLERS = (ADMIN_CALLER, ACME, GLOBEX, IVY, READER, STARTER)


def tokens() -> TokenTable:
    """Everybody's token is `<name>-token`."""
    return TokenTable(
        rows=tuple(
            (
                hashlib.sha256(f"{caller.name}-token".encode()).digest(),
                Principal(
                    name=caller.name,
                    tenant=caller.tenant,
                    subject=caller.subject,
                    scopes=caller.scopes,
                    legacy=caller.legacy,
                ),
            )
            for caller in CALLERS
        )
    )


class World:
    """See the module. Use `async with world() as w`."""

    def __init__(self, *, projecting: bool = True, encrypted: bool = False, **layer: Any) -> None:
        self.log = MemoryLog(
            dict.fromkeys((TOPICS.commands, TOPICS.events, TOPICS.previews), PARTITIONS)
            | {TOPICS.control: 1, TOPICS.hooks: 1, TOPICS.subjects: 1, TOPICS.providers: 1}
        )
        self.codec = local_codec()
        self.twin = Twin()
        self.projecting = projecting
        self.now_ms = NOW_MS
        """When answers of people are decided."""
        self.said = ""
        """What the model has said so far when a turn is stopped."""
        self.unfoldable = ""
        """Why a released run cannot be folded; empty when it can."""
        self.postgres_is_away = False
        self.summary = "they talked"
        """What a model makes of any conversation; with `summary_error` it makes none."""
        self.summary_error = ""
        self.blobs = MemoryBlobs()
        self.hub = EventHub(self.codec, {partition: HubStart() for partition in range(PARTITIONS)})
        self.states: dict[str, State] = {}
        self.tenants: dict[str, str] = {}
        self.histories: dict[str, tuple[Message, ...]] = {}
        """What forks begin with."""
        self.cascaded: dict[str, tuple[str, ...]] = {}
        self.owner_is_busy = False
        """Commands are read and ignored."""
        """Handles of the descendants of runs, for those that have any."""
        self.seqs: dict[str, int] = {}
        self.terms: dict[int, int] = {}
        self._digests: dict[str, bytes] = {}
        self._projected = dict.fromkeys(range(PARTITIONS), 0)
        self._counter = itertools.count(1)
        self.keys = self.keys_of_a_process() if encrypted else None
        self.layer = Application(
            **{
                "authenticator": Authenticator(tokens()),
                "hub": self.hub,
                "appender": self.log,
                "ranges": self.log,
                "projection": TwinProjection(self),
                "positions": self,
                "blobs": self.blobs,
                "codec": self.codec,
                "keepalive_s": 30.0,
                "clock_ms": lambda: NOW_MS,
                "new_token": self.token,
                "decision_wait_s": 0.4,
                "control_wait_s": 0.4,
                "publish_wait_s": 0.4,
                "keys": self.keys,
                **layer,
            }
        )
        for partition in range(PARTITIONS):
            self.claim(partition)

    def host_of_the_books(self) -> Host:
        commands = self.log.tail(BUDGETS.commands, {0: 0})
        commands.pause([0])
        return build_budget_host(
            self.codec,
            BUDGETS,
            appender=self.log,
            ranges=self.log,
            commands=commands,
            membership=FixedMembership(frozenset({0})),
            dead_letters=DeadLetters(self.codec, self.log, topic="letters", service="tests", clock_ms=lambda: NOW_MS),
            clock_ms=lambda: NOW_MS,
            name="books",
        )

    def token(self) -> str:
        return fresh_token(NOW_MS, next(self._counter).to_bytes(8, "big") + b"\0\0")

    def keys_of_a_process(self) -> SubjectKeys:
        """What another process knows of the keys of subjects: nothing yet."""
        keys = KeyEncryptionKeys(current=key_encryption_key_id(KEK), keys={key_encryption_key_id(KEK): KEK})
        return SubjectKeys(self.codec, self.log, self.log, keys, topic=TOPICS.subjects, clock_ms=lambda: NOW_MS)

    # --- the owner ---------------------------------------------------------------------------------------------------

    def claim(self, partition: int) -> int:
        """A new term begins in the partition."""
        envelope = Envelope(term=self.terms.get(partition, -1), seq=0, aggregate="", tenant="", at_ms=0, prev=bytes(16))
        value = self.codec.encode_event(envelope, Claim(owner="tests"))
        self.terms[partition] = self.log.put(TOPICS.events, partition, [ProducerRecord(key=b"claim", value=value)])
        return self.terms[partition]

    def happen(
        self, run_id: str, *events: Any, cause_id: str = "", term: int | None = None, at_ms: int = NOW_MS
    ) -> int:
        """Events of a run, appended as one batch; the first offset. With another `term` they are a zombie's."""
        partition = self.layer.publisher.partition_of(partition_key(run_id))
        is_stale = term is not None and term != self.terms[partition]
        seq, tail, records = self.seqs.get(run_id, 0), self._digests.get(run_id, bytes(16)), []
        for event in events:
            seq += 1
            envelope = Envelope(
                term=self.terms[partition] if term is None else term,
                seq=seq,
                aggregate=run_id,
                tenant=self.tenants.get(run_id, "default"),
                at_ms=at_ms,
                cause_id=cause_id,
                prev=tail,
            )
            value = self.codec.encode_event(envelope, event)
            tail = digest(value)
            records.append(ProducerRecord(key=partition_key(run_id).encode(), value=value))
            if not is_stale:
                self.states[run_id] = evolve(self.states.get(run_id, Absent(run_id=run_id)), event, NOW_MS)
        if not is_stale:
            self.seqs[run_id], self._digests[run_id] = seq, tail
        return self.log.put(TOPICS.events, partition, records)

    def happen_raw(self, partition: int, event: Any) -> int:
        """One event of no run in particular, under the partition's term."""
        envelope = Envelope(
            term=self.terms[partition], seq=1, aggregate="r_x", tenant="default", at_ms=NOW_MS, prev=bytes(16)
        )
        return self.log.put(
            TOPICS.events, partition, [ProducerRecord(key=b"k", value=self.codec.encode_event(envelope, event))]
        )

    def preview(self, run_id: str, text: str, *, start: int, turn: int = 1, attempt: int = 1, **more: Any) -> None:
        """A preview of a model turn."""
        partition = self.layer.publisher.partition_of(partition_key(run_id))
        delta = ModelDelta(
            **{"term": self.terms[partition], **more}, run_id=run_id, turn=turn, attempt=attempt, start=start, text=text
        )
        self.log.put(TOPICS.previews, partition, [ProducerRecord(key=b"k", value=self.codec.encode(delta))])

    def lose_a_call(self, run_id: str) -> None:
        """The silent run asked for one call, which was lost; somebody has to say what became of it."""
        self.reply(run_id, tool_calls=(ToolCall(id="c1", name="Pay", input="{}"),), effect_classes=("unsafe",))
        self.happen(run_id, ToolOutcomeAsked(turn=1, index=0, call_id="c1", attempt=1, reason="lost"))

    def ask(self, run_id: str, *questions: dict[str, Any]) -> list[str]:
        """The silent run asks people; the ids of its questions."""
        asks = tuple(
            ToolCall(id=f"c{at}", name=TOOL_NAME, input=json.dumps({"op": "ask", **one}))
            for at, one in enumerate(questions)
        )
        turn = getattr(self.states[run_id], "turn", 0)
        self.reply(
            run_id,
            tool_calls=asks,
            effect_classes=("pure",) * len(asks),
            interruption_requests=tuple(parse_request(at, call.input) for at, call in enumerate(asks)),
        )
        return [interrupt_id_for(run_id, turn, at) for at in range(len(asks))]

    def reply(self, run_id: str, text: str = "ok", **more: Any) -> None:
        """The model answers the open turn."""
        state = self.states[run_id]
        assert isinstance(state, AwaitingModel)
        answered: dict[str, Any] = {
            "at_ms": NOW_MS,
            "turn": state.turn,
            "attempt": state.attempt,
            "text": text,
            "text_blob": None,
            "reasoning": "",
            "reasoning_signature": "",
            "tool_calls": (),
            "effect_classes": (),
            "stop_reason": "end_turn",
            "usage": Usage(input_tokens=3, output_tokens=1),
            "provider": "mock",
            "model": "mock-generic",
            "max_context_tokens": 0,
            "cost_micros": 0,
            "currency": "",
            "duration_ms": 1,
        }
        self.happen(run_id, *decide(state, ModelAnswered(**{**answered, **more})))

    async def own(self) -> None:
        """Takes commands until cancelled."""
        tail = self.log.tail(TOPICS.commands, dict.fromkeys(range(PARTITIONS), 0))
        while True:
            for records in (await tail.poll(timeout_s=WAIT_S)).values():
                for record in records if not self.owner_is_busy else ():
                    await self._handle(self.codec.decode(record.value or b"").record)

    async def _handle(self, command: Command) -> None:
        run_id = command.run_id
        state = self.states.get(run_id, Absent(run_id=run_id))
        match command:
            case StartRun():
                if command.agent == "deaf":
                    return
                self.tenants.setdefault(run_id, command.envelope.tenant)
                order: Any = self._start(command)
                if isinstance(state, Absent) and (history := self._history_of(command.session_id)):
                    state = self.states[run_id] = Absent(run_id=run_id, history=history)
            case ForkRun():
                self.tenants.setdefault(run_id, command.envelope.tenant)
                order = self._fork(command)
                if order.origin is not None and isinstance(state, Absent):
                    state = self.states[run_id] = Absent(run_id=run_id, history=build_conversation(order.origin.state))
            case ImportRun():
                self.tenants.setdefault(run_id, command.envelope.tenant)
                events, times = decode_import(command)
                seq = self.seqs.get(run_id, 0) + 1
                order = ImportCommand(at_ms=NOW_MS, command=command, events=events, times=times, next_seq=seq)
                self.happen(run_id, *decide(state, order), cause_id=command.envelope.command_id)
                return
            case CancelRun():
                order = CancelCommand(at_ms=NOW_MS, command=command, cascaded=self.cascaded.get(run_id, ()))
            case CloseResident():
                order = CloseCommand(at_ms=NOW_MS, command=command)
            case PostInput():
                order = InputCommand(at_ms=NOW_MS, command=command)
            case ResolveCall():
                order = ResolveCallCommand(at_ms=NOW_MS, command=command)
            case ResolveInterruption():
                answer = await InterruptionAnswers().prepare(command, state, command.envelope.tenant, "")
                order = answer(self.now_ms)
            case CancelTurn():
                turn, attempt = (state.turn, state.attempt) if isinstance(state, AwaitingModel) else (0, 0)
                text = self.said
                order = CancelTurnCommand(at_ms=NOW_MS, command=command, turn=turn, attempt=attempt, text=text)
            case CompactRun():
                order = CompactCommand(at_ms=NOW_MS, command=command)
            case PauseRun():
                order = PauseCommand(at_ms=NOW_MS, command=command)
            case ResumeRun():
                order = ResumeCommand(at_ms=NOW_MS, command=command)
            case QuarantineRun():
                order = QuarantineCommand(at_ms=NOW_MS, command=command)
            case ReleaseRun():
                order = ReleaseCommand(at_ms=NOW_MS, command=command, error=self.unfoldable)
        events = decide(state, order)
        if not events:
            return
        self.happen(run_id, *events, cause_id=command.envelope.command_id)
        now = self.states[run_id]
        if isinstance(now, AwaitingModel) and now.facts.definition.name != "silent":
            self.reply(run_id)
        if isinstance(now, Compacting) and now.facts.definition.name != "silent":
            self.summarise(run_id)

    def summarise(self, run_id: str) -> None:
        """The model answers the summary call of a run."""
        state = self.states[run_id]
        assert isinstance(state, Compacting)
        place: dict[str, Any] = {"at_ms": NOW_MS, "number": state.number, "attempt": state.attempt, "duration_ms": 1}
        order: Any = SummaryCompleted(
            **place,
            summary=self.summary,
            usage=Usage(input_tokens=7, output_tokens=2),
            provider=state.provider,
            model=state.model,
            cost_micros=0,
            currency="",
        )
        if self.summary_error:
            order = SummaryFailed(**place, kind="overloaded", message=self.summary_error)
        self.happen(run_id, *decide(state, order))

    def _history_of(self, session_id: str) -> tuple[Message, ...]:
        """What was said in a session that is over."""
        ended = [s for s in self.states.values() if isinstance(s, Ended) and s.facts.session_id == session_id]
        return build_conversation(ended[-1]) if ended else ()

    def _fork(self, command: ForkRun) -> ForkCommand:
        """The origin up to the seq, read from the log as the real owner does it."""
        run_id, origin_id = command.run_id, command.origin_run_id
        partition = self.layer.publisher.partition_of(partition_key(origin_id))
        result: list[tuple[int, bytes, Any, Any]] = []
        for record in self.log.records[TOPICS.events, partition]:
            decoded = self.codec.decode(record.value or b"")
            envelope = decoded.envelope
            if envelope is not None and envelope.aggregate == origin_id and envelope.tenant == command.envelope.tenant:
                result.append((record.offset, record.value or b"", decoded.record, envelope))
        origin: ForkOrigin | None = None
        if 1 <= command.at_seq <= len(result):
            started = result[0][2]
            assert isinstance(started, RunStarted)
            state: State = Absent(run_id=origin_id, history=self.histories.get(origin_id, ()))
            for _, _, event, envelope in result[: command.at_seq]:
                state = evolve(state, event, envelope.at_ms)
            last, value, _, _ = result[command.at_seq - 1]
            point = ForkPoint(
                run_id=origin_id,
                first_offset=result[0][0],
                last_offset=last,
                seq=command.at_seq,
                digest=digest(value).hex(),
            )
            origin = ForkOrigin(started=started, state=state, point=point)
            self.histories.setdefault(run_id, build_conversation(state))
        definition = origin.started.definition if origin is not None else None
        is_known = command.agent != "ghost"
        if command.seed and definition is not None:
            definition = replace(definition, name=command.agent)
        return ForkCommand(
            at_ms=NOW_MS,
            command=command,
            session_id=f"s_{run_id[2:]}",
            agent_id=command.agent_id,
            origin=origin,
            definition=definition and override_definition(definition, command.overrides, tools=definition.tools),
            definition_refusal=None
            if is_known
            else CommandRefusal(code="unknown_agent", message="there is no agent ghost"),
        )

    def _start(self, command: StartRun) -> StartOrder:
        session = command.session_id or f"s_{command.run_id[2:]}"
        handle = command.agent_id or f"a_{command.run_id[2:]}"
        live = {run: s.facts for run, s in self.states.items() if not isinstance(s, Absent | Refused | Ended)}
        known = {s.facts.session_id for s in self.states.values() if not isinstance(s, Absent | Refused)}
        tenant = command.envelope.tenant
        same_handle = next(
            (r for r, f in live.items() if (f.agent_id, self.tenants[r]) == (handle, tenant) and r != command.run_id),
            "",
        )
        same_session = next((r for r, f in live.items() if f.session_id == session and r != command.run_id), "")
        is_known = command.agent != "ghost"
        definition = AgentDefinition(
            name=command.agent,
            provider="mock",
            model="mock-generic",
            system_prompt="Be short.",
            sha256="ab" * 32,
            interruption=InterruptionTerms(enabled=True),
        )
        return StartOrder(
            at_ms=NOW_MS,
            command=command,
            session_id=session,
            agent_id=handle,
            definition=definition if is_known else None,
            definition_refusal=None
            if is_known
            else CommandRefusal(code="unknown_agent", message="there is no agent ghost"),
            session_exists=not command.session_id or session in known,
            session_live_run=same_session,
            handle_live_run=same_handle,
        )

    # --- the read models ---------------------------------------------------------------------------------------------

    def project(self) -> None:
        """Brings the read models up to the end of the log."""
        for partition in range(PARTITIONS):
            records: Sequence[ConsumerRecord] = self.log.records[TOPICS.events, partition][self._projected[partition] :]
            if records:
                self.twin.apply(records)
                self._projected[partition] += len(records)

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        """Protocol Positions."""
        if self.projecting:
            self.project()
        known = self._projected[position.partition]
        return WaitResult(is_reached=known > position.offset, lag=max(0, position.offset + 1 - known))

    # --- looking on --------------------------------------------------------------------------------------------------

    def commands(self) -> list[Any]:
        """Every command in the log."""
        return [
            self.codec.decode(record.value or b"").record
            for partition in range(PARTITIONS)
            for record in self.log.records[TOPICS.commands, partition]
        ]


class TwinProjection:
    """Protocol Projection over the in-memory tables."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def _tables(self) -> dict[str, dict[Any, Any]]:
        if self._world.postgres_is_away:
            raise unavailable("projection", Transient("no answer", kind="timeout"))
        if self._world.projecting:
            self._world.project()
        return self._world.twin.tables

    async def run(self, scope: Scope, run_id: str) -> RunRow | None:
        row = self._tables["runs"].get(run_id)
        return row if row is not None and _within(scope, row.tenant) else None

    async def run_of_handle(self, scope: Scope, agent_id: str, *, user_id: str = "", home: str = "") -> RunRow | None:
        page = await self.runs(scope, RunFilter(agent_id=agent_id, user_id=user_id), limit=SAME_HANDLE_MAX)
        return min(page.rows, key=lambda row: (row.tenant != home, row.status != "running"), default=None)

    async def runs(self, scope: Scope, criteria: RunFilter, *, limit: int, after: str = "") -> RunPage:
        rows = [row for row in self._tables["runs"].values() if _within(scope, row.tenant) and _wanted(criteria, row)]
        rows.sort(key=lambda row: (row.started_at_ms, row.run_id), reverse=True)
        if after:
            at_ms, run_id = parse_page_token(after, 2)
            rows = [row for row in rows if (row.started_at_ms, row.run_id) < (parse_token_number(at_ms), run_id)]
        if len(rows) <= limit:
            return RunPage(rows=tuple(rows), next="")
        return RunPage(rows=tuple(rows[:limit]), next=page_token(rows[limit - 1].started_at_ms, rows[limit - 1].run_id))

    async def count_active(self, scope: Scope) -> list[ActiveRuns]:
        counts = Counter(
            (row.user_id, row.provider)
            for row in self._tables["runs"].values()
            if _within(scope, row.tenant)
            and (row.status, row.quarantined) == ("running", False)
            and row.under_way
            and not (row.parent_run_id or row.told_events)
        )
        return [ActiveRuns(*of, runs) for of, runs in counts.items()]

    async def audit_row(self, scope: Scope, run_id: str) -> AuditRow | None:
        row = self._tables["audit"].get(run_id)
        return row if row is not None and _within(scope, row.tenant) else None

    async def last_of_session(self, scope: Scope, session_id: str) -> AuditRow | None:
        rows = [r for r in self._tables["audit"].values() if r.session_id == session_id and _within(scope, r.tenant)]
        return max(rows, key=lambda row: row.first_offset, default=None)

    async def transcript(self, scope: Scope, session_id: str, *, limit: int, after: str = "") -> TranscriptPage:
        runs = self._tables["runs"]
        rows = [
            row
            for row in self._tables["transcript"].values()
            if row.session_id == session_id and _within(scope, row.tenant)
        ]
        rows.sort(key=lambda row: (runs[row.run_id].first_offset, row.seq))
        return TranscriptPage(rows=tuple(rows[:limit]), next="more" if len(rows) > limit else "")

    async def frames(self, scope: Scope, run_id: str, *, from_seq: int, limit: int) -> list[TranscriptRow]:
        rows = [
            row
            for row in self._tables["transcript"].values()
            if row.run_id == run_id and row.seq > from_seq and _within(scope, row.tenant)
        ]
        return sorted(rows, key=lambda row: row.seq)[:limit]

    async def follow_from(self, scope: Scope, run_id: str) -> tuple[RunRow, FrameMemory] | None:
        row = await self.run(scope, run_id)
        if row is None:
            return None
        first = row.memory_reply_seq * FRAMES_PER_EVENT
        calls = [
            frame.event
            for frame in await self.frames(scope, run_id, from_seq=first - 1, limit=FRAMES_PER_EVENT)
            if frame.type == "tool_call" and frame.seq < first + FRAMES_PER_EVENT
        ]
        return row, replace(frame_memory(row), calls=open_calls(calls))

    async def interrupt(self, scope: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None:
        row: InterruptRow | None = self._tables["interrupts"].get((run_id, interrupt_id))
        return row if row is not None and _within(scope, row.tenant) else None

    async def interrupts(
        self, scope: Scope, criteria: InterruptFilter, *, limit: int, after: str = ""
    ) -> InterruptPage:
        rows = [
            row
            for row in self._tables["interrupts"].values()
            if _within(scope, row.tenant)
            and (not criteria.statuses or row.status in criteria.statuses)
            and criteria.run_id in ("", row.run_id)
            and criteria.user_id in ("", row.user_id)
        ]
        rows.sort(key=lambda row: (row.created_at_ms, row.run_id, row.interrupt_id), reverse=True)
        return InterruptPage(rows=tuple(rows[:limit]), next="more" if len(rows) > limit else "", total=len(rows))

    async def usage(
        self, scope: Scope, group_by: Sequence[str], *, user_id: str | None, since_day: str, until_day: str
    ) -> list[dict[str, Any]]:
        sums: dict[tuple[str, ...], list[int]] = {}
        names = tuple(dict.fromkeys([*group_by, "currency"]))
        for row in self._spent(scope, user_id, since_day):
            if not until_day or row.day <= until_day:
                so_far = sums.setdefault(tuple(getattr(row, name) for name in names), [0] * len(SUMS))
                so_far[:] = [a + getattr(row, name) for a, name in zip(so_far, SUMS, strict=True)]
        return [dict(zip((*names, *SUMS), (*key, *amounts), strict=True)) for key, amounts in sorted(sums.items())]

    async def spent_since(self, scope: Scope, since_day: str, *, user_id: str | None, currency: str) -> tuple[int, int]:
        rows = self._spent(scope, user_id, since_day)
        tokens = sum(getattr(row, name) for row in rows for name in SUMS if name.endswith("_tokens"))
        return tokens, sum(row.cost_micros for row in rows if row.currency == currency)

    def _spent(self, scope: Scope, user_id: str | None, since_day: str) -> list[UsageRow]:
        return [
            row
            for row in self._tables["usage"].values()
            if _within(scope, row.tenant) and user_id in (None, row.user_id) and row.day >= since_day
        ]

    async def cursors(self) -> list[CursorRow]:
        assert self._tables
        return [
            CursorRow(TOPICS.events, partition, cursor.next_offset, cursor.term, 1, "tests", None)
            for partition, cursor in self._world.twin.cursors.items()
        ]


def _within(scope: Scope, tenant: str) -> bool:
    return scope is EVERY_TENANT or scope == tenant


def _wanted(wanted: RunFilter, row: RunRow) -> bool:
    return (
        (not wanted.statuses or row.status in wanted.statuses)
        and all(
            not getattr(wanted, name) or getattr(wanted, name) == getattr(row, name)
            for name in ("agent", "agent_id", "parent_agent_id", "user_id", "session_id")
        )
        and (not wanted.root_run_id or row.root_run_id == wanted.root_run_id)
        and (not wanted.resident or row.resident)
        and (not wanted.since_ms or row.started_at_ms >= wanted.since_ms)
        and (not wanted.until_ms or row.started_at_ms < wanted.until_ms)
    )


@contextlib.asynccontextmanager
async def world(*, owner: bool = True, books: bool = False, **more: Any) -> AsyncIterator[World]:
    """A World whose hub, publisher and owner are at work; with `books` also somebody who owns those."""
    made = World(**more)
    await made.layer.publisher.open()
    events = made.log.tail(TOPICS.events, dict.fromkeys(range(PARTITIONS), 0))
    previews = made.log.tail(TOPICS.previews, dict.fromkeys(range(PARTITIONS), 0))
    control = made.log.tail(TOPICS.control, {0: 0})
    providers = made.log.tail(TOPICS.providers, {0: 0})
    hooks = made.log.tail(TOPICS.hooks, {0: 0})
    beside = [
        lambda: made.layer.pause_table.follow(control),
        lambda: made.layer.provider_table.follow(providers),
        lambda: made.layer.hook_table.follow(hooks),
        *([made.own] if owner else []),
    ]
    if made.keys is not None:
        beside.append(partial(made.keys.follow, made.log.tail(TOPICS.subjects, {0: 0})))
    if books:
        beside += [
            made.host_of_the_books().run,
            lambda: made.layer.budget_replica.follow(made.log.tail(BUDGETS.events, {0: 0})),
        ]
    work = asyncio.create_task(made.layer.run(events, previews, *beside))
    try:
        await asyncio.sleep(0)
        yield made
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def pieces_of(stream: RunStream) -> list[StreamChunk]:
    """Everything a stream gives until its end."""
    result: list[StreamChunk] = []
    async with asyncio.timeout(WAIT_S):
        while (pieces := await stream.next()) is not None:
            result += pieces
    return result


async def until_type(stream: RunStream, kind: str) -> list[StreamChunk]:
    """What a stream gives up to a frame of that type."""
    result: list[StreamChunk] = []
    async with asyncio.timeout(WAIT_S):
        while not any(piece.type == kind for piece in result):
            pieces = await stream.next()
            assert pieces is not None, f"the stream ended ({stream.end_reason}) before {kind}: {types_of(result)}"
            result += pieces
    return result


def types_of(pieces: Sequence[StreamChunk]) -> list[str]:
    return [piece.type for piece in pieces]


async def declined(asked: Any) -> RequestRefused:
    """What a use case was declined with."""
    try:
        async with asyncio.timeout(WAIT_S):
            values = await asked
    except RequestRefused as found:
        return found
    raise AssertionError(f"it was not declined but gave {values!r}")


async def until(check: Callable[[], object]) -> None:
    """Until it is so; lets the others work meanwhile."""
    async with asyncio.timeout(WAIT_S):
        while not check():
            await asyncio.sleep(0)
