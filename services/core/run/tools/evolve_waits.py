"""State after an event of a tool call that waits for channels: CallWaiting, WaitReported.

Before: services/core/run/evolve.py. After: AwaitingTools, one of whose open calls has a `wait`.
"""

from loomlog.schemas.generated.run_events import CallWaiting, WaitReported
from loomlog.schemas.records import replace
from loomlog.services.core.run.interrupts.evolve_questions import with_idle_time
from loomlog.services.core.run.state import AwaitingTools, IllegalEvent, State, Wait, find_open_call
from loomlog.services.core.run.tools.evolve_tool_calls import with_open_call


def apply_call_waiting(state: State, event: CallWaiting, at_ms: int) -> AwaitingTools:
    opened = (
        find_open_call(state, event.index) if isinstance(state, AwaitingTools) and state.turn == event.turn else None
    )
    if opened is None or opened.attempt != event.attempt:
        raise IllegalEvent(f"CallWaiting: no attempt {event.attempt} of {event.turn}.{event.index} is open")
    assert isinstance(state, AwaitingTools)
    if opened.wait is not None and opened.wait.wait_id == event.wait_id:  # its end passed before the takeover
        longer = replace(opened.wait, until_ms=max(event.until_ms, opened.wait.until_ms))
        return with_open_call(state, replace(opened, wait=longer))
    if opened.wait is not None or opened.delegation is not None or opened.awaits_person or opened.is_reconciling:
        raise IllegalEvent(f"CallWaiting: the call {event.turn}.{event.index} waits already")
    if not event.queues:
        raise IllegalEvent(f"CallWaiting: the call {event.turn}.{event.index} waits for no queue")
    wait = Wait(
        wait_id=event.wait_id,
        until_ms=event.until_ms,
        queues=event.queues,
        mode=event.mode,
        needed=event.needed,
        since_ms=at_ms,
        counts=(0,) * len(event.queues),
    )
    return with_idle_time(with_open_call(state, replace(opened, wait=wait, is_unstarted=False)), at_ms)


def apply_wait_reported(state: State, event: WaitReported) -> AwaitingTools:
    opened = (
        find_open_call(state, event.index) if isinstance(state, AwaitingTools) and state.turn == event.turn else None
    )
    wait = None if opened is None else opened.wait
    if opened is None or wait is None or wait.wait_id != event.wait_id or not 0 <= event.queue < len(wait.queues):
        raise IllegalEvent(f"WaitReported: {event.turn}.{event.index} does not wait as {event.wait_id}")
    assert isinstance(state, AwaitingTools)
    counts = (*wait.counts[: event.queue], event.count, *wait.counts[event.queue + 1 :])
    return with_open_call(state, replace(opened, wait=replace(wait, counts=counts)))
