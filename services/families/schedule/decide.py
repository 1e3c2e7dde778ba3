"""Decisions of a schedule: its timer and commands lead to fires, and the ends of runs settle them.

The timer fires when the next instant is due. Instants that passed unseen (no owner, a clock set forward) are due
together: catch_up_max says how many of them fire. While a run works, `overlap` says what becomes of an instant:

    skip        it passes; it is told, and the schedule fires again at the next instant after the end
    queue_one   one of them waits, and fires when the run has ended
    cancel      the run is cancelled, and the instant fires
    allow       it fires as well

A run that was refused because its agent is unknown or the installation is full used no fire up; the next instant tries
again. decide is pure: it never asks a clock, so a clock set back decides nothing twice (state.py).

Before: services/stream/entities/handler.py passes a command. After: state.py folds the events.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.definition_commands import RetireVersion
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.schedule_commands import (
    ArmSchedule,
    DisarmSchedule,
    NoteRunEnded,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
from loomlog.schemas.generated.schedule_events import (
    FireSettled,
    InstantsSkipped,
    ScheduleArmed,
    ScheduleDisarmed,
    ScheduleFired,
    SchedulePaused,
    ScheduleResumed,
)
from loomlog.schemas.generated.values import RunOptions, ScheduledRun, ScheduleSpec
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.admission import BACKPRESSURE, PROVIDER_FULL, USER_FULL
from loomlog.services.core.families import FROM_OUTBOX, At, Send, TimerFired, name_problem
from loomlog.services.core.run.lifecycle.budget_limits import OVER_LIMIT
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.instants import (
    DueInstants,
    Range,
    delay_ms,
    due_instants,
    next_instant,
    spec_problem,
)
from loomlog.services.families.schedule.state import (
    SPENT,
    Schedule,
    ScheduleEvent,
    decided_ahead,
    evolve,
    is_beyond_rule,
)

ScheduleCommand = ArmSchedule | DisarmSchedule | RunScheduleNow | PauseSchedule | ResumeSchedule | NoteRunEnded
COMPLETED, FAILED, CANCELLED, SKIPPED, REFUSED = "completed", "failed", "cancelled", "skipped", "refused"
UNKNOWN_AGENT = "unknown_agent"
FULL = frozenset({BACKPRESSURE, USER_FULL, PROVIDER_FULL, "runtime_paused"})
"""Refusals because as much works already as may."""
SKIPPED_CODES = FULL | {OVER_LIMIT}
"""Refusals for now (parity: the status skipped)."""
NO_CREDENTIAL = "credential_unavailable"
USES_NO_FIRE = FULL | {UNKNOWN_AGENT, NO_CREDENTIAL, "definition_pending"}
"""Refusals after which the next instant tries again."""


def decide(
    schedule: Schedule, command: ScheduleCommand | TimerFired, at: At
) -> Sequence[ScheduleEvent | CommandRefused]:
    """Return the events that follow a command."""
    match command:
        case TimerFired():
            return _on_timer(schedule, at.at_ms)
        case ArmSchedule():
            return _armed(schedule, command, at.at_ms)
        case DisarmSchedule(revision=revision, reason=reason):
            if not schedule.is_armed or revision < schedule.revision:
                return []
            return [ScheduleDisarmed(def_id=schedule.def_id, revision=revision, reason=reason[:40])]
        case NoteRunEnded():
            return _run_ended(schedule, command, at.at_ms)
        case RunScheduleNow() | PauseSchedule() | ResumeSchedule():
            if not schedule.is_armed or command.def_id not in ("", schedule.def_id):
                return [_refused("not_found", f"the schedule {schedule.name[:120]} is not active in this version")]
            return _operated(schedule, command, at.at_ms)
        case _:
            assert_never(command)


def _operated(
    schedule: Schedule, command: RunScheduleNow | PauseSchedule | ResumeSchedule, at_ms: int
) -> Sequence[ScheduleEvent | CommandRefused]:
    match command:
        case RunScheduleNow():
            return _fired_now(schedule, at_ms)
        case PauseSchedule(until_ms=until_ms):
            if until_ms and until_ms <= at_ms:
                return [_refused("invalid_request", "until: expected a time that is ahead")]
            until_ms = min(until_ms or at_ms + limits.PAUSED_MS, at_ms + limits.PAUSED_MS)
            is_same = schedule.paused_until_ms and not command.until_ms
            return [] if is_same else [SchedulePaused(until_ms=until_ms)]
        case ResumeSchedule():
            return _resumed(schedule, at_ms) if schedule.paused_until_ms else []


def _refused(code: str, message: str) -> CommandRefused:
    return CommandRefused(code=code, message=message)


# --- arming ----------------------------------------------------------------------------------------------------------


def _armed(schedule: Schedule, command: ArmSchedule, at_ms: int) -> Sequence[ScheduleArmed | CommandRefused]:
    """An older version of the definition changes nothing, nor does the one that is armed; a spent one stays so.

    One that begins again from now does not go on after the last instant that was decided: that lies ahead.
    """
    if command.revision < schedule.revision:
        return []
    is_known = command.def_id == schedule.def_id
    begins_again = command.from_now and is_beyond_rule(schedule, at_ms)
    # The run follows from the version; its content is another ciphertext each time.
    is_same = schedule.is_armed and command.spec == schedule.spec
    if is_known and ((is_same and not begins_again) or (schedule.is_spent and command.revision <= schedule.revision)):
        return []
    if problem := _arm_problem(command):
        return [_refused("bad_request", problem)]
    armed_ms = schedule.armed_ms if is_known and schedule.is_armed and not begins_again else at_ms
    fires = schedule.fires if is_known and schedule.is_armed else 0
    may_fire = not command.spec.max_fires or fires < command.spec.max_fires
    after_ms = at_ms if begins_again else max(at_ms, schedule.last_ms)
    passed = decided_ahead(schedule) if begins_again else schedule.passed
    armed = copy_as(
        ScheduleArmed,
        command,
        armed_ms=armed_ms,
        next_ms=_next_after(command.spec, armed_ms, after_ms, passed) if may_fire else 0,
    )
    return [armed]


def _arm_problem(command: ArmSchedule) -> str:
    if not command.def_id or name_problem(command.def_id):
        return "def_id: expected the id of a version"
    if problem := spec_problem(command.spec):
        return problem
    run = command.run
    texts = [run.agent, run.user_id, run.user_tier, *run.metadata.values(), *run.on_complete]
    texts += [block.text + block.data for segment in run.segments for block in segment.content]
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return "" if size <= limits.TEXT_BYTES_MAX else f"run: has {size} bytes of text, at most {limits.TEXT_BYTES_MAX}"


def _next_after(spec: ScheduleSpec, anchor_ms: int, after_ms: int, passed: Sequence[Range]) -> int:
    return next_instant(spec, anchor_ms, after_ms, passed) if spec.is_enabled else 0


def _next(schedule: Schedule, at_ms: int) -> int:
    """Return the next instant after what was decided and after now; 0 when it has no fires left."""
    if not schedule.is_armed or schedule.spec is None or not schedule.fires_left:
        return 0
    return _next_after(schedule.spec, schedule.armed_ms, max(at_ms, schedule.last_ms), schedule.passed)


# --- instants --------------------------------------------------------------------------------------------------------


def _due(schedule: Schedule, at_ms: int, keep: int) -> DueInstants | None:
    assert schedule.spec is not None, "it is armed"
    return due_instants(
        schedule.spec,
        schedule.aggregate,
        schedule.armed_ms,
        schedule.next_ms,
        at_ms,
        min(keep, limits.CATCH_UP_MAX),
        schedule.passed,
    )


def _on_timer(schedule: Schedule, at_ms: int) -> Sequence[ScheduleEvent]:
    spec = schedule.spec
    if not schedule.is_armed or spec is None:
        return []
    if schedule.paused_until_ms:
        return _resumed(schedule, at_ms) if schedule.paused_until_ms <= at_ms else []
    due = _due(schedule, at_ms, max(1, spec.catch_up_max))
    if due is None:
        return []
    chosen = due.latest
    if spec.catch_up_max == 0:
        newest = due.latest[-1]
        is_missed = at_ms - newest - delay_ms(spec, schedule.aggregate, newest) > limits.MISSED_MS
        chosen = () if is_missed else (newest,)
    fires, waiting, reason = _share_out(schedule, chosen[: schedule.fires_left])
    skipped = due.count - len(fires) - len(waiting)
    events: list[ScheduleEvent] = []
    if skipped or waiting:
        # Before the fires of this decision, so that `last_ms` is the newest instant whichever of them fire.
        passed = InstantsSkipped(
            first_ms=due.first_ms,
            last_ms=due.latest[-1],
            count=skipped,
            is_at_least=due.is_at_least,
            reason=reason,
            queued=(*schedule.queued, *waiting),
            next_ms=due.next_ms,
        )
        events.append(passed)
    return _fired_all(schedule, events, fires, due.next_ms, at_ms)


def _share_out(schedule: Schedule, chosen: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return which instants fire at once, which wait, and why the others pass."""
    assert schedule.spec is not None, "it is armed"
    overlap, is_busy = schedule.spec.overlap, bool(schedule.running)
    if overlap == "allow":
        room = limits.RUNNING_MAX - len(schedule.running)
        return chosen[:room], (), "overlap" if len(chosen) > room else "catch_up"
    if overlap == "cancel":
        return chosen[-1:], (), "catch_up"
    if not is_busy:
        return chosen[:1], chosen[1:], "catch_up"
    if overlap == "queue_one" and not schedule.queued:
        return (), chosen[-1:], "overlap"
    return (), (), "overlap"


def _fired_all(
    schedule: Schedule, events: list[ScheduleEvent], instants: Sequence[int], next_ms: int, at_ms: int
) -> Sequence[ScheduleEvent]:
    """Return the events with a fire for each instant, each decided after those before it."""
    for event in events:
        schedule = evolve(schedule, event, at_ms)
    for instant in instants:
        schedule = replace(schedule, next_ms=next_ms)
        for event in _fire(schedule, instant, at_ms, queued=schedule.queued):
            events.append(event)
            schedule = evolve(schedule, event, at_ms)
    return events


def _fire(
    schedule: Schedule, instant_ms: int, at_ms: int, *, queued: tuple[int, ...], is_manual: bool = False
) -> Sequence[ScheduleEvent]:
    """Return the start of a run, or why there is none."""
    spec, run = schedule.spec, schedule.run
    assert spec is not None, "it is armed"
    assert run is not None, "it is armed"
    number = schedule.number + 1
    late_ms = 0 if is_manual else max(0, at_ms - instant_ms - delay_ms(spec, schedule.aggregate, instant_ms))
    next_ms = schedule.next_ms if schedule.fires_left > 1 else 0
    if spec.problem:
        settled = FireSettled(
            number=number,
            instant_ms=instant_ms,
            fired_ms=at_ms,
            is_manual=is_manual,
            late_ms=late_ms,
            status=FAILED,
            error=spec.problem[: limits.ERROR_CHARACTERS_MAX],
            queued=queued,
            next_ms=next_ms,
        )
        return _with_end(schedule, settled, at_ms)
    token = hashed_token(schedule.aggregate, str(number), str(instant_ms), str(at_ms))
    return [
        ScheduleFired(
            def_id=schedule.def_id,
            number=number,
            instant_ms=instant_ms,
            run_id=f"r_{token}",
            attempt=schedule.refusals + 1,
            is_manual=is_manual,
            late_ms=late_ms,
            cancels=tuple(one.run_id for one in schedule.running) if spec.overlap == "cancel" else (),
            queued=queued,
            next_ms=next_ms,
            run=run,
        )
    ]


def _with_end(schedule: Schedule, settled: FireSettled, at_ms: int) -> list[ScheduleEvent]:
    """Return that a fire is over, and that the schedule is, if it may fire no more."""
    after = evolve(schedule, settled, at_ms)
    if not after.is_armed or after.fires_left or after.running:
        return [settled]
    return [settled, ScheduleDisarmed(def_id=after.def_id, revision=after.revision, reason=SPENT)]


def _fired_now(schedule: Schedule, at_ms: int) -> Sequence[ScheduleEvent | CommandRefused]:
    if not schedule.fires_left:
        return [_refused("invalid_request", f"{schedule.name[:120]} has fired as often as it may")]
    if len(schedule.running) >= limits.RUNNING_MAX:
        return [_refused("backpressure", f"{limits.RUNNING_MAX} runs of {schedule.name[:120]} work already")]
    return _fire(schedule, at_ms, at_ms, queued=schedule.queued, is_manual=True)


def _resumed(schedule: Schedule, at_ms: int) -> Sequence[ScheduleEvent]:
    events: list[ScheduleEvent] = []
    due = _due(schedule, at_ms, 1) if schedule.next_ms else None
    if due is not None:
        skipped = InstantsSkipped(
            first_ms=due.first_ms,
            last_ms=due.latest[-1],
            count=due.count,
            is_at_least=due.is_at_least,
            reason="paused",
            queued=schedule.queued,
            next_ms=due.next_ms,
        )
        events.append(skipped)
        schedule = evolve(schedule, skipped, at_ms)
    return [*events, ScheduleResumed(next_ms=schedule.next_ms)]


# --- ends of runs ----------------------------------------------------------------------------------------------------


def _run_ended(schedule: Schedule, command: NoteRunEnded, at_ms: int) -> Sequence[ScheduleEvent]:
    fire = next((one for one in schedule.running if one.run_id == command.run_id), None)
    if fire is None:
        return []  # it was settled before
    status, counts = command.status, True
    if status == REFUSED:
        status = SKIPPED if command.code in SKIPPED_CODES else FAILED
        counts = command.code not in USES_NO_FIRE
    elif status not in (COMPLETED, CANCELLED):
        status = FAILED
    error = "" if status == COMPLETED else ": ".join(filter(None, (command.code, command.message)))
    settled = copy_as(
        FireSettled,
        fire,
        status=status,
        error=error[: limits.ERROR_CHARACTERS_MAX],
        counts=counts,
        # A full installation is not asked again for each instant that waits.
        queued=schedule.queued if counts else (),
    )
    before = evolve(schedule, settled, at_ms)
    settled = replace(settled, next_ms=schedule.next_ms or _next(before, at_ms))
    events = _with_end(schedule, settled, at_ms)
    for event in events:
        schedule = evolve(schedule, event, at_ms)
    is_free = schedule.is_armed and not schedule.running and schedule.fires_left and not schedule.paused_until_ms
    if is_free and schedule.queued:
        events += _fire(schedule, schedule.queued[0], at_ms, queued=schedule.queued[1:])
    return events


# --- the outbox ------------------------------------------------------------------------------------------------------


def sends(schedule: Schedule, event: ScheduleEvent) -> Sequence[Send]:
    """Return the start of a run and the ends of others; of a schedule that is over, that its version retires."""
    match event:
        case ScheduleFired():
            cancels = [
                Send(to="run", command=CancelRun(envelope=FROM_OUTBOX, run_id=one, reason="a later fire replaces it"))
                for one in event.cancels
            ]
            start = Send(to="run", command=_start(schedule.aggregate, event), credentials_env=event.run.credentials_env)
            return [*cancels, start]
        case ScheduleDisarmed(reason=reason, def_id=def_id) if reason == SPENT:
            command = RetireVersion(
                envelope=FROM_OUTBOX,
                kind="schedule",
                name=schedule.name,
                def_id=def_id,
                retired=True,
                why="it has fired max_fires times",
            )
            return [Send(to="definition", command=command)]
        case _:
            return ()


def _start(aggregate: str, event: ScheduleFired) -> StartRun:
    run: ScheduledRun = event.run
    return StartRun(
        envelope=FROM_OUTBOX,
        agent=run.agent,
        prompt="",
        segments=run.segments,
        run_id=event.run_id,
        user_id=run.user_id,
        options=RunOptions(
            user_tier=run.user_tier,
            metadata=run.metadata,
            credentials=tuple(sorted(run.credentials_env)),
            operator_key_restricted=run.operator_key_restricted,
            on_complete=run.on_complete,
            trigger=aggregate,
        ),
    )
