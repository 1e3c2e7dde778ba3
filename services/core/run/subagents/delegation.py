"""An open call of the Agent tool: which children it needs, which are running, what they returned.

    waiting  -->  running  -->  done        at most `width` of a call run at once; the others start as those return

A call starts children (spawn, parallel_spawn, open) or addresses an existing one (send, poll, cancel, close). Both are
the same here: a list of children, each with its request, and a result when all have returned. The output of a failed
child is a result like any other, so a child never fails its call's other children.

Before: services/core/run/state.py folds the events into this. After: children.py decides,
services/runtime/tools/tool_calls.py gathers long results.
"""

import json
from collections.abc import Sequence

from loomlog.schemas.generated.run_events import ChildrenPlanned, ChildRequested, ChildReturned
from loomlog.schemas.generated.values import BlobRef, Spawn
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run import limits

SPAWN, PARALLEL_SPAWN = "spawn", "parallel_spawn"
OPEN, SEND, POLL, CANCEL, CLOSE = "open", "send", "poll", "cancel", "close"
START_OPERATIONS = frozenset({SPAWN, PARALLEL_SPAWN, OPEN})
"""Operations that start runs; the others address a resident child."""
WAITING, RUNNING, DONE = "waiting", "running", "done"
"""Phases of a child of a call."""
REFUSED, UNDELIVERED, PARKED, CLOSED = "refused", "undelivered", "awaiting_input", "closed"
"""Statuses of a child in addition to those of runs: it never started, or accepts no text now; it ended before it
received the text; it waits for more; it was closed.
"""
FINAL_STATUSES = frozenset({"completed", "failed", "cancelled", REFUSED, UNDELIVERED, CLOSED})
"""Statuses after which a child reports nothing more."""


class DelegatedChild(Value, frozen=True, kw_only=True):
    """A child of a call. `run_id` is empty while it waits; `status`, `text` and `blob` until it is done."""

    number: int
    spawn: Spawn
    run_id: str = ""
    agent_id: str = ""
    phase: str = WAITING
    only_look: bool = False
    """Only its current status is requested, not its next output."""
    status: str = ""
    text: str = ""
    blob: BlobRef | None = None


class Delegation(Value, frozen=True, kw_only=True):
    """State of an open call of the Agent tool that waits for children. Times in UTC milliseconds."""

    op: str
    children: tuple[DelegatedChild, ...]
    is_sealed: bool = False
    is_looked_at: bool = False
    """Hooks are called for its result."""
    timeout_ms: int = 0
    deadline_ms: int = 0
    """When the call times out; 0 = never."""
    idle_ttl_s: int = 0
    began_at_ms: int = 0


def begin_delegation(event: ChildrenPlanned, at_ms: int) -> Delegation:
    """Return the call as planned; none of its children has started."""
    if event.op in START_OPERATIONS:
        children = tuple(DelegatedChild(number=number, spawn=spawn) for number, spawn in enumerate(event.spawns))
    else:
        children = (DelegatedChild(number=0, spawn=Spawn(agent="", prompt=event.prompt), run_id=event.child_run_id),)
    patience_ms = limits.CANCEL_TURN_WAIT_MS if event.op == CANCEL else event.timeout_ms
    return Delegation(
        op=event.op,
        children=children,
        is_sealed=event.is_sealed,
        is_looked_at=event.is_looked_at,
        timeout_ms=event.timeout_ms,
        deadline_ms=at_ms + patience_ms if patience_ms else 0,
        idle_ttl_s=event.idle_ttl_s,
        began_at_ms=at_ms,
    )


def with_child_requested(delegation: Delegation, event: ChildRequested) -> Delegation:
    """Mark the child as running; raises KeyError when there is no unfinished child of that number."""
    child = _child(delegation, event.number, excluded_phase=DONE)
    begun = replace(
        child,
        phase=RUNNING,
        run_id=event.child_run_id,
        agent_id=event.child_agent_id,
        only_look=event.only_look,
    )
    return _with_child(delegation, begun)


def with_child_returned(delegation: Delegation, event: ChildReturned) -> Delegation:
    """Record the child's return; raises KeyError when nothing was awaited of it."""
    child = _child(delegation, event.number, excluded_phase=DONE)
    if child.phase != RUNNING:
        raise KeyError(event.number)
    done = replace(
        child,
        phase=DONE,
        agent_id=event.child_agent_id or child.agent_id,
        status=event.status,
        text=event.text,
        blob=event.text_blob,
    )
    return _with_child(delegation, done)


def next_waiting(delegation: Delegation, limit: int) -> tuple[DelegatedChild, ...]:
    """Return the next children to start, in the order of the call, at most `limit` of them."""
    return tuple(child for child in delegation.children if child.phase == WAITING)[:limit]


def running_children(delegation: Delegation) -> tuple[DelegatedChild, ...]:
    """Return the children that are awaited now."""
    return tuple(child for child in delegation.children if child.phase == RUNNING)


def is_complete(delegation: Delegation) -> bool:
    """Whether every child has returned: only the result of the call is missing."""
    return all(child.phase == DONE for child in delegation.children)


def needs_gathering(delegation: Delegation) -> bool:
    """Whether the result cannot be composed from the state alone: parts of it are elsewhere, encrypted or too long.

    This includes a result for which hooks are called.
    """
    if delegation.is_looked_at:
        return True
    if any(child.blob is not None for child in delegation.children):
        return True
    if delegation.is_sealed and delegation.op != SPAWN:
        return True  # JSON built around a token is not the JSON of its text
    return sum(len(child.text.encode()) for child in delegation.children) > limits.INLINE_RESULT_BYTES


def compose_result(delegation: Delegation, texts: Sequence[str]) -> tuple[str, bool]:
    """Return the result for the model, and whether it is an error; `texts` are those of the
    children, in their order.
    """
    first = delegation.children[0]
    if delegation.op == PARALLEL_SPAWN:
        entries = [_entry(child, text) for child, text in zip(delegation.children, texts, strict=True)]
        return json.dumps({"results": entries}, ensure_ascii=False), False
    if first.status in (REFUSED, UNDELIVERED):
        return texts[0], True
    is_error = first.status in ("failed", "cancelled")
    if delegation.op == SPAWN:
        return f"[sub-agent agent_id={first.agent_id}]\n{texts[0]}", is_error
    shown = {"child_run_id": first.run_id, "state": first.status, "output": texts[0]}
    return json.dumps(shown, ensure_ascii=False), first.status == "failed"


def _entry(child: DelegatedChild, text: str) -> dict[str, object]:
    ok = child.status == "completed"
    return {
        "index": child.number,
        "agent": child.spawn.agent,
        "ok": ok,
        "output": text if ok else "",
        "error": "" if ok else text,
    }


def _child(delegation: Delegation, number: int, *, excluded_phase: str) -> DelegatedChild:
    if not 0 <= number < len(delegation.children) or delegation.children[number].phase == excluded_phase:
        raise KeyError(number)
    return delegation.children[number]


def _with_child(delegation: Delegation, child: DelegatedChild) -> Delegation:
    children = (*delegation.children[: child.number], child, *delegation.children[child.number + 1 :])
    return replace(delegation, children=children)
