"""Reads the books off the raw log with code of its own, and checks them after every append.

    order    terms were claimed; dense seq, unbroken chain
    money    used, reserved and the new worst case together are never above a hard limit; nobody is refused for nothing
    calls    one that is paid begins with its worst case set aside by a command that a process gave, is counted once,
             with what it used, and one that was answered never counts as nothing
    ends     a run that is refused, or ends, because of a limit has really met it

Before: checker.py hands over the records of the books and asks what may be. Shares no code with the budget family.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.chaos.history import CLAIM, NO_DIGEST
from tests.chaos.wire import Unreadable, decode
from tests.simulation.log import Record

OPEN, RELEASED = "open", "released"
PROVISIONAL = ("lost", "expired")
WORST, USED = (40, 3), (15, 1)
"""Tokens and micros that every call of the script may use, and does use."""
OVER_LIMIT = "token_limit_exceeded"


@dataclass(slots=True)
class Call:
    """A call in the books. `how` is open, released or the kind of its settlement; amounts are tokens and micros.
    `since` is when the command that opened it landed, or its event when it was given in memory."""

    how: str
    amounts: tuple[int, int]
    since: int = -1


@dataclass(slots=True)
class Ledger:
    """See the module. `complain` gets the kind and the text of a violation."""

    commands_topic: str
    complain: Callable[[str, str], None]
    term: int = -1
    calls: dict[str, Call] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Calls that a limit forbade."""
    was_exhausted: bool = False
    """There was a time when everything was used."""
    limit: dict[str, Any] | None = None
    answered: set[str] = field(default_factory=set)
    """Calls whose answer is in the history of their run."""
    _terms: set[int] = field(default_factory=set)
    _commands: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What was ordered for which call, by command id; in memory or in the topic."""
    _landed: int = 0
    """Records so far: the time."""
    _landed_at: dict[int, int] = field(default_factory=dict)
    """When a command landed in the topic, by offset."""
    _closing: dict[str, int] = field(default_factory=dict)
    """When a command to close it landed last, by call. One that was given in memory may be lost with its process."""
    _used: tuple[int, int] = (0, 0)
    _reserved: tuple[int, int] = (0, 0)
    _seq: int = 0
    _digest: bytes = NO_DIGEST

    def landed(self, records: Sequence[Record]) -> None:
        """Records of the books' commands or events were appended."""
        for record in records:
            try:
                fields = decode(record.value)
            except Unreadable:
                continue  # somebody's bytes, which every reader leaves out
            name = fields.name.rpartition(".")[2]
            self._landed += 1
            if record.topic == self.commands_topic:
                call = fields.values.get("id", "")
                self._landed_at[record.offset] = self._landed
                self.ordered(fields.values["envelope"]["command_id"], name, call)
                if name in ("SettleBudget", "ReleaseBudget"):
                    self._closing[call] = self._landed
            elif fields.name == CLAIM:
                self.term = record.offset
                self._terms.add(self.term)
            else:
                self._event(record, name, fields.values)

    def ordered(self, command_id: str, name: str, call: str) -> None:
        """A process gives a command, in memory or by the topic."""
        self._commands[command_id] = (name, call)

    def _event(self, record: Record, name: str, values: Any) -> None:
        envelope, place = values["envelope"], f"{name} at offset {record.offset} of the books"
        if envelope["term"] not in self._terms:
            self.complain("illegal writer", f"{place}: nobody claimed the term {envelope['term']}")
        if envelope["term"] != self.term:
            return
        if envelope["seq"] != self._seq + 1:
            kind = "gap" if envelope["seq"] > self._seq else "doubled"
            self.complain(kind, f"{place} has seq {envelope['seq']}, expected {self._seq + 1}")
        if envelope["prev"] != self._digest:
            self.complain("chain", f"{place} does not name the digest of the record before it")
        assert record.value is not None
        self._seq, self._digest = envelope["seq"], sha256(record.value).digest()[:16]
        match name:
            case "LimitSet":
                self.limit = values
            case "BudgetReserved":
                self._reserve(place, values, envelope)
            case "BudgetRefused":
                self._refuse(place, values, envelope)
            case "BudgetSettled":
                self._settle(place, values)
            case "BudgetReleased":
                self._release(place, values["id"])
            case "BudgetMonthBegan" | "CommandHadNoEffect":
                pass  # a month begins once, before everything: the whole simulation lies in one
            case _:
                self.complain("order", f"{place} is an event the ledger does not know")
        self.was_exhausted = self.was_exhausted or self._is_exhausted()

    def _reserve(self, place: str, values: Any, envelope: Any) -> None:
        call, ordered = values["id"], self._commands.get(envelope["cause_id"])
        if ordered != ("ReserveBudget", call):
            self.complain("out of nothing", f"{place} reserves {call} because of {ordered}")
        if call in self.calls:
            self.complain("doubled", f"{place} reserves {call}, which is {self.calls[call].how}")
        amounts = (values["tokens"], values["micros"])
        if not self._fits(*amounts):
            self.complain("overdrawn", f"{place} reserves {amounts} over {self._used} and {self._reserved}")
        self.calls[call] = Call(OPEN, amounts, self._landed_at.get(envelope["cause_offset"], self._landed))
        self._reserved = _sum(self._reserved, amounts)

    def _refuse(self, place: str, values: Any, envelope: Any) -> None:
        ordered = self._commands.get(envelope["cause_id"])
        if ordered != ("ReserveBudget", values["id"]):
            self.complain("out of nothing", f"{place} refuses {values['id']} because of {ordered}")
        if values["code"] != "over_limit":
            return
        self.refused.add(values["id"])
        if self._fits(*WORST):
            self.complain("invented", f"{place} refuses {values['id']} over {self._used} and {self._reserved}")

    def _fits(self, tokens: int, micros: int) -> bool:
        """Whether a call of this worst case may begin."""
        assert self.limit is not None
        taken = _sum(self._used, self._reserved)
        for most, needed in (
            (self.limit["hard_tokens"], taken[0] + (tokens if self.limit["strict"] else 1)),
            (self.limit["hard_micros"], taken[1] + micros),
        ):
            if most is not None and needed > most:
                return False
        return True

    def _is_exhausted(self) -> bool:
        if self.limit is None:
            return False
        most = (self.limit["hard_tokens"], self.limit["hard_micros"])
        return any(m is not None and used >= m for m, used in zip(most, self._used, strict=True))

    def _settle(self, place: str, values: Any) -> None:
        call, kind, amounts = values["id"], values["kind"], (values["tokens"], values["micros"])
        known = self.calls.get(call)
        how = known.how if known is not None else "unknown"
        expected = {"corrected": PROVISIONAL, "unreserved": ("unknown",)}.get(kind, (OPEN,))
        if how not in expected:
            self.complain("doubled", f"{place} settles {call} as {kind}, which is {how}")
        if kind in PROVISIONAL and known is not None and amounts != known.amounts:
            self.complain("invented", f"{place} counts {amounts} for {call}, which had reserved {known.amounts}")
        if kind in ("actual", "unreserved") and amounts != USED:
            self.complain("invented", f"{place} counts {amounts} for {call}, which has used {USED}")
        if known is not None and known.how == OPEN:
            self._reserved = _sum(self._reserved, known.amounts, -1)
        elif known is not None:
            self._used = _sum(self._used, known.amounts, -1)
        self._used = _sum(self._used, amounts)
        self.calls[call] = Call(RELEASED if kind == "corrected" and amounts == (0, 0) else kind, amounts)
        self._counts(call)

    def _release(self, place: str, call: str) -> None:
        known = self.calls.get(call)
        if known is None or known.how != OPEN:
            self.complain("doubled", f"{place} releases {call}, which is {known.how if known else 'unknown'}")
            return
        self._reserved = _sum(self._reserved, known.amounts, -1)
        self.calls[call] = Call(RELEASED, (0, 0))
        self._counts(call)

    # --- what the checker asks ---------------------------------------------------------------------------------------

    def began(self, process: str, call: str) -> None:
        """A call is about to be made that was paid for."""
        known = self.calls.get(call)
        if known is None or known.how not in (OPEN, *PROVISIONAL):
            self.complain(
                "not paid", f"{process} makes {call}, which is {known.how if known else 'unknown'} in the books"
            )

    def answer(self, call: str) -> None:
        """The answer to a call is in the log."""
        self.answered.add(call)
        self._counts(call)

    def _counts(self, call: str) -> None:
        if call in self.answered and call in self.calls and self.calls[call].how == RELEASED:
            self.complain("not counted", f"{call} was answered and counts as nothing")

    def ended(self, run_id: str, reason: str, call: str) -> None:
        """A run has ended because of a limit, before that call; empty when it was refused as a whole."""
        if call and call not in self.refused:
            self.complain("invented", f"{run_id} ends before {call}, which no limit forbade: {reason}")
        elif not call and not self.was_exhausted:
            self.complain("invented", f"{run_id} is refused, and something was left at all times: {reason}")

    def open_ends(self) -> str:
        """What was ordered and not done; empty when all is."""
        left = [
            call
            for call, at in self._closing.items()
            if call in self.calls and self.calls[call].how == OPEN and self.calls[call].since < at
        ]
        return f"the books keep {left[0]} open, which they were told to close" if left else ""


def _sum(one: tuple[int, int], other: tuple[int, int], sign: int = 1) -> tuple[int, int]:
    return (one[0] + sign * other[0], one[1] + sign * other[1])
