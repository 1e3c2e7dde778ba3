"""The handlers of the operations on calls of runs that wait for the approval of people: lists, decisions, and trials of
rules on recorded runs.

Who may approve is what the rule says, in runs of isolated users too; the scopes that the caller holds go with the
command.

Before: services.py. After: services/families/ports/approval_calls.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec import structs

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.interrupts import PENDING, InterruptRow
from loomlog.schemas.approval_policy import DENY, PolicyError, decode_policy, parse_policy
from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import ApprovalGiven
from loomlog.schemas.generated.values import TreeTotal
from loomlog.schemas.records import replace
from loomlog.services.core.access.decide import Caller, ResourceOwner, can_see, held_scopes
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.approvals.evaluation import CallFacts, CompiledPolicy, parse_call_arguments
from loomlog.services.core.approvals.tree_totals import TreeTotals, add_totals
from loomlog.services.core.families import FROM_OUTBOX
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.interrupts.approvals import is_approver
from loomlog.services.families.approvals import AGGREGATE, NAME, api
from loomlog.services.families.operation import read_rows
from loomlog.services.families.ports.approval_calls import ApprovalCalls, RecordedEvent, unknown_approval
from loomlog.services.stream.entities.reads import EntityReads

PAGES_MAX = 40
"""Most pages of a recorded run: 20,000 events."""
CALLS_MAX = 2_000
"""Most calls in the answer of a trial."""


class ApprovalHandlers:
    """Carries out the operations; each is named like its operation. All raise Refused."""

    def __init__(self, calls: ApprovalCalls, reads: EntityReads) -> None:
        self._calls = calls
        self._reads = reads

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
        caller, asked = call.principal, call.input
        page = await self._calls.page(
            caller, statuses=asked.status, run_id=asked.run_id, limit=asked.limit, cursor=asked.cursor
        )
        shown = [approval_of(row, caller) for row in page.rows]
        return Answer(value=api.ApprovalPage(approvals=shown, total=page.total, next=page.next or None))

    async def show(self, call: Call[api.ApprovalNamed]) -> Answer[api.Approval]:
        """Return one approval."""
        row = await self._visible_row(call.principal, call.input.run_id, call.input.approval_id)
        if row is None:
            raise unknown_approval(call.input.run_id, call.input.approval_id)
        return Answer(value=approval_of(await self._calls.decrypted(row), call.principal))

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
        asked, caller = call.input, call.principal
        command = GiveApproval(
            envelope=FROM_OUTBOX,
            run_id=asked.run_id,
            interrupt_id=asked.approval_id,
            is_approved=is_approved,
            reason=asked.reason,
            scopes=tuple(sorted(held_scopes(caller))),
            surface=asked.surface,
            arguments_sha256=arguments_sha256,
        )
        row = await self._visible_row(caller, asked.run_id, asked.approval_id)
        event, position = await self._calls.give(caller, row, command)
        approvals = sum(vote.is_approved for vote in event.votes) if isinstance(event, ApprovalGiven) else 0
        value = api.ApprovalVoted(approval_id=asked.approval_id, status=event.status, approvals=approvals)
        return Answer(value=value, positions=(position,))

    async def _visible_row(self, caller: Caller, run_id: str, approval_id: str) -> InterruptRow | None:
        """Return an approval of a run that the caller may see, or that names the caller; None: there is none."""
        row = await self._calls.find(caller, run_id, approval_id)
        if row is None:
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
                raise Refused("bad_request", str(error)) from error
        row = await read_rows(self._reads.show(NAME, call.caller.tenant, AGGREGATE, positions=call.caller.positions))
        return CompiledPolicy(decode_policy(row.entity.state.text if row is not None else '{"rules":[]}'))

    async def _events_to_test(self, caller: Caller, run_id: str, *, is_tree: bool) -> tuple[list[RecordedEvent], bool]:
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

    async def _events_of(self, caller: Caller, run_id: str, pages: Iterator[int]) -> tuple[list[RecordedEvent], bool]:
        events: list[RecordedEvent] = []
        cursor = ""
        for _ in pages:
            page, cursor = await self._calls.events(caller, run_id, cursor)
            events += page
            if not cursor:
                return events, True
        return events, False


def _children_in(events: list[RecordedEvent]) -> list[str]:
    return [event.payload["child_run_id"] for event in events if event.type == "ChildRequested"]


@dataclass(slots=True)
class _TriedRun:
    """What a trial knows of one run. `agents`: its agent, and those that it works for, as far as they were read."""

    agents: tuple[str, ...]
    user: str
    totals: dict[str, int] = field(default_factory=dict)
    spent_micros: int = 0


def trial(rules: CompiledPolicy, events: list[RecordedEvent], run_id: str) -> list[api.TestedCall]:
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
    is_asked = asked is not None and is_approver(asked, caller.subject, held_scopes(caller))
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
        may_approve=is_asked and not is_requester and row.status == PENDING,
        created_at=format_rfc3339(row.created_at_ms or 0),
        expires_at=format_rfc3339(row.expires_at_ms or 0),
        ended_at=format_rfc3339(row.ended_at_ms) if row.ended_at_ms else None,
    )


def _verdict_of(row: InterruptRow) -> dict[str, Any]:
    verdict: dict[str, Any] = orjson.loads(row.terms or "{}").get("verdict", {})
    return verdict
