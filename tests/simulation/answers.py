"""What models and tools say: the same to the same attempt of the same run, whoever asks and how often.

Agents, how many turns a run has, which calls fail, who asks a person, and what a summary of a conversation is.
"""

import json
from typing import Any
from zlib import crc32

from loomlog.schemas.approval_policy import policy_sha256
from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalPolicy,
    ApproverGroup,
    CallVerdict,
    Compaction,
    InterruptionTerms,
    MeterAmount,
    ModelChoice,
    OutputCheck,
    Spawn,
    ToolCall,
    TreeGuard,
    Usage,
    VerdictCase,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import (
    Alternative,
    ChildrenRequested,
    ModelAnswered,
    ModelFailed,
    SummaryCompleted,
    SummaryFailed,
    ToolCompleted,
)
from loomlog.services.core.run.interrupts.interruptions import TOOL_NAME, parse_request
from loomlog.services.core.run.react import CallModel, Summarise
from loomlog.services.core.run.turns.completion import owes_record
from tests.services.stream.families import family_script
from tests.services.stream.script import answer
from tests.simulation.clients import (
    APPROVER,
    BRIEF,
    CLERK,
    CLERKS,
    OUTPUT_RETRIES,
    PAYER,
    PURSE,
    PURSE_LIMIT,
    RECORDER,
    SECOND_APPROVER,
    SHRINKER,
    bad_answers,
    escalates,
    expires,
    record_of,
)

CANDIDATES = tuple(ModelChoice(provider=name, model="large") for name in ("acme", "other"))
AGENT = AgentDefinition(
    name="helper",
    provider="acme",
    model="large",
    tools=("T", TOOL_NAME),
    retry_attempts=1,
    candidates=CANDIDATES,
    fallback_on_error=True,
    max_fallback_attempts=9,
    max_iterations=64,
    interruption=InterruptionTerms(enabled=True),
)
QUESTION_S = 4.0
"""How long a question waits that nobody answers."""
SHRINKER_AGENT = replace(
    AGENT, name=SHRINKER, compaction=Compaction(enabled=True, keep_last_n=1, autocompact_at_pct=50)
)
BRIEF_AGENT = replace(AGENT, name=BRIEF, compaction=Compaction(keep_last_n=1))
RECORDER_AGENT = replace(
    AGENT,
    name=RECORDER,
    output_schema='{"type":"object"}',
    output_schema_sha256="5e" * 32,
    output_retries=OUTPUT_RETRIES,
)
RULES = '{"rules":[]}'
"""Of the runs that need approval. The verdicts are made here, so what they say does not matter."""
PAYER_AGENT = replace(
    AGENT, name=PAYER, approvals=(ApprovalPolicy(source="file", sha256=policy_sha256(RULES), text=RULES),)
)
PURSE_AGENT = replace(PAYER_AGENT, name=PURSE, tools=("Agent",), max_concurrent_children=CLERKS)
CLERK_AGENT = replace(AGENT, name=CLERK)
"""It has the rules of the agent that it works for."""
AGENTS = (AGENT, SHRINKER_AGENT, BRIEF_AGENT, RECORDER_AGENT, PAYER_AGENT, PURSE_AGENT, CLERK_AGENT)
METER = "limit"
"""Of the rule that counts over the tree, and its name."""
DAY_MS = 24 * 3_600_000
COMPACTED = ("r_auto", "r_wish", "r_hand", "r_seed")
COMPACTED_TURNS = {"auto": 5, "wish": 3, "hand": 1, "seed": 3}
"""Enough that there is something to leave out; those that talk have one turn for each text."""
WINDOW_TOKENS = 24
"""Of the models of runs that are compacted: every answer fills more than half of it."""
REPEATS = 40
"""How often such a run's answers say the same, so that a summary is shorter than what it stands for."""
NO_SUMMARY_SHARE = 5
"""One in so many summary calls fails, and as many give one that is too long."""
BUSY_SHARE = 13
"""One in so many model calls is answered with a failure that may be tried again."""
BROKEN_SHARE = 7
"""One in so many runs finds its first provider broken."""
BUSY_ATTEMPTS = 5
"""Attempts of a turn that may fail so, so that no run fails for good: one is retried, and two end in a fallback."""


def answered(effect: Any, state: Any, at_ms: int) -> Any:
    """What the outside says."""
    if isinstance(effect, Summarise):
        return summary(effect, at_ms)
    if isinstance(effect, CallModel) and is_busy(effect, state.facts.definition):
        return ModelFailed(
            at_ms=at_ms,
            turn=effect.turn,
            attempt=effect.attempt,
            kind="overloaded",
            transient=True,
            message="acme 529: busy",
            retry_after_ms=0,
            retries_rate_limits=True,
            duration_ms=1,
            alternatives=tuple(Alternative(choice=choice, sees_images=True) for choice in CANDIDATES),
        )
    if state.facts.definition.name in (PURSE, CLERK):
        return (of_purse if state.facts.definition.name == PURSE else of_clerk)(effect, at_ms)
    family = family_script(effect, state, at_ms)
    if family is not None:
        return family
    text = answer(effect, turns_of(effect.run_id), at_ms)
    if effect.run_id.startswith(COMPACTED):
        return compacted(text, effect.run_id)
    if "pay" in effect.run_id and isinstance(text, ModelAnswered):
        return ruled(text, effect.run_id)
    if "ask" in effect.run_id and isinstance(text, ModelAnswered) and effect.turn == 1:
        return asking(text, effect.run_id)
    if isinstance(text, ModelAnswered) and not text.tool_calls and owes_record(state.facts):
        return with_output(text, effect.run_id, state.facts.rejected_outputs)
    return text


def with_output(said: ModelAnswered, run_id: str, rejected: int) -> ModelAnswered:
    """The answer of a run that owes a record: something else, as often as it is to be, and then the record."""
    if rejected < bad_answers(run_id):
        return replace(said, output=OutputCheck(path="$", problem=f"not {rejected}", error="$: no record"))
    return replace(said, text=record_of(run_id), output=OutputCheck(result=record_of(run_id)))


def asking(said: ModelAnswered, run_id: str) -> ModelAnswered:
    """The answer with a question to a person beside the tools it asks for."""
    timeout = {"timeout_ms": int(QUESTION_S * 1000)} if expires(run_id) else {}
    asked = {"op": "ask", "question": "Shall I?", "options": ["yes", "no"], **timeout}
    call = ToolCall(id="ask", name=TOOL_NAME, input=json.dumps(asked))
    return replace(
        said,
        tool_calls=(*said.tool_calls, call),
        effect_classes=(*said.effect_classes, "pure"),
        interruption_requests=(parse_request(len(said.tool_calls), call.input),),
        stop_reason="tool_use",
    )


def ruled(said: ModelAnswered, run_id: str) -> ModelAnswered:
    """The answer with the verdicts of rules: the first call of the run needs approval, the others are allowed."""
    verdicts = [CallVerdict(index=index, outcome="allow") for index in range(len(said.tool_calls))]
    if said.turn == 1 and verdicts:
        within_ms = int(QUESTION_S * 1000) if expires(run_id) else DAY_MS
        groups = [ApproverGroup(subjects=(APPROVER,), within_ms=within_ms)]
        if escalates(run_id):
            groups.append(ApproverGroup(subjects=(SECOND_APPROVER,), within_ms=DAY_MS))
        verdicts[0] = CallVerdict(index=0, outcome="ask", rule="first", question="May it?", groups=tuple(groups))
    return replace(said, verdicts=tuple(verdicts))


def of_purse(effect: Any, at_ms: int) -> ModelAnswered | ChildrenRequested:
    """What the run does whose sub-agents share a limit: it starts them all at once."""
    if isinstance(effect, CallModel):
        said = answer(effect, 0, at_ms)
        assert isinstance(said, ModelAnswered)
        if effect.turn > 1:
            return said
        call = ToolCall(id="agents", name="Agent", input="{}")
        allowed = (CallVerdict(index=0, outcome="allow"),)
        return replace(said, tool_calls=(call,), effect_classes=("pure",), stop_reason="tool_use", verdicts=allowed)
    spawns = tuple(Spawn(agent=CLERK, prompt="go") for _ in range(CLERKS))
    place = {"at_ms": at_ms, "turn": effect.turn, "index": effect.index, "attempt": effect.attempt}
    return ChildrenRequested(**place, op="parallel_spawn", spawns=spawns)


def of_clerk(effect: Any, at_ms: int) -> ModelAnswered | ToolCompleted:
    """What such a sub-agent does: one call, about which the totals of the tree decide."""
    said = answer(effect, 0, at_ms)
    if isinstance(said, ToolCompleted) or effect.turn > 1:
        return said
    call = ToolCall(id="t1", name="T", input="{}")
    counted = (MeterAmount(meter=METER, amount=1),)
    over = (TreeGuard(meter=METER, at_least=float(PURSE_LIMIT)),)
    cases = (
        VerdictCase(policy=0, guards=over, verdict=CallVerdict(index=0, outcome="deny", rule=METER)),
        VerdictCase(policy=0, verdict=CallVerdict(index=0, outcome="allow", tree_amounts=counted)),
    )
    return replace(said, tool_calls=(call,), effect_classes=("unsafe",), stop_reason="tool_use", cases=cases)


def compacted(said: ModelAnswered | ToolCompleted, run_id: str) -> ModelAnswered | ToolCompleted:
    """The answer in a run that is compacted; the tools of one that wishes it ask for it."""
    if isinstance(said, ToolCompleted):
        return replace(said, asks_compaction=run_id.startswith("r_wish"))
    return replace(said, text=said.text * REPEATS, max_context_tokens=WINDOW_TOKENS)


def summary(effect: Summarise, at_ms: int) -> SummaryCompleted | SummaryFailed:
    """What a summary call gives. One of a seed does not fail, because the seed would."""
    drawn = crc32(f"{effect.run_id}/{effect.number}".encode()) % NO_SUMMARY_SHARE
    if drawn == 0 and not effect.run_id.startswith("r_seed"):
        return SummaryFailed(
            at_ms=at_ms,
            number=effect.number,
            attempt=effect.attempt,
            kind="overloaded",
            message="acme 529: busy",
            duration_ms=1,
        )
    text = f"summary {effect.number} of {effect.run_id}"
    return SummaryCompleted(
        at_ms=at_ms,
        number=effect.number,
        attempt=effect.attempt,
        summary=text * REPEATS**2 if drawn == 1 else text,
        usage=Usage(input_tokens=10, output_tokens=5),
        provider=effect.provider,
        model=effect.model,
        cost_micros=1,
        currency="USD",
        duration_ms=1,
    )


def is_busy(effect: CallModel, definition: AgentDefinition) -> bool:
    """Whether this call fails: any may, and for some runs that can fall back every call to the first provider does."""
    falls_back = definition.fallback_on_error
    if effect.attempt > (BUSY_ATTEMPTS if falls_back else definition.retry_attempts):
        return False
    if (
        falls_back
        and effect.provider == AGENT.provider
        and crc32(f"{effect.run_id}/broken".encode()) % BROKEN_SHARE == 0
    ):
        return True
    return crc32(f"{effect.run_id}/{effect.key}".encode()) % BUSY_SHARE == 0


def turns_of(run_id: str) -> int:
    """Model turns of a run: one for those that talk (their turns end with the text), otherwise up to three. One that
    asks a person has a further turn for the answer."""
    if run_id.startswith(COMPACTED):
        return COMPACTED_TURNS[run_id[2:6]]
    if "ask" in run_id or "pay" in run_id:
        return 2 + crc32(run_id.encode()) % 2
    return 1 if "talk" in run_id else 1 + crc32(run_id.encode()) % 3
