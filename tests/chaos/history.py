"""What a partition accepted, and whether one run's events may follow one another: rules written a second time.

`accepted` applies the term rule: a Claim's offset is the term from there on; whatever carries another term is stale. A
record whose term was never claimed before it is no zombie's but an illegal writer's.

`Story` follows one run: dense seq, unbroken hash chain, and the order a run may have. It knows nothing of states or
decisions; it only remembers which turn and which calls are open.

Before: evidence.  After: checker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.chaos.evidence import Record
from tests.chaos.wire import Unreadable, decode

NO_DIGEST = bytes(16)
CLAIM = "loom.stream.events.Claim"
ENDS = {"RunCompleted": "completed", "RunFailed": "failed", "RunCancelled": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must never be. `kind` is a word for counting, `text` says where and what."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An accepted event. `name` is the last part of its record's name."""

    partition: int
    offset: int
    name: str
    term: int
    seq: int
    run_id: str
    key: bytes | None
    cause_offset: int
    prev: bytes
    digest: bytes
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"events/{self.partition} offset {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    partition: int
    offset: int
    owner: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Accepted:
    """One partition's history."""

    events: list[Event] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    stale: int = 0
    violations: list[Violation] = field(default_factory=list)


def accepted(partition: int, records: Iterable[Record]) -> Accepted:
    """The history of one partition from all its records, in offset order."""
    result = Accepted()
    terms: set[int] = set()
    term, expected = -1, 0
    for record in records:
        place = f"events/{partition} offset {record.offset}"
        if record.offset != expected:
            result.violations.append(Violation(kind="gap", text=f"{place}: expected offset {expected}"))
        expected = record.offset + 1
        try:
            fields = decode(record.value)
        except Unreadable as error:
            result.violations.append(Violation(kind="unreadable", text=f"{place}: {error}"))
            continue
        if fields.name == CLAIM:
            term = record.offset
            terms.add(term)
            owner, reason = fields.values["owner"], fields.values["reason"]
            result.claims.append(Claim(partition=partition, offset=term, owner=owner, reason=reason))
            continue
        envelope = fields.values["envelope"]
        if envelope["term"] not in terms:
            text = f"{place}: the term {envelope['term']} was claimed by nobody before it"
            result.violations.append(Violation(kind="illegal writer", text=text))
        if envelope["term"] != term:
            result.stale += 1
            continue
        assert record.value is not None
        result.events.append(
            Event(
                partition=partition,
                offset=record.offset,
                name=fields.name.rpartition(".")[2],
                term=term,
                seq=envelope["seq"],
                run_id=envelope["aggregate"],
                key=record.key,
                cause_offset=envelope["cause_offset"],
                prev=envelope["prev"],
                digest=sha256(record.value).digest()[:16],
                values=fields.values,
            )
        )
    return result


@dataclass(slots=True, kw_only=True)
class Call:
    """A tool call of a run. `outcome` is empty until it is answered."""

    name: str
    effect_class: str = ""
    attempts: int = 0
    not_begun: int = 0
    """Attempts of which the owner wrote down that it had not begun them."""
    asks: bool = False
    """It waits for a person."""
    waits: bool = False
    """It waits for channels."""
    may_repeat: bool = False
    """The open attempt was not begun, or somebody is asked whether it happened."""
    outcome: str = ""
    verdict: str = ""
    """What rules say about it: allow (also after an approval), ask while it waits, or deny; empty without rules."""


@dataclass(slots=True)
class Story:
    """One run, told by its accepted events in the order of their offsets."""

    run_id: str
    events: int = 0
    digest: bytes = NO_DIGEST
    first: Event | None = None
    ended: str = ""
    """completed, failed, cancelled or refused; empty while it lives."""
    reason: str = ""
    turn: int = 0
    """The turn that is open or was answered last."""
    attempt: int = 0
    open_model: bool = False
    failed_attempt: bool = False
    interrupted: int = 0
    """Model calls that were lost with their owner and made again."""
    calls: dict[tuple[int, int], Call] = field(default_factory=dict)
    rejected: int = 0
    """Final answers that were no record."""
    compactions: int = 0
    """How many were asked for; repeated attempts of one count once."""
    summary_attempt: int = 0
    """Of the compaction that is open; 0 when none is."""
    violations: list[Violation] = field(default_factory=list)
    has_rules: bool = False
    """Whether it is pinned to rules for its calls."""

    def follow(self, event: Event) -> None:
        """The next event of the run."""
        self._continues(event)
        if self.ended:
            self._complain("order", event, f"follows the end of the run ({self.ended})")
        elif self.first is None and event.name not in ("RunStarted", "RunRefused"):
            self._complain("order", event, "comes before RunStarted")
        self.first = self.first or event
        self.events += 1
        match event.name:
            case "RunStarted":
                self._started(event)
            case "RunRefused":
                self.ended, self.reason = "refused", f"{event.values['code']}: {event.values['message']}"
            case "ModelCallRequested":
                self._model_requested(event)
            case "ModelReplied":
                self._replied(event)
            case "ModelCallFailed":
                self._model_failed(event)
            case "ToolCallRequested":
                self._tool_requested(event)
            case "ToolReturned":
                self._returned(event)
            case "RunCompleted" | "RunFailed" | "RunCancelled":
                self._end(event)
            case "RunQuarantined":
                self._complain("quarantined", event, str(event.values["error"]))
            case "CallNotBegun":
                self._not_begun(event)
            case "ToolReconcileRequested" | "ToolOutcomeAsked":
                call = self._call(event)
                if call is not None:
                    call.may_repeat = True  # whoever is asked may say that it did not happen
            case "CallWaiting":
                self._waits(event)
            case "WaitReported":
                call = self._call(event)
                if call is not None and (not call.waits or call.outcome):
                    self._complain("order", event, "reports to a call that does not wait")
            case "ApprovalDecided":
                self._decided(event)
            case "ApprovalGiven" | "ApprovalEscalated":
                call = self._call(event)
                if call is not None and not call.asks:
                    self._complain("order", event, "is about a call that waits for no approval")
            case "InterruptionOpened" | "PersonNotified":
                self._person_asked(event)
            case "InterruptionClosed":
                self._person_answered(event)
            case "TurnCancelled":
                self._turn_cancelled(event)
            case "CompactionRequested":
                self._compaction_requested(event)
            case "ContextCompacted" | "CompactionFailed":
                self._compaction_over(event)
            case "OutputRejected":
                self._output_rejected(event)
            case "RunParked":
                if self.summary_attempt:
                    self._complain("order", event, f"parks the run while compaction {self.compactions} is open")
            case (
                "InputReceived"
                | "LimitReached"
                | "TreeCounted"
                | "CommandRefused"
                | "RunRestored"
                | "ChildrenPlanned"
                | "ChildRequested"
                | "ChildReturned"
                | "ResidentLeft"
                | "ModelSwitched"
                | "FallbackSuppressed"
            ):
                pass  # may come whatever is open
            case _:
                self._complain("order", event, "is an event the checker does not know")

    @property
    def unanswered(self) -> list[tuple[int, int]]:
        return [place for place, call in self.calls.items() if not call.outcome]

    @property
    def lost_calls(self) -> list[tuple[int, int]]:
        """Those that an owner carries out, so that they are lost with it: answers of people, queues and children are
        not.
        """
        under_way = [place for place in self.unanswered if self.calls[place].attempts]
        calls = [(place, self.calls[place]) for place in under_way]
        return [place for place, call in calls if not (call.asks or call.waits or call.may_repeat)]

    def _continues(self, event: Event) -> None:
        expected = self.events + 1
        if event.seq != expected:
            kind = "doubled" if event.seq < expected else "gap"
            self._complain(kind, event, f"has seq {event.seq}, expected {expected}")
        if event.prev != self.digest:
            self._complain("chain", event, "does not name the digest of the record before it")
        if self.first is not None and (event.partition, event.key) != (self.first.partition, self.first.key):
            self._complain("two histories", event, f"lies elsewhere than its run's beginning at {self.first.place}")
        self.digest = event.digest

    def _started(self, event: Event) -> None:
        if self.events > 1:
            self._complain("doubled", event, "starts the run again")
        self.has_rules = bool(event.values["definition"].get("approvals"))

    def _model_requested(self, event: Event) -> None:
        turn, attempt = event.values["turn"], event.values["attempt"]
        expected = (self.turn, self.attempt + 1) if self.failed_attempt else (self.turn + 1, 1)
        if self.open_model:
            self._complain("order", event, f"asks for turn {turn} while turn {self.turn} is open")
        if self.unanswered or self.summary_attempt:
            what = f"calls {self.unanswered} are" if self.unanswered else f"compaction {self.compactions} is"
            self._complain("order", event, f"asks for turn {turn} while {what} open")
        if (turn, attempt) != expected:
            self._complain("order", event, f"asks for turn and attempt {(turn, attempt)}, expected {expected}")
        self.turn, self.attempt, self.open_model, self.failed_attempt = turn, attempt, True, False

    def _replied(self, event: Event) -> None:
        if not self._closes_model(event):
            return
        for index, call in enumerate(event.values["tool_calls"]):
            self.calls[self.turn, index] = Call(name=call["name"])

    def _output_rejected(self, event: Event) -> None:
        self.rejected += 1
        if event.values["number"] != self.rejected:
            self._complain("doubled", event, f"rejects answer {event.values['number']}, answer {self.rejected} is next")
        if self.open_model or event.values["turn"] != self.turn or (self.turn, 0) in self.calls:
            self._complain("order", event, f"rejects the answer of turn {event.values['turn']}, which is not final")

    def _model_failed(self, event: Event) -> None:
        if self._closes_model(event):
            self.failed_attempt = True
            self.interrupted += event.values["kind"] == "interrupted"

    def _closes_model(self, event: Event) -> bool:
        place = (event.values["turn"], event.values["attempt"])
        if not self.open_model:
            self._complain("doubled", event, f"answers turn and attempt {place}, which is not open")
            return False
        if place != (self.turn, self.attempt):
            self._complain("order", event, f"answers {place}, but {(self.turn, self.attempt)} is open")
        self.open_model = False
        return True

    def _decided(self, event: Event) -> None:
        call = self._call(event)
        if call is not None and (call.verdict or call.attempts or call.outcome):
            self._complain("doubled", event, "decides about a call that was decided about, made or answered")
        if call is not None:
            call.verdict = event.values["verdict"]["outcome"]

    def _tool_requested(self, event: Event) -> None:
        call = self._call(event)
        if call is None:
            return
        if call.verdict not in ("", "allow") or (self.has_rules and not call.verdict):
            self._complain("unapproved", event, f"makes a call whose verdict is {call.verdict or 'missing'}")
        call.effect_class = event.values["effect_class"]
        call.attempts += 1
        if call.outcome or call.waits:
            self._complain(
                "doubled", event, f"asks again for a call that {'was answered' if call.outcome else 'waits'}"
            )
        if event.values["attempt"] != call.attempts:
            self._complain("order", event, f"is attempt {event.values['attempt']}, expected {call.attempts}")
        may_repeat, call.may_repeat = call.may_repeat, False
        if call.attempts > 1 and call.effect_class == "unsafe" and not may_repeat:
            self._complain("doubled", event, "repeats a call that must not be repeated")

    def _waits(self, event: Event) -> None:
        call = self._call(event)
        if call is None:
            return
        if call.outcome or event.values["attempt"] != call.attempts:  # again: its end passed before a takeover
            self._complain(
                "order", event, f"waits for channels with attempt {event.values['attempt']}, which is not open"
            )
        call.waits = True

    def _person_asked(self, event: Event) -> None:
        """A call that nobody carries out: a person answers it, or it is told at once."""
        call = self._call(event)
        if call is None:
            return
        if event.values.get("kind") == "approval":
            if call.verdict != "ask" or call.asks:
                self._complain("order", event, "asks for an approval that no rule wants, or asks again")
            call.asks = True  # the call itself has no attempt yet
            return
        call.attempts += 1
        if call.attempts > 1 or call.outcome:
            self._complain("doubled", event, "asks a person again")
        call.asks = event.name == "InterruptionOpened"

    def _person_answered(self, event: Event) -> None:
        call = self._call(event)
        if call is None:
            return
        if not call.asks:
            self._complain("doubled", event, "ends a question that does not wait")
        call.asks = False
        if call.verdict == "ask":
            call.verdict = "allow" if event.values["status"] == "resolved" else "deny"

    def _turn_cancelled(self, event: Event) -> None:
        if event.values["attempt"]:
            self._closes_model(event)
        elif self.unanswered or event.values["turn"] != self.turn:
            self._complain("order", event, f"stops turn {event.values['turn']} with calls {self.unanswered} open")

    def _compaction_requested(self, event: Event) -> None:
        """Between turns; the attempts of one compaction follow one another."""
        place = (event.values["number"], event.values["attempt"])
        if self.open_model or self.unanswered:
            what = f"turn {self.turn}" if self.open_model else f"calls {self.unanswered}"
            self._complain("order", event, f"asks for a compaction while {what} is open")
        again = bool(self.summary_attempt)
        expected = (self.compactions, self.summary_attempt + 1) if again else (self.compactions + 1, 1)
        if place != expected or event.values["turn"] != self.turn + 1:
            text = f"compaction and attempt {place} before turn {event.values['turn']}"
            self._complain("order", event, f"asks for {text}, expected {expected} before turn {self.turn + 1}")
        self.compactions, self.summary_attempt = place

    def _compaction_over(self, event: Event) -> None:
        place = (event.values["number"], event.values["attempt"])
        if not self.summary_attempt:
            self._complain("doubled", event, f"ends compaction {place[0]}, which is not open")
        elif place != (self.compactions, self.summary_attempt):
            opened = (self.compactions, self.summary_attempt)
            self._complain("order", event, f"ends compaction and attempt {place}, but {opened} is open")
        self.summary_attempt = 0

    def _not_begun(self, event: Event) -> None:
        """The owner stopped as planned; a further attempt repeats nothing."""
        if event.values["kind"] == "compact":
            place = (event.values["turn"], event.values["attempt"])
            if place != (self.compactions, self.summary_attempt):
                self._complain("order", event, f"has not begun compaction and attempt {place}, which is not open")
            return
        if event.values["kind"] == "model":
            self.failed_attempt = self._closes_model(event)
            return
        call = self._call(event)
        if call is not None:
            call.may_repeat = True
            call.not_begun += 1

    def _returned(self, event: Event) -> None:
        call = self._call(event)
        if call is None:
            return
        if call.asks:
            self._complain("order", event, "answers a question that still waits")
        if call.outcome:
            self._complain("doubled", event, f"answers a call that was answered already ({call.outcome})")
        elif not call.attempts and call.name == "Interruption" and event.values["is_error"]:
            pass  # refused with the answer of the model that asked for it
        elif not call.attempts and call.verdict == "deny" and event.values["outcome"] == "denied":
            pass  # by rules, by a person, or because nobody approved it in time
        elif not call.attempts:
            self._complain("order", event, "answers a call that was never asked for")
        elif event.values["attempt"] != call.attempts:
            self._complain("order", event, f"answers attempt {event.values['attempt']}, {call.attempts} is open")
        call.outcome = event.values["outcome"]

    def _call(self, event: Event) -> Call | None:
        turn, index = event.values["turn"], event.values["index"]
        call = self.calls.get((turn, index))
        if call is None:
            self._complain("order", event, f"names the call {turn}.{index}, which no answer of a model asked for")
        elif turn != self.turn:
            self._complain("order", event, f"names a call of turn {turn} in turn {self.turn}")
        return call

    def _end(self, event: Event) -> None:
        self.ended = self.ended or ENDS[event.name]
        self.reason = str(event.values.get("error") or event.values.get("reason") or "")
        if event.name == "RunCompleted" and (self.open_model or self.unanswered or self.summary_attempt):
            what = f"turn {self.turn}" if self.open_model else f"calls {self.unanswered}"
            what = f"compaction {self.compactions}" if self.summary_attempt else what
            self._complain("order", event, f"ends the run with {what} open")

    def _complain(self, kind: str, event: Event, what: str) -> None:
        text = f"{self.run_id}: {event.name} at {event.place} {what}"
        self.violations.append(Violation(kind=kind, text=text))
