"""Reads the raw log after every append, and every commit of the projector, with code of its own.

    per partition   terms were claimed, what is accepted was written under the term of then
    per run         dense seq, unbroken hash chain, one order of events, nothing after the end (tests/chaos/history.py)
    calls           began once, by the owner whose accepted intent asked for them; what is answered was carried out
    commands        a StartRun begins one run; a text is received once; a repeated command changes nothing
    people          what ends a question was sent, or its time was over; a turn is stopped because somebody said so
    rows            move together with their cursor, and say what the accepted history says up to it
    at the end      everything that was asked for has come to its end: no run is stuck, no row is missing

A damaged run is one into which somebody who must not has written an event with a seq that is not its next. It must
halt, in the rows and at the next owner, and nothing else must.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.services.core.families import aggregate_key
from loomlog.services.families.budget import INSTALLATION
from tests.chaos.history import CLAIM, Event, Story
from tests.chaos.wire import Unreadable, decode
from tests.simulation.clients import OUTPUT_RETRIES, PURSE_LIMIT, bad_answers, record_of
from tests.simulation.ledger import OVER_LIMIT, Ledger
from tests.simulation.log import ENTITIES, TOPICS, Record, SimulatedLog
from tests.simulation.statements import COLUMNS, Row
from tests.simulation.store import Connection, Place, Store

INTRUDER = "intruder"
START = "loom.run.commands.StartRun"
FORK = "loom.run.commands.ForkRun"
POST = "loom.run.commands.PostInput"
RESPOND = "loom.run.commands.ResolveInterruption"
APPROVE = "loom.run.commands.GiveApproval"
STOP = "loom.run.commands.CancelTurn"
COMPACT = "loom.run.commands.CompactRun"
REPORT = "loom.run.commands.ReportWait"
DEFINED = "r_def"
TYPED = "r_typed"
"""Begins the ids of runs whose agents are defined while the system runs."""
AUDIT = {name: at for at, name in enumerate(COLUMNS["audit"])}
RUNS = {name: at for at, name in enumerate(COLUMNS["runs"])}
USAGE = {name: at for at, name in enumerate(COLUMNS["usage"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An invariant that does not hold. `kind` is the same word for the same invariant."""

    kind: str
    text: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command in the log."""

    name: str
    key: bytes | None
    run_id: str
    text: str


@dataclass(slots=True)
class Run:
    """What is known of a run."""

    story: Story
    offsets: list[int] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    """Offsets of what its usage counts: ModelReplied, and the ends of summary calls that were answered."""
    texts: Counter[str] = field(default_factory=Counter)
    parked: bool = False
    compacted: Counter[str] = field(default_factory=Counter)
    """Compactions that were asked for, by what asked for them."""
    compacted_for: set[int] = field(default_factory=set)
    """Offsets of the commands that asked for one and were answered, with an attempt or a refusal."""
    question: str = ""
    """The last one it has asked a person."""
    waits: set[tuple[int, int]] = field(default_factory=set)
    """Calls that waited for channels: a queue reports to them, or their time is over."""
    approvals: set[tuple[int, int]] = field(default_factory=set)
    """Calls that need approval."""
    has_escalated: bool = False
    allowed: int = 0
    """Of a root: calls below it that were allowed and count over its tree."""
    counted: int = 0
    """Those that it has counted."""
    questions: dict[tuple[int, int], str] = field(default_factory=dict)
    """Calls that ask a person, and how that ended; empty while they wait."""
    rejected: int = 0
    """Answers that were no record."""
    result: str = ""
    """The record that it has ended with."""
    begun_by: int = -1
    """Offset of the command that began it."""
    damaged_at: int = -1


@dataclass(slots=True)
class Checker:
    """See the module. `violated` is called once, with the first violation."""

    log: SimulatedLog
    store: Store
    partitions: int
    now: Callable[[], float]
    violated: Callable[[], None]
    violation: Violation | None = None
    begun: Callable[[str, Mapping[str, Any]], None] = lambda run_id, values: None
    """Called with the values of each RunStarted and RunRefused."""
    followed: Callable[[Event], None] = lambda event: None
    """Called with each accepted event of a run, after it was followed."""
    cancelled: set[str] = field(default_factory=set)
    """Runs that something beside the clients cancels."""
    runs: dict[str, Run] = field(default_factory=dict)
    terms: dict[int, int] = field(default_factory=dict)
    """The term of each partition now."""
    stale: int = 0
    events: int = 0
    ledger: Ledger = field(init=False)
    _books: int = field(init=False)
    """Partition of the books among those of entities."""
    _owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Who made the claim, by partition and term."""
    _intents: dict[tuple[str, Any], tuple[int, int]] = field(default_factory=dict)
    """Partition and term of the accepted intent of each call."""
    _began: dict[tuple[str, Any], str] = field(default_factory=dict)
    _done: set[tuple[str, Any]] = field(default_factory=set)
    _letters: set[tuple[str, int, int]] = field(default_factory=set)
    _poison: set[tuple[str, int, int]] = field(default_factory=set)
    _commands: dict[tuple[int, int], Command] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    """Children that were asked for, with the run that asked."""
    _cursors: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = Ledger(ENTITIES.commands, self.complain)
        self._books = partition_of(aggregate_key(INSTALLATION), self.partitions)

    def term_of(self, topic: str, partition: int) -> int | None:
        """The term of a partition of events now."""
        if topic == ENTITIES.events:
            return self.ledger.term if partition == self._books else None
        return self.terms.get(partition)

    def complain(self, kind: str, text: str) -> None:
        if self.violation is None:
            self.violation = Violation(kind=kind, text=text, at_s=self.now())
            self.violated()

    # --- the log -----------------------------------------------------------------------------------------------------

    def landed(self, records: Sequence[Record]) -> None:
        """Records were appended."""
        topic = records[0].topic
        if topic == TOPICS.commands:
            self._ordered(records)
        elif topic == TOPICS.events:
            for record in records:
                self._event(record)
        elif topic in (ENTITIES.commands, ENTITIES.events) and records[0].partition == self._books:
            self.ledger.landed(records)
        elif topic == TOPICS.dead_letters:
            for record in records:
                letter = decode(record.value).values
                self._letters.add((letter["topic"], letter["partition"], letter["offset"]))

    def _ordered(self, records: Sequence[Record]) -> None:
        for record in records:
            place = (record.partition, record.offset)
            if record.writer == INTRUDER:
                self._poison.add((TOPICS.commands, *place))
                continue
            fields = decode(record.value)
            self._commands[place] = Command(
                name=fields.name, key=record.key, run_id=fields.values["run_id"], text=fields.values.get("text", "")
            )

    def _event(self, record: Record) -> None:
        partition = record.partition
        try:
            fields = decode(record.value)
        except Unreadable as error:
            if record.writer != INTRUDER:
                self.complain("unreadable", f"events/{partition} offset {record.offset}: {error}")
            return
        if fields.name == CLAIM:
            self.terms[partition] = record.offset
            self._owners[partition, record.offset] = fields.values["owner"]
            return
        envelope = fields.values["envelope"]
        term, run_id = envelope["term"], envelope["aggregate"]
        if (partition, term) not in self._owners:
            self.complain(
                "illegal writer", f"events/{partition} offset {record.offset}: nobody claimed the term {term}"
            )
        if term != self.terms.get(partition):
            self.stale += 1
            return
        run = self.runs.get(run_id)
        if record.writer == INTRUDER:
            assert run is not None
            if run.damaged_at < 0:
                run.damaged_at = record.offset
            return
        if run is None:
            run = self.runs[run_id] = Run(Story(run_id))
        assert record.value is not None
        event = Event(
            partition=partition,
            offset=record.offset,
            name=fields.name.rpartition(".")[2],
            term=term,
            seq=envelope["seq"],
            run_id=run_id,
            key=record.key,
            cause_offset=envelope["cause_offset"],
            prev=envelope["prev"],
            digest=sha256(record.value).digest()[:16],
            values=fields.values,
        )
        self.events += 1
        run.story.follow(event)
        run.offsets.append(record.offset)
        if run.story.violations:
            violation = run.story.violations[0]
            self.complain(violation.kind, violation.text)
        self._follow(run, event)
        self.followed(event)

    def _follow(self, run: Run, event: Event) -> None:
        values, run_id = event.values, event.run_id
        if event.name != "CommandRefused":
            run.parked = event.name == "RunParked"
        match event.name:
            case "RunStarted" | "RunRefused":
                run.begun_by = event.cause_offset
                self._begun(event)
                self.begun(run_id, values)
                if event.name == "RunRefused" and values["code"] == OVER_LIMIT:
                    self.ledger.ended(run_id, run.story.reason, "")
            case "RunFailed" if values["code"] == OVER_LIMIT:
                self.ledger.ended(run_id, run.story.reason, f"{run_id}:{run.story.turn}.{run.story.attempt}")
            case "ModelCallRequested":
                key = ("model", values["turn"], 0, values["attempt"])
                self._intents[run_id, key] = (event.partition, event.term)
            case "ToolCallRequested":
                if (values["turn"], values["index"]) in run.questions:
                    self.complain("unapproved", f"{run_id}: makes a call that waits or was denied at {event.place}")
                key = ("tool", values["turn"], values["index"], values["attempt"])
                self._intents[run_id, key] = (event.partition, event.term)
            case "ApprovalDecided":
                self._counted_call(run_id, values["verdict"], event)
            case "TreeCounted":
                run.counted += sum(change["amount"] for change in values["changes"])
            case "ApprovalEscalated":
                run.has_escalated = True
            case "ModelReplied":
                run.replies.append(event.offset)
                self._answered(event, ("model", values["turn"], 0, values["attempt"]))
                self.ledger.answer(f"{run_id}:{values['turn']}.{values['attempt']}")
            case "ModelCallFailed" if values["kind"] == "refused":
                pass  # a limit forbade it: the end of the run comes next
            case "ModelCallFailed" if values["kind"] != "interrupted":
                self._answered(event, ("model", values["turn"], 0, values["attempt"]))
            case "CompactionRequested":
                self._intents[run_id, ("compact", values["number"], 0, values["attempt"])] = (
                    event.partition,
                    event.term,
                )
                self._compaction_requested(run, event)
            case "CompactionFailed" if values["kind"] == "refused":
                call = f"{run_id}:compact.{values['number']}.{values['attempt']}"
                if call not in self.ledger.refused:
                    self.complain("invented", f"{run_id}: no limit forbade {call}, {event.place} says so")
            case "ContextCompacted" | "CompactionFailed" if values.get("kind") != "interrupted":
                if event.name == "ContextCompacted" or any(values["usage"].values()):
                    run.replies.append(event.offset)
                    self.ledger.answer(f"{run_id}:compact.{values['number']}.{values['attempt']}")
                self._answered(event, ("compact", values["number"], 0, values["attempt"]))
            case "CommandRefused":
                run.compacted_for.add(event.cause_offset)
            case "InterruptionOpened":
                run.question = values["interrupt_id"]
                run.questions[values["turn"], values["index"]] = ""
                if values["kind"] == "approval":
                    run.approvals.add((values["turn"], values["index"]))
            case "InterruptionClosed":
                run.questions[values["turn"], values["index"]] = values["status"]
                is_approval = (values["turn"], values["index"]) in run.approvals
                if values["status"] == "resolved":
                    self._caused(event, APPROVE if is_approval else RESPOND)
                if is_approval and values["status"] == "resolved":
                    del run.questions[values["turn"], values["index"]]  # the call is made now, as any other
            case "OutputRejected":
                run.rejected += 1
            case "RunCompleted":
                run.result = values["result"]
            case "TurnCancelled":
                self._caused(event, STOP)
            case "CallWaiting":
                run.waits.add((values["turn"], values["index"]))
                self._answered(event, ("tool", values["turn"], values["index"], values["attempt"]))
            case "ToolReturned" if (values["turn"], values["index"]) in run.questions:
                pass  # its story has seen that the question was ended before
            case "ToolReturned" if values["outcome"] == "denied":
                if run.story.calls[values["turn"], values["index"]].verdict != "deny":
                    self.complain("invented", f"{run_id}: no rule has denied the call that {event.place} answers")
            case "ToolReturned" if values["outcome"] == "cancelled":
                self._caused(event, STOP)
            case "ToolReturned" if (values["turn"], values["index"]) in run.waits:
                pass  # the tool has ended before, with its wait
            case "ToolReturned" if self._is_caused(event, REPORT):
                pass  # a queue reports before the tool has ended, which is about to say that it waits
            case "ToolReturned" if values["outcome"] != "outcome_unknown":
                self._answered(event, ("tool", values["turn"], values["index"], values["attempt"]))
            case "ChildRequested" if values["child_agent_id"]:
                self._child_requested(event)
            case "ChildReturned":
                self._child_returned(event)
            case "InputReceived":
                run.texts[values["text"]] += 1
                if run.texts[values["text"]] > 1:
                    self.complain("doubled", f"{run_id}: received {values['text']!r} twice, again at {event.place}")

    def _compaction_requested(self, run: Run, event: Event) -> None:
        if event.values["attempt"] > 1:
            return
        run.compacted[event.values["trigger"]] += 1
        if event.values["trigger"] == "manual":
            self._caused(event, START if event.cause_offset == run.begun_by else COMPACT)
            run.compacted_for.add(event.cause_offset)

    def _child_requested(self, event: Event) -> None:
        child = event.values["child_run_id"]
        if child in self._named:
            self.complain(
                "doubled", f"{event.run_id} asks for {child} at {event.place}; {self._named[child]} has asked"
            )
        self._named[child] = event.run_id

    def _child_returned(self, event: Event) -> None:
        """A parent hears of an end only when that is in the log, and as it was."""
        child, status = event.values["child_run_id"], event.values["status"]
        run = self.runs.get(child)
        if status in ("running", "awaiting_input"):
            return
        if status == "refused" and run is not None and run.damaged_at >= 0:
            return  # what became of it cannot be read
        if status == "refused" and run is None and event.values["text"].startswith(OVER_LIMIT):
            self.ledger.ended(child, event.values["text"], "")  # a start that limits refuse leaves nothing else
            return
        if self.runs[event.run_id].damaged_at >= 0:
            return  # an owner that found it damaged has closed its child, and another one goes on from a snapshot
        closed = {"closed": ("completed", "cancelled")}
        if run is None or run.story.ended not in closed.get(status, (status,)):
            actual = "no run" if run is None else run.story.ended or "live"
            self.complain("invented", f"{event.run_id} hears at {event.place} that {child} is {status}; it is {actual}")

    def _begun(self, event: Event) -> None:
        if event.values.get("parent") is not None:
            parent = event.values["parent"]["run_id"]
            if self._named.get(event.run_id) != parent:
                self.complain("out of nothing", f"{event.run_id} begins at {event.place}; {parent} did not ask for it")
            return
        command = self._commands.get((event.partition, event.cause_offset))
        if command is None or command.name not in (START, FORK) or command.run_id != event.run_id:
            self.complain("out of nothing", f"{event.run_id} begins at {event.place} because of {command}")

    def _is_caused(self, event: Event, name: str) -> bool:
        command = self._commands.get((event.partition, event.cause_offset))
        return command is not None and command.name == name and command.run_id == event.run_id

    def _caused(self, event: Event, name: str) -> None:
        if not self._is_caused(event, name):
            command = self._commands.get((event.partition, event.cause_offset))
            self.complain("out of nothing", f"{event.run_id}: {event.name} at {event.place} because of {command}")

    def _answered(self, event: Event, key: Any) -> None:
        if (event.run_id, key) not in self._done:
            self.complain("invented", f"{event.run_id}: {event.name} at {event.place} answers {key}, which never ended")

    # --- calls -------------------------------------------------------------------------------------------------------

    def call_began(self, process: str, run_id: str, key: Any) -> None:
        """A process is about to call the outside."""
        intent = self._intents.get((run_id, key))
        if intent is None:
            self.complain("no intent", f"{process} calls {key} of {run_id}, and no accepted intent is in the log")
            return
        owner = self._owners[intent]
        if owner != process:
            self.complain("no intent", f"{process} calls {key} of {run_id}, whose accepted intent is of {owner}")
        before = self._began.setdefault((run_id, key), process)
        if (run_id, key) in self._done or before != process:
            self.complain("doubled effect", f"{process} calls {key} of {run_id} again; {before} has called it")

    def call_ended(self, process: str, run_id: str, key: Any) -> None:
        del process
        self._done.add((run_id, key))

    # --- rows --------------------------------------------------------------------------------------------------------

    def committed(self, connection: Connection, changes: Mapping[Place, Row]) -> None:
        """A transaction of a projector became durable."""
        who = connection.process.name
        for (schema, table, key), row in changes.items():
            if table == "cursors":
                self._moved(who, (schema, key[1]), (row[4], row[2]))
            elif table == "audit":
                self._row(who, schema, row, changes)

    def _moved(self, who: str, cursor: tuple[str, int], place: tuple[int, int]) -> None:
        before = self._cursors.get(cursor, (0, 0))
        self._cursors[cursor] = place
        if place == (1, 0) and cursor[0] != self.store.live:
            return  # a build that was left unfinished was dropped, and its number is used again
        if place < before or place[1] < before[1]:
            self.complain("cursor", f"{who} moves {cursor} from epoch and offset {before} back to {place}")

    def _row(self, who: str, schema: str, row: Row, changes: Mapping[Place, Row]) -> None:
        run_id, partition = row[AUDIT["run_id"]], row[AUDIT["partition"]]
        moved = changes.get((schema, "cursors", (TOPICS.events, partition)))
        if moved is None:
            self.complain("rows", f"{who} writes {run_id} without moving the cursor of partition {partition}")
            return
        run = self.runs.get(run_id)
        if run is None:
            self.complain("rows", f"{who} writes a row for {run_id}, which the log does not know")
            return
        if run.damaged_at >= 0:
            return
        expected = bisect_left(run.offsets, moved[2])
        if row[AUDIT["halted_offset"]] is not None:
            self.complain("rows", f"{who} halts {run_id} at {row[AUDIT['halted_offset']]}; nothing is wrong with it")
        elif row[AUDIT["last_seq"]] != expected or row[AUDIT["events"]] != expected:
            said = (row[AUDIT["last_seq"]], row[AUDIT["events"]])
            text = f"{who} writes {run_id} at seq and events {said}; up to {moved[2]} there are {expected}"
            self.complain("rows", text)

    # --- the log as a client reads it --------------------------------------------------------------------------------

    def is_limited(self) -> bool:
        return self.ledger.limit is not None

    def has_ended(self, run_id: str) -> bool:
        run = self.runs.get(run_id)
        return run is not None and (bool(run.story.ended) or run.damaged_at >= 0)

    def is_parked(self, run_id: str) -> bool:
        run = self.runs.get(run_id)
        return run is not None and (run.parked or bool(run.story.ended) or run.damaged_at >= 0)

    def is_at_rest(self, run_id: str, *, texts: int, compactions: int = 0) -> bool:
        run = self.runs.get(run_id)
        if run is None or run.damaged_at >= 0 or run.story.ended:
            return run is not None
        return run.parked and run.texts.total() >= texts and len(run.compacted_for) >= compactions

    def has_asked(self, run_id: str) -> bool:
        return bool(self.question_of(run_id)) or self.has_ended(run_id)

    def has_escalated(self, run_id: str) -> bool:
        run = self.runs.get(run_id)
        return (run is not None and run.has_escalated) or self.has_ended(run_id)

    def question_of(self, run_id: str) -> str:
        run = self.runs.get(run_id)
        return "" if run is None else run.question

    def is_damaged(self, run_id: str) -> bool:
        run = self.runs.get(run_id)
        return run is not None and run.damaged_at >= 0

    def live(self) -> list[tuple[str, Run]]:
        """Runs that have begun and not ended, without the damaged ones."""
        return [(name, run) for name, run in self.runs.items() if not run.story.ended and run.damaged_at < 0]

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        """What has not come to its end yet; empty when all has."""
        damaged = self._damaged_keys()
        for place in self._poison - self._letters:
            return f"the unreadable command {place} is not in the dead letters"
        for command in self._commands.values():
            run = self.runs.get(command.run_id)
            if (run is None or not run.story.ended) and command.key not in damaged:
                return f"run {command.run_id} has no end"
        for run_id, run in self.live():
            if run.story.first is None or run.story.first.key not in damaged:
                return f"run {run_id} has no end"
        if left := self.ledger.open_ends():
            return left
        positions = self.store.positions(self.store.live) if self.store.live else {}
        for partition in range(self.partitions):
            end = len(self.log.records(TOPICS.events, partition))
            if positions.get(partition, 0) < end:
                return f"the rows of partition {partition} are at {positions.get(partition, 0)} of {end}"
        return ""

    def _counted_call(self, run_id: str, verdict: Mapping[str, Any], event: Event) -> None:
        """A rule over a tree: its limit is kept, and no call is denied before it is reached."""
        root = self.runs.get(run_id.partition("-")[0])
        if root is None:
            return
        if verdict["outcome"] == "allow" and verdict["tree_amounts"]:
            root.allowed += 1
            if root.allowed > PURSE_LIMIT:
                self.complain("over the limit", f"{run_id}: call {root.allowed} of its tree, at {event.place}")
        elif verdict["rule"] == "limit" and not verdict["is_undecided"] and root.allowed < PURSE_LIMIT:
            self.complain("denied too early", f"{run_id}: {root.allowed} calls of its tree were allowed, {event.place}")

    def finish(self) -> None:
        """All has come to its end: is it the right one? What a limit has ended, and its session, end as they may."""
        damaged = self._damaged_keys() | self._keys_over_limit()
        for run_id, run in self.runs.items():
            story = run.story
            assert story.first is not None
            if story.first.key in damaged:
                continue
            if run.allowed != run.counted:
                self.complain("not counted", f"{run_id}: its tree was allowed {run.allowed} calls, not {run.counted}")
            may_be_cancelled = run_id in self.cancelled or any(
                kind in run_id for kind in ("cancel", "talk", "stop", "hand")
            )
            allowed = ("completed", "cancelled") if may_be_cancelled else ("completed",)
            if run_id.startswith(TYPED):
                allowed = self._typed_end(run_id, run)
            if run_id.startswith(DEFINED):
                allowed = ("completed", "refused")  # if nothing was active: the ledger of definitions has looked
            if story.ended not in allowed and not is_given_up(run_id, run):
                self.complain("not completed", f"{run_id} is {story.ended}: {story.reason}")
        for child, parent in self._named.items():
            values = self.runs[parent].story
            if (
                child not in self.runs
                and values.ended == "completed"
                and values.first
                and values.first.key not in damaged
            ):
                self.complain("lost", f"{parent} asked for {child}, which never began")
        self._texts(damaged)
        self._compactions(damaged)
        self._people(damaged)
        self._dead_letters(damaged)
        self._final_rows()

    def _damaged_keys(self) -> set[bytes | None]:
        return {
            run.story.first.key for run in self.runs.values() if run.damaged_at >= 0 and run.story.first is not None
        }

    def _keys_over_limit(self) -> set[bytes | None]:
        return {
            run.story.first.key
            for run in self.runs.values()
            if run.story.first is not None and OVER_LIMIT in run.story.reason
        }

    def _texts(self, damaged: set[bytes | None]) -> None:
        for command in self._commands.values():
            if command.name != POST or command.key in damaged:
                continue
            if not self.runs[command.run_id].texts[command.text]:
                self.complain("lost", f"{command.run_id} never received {command.text!r}")

    def _compactions(self, damaged: set[bytes | None]) -> None:
        for (_, offset), command in self._commands.items():
            if command.name == COMPACT and command.key not in damaged:
                run = self.runs[command.run_id]
                if offset not in run.compacted_for and not run.compacted_for:
                    self.complain("lost", f"{command.run_id} was never compacted, and nobody said why")
        for run_id, run in self.runs.items():
            if run_id.startswith("r_auto") and run.story.ended == "completed" and not run.compacted["auto"]:
                self.complain("lost", f"{run_id} ended without a compaction, although its context was full")

    def _people(self, damaged: set[bytes | None]) -> None:
        answered = {command.run_id for command in self._commands.values() if command.name == RESPOND}
        voted = {command.run_id for command in self._commands.values() if command.name == APPROVE}
        for run_id, run in self.runs.items():
            if run.story.first is not None and run.story.first.key in damaged:
                continue
            for place, status in run.questions.items():
                expected = "resolved" if run_id in answered else "timed_out"
                if place in run.approvals and run_id in voted:
                    expected = "declined"  # those that were approved are no questions any more
                if status != expected:
                    self.complain("lost", f"{run_id}: the question {place} is {status!r}, expected {expected}")

    def _dead_letters(self, damaged: set[bytes | None]) -> None:
        for topic, partition, offset in self._letters:
            record = self.log.records(topic, partition)[offset]
            if record.writer != INTRUDER and record.key not in damaged:
                self.complain(
                    "dead letter", f"{topic}/{partition} offset {offset} was parked; nothing is wrong with it"
                )

    def _final_rows(self) -> None:
        schema = self.store.live
        audit, rows = self.store.table(schema, "audit"), self.store.table(schema, "runs")
        replies = 0
        for run_id, run in self.runs.items():
            place, row = audit.get((run_id,)), rows.get((run_id,))
            until = run.damaged_at if run.damaged_at >= 0 else 1 << 62
            replies += bisect_left(run.replies, until)
            if place is None or (row is None) != (run.story.ended == "refused"):
                self.complain("rows", f"{run_id} has no row, or one although it was refused")
            elif run.damaged_at >= 0:
                if place[AUDIT["halted_offset"]] != run.damaged_at:
                    halted = place[AUDIT["halted_offset"]]
                    self.complain("gap skipped", f"{run_id} is damaged at {run.damaged_at}, its rows halt at {halted}")
            elif row is None:
                if place[AUDIT["status"]] != "refused" or place[AUDIT["last_offset"]] != run.offsets[-1]:
                    self.complain("rows", f"{run_id} was refused, its row says {place}")
            elif (place[AUDIT["status"]], row[RUNS["status"]], row[RUNS["last_offset"]]) != (
                # The family of a damaged run may be waiting for it.
                run.story.ended or "open",
                run.story.ended or "running",
                run.offsets[-1],
            ):
                text = (place[AUDIT["status"]], row[RUNS["status"]], row[RUNS["last_offset"]])
                self.complain("rows", f"{run_id} is {run.story.ended} at {run.offsets[-1]}, its rows say {text}")
            elif row[RUNS["result"]] != run.result:
                self.complain("rows", f"{run_id} ended with {run.result!r}, its row says {row[RUNS['result']]!r}")
            elif place[AUDIT["tail_digest"]] != run.story.digest:
                self.complain("rows", f"{run_id}: the rows end with another digest than the log")
        unknown = [key for key in rows if key[0] not in self.runs]
        if unknown:
            self.complain("rows", f"rows for runs that the log does not know: {unknown}")
        counted = sum(row[USAGE["calls"]] for row in self.store.table(schema, "usage").values())
        if counted != replies:
            self.complain("rows", f"the usage has {counted} calls, the log has {replies} answers")

    def _typed_end(self, run_id: str, run: Run) -> tuple[str, ...]:
        """How a run that owes a record has to end; each of its answers that was none is in the log once."""
        bad = bad_answers(run_id)
        is_failed = bad > OUTPUT_RETRIES
        expected = (bad, "" if is_failed else record_of(run_id))
        if (run.rejected, run.result) != expected:
            self.complain("record", f"{run_id}: {run.rejected} bad answers and {run.result!r}; expected {expected}")
        return ("failed",) if is_failed else ("completed",)


def is_given_up(run_id: str, run: Run) -> bool:
    """A seed whose summary call was lost with its owner too often has failed, and says so."""
    return run_id.startswith("r_seed") and run.story.ended == "failed" and run.story.summary_attempt == 0
