"""Children: runs that a run starts through the Agent tool, in its own partition.

    ToolCallRequested  -->  the call is read (it has no effect yet)  -->  ChildrenPlanned, ChildRequested ...
    ChildRequested     -->  its owner makes sure that the child exists (react.EnsureChild)
    a child has ended  -->  ChildReported  -->  ChildReturned, the next ChildRequested; with the last one the result

The id of a child follows from its place in its parent, and its intent is in the parent's log before it starts. So the
next owner of the partition finds every child by name: it is live, has ended, or was never started and is started now. A
spawn cannot widen permissions: a child inherits `child_start_command`, and may do what its own definition, narrowed,
allows.

A pause of one run holds that run and not its children: to its parent a child is a tool call, and a pause never falls
between a call and its result. Pauses of an agent, a tenant or everything hold children like any run.

Before: services/core/run/decide.py. After: delegation.py is the fold; services/runtime/run/child_runs.py carries out
the effects of react.
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
from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalPolicy,
    BlobRef,
    CommandEnvelope,
    ParentCall,
    RunOptions,
    VolumeGrant,
)
from loomlog.schemas.ids import child_run_id
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ChildrenRequested, ChildReported, CommandRefusal, StartCommand
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import Absent, AwaitingTools, Ended, LiveState, OpenCall, Parked, Refused, State
from loomlog.services.core.run.subagents import delegation
from loomlog.services.core.run.subagents.delegation import DelegatedChild, Delegation
from loomlog.services.core.run.tools import hook_events, unknown_outcome

PARENT_ENDED = "parent run cancelled"
"""Reason of a child that ends because its parent did, with whatever status (parity: reference runtime 1.5)."""
CLOSED = "closed"
"""Stop reason of a resident child that is closed."""
INHERITED_BLOCK_SCOPES = ("user", "tenant")
"""Scopes of core blocks that a child shares with its parent; those of scope agent are each agent's own."""
INHERITED_VOLUMES = (VolumeGrant(name="*", mode="rw"),)
"""Volumes of a child whose agent names none: those of its parent. No event has it."""


# --- the call --------------------------------------------------------------------------------------------------------


def plan_children(state: AwaitingTools, result: ChildrenRequested) -> list[Event]:
    """Plan the children of a call and request the first ones; an error result if the call is not allowed."""
    opened = unknown_outcome.find_call_of_turn(state, result.turn, result.index)
    if opened is None or opened.attempt != result.attempt or opened.delegation is not None or opened.wait is not None:
        return []
    acts = hook_events.hook_events(result.turn, opened, result.hook_acts)
    wrong = _spawn_error(state, result)
    if wrong:
        return [
            *acts,
            ToolReturned(
                turn=result.turn,
                index=result.index,
                call_id=opened.call.id,
                attempt=result.attempt,
                text=wrong,
                is_error=True,
                outcome="error",
            ),
        ]
    plan = copy_as(ChildrenPlanned, result, call_id=opened.call.id)
    if result.op == delegation.SEND and _pending_sends(state, result.child_run_id):
        return [*acts, plan]  # sent when the child has answered the text before it
    begun = delegation.begin_delegation(plan, result.at_ms)
    width = max(1, state.facts.definition.max_concurrent_children or limits.CONCURRENT_CHILDREN_DEFAULT)
    first = delegation.next_waiting(begun, width)
    return [*acts, plan, *(_request_child(state, opened, begun, child) for child in first)]


def _spawn_error(state: AwaitingTools, result: ChildrenRequested) -> str:
    """Return why the call is not carried out; empty if it is."""
    facts = state.facts
    if result.op not in delegation.START_OPERATIONS:
        return ""  # only the owner can resolve which child is meant
    if depth_of(facts) >= limits.DEPTH_MAX:
        return (
            f"not spawned: the depth limit is {limits.DEPTH_MAX}, and this run is at depth {depth_of(facts)}; do the "
            "work yourself"
        )
    if not 1 <= len(result.spawns) <= limits.SPAWNS_MAX:
        return f"not spawned: {len(result.spawns)} spawns, expected 1 to {limits.SPAWNS_MAX}"
    size = sum(len(spawn.prompt.encode()) + len(spawn.compaction.encode()) for spawn in result.spawns)
    if size > limits.SPAWN_BYTES_MAX:
        return (
            f"not spawned: the prompts have {size} bytes, at most {limits.SPAWN_BYTES_MAX}; let the children read files"
        )
    if result.op == delegation.OPEN and len(facts.residents) >= result.residents_max:
        return f"not opened: the run has {len(facts.residents)} resident children, at most {result.residents_max}"
    return ""


def _request_child(
    state: AwaitingTools, opened: OpenCall, plan: Delegation, child: DelegatedChild, *, only_look: bool = False
) -> ChildRequested:
    starts = plan.op in delegation.START_OPERATIONS
    run_id = child_run_id(state.facts.run_id, state.turn, opened.index, child.number) if starts else child.run_id
    return ChildRequested(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        number=child.number,
        child_run_id=run_id,
        child_agent_id=f"a_{run_id[2:]}" if starts else "",
        agent=child.spawn.agent,
        only_look=only_look or (plan.op == delegation.POLL and not plan.timeout_ms),
    )


# --- reports of children ---------------------------------------------------------------------------------------------


def handle_child_report(state: State, report: ChildReported) -> list[Event]:
    """Handle a child that has ended or parked: return its report to the calls that wait for it, if any."""
    if not isinstance(state, LiveState):
        return []
    events: list[Event] = []
    if isinstance(state, AwaitingTools):
        for opened in state.open:
            events += _return_child(state, opened, report)
        events += _request_next_send(state, report.child_run_id, events)
    if not events and report.status in delegation.FINAL_STATUSES and report.child_run_id in state.facts.residents:
        return [ResidentLeft(child_run_id=report.child_run_id, status=report.status)]
    return events


def _return_child(state: AwaitingTools, opened: OpenCall, report: ChildReported) -> list[Event]:
    plan = opened.delegation
    if plan is None:
        return []
    child = next((child for child in delegation.running_children(plan) if child.run_id == report.child_run_id), None)
    text = child_input_id(state.facts.run_id, state.turn, opened.index)
    if child is None or not _is_awaited_report(plan, child, report, text):
        return []
    if (
        plan.op == delegation.SEND
        and report.status in delegation.FINAL_STATUSES
        and text not in report.received_input_ids
    ):
        report = _as_undelivered(report)
    returned = ChildReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        number=child.number,
        child_run_id=child.run_id,
        child_agent_id=report.child_agent_id or child.agent_id,
        agent=report.agent or child.spawn.agent,
        status=report.status,
        text=report.text,
        text_blob=report.text_blob,
    )
    after = delegation.with_child_returned(plan, returned)
    following = [_request_child(state, opened, after, child) for child in delegation.next_waiting(after, 1)]
    if not delegation.is_complete(after) or delegation.needs_gathering(after):
        return [returned, *following]
    text, is_error = delegation.compose_result(after, [child.text for child in after.children])
    result = ToolReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=text,
        is_error=is_error,
        outcome="error" if is_error else "ok",
        duration_ms=max(0, report.at_ms - plan.began_at_ms),
    )
    return [returned, result]


def _as_undelivered(report: ChildReported) -> ChildReported:
    """Turn the report into a refusal: the last output of an ended child does not answer this text."""
    if report.status == delegation.REFUSED:
        return report
    why = f": {report.text}" if report.status in ("failed", "cancelled") and report.text else ""
    text = f"not delivered: the sub-agent {report.child_run_id} is over ({report.status}{why}); open another one"
    return replace(report, status=delegation.UNDELIVERED, text=text, text_blob=None)


def _pending_sends(state: AwaitingTools, child_run_id: str) -> list[tuple[OpenCall, Delegation]]:
    """Return the calls with a text for that child that it has not answered, in the order of the turn.

    They are sent one at a time: a child parks only when it has answered all texts it has received, so of two texts only
    the second would have an answer.
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


def _request_next_send(state: AwaitingTools, child_run_id: str, events: list[Event]) -> list[Event]:
    """Send the next text to a child that has just answered one, or has ended."""
    answered = [event.index for event in events if isinstance(event, ChildReturned)]
    left = [(call, plan) for call, plan in _pending_sends(state, child_run_id) if call.index not in answered]
    if not answered or not left or any(delegation.running_children(plan) for _, plan in left):
        return []
    opened, plan = left[0]
    return [_request_child(state, opened, plan, plan.children[0])]


def _is_awaited_report(plan: Delegation, child: DelegatedChild, report: ChildReported, input_id: str) -> bool:
    """Whether the call waits for this report. `input_id` is the id under which the call sends a text."""
    if report.status in delegation.FINAL_STATUSES or child.only_look:
        return True
    if report.status != delegation.PARKED:
        return False
    if plan.op == delegation.SEND:
        return input_id in report.received_input_ids  # otherwise the report is from before the call
    return plan.op in (delegation.OPEN, delegation.POLL, delegation.CANCEL)


def child_input_id(run_id: str, turn: int, index: int) -> str:
    """Return the command id of a text that a call of the run sends to a child."""
    return f"{run_id}:{turn}.{index}"


# --- timeouts --------------------------------------------------------------------------------------------------------


def next_timer_at(state: State) -> int:
    """Return when a call or an idle child times out, in UTC milliseconds; 0 = never."""
    match state:
        case AwaitingTools():
            return min((deadline for _, _, deadline in _calls_with_deadline(state)), default=0)
        case Parked(facts=RunFacts(parent=ParentCall(is_resident=True, idle_ttl_s=idle_ttl_s)), since_ms=since_ms):
            return since_ms + 1000 * idle_ttl_s if idle_ttl_s else 0
        case _:
            return 0


def poll_overdue_children(state: AwaitingTools, at_ms: int) -> list[Event]:
    """Request the status of the children of each call that has timed out."""
    return [
        _request_child(state, opened, plan, child, only_look=True)
        for opened, plan, deadline in _calls_with_deadline(state)
        if deadline <= at_ms
        for child in delegation.running_children(plan)
    ]


def _calls_with_deadline(state: AwaitingTools) -> list[tuple[OpenCall, Delegation, int]]:
    return [
        (call, call.delegation, call.delegation.deadline_ms)
        for call in state.open
        if call.delegation is not None
        and call.delegation.deadline_ms
        and any(not child.only_look for child in delegation.running_children(call.delegation))
    ]


# --- inheritance -----------------------------------------------------------------------------------------------------


def depth_of(facts: RunFacts) -> int:
    """Return the depth of the run in its tree; 0 for a run without a parent."""
    return facts.parent.depth if facts.parent is not None else 0


def root_of(facts: RunFacts) -> str:
    """Return the root run of the tree. Whatever the tree shares, such as request credentials, is kept under its id."""
    return facts.parent.root_run_id if facts.parent is not None else facts.run_id


def child_start_command(
    parent: RunFacts,
    *,
    tenant: str,
    turn: int,
    index: int,
    plan: Delegation,
    child: DelegatedChild,
    definition: AgentDefinition | CommandRefusal,
    pauses: tuple[Pause, ...],
    at_ms: int,
) -> StartCommand:
    """Return the command that starts a child: the one place that defines what it inherits (reference runtime 1.17).

    From the parent: subject, user, tier, hosts, parent_context, trace, whether it may spend the operator's keys; the
    tenant and, through the root, what the tree shares (the credentials). From its own definition: everything the
    definition contains. Both: volumes, core blocks. Of its own: session, handle, prompt.
    """
    is_resident, inherited = plan.op == delegation.OPEN, parent.options
    return StartCommand(
        at_ms=at_ms,
        command=StartRun(
            envelope=CommandEnvelope(
                command_id=child.run_id, tenant=tenant, subject=parent.subject, issued_at_ms=at_ms
            ),
            agent=child.spawn.agent,
            prompt=child.spawn.prompt,
            run_id=child.run_id,
            user_id=parent.user_id,
            options=RunOptions(
                user_tier=inherited.user_tier,
                allowed_hosts=inherited.allowed_hosts,
                web_search_filter=inherited.web_search_filter,
                parent_context=inherited.parent_context,
                interactive=is_resident,
                credentials=inherited.credentials,
                operator_key_restricted=inherited.operator_key_restricted,
            ),
        ),
        session_id=f"s_{child.run_id[2:]}",
        agent_id=child.agent_id,
        definition=inherit_definition(definition, parent.definition, child.spawn.compaction)
        if isinstance(definition, AgentDefinition)
        else None,
        definition_refusal=definition if isinstance(definition, CommandRefusal) else None,
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
            idle_ttl_s=plan.idle_ttl_s if is_resident else 0,
        ),
    )


def inherit_core_blocks(child: AgentDefinition, parent: AgentDefinition) -> AgentDefinition:
    """Return the definition of a child with the core blocks of its parent's user and tenant, if it is to have them.

    Of two blocks with the same label it has its own.
    """
    grants, theirs = child.grants, parent.grants
    if grants is None or theirs is None or not grants.inherit_core_blocks:
        return child
    own = {block.label for block in grants.core_blocks}
    added = tuple(one for one in theirs.core_blocks if one.scope in INHERITED_BLOCK_SCOPES and one.label not in own)
    return replace(child, grants=replace(grants, core_blocks=(*grants.core_blocks, *added))) if added else child


def inherit_definition(child: AgentDefinition, parent: AgentDefinition, compaction: str = "") -> AgentDefinition:
    """Return the definition of a child under that parent: a volume only if the parent has it, writable only if both may
    write; a child without volumes of its own (INHERITED_VOLUMES) has those of the parent.

    Compaction is the child's own, overridden by the parent's effective one, and both by that of the spawn
    (`compaction`, JSON).
    """
    child = inherit_core_blocks(child, parent)
    theirs = {grant.name: grant for grant in parent.volumes}
    volumes = tuple(_narrower(grant, theirs[grant.name]) for grant in child.volumes if grant.name in theirs)
    if child.volumes == INHERITED_VOLUMES:
        volumes = parent.volumes
    effective = conversation_compaction.merge_compaction(child.compaction, parent.compaction)
    return replace(
        child,
        volumes=volumes,
        approvals=inherit_approvals(child.approvals, parent),
        compaction=conversation_compaction.merge_compaction(
            effective, conversation_compaction.parse_overrides(compaction)
        ),
    )


def inherit_approvals(own: tuple[ApprovalPolicy, ...], parent: AgentDefinition) -> tuple[ApprovalPolicy, ...]:
    """Return the policies of a child: those of its parent first, so that it cannot evade a rule of its root, then those
    that only it has.

    A policy of the parent's tree holds for the child as for the agents that it works for.
    """
    theirs = tuple(
        replace(policy, is_inherited=True, agents=(parent.name, *policy.agents)) for policy in parent.approvals
    )
    known = {policy.sha256 for policy in theirs}
    return (*theirs, *(policy for policy in own if policy.sha256 not in known))


def _narrower(grant: VolumeGrant, limit: VolumeGrant) -> VolumeGrant:
    return grant if limit.mode == "rw" else replace(grant, mode="ro")


# --- status of a run, for its parent ---------------------------------------------------------------------------------


def status_for_parent(state: State) -> str:
    """Return the status of the run, with the values of ChildReturned."""
    match state:
        case Ended(status="completed", reason="closed") | Ended(status="cancelled", reason="closed"):
            return delegation.CLOSED
        case Ended(status=status):
            return status
        case Parked():
            return delegation.PARKED
        case _:
            return "running"


def last_output(state: State) -> tuple[str, BlobRef | None]:
    """Return the last output of a run, or why it failed; a long text is a blob."""
    match state:
        case Ended(status="failed" | "cancelled", reason=reason):
            return reason, None
        case Absent() | Refused():
            return "", None
        case _:
            return _last_text(state.facts)


def _last_text(facts: RunFacts) -> tuple[str, BlobRef | None]:
    for message in reversed(facts.messages[facts.inherited_messages :]):
        if message.role == "assistant":
            text = next((block for block in message.blocks if isinstance(block, TextBlock)), None)
            if text is not None and text.is_summary:
                continue  # a summary is no output
            return (text.text, text.blob) if text is not None else ("", None)
    return "", None
