"""An owner of runs as the application sees it: it reads commands and appends the events that the core decides."""

import json
from typing import Any

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import digest
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    Command,
    CompactRun,
    ForkRun,
    GiveApproval,
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
from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalPolicy,
    Envelope,
    ForkPoint,
    InterruptionTerms,
    ToolCall,
    Usage,
)
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.application.resources import TOPICS
from loomlog.services.core.run.commands import (
    CancelCommand,
    CancelTurnCommand,
    CloseCommand,
    CommandRefusal,
    CompactCommand,
    ForkCommand,
    ForkOrigin,
    GiveApprovalCommand,
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
from loomlog.services.runtime.run.history_handler import decode_import
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers

PARTITIONS = 4
NOW_MS = 1_780_000_000_000
SILENT = ("silent", "teller")
RULES = (ApprovalPolicy(source="file", sha256="f0", text='{"rules":[]}'),)
WAIT_S = 30.0
"""Longest wait of any test; nothing here takes a tenth of a second."""


class RunOwner:
    """Commands of every run, decided at once and in order. The world has the log and the states."""

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
            case GiveApproval():
                order = GiveApprovalCommand(at_ms=self.now_ms, command=command)
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
        if isinstance(now, AwaitingModel) and now.facts.definition.name not in SILENT:
            self.reply(run_id)
        if isinstance(now, Compacting) and now.facts.definition.name not in SILENT:
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
            approvals=RULES if command.agent == "teller" else (),
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
