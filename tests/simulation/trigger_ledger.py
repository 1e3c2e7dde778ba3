"""Follows schedules and webhooks in the log, and the runs that they start, and checks them after every append.

    instants    of a schedule are decided in their order, each once, whichever clock decides: fired, skipped or queued
    fires       name runs of their own; no more at once than `overlap` allows; settled once, as the run has ended
    deliveries  are taken once for each id, however often and by whichever api they come; repeated ones name that run
    messages    of deliveries and of the ends of runs are published once
    the end     every fire and every delivery has its run, every end was told, no schedule is late

Before: entity_ledger.py reads the records, the checker the runs. After: the world ends with the first violation.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import ENDS, Event
from tests.simulation.entity_ledger import EntityEvent, EntityLedger, Order

LATE_MS = 4_000
"""How long after its instant a schedule may decide, without faults; clocks of processes differ by half of it."""
BELIEVED_MS = 90_000
"""How far the time of a decision may be off the broker's: a minute, and half of one for a broker that answers late."""
ALLOW, CANCEL = "allow", "cancel"
ENDED_SUFFIX = ":end:0"
PUBLISH_SUFFIX = ".publish"


@dataclass(slots=True, kw_only=True)
class ScheduleOrder(Order):
    """A change of a schedule: `make` returns its command, given an envelope by its name."""

    make: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request from outside, which two apis get. `commands`: the ids under which they append it."""

    name: str
    webhook: str
    id: str
    at_s: float
    commands: tuple[str, ...]


@dataclass(slots=True)
class StoredSchedule:
    """A schedule as the log has it. Times are UTC milliseconds."""

    is_armed: bool = False
    armed_ms: int = 0
    period_ms: int = 0
    overlap: str = ""
    first_ms: int = 0
    """The first instant since it was armed: what was due before and not decided yet was passed by."""
    last_ms: int = 0
    """The newest instant that was decided."""
    queued: tuple[int, ...] = ()
    running: dict[str, int] = field(default_factory=dict)
    """Runs that work, with the numbers of their fires."""
    number: int = 0
    skipped: tuple[int, int] = (0, -1)
    """The instants of which some were skipped at last: the fires among them follow in the same decision."""
    expected: int = 0
    """How many of those fire; -1: it is not known."""

    def after(self, at_ms: int) -> int:
        """Return the first instant after a time."""
        return self.armed_ms + max(1, (at_ms - self.armed_ms) // self.period_ms + 1) * self.period_ms

    def next_ms(self) -> int:
        """Return the first instant that was not decided."""
        return max(self.first_ms, self.after(self.last_ms))


class TriggerLedger(EntityLedger):
    """See the module."""

    def __init__(
        self,
        orders: Sequence[ScheduleOrder],
        deliveries: Sequence[Delivery],
        complain: Callable[[str, str], None],
        *,
        is_checked: bool = False,
    ) -> None:
        """`is_checked`: processes compare their clocks with the broker's, so no event may have a wrong time."""
        super().__init__(orders, complain)
        self._is_checked = is_checked
        self.deliveries = deliveries
        self.is_damaged: Callable[[str], bool] = lambda run_id: False
        self.schedules: dict[str, StoredSchedule] = {}
        self.fires = 0
        self.cancelled: set[str] = set()
        """Runs that a later fire was to replace."""
        self.unsent = len(deliveries)
        """Deliveries that are not appended by all apis yet."""
        self._commands = {command: delivery for delivery in deliveries for command in delivery.commands}
        self._taken: dict[str, str] = {}
        """Ids of deliveries that were taken, with their runs; empty: published."""
        self._runs: dict[str, str] = {}
        """Runs that were asked for, with what asked for them."""
        self._instants: set[tuple[str, int]] = set()
        self._started: set[str] = set()
        self._ended: dict[str, str] = {}
        self._told: set[str] = set()
        """Runs whose end their webhook knows."""
        self._published: Counter[str] = Counter()

    def follow(self, event: EntityEvent) -> None:
        if self._is_checked and abs(event.at_ms - event.stored_ms) > BELIEVED_MS:
            off_s = (event.at_ms - event.stored_ms) / 1000
            self.complain("clock", f"{event.place} has a time that is {off_s:+.1f} s off the broker's")
        family = event.aggregate.partition(":")[0]
        {"schedule": self._of_schedule, "webhook": self._of_webhook, "channel": self._of_channel}[family](event)

    def is_known(self, run_id: str) -> bool:
        """Whether a schedule or a webhook has asked for a run."""
        return run_id in self._runs

    # --- schedules ---------------------------------------------------------------------------------------------------

    def _of_schedule(self, event: EntityEvent) -> None:
        schedule, values = self.schedules.setdefault(event.aggregate, StoredSchedule()), event.values
        match event.name:
            case "ScheduleArmed":
                schedule.is_armed, schedule.armed_ms, schedule.queued = True, values["armed_ms"], ()
                schedule.period_ms = 1_000 * int(values["spec"]["times"].removeprefix("@every ").removesuffix("s"))
                schedule.overlap = values["spec"]["overlap"]
                schedule.first_ms = schedule.after(max(schedule.last_ms, event.at_ms))
                if values["next_ms"] != schedule.next_ms():
                    text = f"{event.place} goes on at {values['next_ms']}, the next instant is {schedule.next_ms()}"
                    self.complain("instant", text)
            case "ScheduleDisarmed":
                self._disarm(schedule, event)
            case "InstantsSkipped":
                self._skip(schedule, event)
            case "ScheduleFired":
                self._fire(schedule, event)
            case "FireSettled":
                self._settle(schedule, event)
            case "CommandHadNoEffect":
                pass
            case "CommandRefused" if values["code"] == "not_found" and not schedule.is_armed:
                pass  # it is to fire before it was armed
            case _:
                self.complain("refused", f"{event.place}: {values}")

    def _disarm(self, schedule: StoredSchedule, event: EntityEvent) -> None:
        if schedule.is_armed and schedule.next_ms() < event.at_ms - LATE_MS:
            self.complain("late", f"{event.place}: at {event.at_ms} the instant {schedule.next_ms()} is not decided")
        schedule.is_armed, schedule.queued = False, ()

    def _skip(self, schedule: StoredSchedule, event: EntityEvent) -> None:
        self._is_complete(schedule, event)
        values = event.values
        first, last, queued = values["first_ms"], values["last_ms"], tuple(values["queued"])
        if first != schedule.next_ms() or last > event.at_ms or (last - first) % schedule.period_ms:
            self.complain(
                "instant", f"{event.place} skips {first} to {last} at {event.at_ms}, not {schedule.next_ms()}"
            )
        if queued[: len(schedule.queued)] != schedule.queued:
            self.complain("instant", f"{event.place} leaves {queued} waiting, before it were {schedule.queued}")
        decided = (last - first) // schedule.period_ms + 1
        waiting = len(queued) - len(schedule.queued)
        schedule.expected = -1 if values["is_at_least"] else decided - waiting - values["count"]
        schedule.skipped, schedule.last_ms, schedule.queued = (first, last), last, queued

    def _is_complete(self, schedule: StoredSchedule, event: EntityEvent) -> None:
        """The decision before this event has fired what it did not skip."""
        if schedule.expected > 0:
            self.complain(
                "lost", f"before {event.place} {schedule.expected} instants of {schedule.skipped} are left out"
            )
        schedule.expected = 0

    def _fire(self, schedule: StoredSchedule, event: EntityEvent) -> None:
        values, instant, run_id = event.values, event.values["instant_ms"], event.values["run_id"]
        self.delivery_count += 1
        self.fires += 1
        if run_id in self._runs:
            self.complain("doubled", f"{event.place} starts {run_id}, as {self._runs[run_id]} did")
        if not values["is_manual"]:
            self._is_due(schedule, event, instant)
        if schedule.overlap == CANCEL:
            self.cancelled.update(values["cancels"])
            if set(values["cancels"]) != set(schedule.running):
                self.complain("overlap", f"{event.place} cancels {values['cancels']} of {schedule.running}")
        elif schedule.running and schedule.overlap != ALLOW and not values["is_manual"]:
            self.complain("overlap", f"{event.place} starts {run_id} beside {schedule.running}")
        schedule.number += 1
        if values["number"] != schedule.number or not schedule.is_armed:
            self.complain("instant", f"{event.place} has number {values['number']}, not {schedule.number}")
        schedule.running[run_id] = values["number"]
        self._runs[run_id] = event.place

    def _is_due(self, schedule: StoredSchedule, event: EntityEvent, instant: int) -> None:
        first, last = schedule.skipped
        if (event.aggregate, instant) in self._instants:
            self.complain("doubled", f"{event.place} fires {instant} again")
        self._instants.add((event.aggregate, instant))
        if instant in schedule.queued:
            schedule.queued = tuple(one for one in schedule.queued if one != instant)
        elif first <= instant <= last and schedule.expected:
            schedule.expected -= schedule.expected > 0
        else:
            self._is_complete(schedule, event)
            if instant != schedule.next_ms() or instant > event.at_ms:
                text = f"{event.place} fires {instant} at {event.at_ms}; the next instant is {schedule.next_ms()}"
                self.complain("instant", text)
            schedule.last_ms = instant
        if schedule.queued != tuple(event.values["queued"]):
            self.complain("instant", f"{event.place} leaves {event.values['queued']} waiting, not {schedule.queued}")

    def _settle(self, schedule: StoredSchedule, event: EntityEvent) -> None:
        values = event.values
        run_id, status = values["run_id"], values["status"]
        if schedule.running.pop(run_id, None) != values["number"]:
            self.complain("doubled", f"{event.place} settles {run_id} as {status}, which does not work")
        if self._ended.get(run_id) != status:
            self.complain("invented", f"{event.place} settles {run_id} as {status}; it is {self._ended.get(run_id)}")
        if not set(values["queued"]) <= set(schedule.queued):
            self.complain("instant", f"{event.place} leaves {values['queued']} waiting of {schedule.queued}")
        schedule.queued = tuple(values["queued"])

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def _of_webhook(self, event: EntityEvent) -> None:
        values = event.values
        match event.name:
            case "EventReceived":
                self._take(event)
            case "DeliveryRepeated":
                if self._taken.get(values["delivery_id"]) != values["run_id"]:
                    self.complain("invented", f"{event.place} names {values['run_id']}: {self._taken}")
            case "HookDispatched":
                self._tell(event)
            case "CommandHadNoEffect":
                pass
            case _:
                self.complain("refused", f"{event.place}: {values}")

    def _take(self, event: EntityEvent) -> None:
        values = event.values
        self.delivery_count += 1
        delivery, asked = values["delivery_id"], self._commands.get(event.cause)
        if asked is None or (asked.id, asked.webhook) != (delivery, values["name"]):
            self.complain("invented", f"{event.place} takes {delivery} because of {event.cause!r}")
        if delivery in self._taken:
            self.complain("doubled", f"{event.place} takes {delivery} again")
        self._taken[delivery] = values["run_id"]
        if values["run_id"]:
            self._runs[values["run_id"]] = event.place

    def _tell(self, event: EntityEvent) -> None:
        values = event.values
        run_id, status = values["run_id"], values["status"]
        if not run_id:
            self.complain("invented", f"{event.place} says {status}, and no channel refuses a message")
            return
        if run_id in self._told or self._ended.get(run_id) != status:
            self.complain("invented", f"{event.place} says that {run_id} is {status}; it is {self._ended.get(run_id)}")
        self._told.add(run_id)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _of_channel(self, event: EntityEvent) -> None:
        if event.name != "MessagePublished":
            if event.name != "CommandHadNoEffect":
                self.complain("refused", f"{event.place}: {event.values}")
            return
        self.delivery_count += 1
        self._published[event.cause] += 1
        command, run_id = event.cause.removesuffix(PUBLISH_SUFFIX), event.cause.removesuffix(ENDED_SUFFIX)
        if self._published[event.cause] > 1:
            self.complain("doubled", f"{event.place} publishes {event.cause} again")
        if command not in self._commands and self._ended.get(run_id) != "completed":
            self.complain("invented", f"{event.place}: nothing leads to {event.cause!r}")

    # --- runs --------------------------------------------------------------------------------------------------------

    def of_run(self, event: Event) -> None:
        """Follow an accepted event of any run."""
        if event.run_id not in self._runs:
            return
        self._started.add(event.run_id)
        if event.name == "RunRefused":
            self.complain("refused", f"{event.run_id} is refused: {event.values['code']}: {event.values['message']}")
        if event.name in ENDS:
            self.delivery_count += 1
            self._ended[event.run_id] = ENDS[event.name]

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        if left := super().open_ends():
            return left
        if self.unsent:
            return f"{self.unsent} deliveries are not sent"
        for delivery in self.deliveries:
            if delivery.id not in self._taken:
                return f"{delivery} is not taken"
            command = [one for one in delivery.commands if self._published[one + PUBLISH_SUFFIX]]
            if not self._taken[delivery.id] and not command:
                return f"{delivery} is not published"
        for run_id, asked in self._runs.items():
            if self.is_damaged(run_id):
                continue
            if run_id not in self._ended:
                return f"{run_id} of {asked} has {'no end' if run_id in self._started else 'not begun'}"
            is_told = self._published[run_id + ENDED_SUFFIX] or run_id in self._taken.values()
            if self._ended[run_id] == "completed" and not is_told:
                return f"the end of {run_id} of {asked} is not published"
            if run_id in self._taken.values() and run_id not in self._told:
                return f"the end of {run_id} is not told to {asked}"
        for name, schedule in self.schedules.items():
            if runs := [run_id for run_id in schedule.running if not self.is_damaged(run_id)]:
                return f"the ends of {runs} are not told to {name}"
        return ""

    def finish(self) -> None:
        """All has come to its end: each delivery to a channel is one message."""
        for delivery in self.deliveries:
            count = sum(self._published[command + PUBLISH_SUFFIX] for command in delivery.commands)
            if count != (not self._taken[delivery.id]):
                self.complain("doubled", f"{delivery} is published {count} times")
