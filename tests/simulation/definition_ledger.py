"""Follows the definitions in the log and the runs that are pinned to them, and checks them after every append.

    versions    numbered from 1 without a gap; no retired one is promoted; a promotion names what was active before
    refusals    have their reason in the log
    batches     the staged versions of a batch become active with the event that applies it, all or none
    pins        a run starts with a version that was active between what its sender knew and its start, and is refused
                only if none was; a fork has the pin of its origin, or the version that it names
    calls       a run calls with the definition that it started with, whoever owns it by then

Before: entity_ledger.py reads the records, the checker the runs, owners.py the calls. After: the world ends with the
first violation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.entity_ledger import EntityEvent, EntityLedger

BATCHES = "apply"
UNRESOLVED = ("unknown_agent", "not_found")


@dataclass(slots=True)
class Moment:
    """A version became the active one, or none did. `needs`: who has read as far, by partition, must know of it."""

    def_id: str
    needs: Mapping[int, int]


@dataclass(slots=True)
class LineStory:
    """A line as the log has it. `def_ids` by number from 1, `active` and `staged` are numbers."""

    def_ids: list[str] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)
    active: int = 0
    staged: int = 0
    staged_by: str = ""
    moments: list[Moment] = field(default_factory=lambda: [Moment("", {})])

    def id_of(self, number: int) -> str:
        return self.def_ids[number - 1] if number else ""


@dataclass(slots=True)
class BatchStory:
    """A batch as the log has it. `places`: partition and offset of its staged versions, then of its application."""

    places: list[tuple[int, int]] = field(default_factory=list)
    is_over: bool = False
    is_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known of a start before it is sent: of a line, after these positions; or of a fork."""

    line: str
    after: Sequence[str] = ()
    def_id: str = ""
    """The version that it has to have; empty: whichever is active."""


class DefinitionLedger(EntityLedger):
    """See the module."""

    def __init__(self, orders: Sequence[Any], complain: Callable[[str, str], None]) -> None:
        super().__init__(orders, complain)
        self.lines: dict[str, LineStory] = {}
        self.batches: dict[str, BatchStory] = {}
        self.starts: dict[str, Start] = {}
        self.pins: dict[str, str] = {}
        """def_id of each run that has begun; empty for one that was refused."""
        self.called_for: set[str] = set()
        """Runs of which calls were made."""
        self._contents: dict[str, str] = {}
        """JSON of each version, by def_id."""

    # --- the log -----------------------------------------------------------------------------------------------------

    def follow(self, event: EntityEvent) -> None:
        if event.cause and len({one.name for one in self.decisions[event.cause]}) < len(self.decisions[event.cause]):
            self.complain("doubled", f"{event.place} carries out {event.cause} again")
        _, kind, name = event.aggregate.split("/", 2)
        if kind != BATCHES:
            self.lines.setdefault(name, LineStory())
        if event.name == "CommandRefused":
            self._refused(event, name)
        if event.name in ("CommandRefused", "CommandHadNoEffect"):
            return
        if kind == BATCHES:
            self._follow_batch(self.batches.setdefault(name, BatchStory()), event)
            lines: Iterable[LineStory] = self.lines.values()
        else:
            lines = (self.lines[name],)
            self._follow_line(self.lines[name], event)
        for line in lines:
            now = self.active(line)
            if now != line.moments[-1].def_id:
                places = [(event.partition, event.offset)]
                if self._is_applied(line):
                    places += self.batches[line.staged_by].places
                line.moments.append(Moment(now, _newest(places)))

    def _refused(self, event: EntityEvent, name: str) -> None:
        """Is there a reason?"""
        line, order, code = self.lines.get(name), self.orders.get(event.cause), event.values["code"]
        is_right = False
        if line is not None and order is not None:
            is_right = {
                "definition_conflict": line.staged > 0,
                "retired": order.number in line.retired,
                "not_found": order.kind == "rollback" or order.number > len(line.def_ids),
            }.get(code, False)
        if not is_right:
            self.complain("refused", f"{event.place}: {code}: {event.values['message']}; the line is {line}")

    def _follow_line(self, line: LineStory, event: EntityEvent) -> None:
        values = event.values
        number = values.get("version", 0)
        if event.name == "DefVersionCreated":
            if number != len(line.def_ids) + 1:
                self.complain("versions", f"{event.place} makes version {number} after {len(line.def_ids)}")
            line.def_ids.append(values["def_id"])
            self._contents[values["def_id"]] = values["content"]
            if number == line.staged:  # it is staged right before it is made
                self.batches[line.staged_by].places.append((event.partition, event.offset))
        elif not 0 <= number <= len(line.def_ids) + (event.name == "VersionStaged"):
            self.complain("versions", f"{event.place} is of version {number} of {len(line.def_ids)}")
        elif event.name == "DefPromoted":
            if number in line.retired:
                self.complain("retired", f"{event.place} makes the retired version {number} active")
            if values["from_def_id"] != line.id_of(line.active):
                before = line.id_of(line.active) or "none"
                self.complain("two actives", f"{event.place} replaces {values['from_def_id']}; {before} was active")
            line.active = number
            line.staged, line.staged_by = 0, ""
        elif event.name == "DefRetired":
            if values["was_active"] != (line.active == number):
                self.complain("versions", f"{event.place}: was_active is {values['was_active']}, {line.active} was")
            line.retired.add(number)
            line.active = 0 if line.active == number else line.active
        elif event.name == "DefRestored":
            line.retired.discard(number)
        elif event.name == "VersionStaged":
            self.delivery_count += 1
            if number:
                line.staged, line.staged_by = number, values["batch"]
        elif event.name == "StageSettled":
            line.staged, line.staged_by = 0, ""
            if number != line.active:  # what came to nothing is never active
                line.retired.add(number)
        else:
            self.complain("invented", f"{event.place}: no order leads to it")

    def _follow_batch(self, batch: BatchStory, event: EntityEvent) -> None:
        if event.name != "StageAnswered":
            self.delivery_count += 1
        if event.name in ("DefinitionsApplied", "ApplyRefused"):
            if batch.is_over:
                self.complain("doubled", f"{event.place} decides a batch again")
            batch.is_over, batch.is_applied = True, event.name == "DefinitionsApplied"
            batch.places.append((event.partition, event.offset))

    def _is_applied(self, line: LineStory) -> bool:
        return bool(line.staged) and self.batches[line.staged_by].is_applied

    def active(self, line: LineStory) -> str:
        """Return the def_id that the name of the line means; empty: nothing."""
        if self._is_applied(line):
            return "" if line.staged in line.retired else line.id_of(line.staged)
        return line.id_of(line.active)

    # --- runs --------------------------------------------------------------------------------------------------------

    def begun(self, run_id: str, values: Mapping[str, Any]) -> None:
        """A run has begun, or was refused, with the values of that event."""
        start = self.starts.get(run_id)
        if start is None:
            return
        is_refused = "code" in values
        pin = "" if is_refused or values["definition"]["pin"] is None else values["definition"]["pin"]["def_id"]
        self.pins[run_id] = pin
        if is_refused and values["code"] not in UNRESOLVED:
            self.complain("refused", f"{run_id}: {values['code']}: {values['message']}")
        elif not pin and not is_refused:
            self.complain("pin", f"{run_id} of {start.line} is pinned to nothing")
        if start.def_id:
            if pin not in ("", start.def_id):
                self.complain("pin", f"{run_id} is pinned to {pin} instead of {start.def_id}")
            return
        possible = self._possible(start)
        if pin not in possible:
            said = f"refused ({values['code']}: {values['message']})" if is_refused else f"pinned to {pin}"
            self.complain("pin", f"{run_id} of {start.line} is {said}; active were {possible}")

    def _possible(self, start: Start) -> list[str]:
        """What was active from what the sender knew to now."""
        known = _newest(map(_parsed, start.after))
        moments = self.lines.get(start.line, LineStory()).moments
        first = max(
            number
            for number, moment in enumerate(moments)
            if all(known.get(partition, -1) >= offset for partition, offset in moment.needs.items())
        )
        return [moment.def_id for moment in moments[first:]]

    def called(self, process: str, run_id: str, pin: str, prompt: str) -> None:
        """A process makes a call of a run, whose state says so of its definition."""
        self.called_for.add(run_id)
        started = self.pins.get(run_id)
        if started is not None and (pin != started or prompt not in self._contents[started]):
            self.complain("pin", f"{process} calls for {run_id} with {pin} {prompt!r}; it was started with {started}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        if left := super().open_ends():
            return left
        for name, batch in self.batches.items():
            if not batch.is_over:
                return f"the batch {name} is neither applied nor refused"
        for name, line in self.lines.items():
            if line.staged:
                return f"the line {name} waits for the batch {line.staged_by}"
        return ""

    def finish(self) -> None:
        """Everything is checked as it happens."""


def _newest(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for partition, offset in places:
        newest[partition] = max(offset, newest.get(partition, -1))
    return newest


def _parsed(position: str) -> tuple[int, int]:
    partition, _, offset = position.rpartition("/")[2].partition(":")
    return int(partition), int(offset)
