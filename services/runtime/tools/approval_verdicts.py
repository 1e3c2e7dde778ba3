"""Evaluation of the rules of a run where the arguments of its calls are in plaintext.

The core sees arguments as tokens where content is encrypted, so the verdict is made here, with the model's reply or
when a hook changes arguments, and recorded by the core. The rules are those that the run is pinned to, by hash: the
same events give the same verdicts whatever policies are in force today.

A policy that cannot be read denies every call.

Before: services/runtime/models/model_calls.py, tool_calls.py. After: services/core/run/interrupts/approvals.py.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.schemas.approval_policy import ALLOW, DENY, PolicyError, decode_policy, policy_sha256
from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalPolicy,
    ApproverGroup,
    CallVerdict,
    MeterAmount,
    ToolCall,
    TreeGuard,
    VerdictCase,
)
from loomlog.services.core.approvals.evaluation import (
    DENIED_UNREADABLE,
    UNKNOWN,
    CallFacts,
    Case,
    CompiledPolicy,
    Verdict,
    parse_call_arguments,
)
from loomlog.services.core.approvals.tree_totals import choose, strictest
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.runtime.content.definition_texts import DefinitionTexts

log = logging.getLogger(__name__)

COMPILED_KEPT = 200
"""Policies that a process keeps ready: one of a thousand rules takes about 2 MB."""
HOOK_CHANGED = "a hook has changed the arguments of the call after they were decided about"


@dataclass(frozen=True, slots=True)
class RunRules:
    """The policies of a run, each with its rules; None: they cannot be read."""

    policies: tuple[tuple[ApprovalPolicy, CompiledPolicy | None], ...] = ()


NO_RULES = RunRules()


class ApprovalRules:
    """The compiled policies of a process."""

    def __init__(self, texts: DefinitionTexts) -> None:
        self._texts = texts
        self._compiled: OrderedDict[str, CompiledPolicy] = OrderedDict()

    async def load(self, definition: AgentDefinition) -> RunRules:
        """Return the rules that a run is pinned to. Raises ConnectorError when the blob store does not answer."""
        if not definition.approvals:
            return NO_RULES
        return RunRules(tuple([(pin, await self._rules_of(pin)) for pin in definition.approvals]))

    async def _rules_of(self, pin: ApprovalPolicy) -> CompiledPolicy | None:
        compiled = self._compiled.get(pin.sha256)
        if compiled is not None:
            self._compiled.move_to_end(pin.sha256)
            return compiled
        text = pin.text if pin.text_blob is None else await self._texts.load(pin.text_blob)
        if policy_sha256(text) != pin.sha256:
            log.error("approvals: the rules of %s are not those with the hash %s", pin.source, pin.sha256)
            return None
        try:
            compiled = CompiledPolicy(decode_policy(text))
        except PolicyError as error:  # written by a later version of this program
            log.error("approvals: the rules %s of %s cannot be read: %s", pin.sha256, pin.source, error)
            return None
        self._compiled[pin.sha256] = compiled
        if len(self._compiled) > COMPILED_KEPT:
            self._compiled.popitem(last=False)
        return compiled


def decide_calls(
    rules: RunRules,
    facts: RunFacts,
    tenant: str,
    calls: Sequence[ToolCall],
    encrypt: Callable[[str], str] = str,
    *,
    cost_micros: int = 0,
) -> tuple[tuple[CallVerdict, ...], tuple[VerdictCase, ...]]:
    """Return the verdict about each call of a reply, or the cases that it depends on; calls before it in the reply
    count for the totals.

    `calls` are in plaintext; `encrypt` encrypts what approvers are asked. `cost_micros`: what the reply has cost; it is
    spent before its calls are made.
    """
    totals = {total.meter: total.amount for total in facts.totals}
    verdicts: list[CallVerdict] = []
    cases: list[VerdictCase] = []
    for index, call in enumerate(calls):
        asked = _AskedCall(rules, facts, tenant, call, index, encrypt)
        possible = asked.cases(totals, cost_micros)
        if any(case.guards for case in possible):
            cases += possible
            _count(totals, [case.verdict for case in possible])
        else:
            verdicts.append(choose(possible, None))
            _count(totals, verdicts[-1:])
    return tuple(verdicts), tuple(cases)


def _count(totals: dict[str, int], possible: Sequence[CallVerdict]) -> None:
    """Count a call whose verdict is one of these; a total that may have it or not is not known."""
    is_sure = len({verdict.outcome == DENY for verdict in possible}) == 1
    for meter, amount in {one.meter: one.amount for verdict in possible for one in verdict.amounts}.items():
        known = totals.get(meter, 0)
        totals[meter] = known + amount if is_sure and known != UNKNOWN else UNKNOWN


def denies_changed_call(
    rules: RunRules, state: AwaitingTools, tenant: str, index: int, tool: str, arguments: str
) -> str:
    """Return why a call whose arguments a hook has changed is not made; empty when the rules alone allow it.

    What a person has approved are the arguments that were shown, and no others. What was counted is the call as it was:
    it may not add more to a total. Totals of the tree are not known here.
    """
    decision = next((one for one in state.decisions if one.index == index), None)
    if decision is None or decision.verdict.outcome != ALLOW:
        return HOOK_CHANGED
    own = {one.meter: one.amount for one in (*decision.verdict.amounts, *decision.verdict.tree_amounts)}
    totals = {total.meter: total.amount - own.get(total.meter, 0) for total in state.facts.totals}
    call = ToolCall(id=decision.call_id, name=tool, input=arguments)
    verdict = choose(_AskedCall(rules, state.facts, tenant, call, index, str).cases(totals, 0), None)
    if verdict.outcome != ALLOW:
        return f"{HOOK_CHANGED}: {verdict.rule} {verdict.reason}".rstrip()
    if any(one.amount > own.get(one.meter, 0) for one in (*verdict.amounts, *verdict.tree_amounts)):
        return f"{HOOK_CHANGED}: it would add more to a sum than was counted"
    return ""


@dataclass(slots=True)
class _AskedCall:
    """A call that the rules of a run are asked about."""

    rules: RunRules
    facts: RunFacts
    tenant: str
    call: ToolCall
    index: int
    encrypt: Callable[[str], str]
    arguments: Any = None

    def __post_init__(self) -> None:
        self.arguments = parse_call_arguments(self.call.input)

    def cases(self, totals: Mapping[str, int], cost_micros: int) -> list[VerdictCase]:
        """Return what each policy says; one case for all of them if nothing depends on the tree."""
        by_policy = [self._cases_of(pin, policy, totals, cost_micros) for pin, policy in self.rules.policies]
        if not any(guards for cases in by_policy for guards, _ in cases):
            verdicts = [cases[0][1] for cases in by_policy]
            chosen = strictest([verdict.outcome for verdict in verdicts])
            return [self._case(chosen, (), verdicts[chosen])]
        return [self._case(place, *case) for place, cases in enumerate(by_policy) for case in cases]

    def _cases_of(
        self, pin: ApprovalPolicy, policy: CompiledPolicy | None, totals: Mapping[str, int], cost_micros: int
    ) -> list[Case]:
        if policy is None:
            return [((), DENIED_UNREADABLE)]
        facts = self.facts
        return policy.cases(
            CallFacts(
                tool=self.call.name,
                arguments=self.arguments,
                agents=(facts.definition.name, *pin.agents),
                tenant=self.tenant,
                user=facts.user_id,
                totals=totals,
                spent_micros=facts.cost_micros + cost_micros,
                cost_micros=cost_micros,
                is_counted=not pin.is_inherited,
            )
        )

    def _case(self, place: int, guards: tuple[TreeGuard, ...], verdict: Verdict) -> VerdictCase:
        return VerdictCase(policy=place, guards=guards, verdict=self._verdict(self.rules.policies[place][0], verdict))

    def _verdict(self, pin: ApprovalPolicy, verdict: Verdict) -> CallVerdict:
        facts, tool, ask = self.facts, self.call.name, verdict.ask
        decides = bool(verdict.rule) or verdict is DENIED_UNREADABLE
        notify = None if ask is None else ask.notify
        asked = f"{facts.definition.name} asks to call {tool}" + (f": {verdict.reason}" if verdict.reason else "")
        is_denied = verdict.outcome == DENY
        return CallVerdict(
            index=self.index,
            outcome=verdict.outcome,
            source=pin.source if decides else "",
            policy_sha256=pin.sha256 if decides else "",
            rule=verdict.rule,
            reason=verdict.reason,
            is_undecided=verdict.is_undecided,
            groups=()
            if ask is None
            else tuple(
                ApproverGroup(
                    subjects=group.subjects,
                    scopes=group.scopes,
                    approvals=group.approvals,
                    within_ms=1000 * group.within_s,
                )
                for group in (ask, *ask.escalate)
            ),
            not_requester=ask is not None and ask.not_requester,
            amounts=() if is_denied else self._amounts(CompiledPolicy.amounts),
            tree_amounts=() if is_denied else self._amounts(CompiledPolicy.tree_amounts),
            question=self.encrypt(asked) if ask is not None else "",
            notify_url=notify.url if notify is not None else "",
            notify_secret_env=(notify.secret_env or "") if notify is not None else "",
        )

    def _amounts(self, of: Callable[[CompiledPolicy, str, Any], dict[str, int]]) -> tuple[MeterAmount, ...]:
        added: dict[str, int] = {}
        for _, policy in self.rules.policies:
            if policy is not None:
                added.update(of(policy, self.call.name, self.arguments))
        return tuple(MeterAmount(meter=meter, amount=added[meter]) for meter in sorted(added))
