"""Children: runs that a run starts through the Agent tool, in its own partition.

    ToolCallRequested  -->  the call is read (it has no effect yet)  -->  ChildrenPlanned, ChildRequested ...
    ChildRequested     -->  its owner sees to it that the child is there (react.SeeToChild)
    a child is over    -->  ChildTold  -->  ChildReturned, the next ChildRequested; with the last one the result

The id of a child follows from its place in its parent, and its intent is in the parent's log before it begins. So
whoever owns the partition next finds every child by name: it is live, or over, or was never begun and is begun now.
Nothing can grow through a spawn: what a child inherits is `start_of`, what it may do is its own definition, narrowed.

A pause of one run holds that run and not its children: to its parent a child is a tool call, and a pause never lies
between a call and its result. Pauses of an agent, a tenant or everything hold children like any run.

Before: decide.py. After: delegation.py is the fold; services/runtime/run/child_runs.py carries out what react asks for.
"""

from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import (
    ChildrenPlanned,
    ChildRequested,
    ChildReturned,
    Event,
    ResidentLeft,
    ToolReturned,
)
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, CommandEnvelope, ParentCall, VolumeGrant
from loomlog.schemas.ids import child_run_id
from loomlog.services.core.changing import changed
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ChildrenAsked, ChildTold, Refusal, Start
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.run_facts import Facts, Pause
from loomlog.services.core.run.state import Absent, AwaitingTools, Ended, Live, OpenCall, Parked, Refused, State
from loomlog.services.core.run.subagents import delegation
from loomlog.services.core.run.subagents.delegation import Child, Delegation
from loomlog.services.core.run.tools import hook_events, unknown_outcome

PARENT_ENDED = "parent run cancelled"
"""Why a child ends when its parent does, however that ended (parity: reference runtime 1.5)."""
CLOSED = "closed"
"""Stop reason of a resident child."""


# --- the call --------------------------------------------------------------------------------------------------------


def planned(state: AwaitingTools, order: ChildrenAsked) -> list[Event]:
    """What a call wants, and the first children of it; an error result when it is not to have them."""
    opened = unknown_outcome.open_call(state, order.turn, order.index)
    if opened is None or opened.attempt != order.attempt or opened.delegation is not None:
        return []
    acts = hook_events.acted(order.turn, opened, order.hook_acts)
    wrong = _wrong(state, order)
    if wrong:
        return [
            *acts,
            ToolReturned(
                turn=order.turn,
                index=order.index,
                call_id=opened.call.id,
                attempt=order.attempt,
                text=wrong,
                is_error=True,
                outcome="error",
            ),
        ]
    plan = ChildrenPlanned(
        turn=order.turn,
        index=order.index,
        call_id=opened.call.id,
        attempt=order.attempt,
        op=order.op,
        spawns=order.spawns,
        child_run_id=order.child_run_id,
        prompt=order.prompt,
        timeout_ms=order.timeout_ms,
        idle_ttl_s=order.idle_ttl_s,
        is_sealed=order.is_sealed,
        is_looked_at=order.is_looked_at,
    )
    if order.op == delegation.SEND and _texts_for(state, order.child_run_id):
        return [*acts, plan]  # it goes out when the child has answered the one before it
    begun = delegation.planned(plan, order.at_ms)
    width = max(1, state.facts.definition.max_concurrent_children)
    first = delegation.next_waiting(begun, width)
    return [*acts, plan, *(_request(state, opened, begun, child) for child in first)]


def _wrong(state: AwaitingTools, order: ChildrenAsked) -> str:
    """Why the call is not carried out; empty when it is."""
    facts = state.facts
    if order.op not in delegation.STARTING:
        return ""  # whose child is meant is known to the owner only
    if depth_of(facts) >= limits.DEPTH_MAX:
        return (
            f"not spawned: the depth limit is {limits.DEPTH_MAX}, and this run is at depth {depth_of(facts)}; do the "
            "work yourself"
        )
    if not 1 <= len(order.spawns) <= limits.SPAWNS_MAX:
        return f"not spawned: {len(order.spawns)} spawns, expected 1 to {limits.SPAWNS_MAX}"
    size = sum(len(spawn.prompt.encode()) + len(spawn.compaction.encode()) for spawn in order.spawns)
    if size > limits.SPAWN_BYTES_MAX:
        return (
            f"not spawned: the prompts have {size} bytes, at most {limits.SPAWN_BYTES_MAX}; let the children read files"
        )
    if order.op == delegation.OPEN and len(facts.residents) >= order.residents_max:
        return f"not opened: the run has {len(facts.residents)} resident children, at most {order.residents_max}"
    return ""


def _request(
    state: AwaitingTools, opened: OpenCall, wanted: Delegation, child: Child, *, only_look: bool = False
) -> ChildRequested:
    starts = wanted.op in delegation.STARTING
    run_id = child_run_id(state.facts.run_id, state.turn, opened.index, child.number) if starts else child.run_id
    return ChildRequested(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        number=child.number,
        child_run_id=run_id,
        child_agent_id=f"a_{run_id[2:]}" if starts else "",
        agent=child.spawn.agent,
        only_look=only_look or (wanted.op == delegation.POLL and not wanted.timeout_ms),
    )


# --- children that return --------------------------------------------------------------------------------------------


def told(state: State, order: ChildTold) -> list[Event]:
    """A child is over, or stands still: the calls that wait for it hear of it. Nothing when none does."""
    if not isinstance(state, Live):
        return []
    events: list[Event] = []
    if isinstance(state, AwaitingTools):
        for opened in state.open:
            events += _call_told(state, opened, order)
        events += _next_text(state, order.child_run_id, events)
    if not events and order.status in delegation.OVER and order.child_run_id in state.facts.residents:
        return [ResidentLeft(child_run_id=order.child_run_id, status=order.status)]
    return events


def _call_told(state: AwaitingTools, opened: OpenCall, order: ChildTold) -> list[Event]:
    wanted = opened.delegation
    if wanted is None:
        return []
    child = next((child for child in delegation.running(wanted) if child.run_id == order.child_run_id), None)
    text = text_id(state.facts.run_id, state.turn, opened.index)
    if child is None or not _is_answer(wanted, child, order, text):
        return []
    if wanted.op == delegation.SEND and order.status in delegation.OVER and text not in order.heard:
        order = _not_delivered(order)
    returned = ChildReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        number=child.number,
        child_run_id=child.run_id,
        child_agent_id=order.child_agent_id or child.agent_id,
        agent=order.agent or child.spawn.agent,
        status=order.status,
        text=order.text,
        text_blob=order.text_blob,
    )
    after = delegation.returned(wanted, returned)
    following = [_request(state, opened, after, child) for child in delegation.next_waiting(after, 1)]
    if not delegation.is_complete(after) or delegation.needs_gathering(after):
        return [returned, *following]
    text, is_error = delegation.result(after, [child.text for child in after.children])
    result = ToolReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=text,
        is_error=is_error,
        outcome="error" if is_error else "ok",
        duration_ms=max(0, order.at_ms - wanted.began_at_ms),
    )
    return [returned, result]


def _not_delivered(order: ChildTold) -> ChildTold:
    """As a refusal: what a child that is over said last answers something else."""
    if order.status == delegation.REFUSED:
        return order
    why = f": {order.text}" if order.status in ("failed", "cancelled") and order.text else ""
    text = f"not delivered: the sub-agent {order.child_run_id} is over ({order.status}{why}); open another one"
    return changed(order, status=delegation.UNDELIVERED, text=text, text_blob=None)


def _texts_for(state: AwaitingTools, child_run_id: str) -> list[tuple[OpenCall, Delegation]]:
    """The calls with a text for that child which it has not answered, in the order of the turn.

    They go out one at a time: a child stands still only when it has answered all it has heard, so of two texts only the
    second would have an answer.
    """
    calls = sorted(state.open, key=lambda call: call.index)
    return [
        (call, call.delegation)
        for call in calls
        if call.delegation is not None
        and call.delegation.op == delegation.SEND
        and not delegation.is_complete(call.delegation)
        and call.delegation.children[0].run_id == child_run_id
    ]


def _next_text(state: AwaitingTools, child_run_id: str, events: list[Event]) -> list[Event]:
    """The next text for a child that has just answered one, or is over."""
    answered = [event.index for event in events if isinstance(event, ChildReturned)]
    left = [(call, wanted) for call, wanted in _texts_for(state, child_run_id) if call.index not in answered]
    if not answered or not left or any(delegation.running(wanted) for _, wanted in left):
        return []
    opened, wanted = left[0]
    return [_request(state, opened, wanted, wanted.children[0])]


def _is_answer(wanted: Delegation, child: Child, order: ChildTold, text: str) -> bool:
    """A child that stands so is what the call waits for. `text` is the id under which the call sends a text."""
    if order.status in delegation.OVER or child.only_look:
        return True
    if order.status != delegation.PARKED:
        return False
    if wanted.op == delegation.SEND:
        return text in order.heard  # otherwise it still stands where it stood before the call
    return wanted.op in (delegation.OPEN, delegation.POLL, delegation.CANCEL)


def text_id(run_id: str, turn: int, index: int) -> str:
    """The command id of a text that a call of the run sends to a child."""
    return f"{run_id}:{turn}.{index}"


# --- patience --------------------------------------------------------------------------------------------------------


def wakes_at(state: State) -> int:
    """When the patience of a call, or that with an idle child, is over; UTC milliseconds, 0 = never."""
    match state:
        case AwaitingTools():
            return min((deadline for _, _, deadline in _patience(state)), default=0)
        case Parked(facts=Facts(parent=ParentCall(is_resident=True, idle_ttl_s=idle_ttl_s)), since_ms=since_ms):
            return since_ms + 1000 * idle_ttl_s if idle_ttl_s else 0
        case _:
            return 0


def late(state: AwaitingTools, at_ms: int) -> list[Event]:
    """How the children stand is asked, for calls whose patience is over."""
    return [
        _request(state, opened, wanted, child, only_look=True)
        for opened, wanted, deadline in _patience(state)
        if deadline <= at_ms
        for child in delegation.running(wanted)
    ]


def _patience(state: AwaitingTools) -> list[tuple[OpenCall, Delegation, int]]:
    return [
        (call, call.delegation, call.delegation.deadline_ms)
        for call in state.open
        if call.delegation is not None
        and call.delegation.deadline_ms
        and any(not child.only_look for child in delegation.running(call.delegation))
    ]


# --- inheritance -----------------------------------------------------------------------------------------------------


def depth_of(facts: Facts) -> int:
    """0 for a run of its own."""
    return facts.parent.depth if facts.parent is not None else 0


def root_of(facts: Facts) -> str:
    """The run its tree began with. What a whole tree shares, as the credentials of its request, is kept under it."""
    return facts.parent.root_run_id if facts.parent is not None else facts.run_id


def start_of(
    parent: Facts,
    *,
    tenant: str,
    turn: int,
    index: int,
    wanted: Delegation,
    child: Child,
    definition: AgentDefinition | Refusal,
    pauses: tuple[Pause, ...],
    at_ms: int,
) -> Start:
    """The order that starts a child: the one place that says what it inherits (reference runtime 1.17).

    From the parent: subject, user, tier, hosts, parent_context, trace, whether it may spend the operator's keys; the
    tenant and, by the root, what the tree shares (the credentials). From its own definition: everything the definition
    says. Both: volumes. Of its own: session, handle, prompt.
    """
    is_resident = wanted.op == delegation.OPEN
    return Start(
        at_ms=at_ms,
        command=StartRun(
            envelope=CommandEnvelope(
                command_id=child.run_id, tenant=tenant, subject=parent.subject, issued_at_ms=at_ms
            ),
            agent=child.spawn.agent,
            prompt=child.spawn.prompt,
            run_id=child.run_id,
            user_id=parent.user_id,
            user_tier=parent.user_tier,
            allowed_hosts=parent.allowed_hosts,
            web_search_filter=parent.web_search_filter,
            parent_context=dict(parent.parent_context),
            interactive=is_resident,
            credentials=parent.credentials,
            operator_key_restricted=parent.operator_key_restricted,
        ),
        session_id=f"s_{child.run_id[2:]}",
        agent_id=child.agent_id,
        definition=inherited(definition, parent.definition, child.spawn.compaction)
        if isinstance(definition, AgentDefinition)
        else None,
        unresolved=definition if isinstance(definition, Refusal) else None,
        traceparent=parent.traceparent,
        pauses=pauses,
        parent=ParentCall(
            run_id=parent.run_id,
            agent_id=parent.agent_id,
            root_run_id=root_of(parent),
            turn=turn,
            index=index,
            number=child.number,
            depth=depth_of(parent) + 1,
            is_resident=is_resident,
            idle_ttl_s=wanted.idle_ttl_s if is_resident else 0,
        ),
    )


def inherited(child: AgentDefinition, parent: AgentDefinition, compaction: str = "") -> AgentDefinition:
    """The definition of a child under that parent: a volume only if the parent has it, writable only if both may write.

    Compaction is the child's own, over it the parent's effective one, over both what the spawn overrides
    (`compaction`, JSON).
    """
    theirs = {grant.name: grant for grant in parent.volumes}
    volumes = tuple(_narrower(grant, theirs[grant.name]) for grant in child.volumes if grant.name in theirs)
    effective = conversation_compaction.merged(child.compaction, parent.compaction)
    return changed(
        child,
        volumes=volumes,
        compaction=conversation_compaction.merged(effective, conversation_compaction.wishes_of(compaction)),
    )


def _narrower(grant: VolumeGrant, limit: VolumeGrant) -> VolumeGrant:
    return grant if limit.mode == "rw" else changed(grant, mode="ro")


# --- how a run stands, for its parent --------------------------------------------------------------------------------


def status_of(state: State) -> str:
    """As in ChildReturned."""
    match state:
        case Ended(status="completed", reason="closed") | Ended(status="cancelled", reason="closed"):
            return delegation.CLOSED
        case Ended(status=status):
            return status
        case Parked():
            return delegation.PARKED
        case _:
            return "running"


def last_words(state: State) -> tuple[str, BlobRef | None]:
    """What a run said last, or why it failed; a long text is a blob."""
    match state:
        case Ended(status="failed" | "cancelled", reason=reason):
            return reason, None
        case Absent() | Refused():
            return "", None
        case _:
            return _last_text(state.facts)


def _last_text(facts: Facts) -> tuple[str, BlobRef | None]:
    for message in reversed(facts.messages[facts.inherited_messages :]):
        if message.role == "assistant":
            text = next((block for block in message.blocks if isinstance(block, TextBlock)), None)
            if text is not None and text.is_summary:
                continue  # nobody said it
            return (text.text, text.blob) if text is not None else ("", None)
    return "", None
