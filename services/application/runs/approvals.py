"""Calls of runs that wait for the approval of people: lists, decisions, and trials of rules on recorded runs.

A decision is a command like any other (control.py): in the log first, then decided by the owner of the run, which alone
knows who is asked, how many have approved, and whether the call still waits. Who may approve is what the rule says, in
runs of isolated users too; the scopes that the caller holds go with the command.

Before: a transport. After: services/core/run/interrupts/approvals.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import structs

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.interrupts import PENDING, InterruptFilter, InterruptRow
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.approval_policy import DENY, PolicyError, decode_policy, parse_policy
from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import ApprovalGiven, CommandRefused, InterruptionClosed
from loomlog.schemas.generated.values import TreeTotal
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import replace
from loomlog.services.application.errors import bad_request, owner_refusal
from loomlog.services.application.queries.audit_log import EventQuery, EventView
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.application.runs.control import already_ended
from loomlog.services.application.runs.interrupts import parse_statuses
from loomlog.services.application.runs.run_target import CommandTarget, RunTarget
from loomlog.services.core.access.decide import (
    AccessFilter,
    Caller,
    ResourceOwner,
    access_filter,
    can_see,
    held_scopes,
)
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.approvals.evaluation import CallFacts, CompiledPolicy, parse_call_arguments
from loomlog.services.core.approvals.tree_totals import TreeTotals, add_totals
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.interrupts.questions import APPROVAL
from loomlog.services.families.approvals import AGGREGATE, NAME, api
from loomlog.services.families.operation import read_rows

if TYPE_CHECKING:
    from loomlog.services.application.application import Application

EVENTS_PAGE, PAGES_MAX = 500, 40
"""Events of one page of a recorded run, and most pages: 20,000 events."""
CALLS_MAX = 2_000
"""Most calls in the answer of a trial."""


class ApprovalHandlers:
    """Carries out the operations; each is named like its operation. All raise Refused."""

    def __init__(self, application: "Application") -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handler of each operation."""
        return {
            api.LIST: self.list_all,
            api.SHOW: self.show,
            api.APPROVE: self.approve,
            api.DENY: self.deny,
            api.TEST: self.test,
        }

    # --- reads -------------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call[api.ApprovalsList]) -> Answer[api.ApprovalPage]:
        """Return the approvals that the caller may see."""
        caller, asked, sources = call.principal, call.input, self._application.sources
        allowed = access_filter(caller)
        user = allowed.user_id or ""
        criteria = InterruptFilter(
            kind=APPROVAL, statuses=parse_statuses(asked.status), run_id=asked.run_id, user_id=user, approver=user
        )
        await sources.barrier.wait_for_own_writes(None)
        try:
            page = await sources.projection.interrupts(
                scope_of(allowed), criteria, limit=asked.limit, after=asked.cursor
            )
        except InvalidPageToken as error:
            raise bad_request(f"cursor: {error}") from error
        rows = await sources.content.decrypt_interrupts(page.rows)
        shown = [approval_of(row, caller) for row in rows]
        return Answer(value=api.ApprovalPage(approvals=shown, total=page.total, next=page.next or None))

    async def show(self, call: Call[api.ApprovalNamed]) -> Answer[api.Approval]:
        """Return one approval."""
        row = await self._visible_row(call.principal, call.input.run_id, call.input.approval_id)
        if row is None:
            raise _unknown(call.input.run_id, call.input.approval_id)
        (row,) = await self._application.sources.content.decrypt_interrupts([row])
        return Answer(value=approval_of(row, call.principal))

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def approve(self, call: Call[api.ApprovalApprove]) -> Answer[api.ApprovalVoted]:
        """Approve a call."""
        return await self._vote(call, is_approved=True, arguments_sha256=call.input.arguments_sha256)

    async def deny(self, call: Call[api.ApprovalDeny]) -> Answer[api.ApprovalVoted]:
        """Deny a call."""
        return await self._vote(call, is_approved=False)

    async def _vote(
        self,
        call: Call[api.ApprovalApprove] | Call[api.ApprovalDeny],
        *,
        is_approved: bool,
        arguments_sha256: str = "",
    ) -> Answer[api.ApprovalVoted]:
        asked, caller, control = call.input, call.principal, self._application.control
        target = await self._target(caller, asked.run_id, asked.approval_id)
        seal = await self._application.sources.content.encryptor_for(target.tenant, target.user_id)
        command = GiveApproval(
            envelope=control.envelope(caller, target),
            run_id=asked.run_id,
            interrupt_id=asked.approval_id,
            is_approved=is_approved,
            reason=seal(asked.reason, False) if seal is not None and asked.reason else asked.reason,
            scopes=tuple(sorted(held_scopes(caller))),
            surface=asked.surface,
            arguments_sha256=arguments_sha256,
        )
        item = await control.send_command(target, command)
        if item is None:
            raise await control.pending_error("resolve_pending", target, "the decision is in the log")
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if isinstance(event, ApprovalGiven):
            status, approvals = event.status, sum(vote.is_approved for vote in event.votes)
        elif isinstance(event, InterruptionClosed):
            status, approvals = event.status, 0
        else:
            raise already_ended(asked.run_id)
        value = api.ApprovalVoted(approval_id=asked.approval_id, status=status, approvals=approvals)
        return Answer(value=value, positions=(control.position(item),))

    async def _target(self, caller: Caller, run_id: str, approval_id: str) -> CommandTarget:
        """Return where the decision goes. Raises Refused when the approval has ended or does not exist."""
        row = await self._visible_row(caller, run_id, approval_id)
        if row is None:
            target = await self._application.queries.visible_target(caller, run_id)
            if target.status != "running":
                raise _unknown(run_id, approval_id)
            return target  # its owner may know the approval already
        if row.status != PENDING:
            raise Refused("approval_closed", f"the approval {approval_id} is {row.status} already")
        return RunTarget(run_id=run_id, tenant=row.tenant, user_id=row.user_id or "", agent_id=row.agent_id or "")

    async def _visible_row(self, caller: Caller, run_id: str, approval_id: str) -> InterruptRow | None:
        """Return an approval of a run that the caller may see, or that names the caller; None: there is none."""
        sources = self._application.sources
        if not (ID_PATTERN.match(run_id) and ID_PATTERN.match(approval_id)):
            raise _unknown(run_id, approval_id)
        lag = await sources.barrier.wait_for_own_writes(sources.partition_of(run_id))
        scope = scope_of(AccessFilter(tenant=access_filter(caller).tenant, user_id=None))
        row = await sources.projection.interrupt(scope, run_id, approval_id)
        if row is None and lag:
            raise not_yet_error(_unknown(run_id, approval_id).message, lag)
        if row is None or row.kind != APPROVAL:
            return None
        owner = ResourceOwner(tenant=row.tenant, user_id=row.user_id or "")
        is_named = any(caller.subject in group["subjects"] for group in _verdict_of(row).get("groups", ()))
        return row if is_named or can_see(caller, owner) else None

    # --- trials ------------------------------------------------------------------------------------------------------

    async def test(self, call: Call[api.PolicyTest]) -> Answer[api.PolicyTested]:
        """Return what rules would have said about the calls of a run. Other runs of its tree are read only for rules
        that count over the tree.
        """
        rules, run_id = await self._rules_to_test(call), call.input.run_id
        events, is_complete = await self._events_to_test(call.principal, run_id, is_tree=rules.counts_over_trees)
        calls = trial(rules, events, run_id)
        outcomes = [one.outcome for one in calls]
        value = api.PolicyTested(
            run_id=run_id,
            calls=calls[:CALLS_MAX],
            allowed=outcomes.count("allow"),
            denied=outcomes.count("deny"),
            asked=outcomes.count("ask"),
            is_complete=is_complete and len(calls) <= CALLS_MAX,
        )
        return Answer(value=value)

    async def _rules_to_test(self, call: Call[api.PolicyTest]) -> CompiledPolicy:
        if call.input.rules is not None:
            try:
                return CompiledPolicy(parse_policy({"rules": call.input.rules}, scopes=SCOPES))
            except PolicyError as error:
                raise bad_request(str(error)) from error
        reads = self._application.entity_reads
        assert reads is not None, "the operation is served with families only"
        row = await read_rows(reads.show(NAME, call.caller.tenant, AGGREGATE, positions=call.caller.positions))
        return CompiledPolicy(decode_policy(row.entity.state.text if row is not None else '{"rules":[]}'))

    async def _events_to_test(self, caller: Caller, run_id: str, *, is_tree: bool) -> tuple[list[EventView], bool]:
        """Return the events of a run, or of all runs of its tree in the order of the log, and whether these are all."""
        pages = iter(range(PAGES_MAX))
        events, is_complete = await self._events_of(caller, run_id, pages)
        if not is_tree:
            return events, is_complete
        read = {run_id: events}
        waiting = [root for event in events[:1] if (root := (event.payload.get("parent") or {}).get("root_run_id"))]
        waiting += _children_in(events)
        for name in waiting:  # grows during iteration: a tree has no cycles, its ids are hashes of their parents'
            if name not in read:
                read[name], is_whole = await self._events_of(caller, name, pages)
                is_complete = is_complete and is_whole
                waiting += _children_in(read[name])
        # All runs of a tree are in one partition.
        return sorted((event for some in read.values() for event in some), key=lambda event: event.offset), is_complete

    async def _events_of(self, caller: Caller, run_id: str, pages: Iterator[int]) -> tuple[list[EventView], bool]:
        events: list[EventView] = []
        cursor = ""
        for _ in pages:
            query = EventQuery(run_id=run_id, limit=EVENTS_PAGE, cursor=cursor)
            page = await self._application.audit_log.events(caller, query)
            events += page.events
            cursor = page.next
            if not cursor:
                return events, True
        return events, False


def _children_in(events: list[EventView]) -> list[str]:
    return [event.payload["child_run_id"] for event in events if event.type == "ChildRequested"]


@dataclass(slots=True)
class _TriedRun:
    """What a trial knows of one run. `agents`: its agent, and those that it works for, as far as they were read."""

    agents: tuple[str, ...]
    user: str
    totals: dict[str, int] = field(default_factory=dict)
    spent_micros: int = 0


def trial(rules: CompiledPolicy, events: list[EventView], run_id: str) -> list[api.TestedCall]:
    """Return the verdict about each call of a run, given its events, or those of its tree, in their order. A call that
    is asked counts as approved.
    """
    runs: dict[str, _TriedRun] = {}
    tree = TreeTotals()
    calls: dict[tuple[int, int], api.TestedCall] = {}
    for event in events:
        payload, run = event.payload, runs.get(event.run_id)
        if event.type == "RunStarted":
            above = runs.get((payload.get("parent") or {}).get("run_id", ""))
            agents = (payload["definition"]["name"], *(above.agents if above is not None else ()))
            runs[event.run_id] = _TriedRun(agents, payload["user_id"])
        elif event.type == "ModelReplied" and run is not None:
            run.spent_micros += payload["cost_micros"]
            tree = replace(tree, spent_micros=tree.spent_micros + payload["cost_micros"])
            for index, made in enumerate(payload["tool_calls"]):
                tool, arguments = made["name"], parse_call_arguments(made["input"])
                asked = CallFacts(
                    tool=tool,
                    arguments=arguments,
                    agents=run.agents,
                    tenant=event.tenant,
                    user=run.user,
                    totals=run.totals,
                    spent_micros=run.spent_micros,
                    tree=tree,
                )
                verdict = rules.verdict(asked)
                if verdict.outcome != DENY:
                    for meter, amount in rules.amounts(tool, arguments).items():
                        run.totals[meter] = run.totals.get(meter, 0) + amount
                    added = [
                        TreeTotal(meter=meter, amount=amount)
                        for meter, amount in rules.tree_amounts(tool, arguments).items()
                    ]
                    tree = replace(tree, totals=add_totals(tree.totals, added))
                if event.run_id == run_id:
                    calls[payload["turn"], index] = api.TestedCall(
                        turn=payload["turn"],
                        index=index,
                        tool=tool,
                        outcome=verdict.outcome,
                        rule=verdict.rule,
                        reason=verdict.reason,
                        is_undecided=verdict.is_undecided,
                        recorded="",
                    )
        elif event.type == "ToolReturned" and event.run_id == run_id:
            place = (payload["turn"], payload["index"])
            if place in calls:
                calls[place] = structs.replace(calls[place], recorded=payload["outcome"])
    return list(calls.values())


# --- answers ---------------------------------------------------------------------------------------------------------


def approval_of(row: InterruptRow, caller: Caller) -> api.Approval:
    """Return what is shown of an approval, decrypted."""
    terms, verdict = orjson.loads(row.terms or "{}"), _verdict_of(row)
    groups = [
        api.ApproverGroupRow(
            subjects=list(group["subjects"]),
            scopes=list(group["scopes"]),
            approvals=group["approvals"],
            within_s=group["within_ms"] // 1000,
        )
        for group in verdict.get("groups", ())
    ]
    number = row.approver_group or 0
    asked = groups[number] if number < len(groups) else None
    is_requester = bool(verdict.get("not_requester")) and row.user_id == caller.subject
    may_approve = (asked is not None and not is_requester) and (
        caller.subject in asked.subjects or not held_scopes(caller).isdisjoint(asked.scopes)
    )
    votes = [
        api.ApprovalVoteRow(
            by=vote["by"],
            approved=vote["is_approved"],
            reason=vote["reason"],
            surface=vote["surface"],
            at=format_rfc3339(vote["at_ms"]),
        )
        for vote in orjson.loads(row.votes or "[]")
    ]
    return api.Approval(
        approval_id=row.interrupt_id,
        run_id=row.run_id,
        agent=row.agent or "",
        user_id=row.user_id or "",
        status=row.status or "",
        tool=terms.get("tool", ""),
        arguments=row.context or "",
        arguments_sha256=terms.get("arguments_sha256", ""),
        question=row.question or "",
        rule=verdict.get("rule", ""),
        source=verdict.get("source", ""),
        reason=verdict.get("reason", ""),
        groups=groups,
        group=number,
        votes=votes,
        may_approve=may_approve and row.status == PENDING,
        created_at=format_rfc3339(row.created_at_ms or 0),
        expires_at=format_rfc3339(row.expires_at_ms or 0),
        ended_at=format_rfc3339(row.ended_at_ms) if row.ended_at_ms else None,
    )


def _verdict_of(row: InterruptRow) -> dict[str, Any]:
    verdict: dict[str, Any] = orjson.loads(row.terms or "{}").get("verdict", {})
    return verdict


def _unknown(run_id: str, approval_id: str) -> Refused:
    return Refused("not_found", f"the run {run_id[:140]} has no approval {approval_id[:140]}")
