"""From evidence to a verdict: what must never be (violations) and how it went (figures).

Lost: a StartRun that was acknowledged and is not in the log; one in the log without a run; a run without an end; a call
reported as done without its line in the ledger; a row that is missing or behind.
Doubled: two runs for one StartRun; an event, an answer or an effect that is there twice; sums that count one twice.
The rest is elsewhere: gaps, broken chains, illegal order, terms nobody claimed (history.py); rows that are no fold of
the log (rows.py); runs that hang although nothing is broken any more (patience.py); promotions (definitions.py); calls
of Memory (memory.py).

A call whose result says outcome_unknown may have its effect or not; that is the promise, and it is counted.

Shares no code with the services: schemas/released is all they have in common.
Before: evidence.  After: report.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.chaos.definitions import shipped_once
from tests.chaos.evidence import Evidence, Probe, Strike
from tests.chaos.history import Accepted, Call, Event, Story, Violation, accepted
from tests.chaos.memory import TOOL as MEMORY_TOOL
from tests.chaos.memory import remembered_once
from tests.chaos.patience import stuck
from tests.chaos.pauses import claim_times, claimed, going_on_with_what_was_open, pauses, take_overs
from tests.chaos.payments import asked_calls, noted_once
from tests.chaos.rows import compared, folded
from tests.chaos.triggers import triggered_once
from tests.chaos.wire import Unreadable, decode

COUNTED = frozenset({"Ledger", "HTTP"})
"""Tools whose calls leave a line in the ledger, `idempotency_key run_id`: written by the tool or by whom it called."""
FREE = frozenset({"pure", "read"})
"""Effect classes of calls that change nothing and leave no line."""
REFUSED_IN_S = 7.0
"""How long a write may take to be refused while the log takes none: the five seconds the api waits, and some room."""
START = "loom.run.commands.StartRun"
CANCEL = "loom.run.commands.CancelRun"
LOST_KINDS = frozenset({"lost", "unfinished", "lost effect", "gap"})
DOUBLED_KINDS = frozenset({"doubled", "doubled effect", "two histories"})
STUCK_KINDS = frozenset({"stuck", "unfinished"})
Place = tuple[int, int]
"""Partition and offset of a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one StartRun asked for. The same order may lie in the log several times; it is one run all the same."""

    key: bytes | None
    run_id: str
    command_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How it went. Pauses in milliseconds, by target: from each strike until a reader saw a partition go on."""

    strikes: Mapping[str, int]
    runs: int
    cancelled: int
    lost: int
    doubled: int
    stuck: int
    commands: int
    repeated_commands: int
    events: int
    claims: Mapping[str, int]
    """By their reason."""
    stale: int
    dead_letters: int
    recorded_effects: int
    """Calls that should leave a line and whose result says ok."""
    effects: int
    """Lines in the ledger."""
    unknown_outcomes: int
    unknown_with_effect: int
    interrupted_model_calls: int
    repeated_tool_calls: int
    """Without calls of Memory: their owner recognises a repeated one, and doubled_memory checks it from the log."""
    failed_tool_calls: int
    pauses_ms: Mapping[str, tuple[float, ...]]
    claims_ms: Mapping[str, tuple[float, ...]]
    """Until the partition was claimed anew, for strikes at owners."""
    claimed_by_ms: Mapping[str, tuple[float, ...]]
    """Of owners that were killed while all was well: until claimed anew, by who noticed, `standby` or `group`."""
    went_on_by_ms: Mapping[str, tuple[float, ...]]
    """The same until the next owner's first event, where a call was open, so that one was due."""
    refusals_ms: tuple[float, ...]
    """How long writes took to be refused while the log took none."""
    back_ms: Mapping[str, tuple[float, ...]]
    """From each strike until the process was up again."""
    ruled_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls about which rules or people have decided, by what they say."""
    notes: int = 0
    """Lines that an MCP server wrote."""
    promotions: int = 0
    """Of definitions, that were answered."""
    memory_calls: int = 0
    """Calls of Memory that returned ok."""
    memory_changes: int = 0
    """Changes of the memory of the load."""
    messages: int = 0
    """Published to channels."""
    messages_delivered: int = 0
    """In results of calls."""
    fires: int = 0
    """Instants of the schedule that have fired."""
    deliveries: int = 0
    """Taken by the webhook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    violations: tuple[Violation, ...]
    figures: Figures


def check(evidence: Evidence) -> Verdict:
    """The verdict over everything."""
    histories = {number: accepted(number, records) for number, records in evidence.events.items()}
    stories = told(histories)
    orders, cancelled, violations = ordered(evidence)
    violations += [violation for history in histories.values() for violation in history.violations]
    violations += [violation for story in stories.values() for violation in story.violations]
    violations += promises_kept(evidence, orders)
    violations += each_order_is_one_run(orders, histories)
    violations += every_run_ended(stories, cancelled)
    violations += dead_letters_of(evidence)
    violations += effects_once(stories, evidence.effects)
    violations += stuck(evidence.strikes, evidence.sightings, evidence.promises, histories)
    violations += refused_clearly(evidence.probes)
    violations += shipped_once(evidence, histories)
    violations += noted_once(evidence, histories, stories)
    remembered, wrong_memory = remembered_once(evidence, histories)
    violations += wrong_memory
    triggered, wrong_triggers = triggered_once(evidence, histories)
    violations += wrong_triggers
    rows, spent, wrong_sums = folded(event for number in sorted(histories) for event in histories[number].events)
    violations += wrong_sums
    violations += compared(rows, evidence.rows, spent, evidence.spent)
    figures = figures_of(evidence, histories, stories, orders, violations)
    return Verdict(
        violations=tuple(violations),
        figures=replace(
            figures,
            memory_calls=remembered.calls,
            memory_changes=remembered.changes,
            messages=triggered.messages,
            messages_delivered=triggered.delivered,
            fires=triggered.fires,
            deliveries=triggered.deliveries,
        ),
    )


def told(histories: Mapping[int, Accepted]) -> dict[str, Story]:
    """Every run's story, whatever partition its events lie in."""
    stories: dict[str, Story] = {}
    for number in sorted(histories):
        for event in histories[number].events:
            stories.setdefault(event.run_id, Story(event.run_id)).follow(event)
    return stories


def ordered(evidence: Evidence) -> tuple[dict[Order, list[Place]], set[str], list[Violation]]:
    """Every StartRun in the log with the places where it lies, and the runs that somebody cancelled."""
    orders: dict[Order, list[Place]] = defaultdict(list)
    cancelled = set()
    violations = []
    for number, records in evidence.commands.items():
        for record in records:
            try:
                fields = decode(record.value)
            except Unreadable as error:
                text = f"commands/{number} offset {record.offset}: {error}"
                violations.append(Violation(kind="unreadable", text=text))
                continue
            if fields.name == START:
                command_id = fields.values["envelope"]["command_id"]
                # A run id names the run whatever the command is called; without one the command id does.
                run_id = fields.values["run_id"]
                order = Order(key=record.key, run_id=run_id, command_id="" if run_id else command_id)
                orders[order].append((number, record.offset))
            elif fields.name == CANCEL:
                cancelled.add(fields.values["run_id"])
    return dict(orders), cancelled, violations


def promises_kept(evidence: Evidence, orders: Mapping[Order, list[Place]]) -> Iterable[Violation]:
    """What senders were told is true: the command is where the broker said, the run is the one the api named."""
    commands = {(number, record.offset): record for number, records in evidence.commands.items() for record in records}
    run_ids = {order.run_id for order in orders}
    named: dict[str, str] = {}
    for promise in evidence.promises:
        record = commands.get((promise.partition, promise.offset))
        if promise.sender == "topic" and (record is None or promise.name.encode() not in (record.value or b"")):
            where = f"commands/{promise.partition} offset {promise.offset}"
            yield Violation(kind="lost", text=f"{promise.name}: acknowledged at {where}, where it is not")
        if promise.sender == "http":
            if promise.run_id not in run_ids:
                yield Violation(kind="lost", text=f"{promise.name}: accepted as {promise.run_id}, never asked for")
            if named.setdefault(promise.name, promise.run_id) != promise.run_id:
                text = f"key {promise.name} was answered with {named[promise.name]} and with {promise.run_id}"
                yield Violation(kind="doubled", text=text)


def each_order_is_one_run(
    orders: Mapping[Order, list[Place]], histories: Mapping[int, Accepted]
) -> Iterable[Violation]:
    """Every StartRun has exactly one run, and every run a StartRun. The events name the offset of their command."""
    begun: dict[Place, list[Event]] = defaultdict(list)
    for number, history in histories.items():
        for event in history.events:
            if event.seq == 1:
                begun[number, event.cause_offset].append(event)
    for order, places in orders.items():
        events = [event for place in places for event in begun.pop(place, ())]
        name = order.run_id or order.command_id
        if not events:
            yield Violation(kind="lost", text=f"{name}: StartRun at {places} has no run")
        if len(events) > 1:
            result = ", ".join(f"{event.run_id} at {event.place}" for event in events)
            yield Violation(kind="doubled", text=f"{name}: StartRun at {places} has {len(events)} runs: {result}")
        for event in events:
            if order.run_id and event.run_id != order.run_id:
                yield Violation(kind="doubled", text=f"{name}: its StartRun began {event.run_id} at {event.place}")
    for events in begun.values():
        for event in events:
            text = f"{event.run_id}: begins at {event.place} because of offset {event.cause_offset}, no StartRun"
            yield Violation(kind="out of nothing", text=text)


def every_run_ended(stories: Mapping[str, Story], cancelled: set[str]) -> Iterable[Violation]:
    """The load only asks for what can be done, so every run completes, or is cancelled when somebody asked for that."""
    for story in stories.values():
        if not story.ended:
            open_now = f"turn {story.turn}" if story.open_model else f"calls {story.unanswered}"
            text = f"{story.run_id}: has no end after {story.events} events, {open_now} open"
            yield Violation(kind="unfinished", text=text)
        elif story.ended != "completed" and not (story.ended == "cancelled" and story.run_id in cancelled):
            yield Violation(kind="not completed", text=f"{story.run_id}: {story.ended}: {story.reason}")


def dead_letters_of(evidence: Evidence) -> Iterable[Violation]:
    """The load sends nothing that could not be handled."""
    for records in evidence.dead_letters.values():
        for record in records:
            try:
                letter = decode(record.value).values
            except Unreadable as error:
                yield Violation(kind="unreadable", text=f"dead letter {record.offset}: {error}")
                continue
            where = f"{letter['topic']}/{letter['partition']} offset {letter['offset']}"
            yield Violation(kind="dead letter", text=f"{where}: {letter['kind']}: {letter['error']}")


def effects_once(stories: Mapping[str, Story], lines: Iterable[str]) -> Iterable[Violation]:
    """The ledger and the log say the same about every call."""
    counted = Counter(lines)
    for story in stories.values():
        for (turn, index), call in story.calls.items():
            if call.name not in COUNTED or call.effect_class in FREE:
                continue
            key = f"{story.run_id}:{turn}.{index}"
            done = counted.pop(f"{key} {story.run_id}", 0)
            allowed = 1 if call.effect_class == "unsafe" else call.attempts
            if done > allowed:
                text = f"{key}: its effect happened {done} times, at most {allowed} are allowed ({call.outcome})"
                yield Violation(kind="doubled effect", text=text)
            if call.outcome == "ok" and done == 0:
                yield Violation(kind="lost effect", text=f"{key}: returned ok, but its effect never happened")
    for line, times in counted.items():
        text = f"{line!r}: {times} times in the ledger, but no accepted event asked for it"
        yield Violation(kind="effect without intent", text=text)


def refused_clearly(probes: Iterable[Probe]) -> Iterable[Violation]:
    """While the log takes no writes, whoever writes is told so soon."""
    for probe in probes:
        if probe.status != 503 or probe.code != "log_unavailable" or probe.took_s > REFUSED_IN_S:
            text = f"a write without a quorum was answered {probe.status} {probe.code!r} after {probe.took_s:.1f} s"
            yield Violation(kind="unclear", text=f"{text}, expected 503 'log_unavailable' within {REFUSED_IN_S:g} s")


def figures_of(
    evidence: Evidence,
    histories: Mapping[int, Accepted],
    stories: Mapping[str, Story],
    orders: Mapping[Order, list[Place]],
    violations: Iterable[Violation],
) -> Figures:
    """The counts behind the verdict."""
    kinds = Counter(violation.kind for violation in violations)
    calls = [(story.run_id, place, call) for story in stories.values() for place, call in story.calls.items()]
    lines = frozenset(evidence.effects)
    unknown = [(run_id, place) for run_id, place, call in calls if call.outcome == "outcome_unknown"]
    return Figures(
        strikes=Counter(strike.target for strike in evidence.strikes),
        runs=len(stories),
        cancelled=sum(story.ended == "cancelled" for story in stories.values()),
        lost=sum(kinds[kind] for kind in LOST_KINDS),
        doubled=sum(kinds[kind] for kind in DOUBLED_KINDS),
        stuck=sum(kinds[kind] for kind in STUCK_KINDS),
        commands=sum(map(len, evidence.commands.values())),
        repeated_commands=sum(len(places) - 1 for places in orders.values()),
        events=sum(len(history.events) for history in histories.values()),
        claims=Counter(claim.reason for history in histories.values() for claim in history.claims),
        stale=sum(history.stale for history in histories.values()),
        dead_letters=sum(map(len, evidence.dead_letters.values())),
        recorded_effects=sum(
            call.name in COUNTED and call.effect_class not in FREE and call.outcome == "ok" for _, _, call in calls
        ),
        effects=len(evidence.effects),
        unknown_outcomes=len(unknown),
        unknown_with_effect=sum(f"{run}:{turn}.{index} {run}" in lines for run, (turn, index) in unknown),
        interrupted_model_calls=sum(story.interrupted for story in stories.values()),
        repeated_tool_calls=sum(_repeats(call) for _, _, call in calls if call.name != MEMORY_TOOL),
        failed_tool_calls=sum(call.outcome in ("error", "timeout", "cancelled") for _, _, call in calls),
        pauses_ms=pauses(evidence.strikes, evidence.sightings, histories),
        claims_ms=claim_times(evidence.strikes, evidence.sightings, histories),
        claimed_by_ms=take_overs(evidence.strikes, evidence.sightings, histories, claimed),
        went_on_by_ms=take_overs(evidence.strikes, evidence.sightings, histories, going_on_with_what_was_open),
        refusals_ms=tuple(sorted(probe.took_s * 1000 for probe in evidence.probes)),
        back_ms=_back(evidence.strikes),
        promotions=len(evidence.shipped),
        ruled_calls=asked_calls(stories),
        notes=len(evidence.notes),
    )


def _repeats(call: Call) -> int:
    return max(0, call.attempts - call.not_begun - 1)


def _back(strikes: Iterable[Strike]) -> dict[str, tuple[float, ...]]:
    result: dict[str, list[float]] = defaultdict(list)
    for strike in strikes:
        result[strike.target].append((strike.back_s - strike.at_s) * 1000)
    return {target: tuple(sorted(values)) for target, values in result.items()}
