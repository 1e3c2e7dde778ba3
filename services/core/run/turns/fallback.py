"""Fallback: a model call has failed for good and another model may take the turn.

    retries on the same model are used up (services/core/run/decide.py)  ->  is fallback allowed?  ->  to which model?
    ->  ModelSwitched

The shell provides the candidates of the run that can be called now, with their properties; the rules are here. One
event holds the whole switch, with everything the conversation loses by it, so that a fold reaches the same
conversation:

    a target without image input        is skipped when the conversation has images (no attempt is counted)
    reasoning and signatures            belong to another provider: removed from every answer so far
    a target that needs its reasoning   is replaced by its sibling without reasoning, without an effort
    a cache at the provider             is lost

Every rule exists because some provider refuses the request without it.

Before: services/core/run/decide.py, after the retries. After: services/core/run/state.py folds the switch; frames.py
reports it to clients.
"""

from loomlog.schemas.conversation import ImageBlock, Message
from loomlog.schemas.generated.run_events import Event, FallbackSuppressed, ModelSwitched
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import Alternative, ModelFailed
from loomlog.services.core.run.conversation.conversation import has_reasoning
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.core.run.turns import code_agents

OPERATOR_KEY_RESTRICTED = "operator_key_restricted"
"""Failure kind, and code of a run that ends with it: it may not use the operator's key and has none of its own."""
STALE_CONNECTION = "stale"
"""Failure kind: the provider closed a kept connection before it answered. Servers close idle ones after a few seconds,
some without notice, so it does not count against the model.
"""
INTERRUPTED = "interrupted"
"""Failure kind that is only reported from inside: the call was lost with the owner of its run."""
QUOTA_EXHAUSTED = "quota_exhausted"
"""Failure kind: the account has nothing left to spend. The same call fails until it is topped up or the day is over, so
it is not retried; another provider does not share it.
"""
CONTEXT_EXCEEDED = "context_exceeded"
"""Failure kind: the conversation is longer than the model's window."""
RETRYABLE, PERMANENT, CANCELLED = "retryable", "permanent", "cancelled"
DEADLINE_EXCEEDED, DEPRECATED, UNKNOWN = "deadline_exceeded", "deprecated", "unknown"
"""Failure classes, as clients know them."""
CLASSES = {
    **dict.fromkeys(
        (
            "rate_limited",
            "overloaded",
            "unavailable",
            "timeout",
            "network",
            "broken_off",
            STALE_CONNECTION,
            INTERRUPTED,
        ),
        RETRYABLE,
    ),
    PROVIDER_FULL: RETRYABLE,
    **dict.fromkeys(("invalid", "unauthorised", "forbidden", "not_found", "unsupported", "refused"), PERMANENT),
    **dict.fromkeys((QUOTA_EXHAUSTED, CONTEXT_EXCEEDED), PERMANENT),
    **dict.fromkeys(("code_agent_load", "code_agent_threw", "code_agent_replay_divergence"), PERMANENT),
    OPERATOR_KEY_RESTRICTED: PERMANENT,
    "deprecated": DEPRECATED,
    "cancelled": CANCELLED,
    "code_agent_cancelled": CANCELLED,
    "deadline_exceeded": DEADLINE_EXCEEDED,
    "code_agent_timeout": DEADLINE_EXCEEDED,
}
"""Failure class by failure kind (connectors/errors.py)."""
CLIENT_CODES = frozenset({PROVIDER_FULL, OPERATOR_KEY_RESTRICTED})
"""Failure kinds that are codes of their own."""
FALLBACK_CLASSES = frozenset({RETRYABLE, DEPRECATED})
"""Failure classes that another model may not share."""


def may_fall_back(kind: str) -> bool:
    """Whether another model may not share a failure of this kind."""
    return kind == QUOTA_EXHAUSTED or failure_class(kind) in FALLBACK_CLASSES


PINNED, NO_VISION = "pinned_after_success", "no_vision"
"""Reasons why a fallback was not taken."""


def failure_class(kind: str) -> str:
    """Return the class of a kind of failure."""
    return CLASSES.get(kind, UNKNOWN)


def is_provider_wait(kind: str, *, retries_rate_limits: bool) -> bool:
    """Whether a failure only means waiting for the provider, and does not count as an attempt of the run."""
    return kind == PROVIDER_FULL or (kind == "rate_limited" and retries_rate_limits)


def run_failure_code(kind: str) -> str:
    """Return the code of a run that ends because of a failed model call: some kinds are codes that clients know."""
    return kind if kind in CLIENT_CODES else code_agents.failure_code(kind)


def switch_model(state: AwaitingModel, result: ModelFailed) -> tuple[list[Event], ModelSwitched | None]:
    """Return events for the skipped models, and the switch; None when the turn has failed."""
    facts, alternatives = state.facts, _others(state, result)
    if not _may_switch(facts, result.kind) or not alternatives:
        return [], None
    if facts.definition.pin_after_success and facts.turns:
        return [FallbackSuppressed(turn=state.turn, attempt=state.attempt, code=PINNED)], None
    passed_over: list[Event] = []
    for alternative in alternatives:
        if alternative.sees_images or not has_images(facts.messages):
            return passed_over, _model_switched(state, alternative, result)
        choice = alternative.choice
        passed_over.append(
            FallbackSuppressed(
                turn=state.turn, attempt=state.attempt, code=NO_VISION, provider=choice.provider, model=choice.model
            )
        )
    return passed_over, None


def _others(state: AwaitingModel, result: ModelFailed) -> list[Alternative]:
    """Return the alternatives other than the failed model, by any of its names."""
    failed = (state.provider, state.model)
    return [
        alternative
        for alternative in result.alternatives
        if (alternative.choice.provider, alternative.choice.model) != failed
        and (alternative.choice.provider, alternative.sibling) != failed
    ]


def _may_switch(facts: RunFacts, kind: str) -> bool:
    definition = facts.definition
    allowed = definition.max_fallback_attempts or limits.FALLBACKS_DEFAULT
    return definition.fallback_on_error and may_fall_back(kind) and facts.switches < allowed


def _model_switched(state: AwaitingModel, alternative: Alternative, result: ModelFailed) -> ModelSwitched:
    facts, choice = state.facts, alternative.choice
    # The switch clears the reasoning of every answer, so one answer is enough to need the sibling.
    is_downgraded = bool(alternative.sibling) and any(message.role == "assistant" for message in facts.messages)
    return ModelSwitched(
        turn=state.turn,
        attempt=state.attempt,
        failed_provider=state.provider,
        failed_model=state.model,
        provider=choice.provider,
        model=alternative.sibling if is_downgraded else choice.model,
        effort="" if is_downgraded else choice.effort,
        number=facts.switches + 1,
        user_tier=facts.options.user_tier,
        reason=failure_class(result.kind),
        cause=result.cause or result.message[: limits.FALLBACK_CAUSE_MAX],
        cache_lost=result.leaves_cache,
        reasoning_cleared=sum(map(has_reasoning, facts.messages)),
        downgraded_from=choice.model if is_downgraded else "",
    )


def has_images(messages: tuple[Message, ...]) -> bool:
    """Whether the conversation has images, which a model must be able to read."""
    return any(isinstance(block, ImageBlock) for message in messages for block in message.blocks)
