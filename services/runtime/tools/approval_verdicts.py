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
)
from loomlog.services.core.approvals.evaluation import (
    DENIED_UNREADABLE,
    CallFacts,
    CompiledPolicy,
    parse_call_arguments,
    strictest,
)
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
    rules: RunRules, facts: RunFacts, tenant: str, calls: Sequence[ToolCall], encrypt: Callable[[str], str] = str
) -> tuple[CallVerdict, ...]:
    """Return the verdict about each call of a reply; calls before it in the reply count for the totals.

    `calls` are in plaintext; `encrypt` encrypts what approvers are asked.
    """
    totals = {total.meter: total.amount for total in facts.totals}
    verdicts: list[CallVerdict] = []
    for index, call in enumerate(calls):
        verdict = _decide_call(rules, facts, tenant, call, totals, index, encrypt)
        verdicts.append(verdict)
        for one in verdict.amounts:
            totals[one.meter] = totals.get(one.meter, 0) + one.amount
    return tuple(verdicts)


def denies_changed_call(
    rules: RunRules, state: AwaitingTools, tenant: str, index: int, tool: str, arguments: str
) -> str:
    """Return why a call whose arguments a hook has changed is not made; empty when the rules alone allow it.

    What a person has approved are the arguments that were shown, and no others.
    """
    decision = next((one for one in state.decisions if one.index == index), None)
    if decision is None or decision.verdict.outcome != ALLOW:
        return HOOK_CHANGED
    own = {one.meter: one.amount for one in decision.verdict.amounts}
    totals = {total.meter: total.amount - own.get(total.meter, 0) for total in state.facts.totals}
    call = ToolCall(id=decision.call_id, name=tool, input=arguments)
    verdict = _decide_call(rules, state.facts, tenant, call, totals, index, str)
    return "" if verdict.outcome == ALLOW else f"{HOOK_CHANGED}: {verdict.rule} {verdict.reason}".rstrip()


def _decide_call(
    rules: RunRules,
    facts: RunFacts,
    tenant: str,
    call: ToolCall,
    totals: Mapping[str, int],
    index: int,
    encrypt: Callable[[str], str],
) -> CallVerdict:
    arguments = parse_call_arguments(call.input)
    verdicts = [
        DENIED_UNREADABLE
        if policy is None
        else policy.verdict(
            CallFacts(
                tool=call.name,
                arguments=arguments,
                agents=(facts.definition.name, *pin.agents),
                tenant=tenant,
                user=facts.user_id,
                totals=totals,
                spent_micros=facts.cost_micros,
                is_counted=not pin.is_inherited,
            )
        )
        for pin, policy in rules.policies
    ]
    chosen = strictest(verdicts)
    pin, verdict = rules.policies[chosen][0], verdicts[chosen]
    decides = bool(verdict.rule) or verdict is DENIED_UNREADABLE
    ask, notify = verdict.ask, None if verdict.ask is None else verdict.ask.notify
    asked = f"{facts.definition.name} asks to call {call.name}" + (f": {verdict.reason}" if verdict.reason else "")
    return CallVerdict(
        index=index,
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
        amounts=() if verdict.outcome == DENY else _amounts(rules, call.name, arguments),
        question=encrypt(asked) if ask is not None else "",
        notify_url=notify.url if notify is not None else "",
        notify_secret_env=(notify.secret_env or "") if notify is not None else "",
    )


def _amounts(rules: RunRules, tool: str, arguments: Any) -> tuple[MeterAmount, ...]:
    added: dict[str, int] = {}
    for _, policy in rules.policies:
        if policy is not None:
            added.update(policy.amounts(tool, arguments))
    return tuple(MeterAmount(meter=meter, amount=added[meter]) for meter in sorted(added))
