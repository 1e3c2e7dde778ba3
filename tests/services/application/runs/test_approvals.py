"""Calls that wait for people: who sees them, who may decide, and what rules would have said about recorded runs."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.values import ApproverGroup, CallVerdict, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.application.queries.audit_log import EventPage, EventQuery, EventView
from loomlog.services.application.runs.interrupts import InterruptResponse
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import RUNS_READ, USER
from loomlog.services.core.run.interrupts.approvals import arguments_sha256
from loomlog.services.core.run.interrupts.interruptions import interrupt_id_for
from loomlog.services.families.approvals.api import APPROVE, DENY, LIST, SHOW, TEST
from tests.services.application.owner import NOW_MS
from tests.services.application.performing import perform
from tests.services.application.world import ACME, GLOBEX, IVY, READER, World, declined, world

ANN = Caller(name="ann", tenant="acme", subject="ann", scopes=frozenset({USER}))
"""Isolated, and named by the rule."""
EVE = replace(ANN, name="eve", subject="eve")
"""Isolated, and not named."""
STRANGER = Caller(name="ann", tenant="globex", subject="ann", scopes=frozenset({RUNS_READ}))
"""Has the name of an approver in another tenant."""
ARGUMENTS = json.dumps({"amount": 500})
VERDICT = CallVerdict(
    index=0,
    outcome="ask",
    source="file",
    policy_sha256="f0",
    rule="large",
    reason="money",
    question="May it pay?",
    groups=(ApproverGroup(subjects=("ann", "rob"), approvals=2, within_ms=60_000),),
)


async def waiting(made: World, verdict: CallVerdict = VERDICT, *, arguments: str = ARGUMENTS) -> dict[str, Any]:
    """A call of the isolated user ivy that waits."""
    run = await made.layer.runs.start(IVY, RunRequest(agent="teller", prompt="pay"))
    run.stream.close()
    call = ToolCall(id="c0", name="pay", input=arguments)
    turn = getattr(made.states[run.run_id], "turn", 0)
    made.reply(run.run_id, tool_calls=(call,), effect_classes=("unsafe",), verdicts=(verdict,))
    return {"run_id": run.run_id, "approval_id": interrupt_id_for(run.run_id, turn, 0)}


@pytest.mark.parametrize("encrypted", [False, True])
async def test_those_whom_the_rule_names_approve_the_call_of_a_user_who_is_closed_to_them(encrypted: bool) -> None:
    async with world(encrypted=encrypted) as made:
        place = await waiting(made)
        for caller in (ANN, READER):
            (listed,) = (await perform(made, LIST, caller)).value.approvals
            assert (listed.approval_id, listed.may_approve, listed.arguments) == (place["approval_id"], True, ARGUMENTS)
            shown = (await perform(made, SHOW, caller, **place)).value
            seen = {"arguments_sha256": shown.arguments_sha256, "surface": "chat"}
            voted = (await perform(made, APPROVE, caller, **place, **seen, reason="known")).value
        assert (voted.status, voted.approvals) == ("resolved", 2)
        shown = (await perform(made, SHOW, ACME, **place)).value
    assert [(vote.by, vote.approved, vote.reason, vote.surface) for vote in shown.votes] == [
        ("ann", True, "known", "chat"),
        ("rob", True, "known", "chat"),
    ]
    assert (shown.status, shown.may_approve, shown.ended_at is not None) == ("resolved", False, True)
    assert shown.arguments_sha256 == arguments_sha256(ARGUMENTS)


@pytest.mark.parametrize("caller", [EVE, STRANGER, GLOBEX])
async def test_others_do_not_find_it(caller: Caller) -> None:
    async with world() as made:
        place = await waiting(made)
        assert (await perform(made, LIST, caller)).value.total == 0
        for operation in (SHOW, APPROVE, DENY):
            assert (await declined(perform(made, operation, caller, **place))).code == "not_found"


@pytest.mark.parametrize("caller", [ACME, IVY])
async def test_who_sees_it_and_is_not_named_may_not_approve_it(caller: Caller) -> None:
    async with world() as made:
        place = await waiting(made)
        assert not (await perform(made, SHOW, caller, **place)).value.may_approve
        assert (await declined(perform(made, APPROVE, caller, **place))).code == "not_an_approver"


async def test_who_asked_for_the_run_is_not_offered_its_approval() -> None:
    async with world() as made:
        group = ApproverGroup(subjects=("ivy", "ann"), approvals=1, within_ms=60_000)
        place = await waiting(made, replace(VERDICT, groups=(group,), not_requester=True))
        assert not (await perform(made, SHOW, IVY, **place)).value.may_approve
        assert (await declined(perform(made, APPROVE, IVY, **place))).code == "not_an_approver"


async def test_one_person_counts_once_and_one_who_denies_is_enough() -> None:
    async with world() as made:
        place = await waiting(made)
        assert (await perform(made, APPROVE, ANN, **place)).value.status == "pending"
        assert (await declined(perform(made, APPROVE, ANN, **place))).code == "already_approved"
        assert (await perform(made, DENY, READER, **place)).value.status == "declined"
        late = await declined(perform(made, APPROVE, ANN, **place))
        assert (late.code, "declined already" in late.message) == ("approval_closed", True)
        assert (await perform(made, LIST, ANN, status="all")).value.total == 0


async def test_an_approval_of_other_arguments_and_after_its_time_is_refused() -> None:
    async with world() as made:
        place = await waiting(made)
        wrong = await declined(perform(made, APPROVE, ANN, **place, arguments_sha256="0" * 64))
        assert wrong.code == "approval_mismatch"
        made.now_ms = NOW_MS + 60_000
        assert (await perform(made, APPROVE, ANN, **place)).value.status == "timed_out"


async def test_an_answer_to_a_question_approves_nothing() -> None:
    async with world() as made:
        place = await waiting(made)
        answer = InterruptResponse(answer="yes")
        refused = await declined(made.layer.interrupts.resolve(ACME, place["run_id"], place["approval_id"], answer))
        assert refused.code == "approval_needed"
        assert (await perform(made, SHOW, ACME, **place)).value.status == "pending"


@pytest.mark.parametrize("field", ["run_id", "approval_id"])
@pytest.mark.parametrize("text", ["nothing", "a b", "\0", "../x"])
async def test_ids_of_nothing_are_not_found(field: str, text: str) -> None:
    async with world() as made:
        place = {**(await waiting(made)), field: text}
        for operation in (SHOW, APPROVE):
            assert (await declined(perform(made, operation, ACME, **place))).code in ("not_found", "bad_request")


async def test_rules_are_tried_on_a_run_that_has_happened() -> None:
    async with world() as made:
        run_id = (await waiting(made))["run_id"]
        rule: dict[str, Any] = {"name": "no-pay", "then": "deny", "when": [{"argument": "$.amount", "at_least": 500}]}
        tested = (await perform(made, TEST, ACME, run_id=run_id, rules=[rule])).value
        assert [(one.tool, one.outcome, one.rule, one.recorded) for one in tested.calls] == [
            ("pay", "deny", "no-pay", "")
        ]
        assert (tested.allowed, tested.denied, tested.asked, tested.is_complete) == (0, 1, 0, True)
        in_force = (await perform(made, TEST, ACME, run_id=run_id)).value
        assert (in_force.allowed, in_force.denied) == (1, 0)
        wrong = await declined(perform(made, TEST, ACME, run_id=run_id, rules=[{**rule, "then": "maybe"}]))
        assert (wrong.code, "rules[0].then" in wrong.message) == ("bad_request", True)


# --- trials over a tree ----------------------------------------------------------------------------------------------

TREE_SUM = {
    "name": "sum",
    "reach": "tree",
    "then": "deny",
    "when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 100}],
}


def happened(run_id: str, offset: int, kind: str, **payload: Any) -> EventView:
    at = {"topic": "t", "partition": 0, "tenant": "acme", "term": 1, "seq": offset, "at_ms": 0}
    return EventView(run_id=run_id, offset=offset, type=kind, cause_id="", cause_offset=-1, payload=payload, **at)


def begins(run_id: str, offset: int, agent: str, parent: str = "") -> EventView:
    above = {"run_id": parent, "root_run_id": "r_1"} if parent else None
    return happened(run_id, offset, "RunStarted", definition={"name": agent}, user_id="ivy", parent=above)


def pays(run_id: str, offset: int, amount: int, cost_micros: int = 0) -> EventView:
    made = {"name": "pay", "input": json.dumps({"amount": amount})}
    return happened(run_id, offset, "ModelReplied", turn=offset, cost_micros=cost_micros, tool_calls=[made])


def spawns(run_id: str, offset: int, child: str) -> EventView:
    return happened(run_id, offset, "ChildRequested", child_run_id=child)


LOG = [
    begins("r_1", 1, "boss"), pays("r_1", 2, 30, 1_000_000), spawns("r_1", 3, "r_1-a"), spawns("r_1", 4, "r_1-b"),
    begins("r_1-a", 5, "clerk", "r_1"), begins("r_1-b", 6, "clerk", "r_1"), pays("r_1-a", 7, 60, 1_000_000),
    spawns("r_1-b", 8, "r_1-c"), begins("r_1-c", 9, "boy", "r_1-b"), pays("r_1-b", 10, 60), pays("r_1-c", 11, 10),
    happened("r_1-c", 12, "ToolReturned", turn=11, index=0, outcome="ok"), pays("r_1", 13, 1),
]  # fmt: skip


class ReadLog:
    """The events above, page by page of two."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def events(self, caller: Caller, query: EventQuery) -> EventPage:
        begin = int(query.cursor or 0)
        own = [event for event in LOG if event.run_id == query.run_id]
        self.read += [query.run_id] * (not begin)
        return EventPage(events=tuple(own[begin : begin + 2]), next=str(begin + 2) if begin + 2 < len(own) else "")


async def tried(run_id: str, *rules: dict[str, Any], log: ReadLog | None = None) -> list[tuple[str, str, str]]:
    async with world() as made:
        made.layer.audit_log = log or ReadLog()
        tested = (await perform(made, TEST, ACME, run_id=run_id, rules=list(rules))).value
    assert tested.is_complete
    return [(one.outcome, one.rule, one.recorded) for one in tested.calls]


async def test_a_trial_over_a_tree_counts_what_the_other_runs_did_before() -> None:
    assert await tried("r_1", TREE_SUM) == [("allow", "", ""), ("deny", "sum", "")]
    assert await tried("r_1-a", TREE_SUM) == [("allow", "", "")]
    assert await tried("r_1-b", TREE_SUM) == [("deny", "sum", "")]
    assert await tried("r_1-c", TREE_SUM) == [("allow", "", "ok")]
    dear = {"name": "dear", "reach": "tree", "then": "ask", "ask": {"subjects": ["ann"]}}
    dear["when"] = [{"spent": True, "at_least": 2}]
    assert await tried("r_1-c", dear) == [("ask", "dear", "ok")]
    assert await tried("r_1-c", {**TREE_SUM, "agents": ["boss"], "when": [{"spent": True, "at_least": 2}]}) == [
        ("deny", "sum", "ok")
    ]


async def test_a_trial_of_other_rules_reads_one_run() -> None:
    log = ReadLog()
    assert await tried("r_1-b", {**TREE_SUM, "reach": "run"}, log=log) == [("allow", "", "")]
    assert log.read == ["r_1-b"]
    await tried("r_1-c", TREE_SUM, log=log)
    assert sorted(log.read[1:]) == ["r_1", "r_1-a", "r_1-b", "r_1-c"]
