"""Agents of the configuration as the definitions that runs are pinned to, on models that can be called now."""

import logging
from collections.abc import Callable, Collection

from connectors.configuration import (
    Configuration,
    ResolvedAgent,
    Unresolved,
    newest,
    patterns_of,
    resolve_agent,
)
from schemas.values import AgentDefinition, InterruptionTerms, ModelChoice, VolumeGrant
from services.core.availability import Matrix
from services.core.run.limits import RETRY_ATTEMPTS_MAX
from services.core.run.orders import Refusal

log = logging.getLogger("loomlog.runtime")

KEPT = 10_000
"""Resolved definitions kept by (agent, user tier); resolving again would cost every start a hash."""
NOTHING_KNOWN = Matrix()


class ConfiguredDefinitions:
    """Protocol services.runtime.desk.Definitions over a configuration that does not change while the process lives.

    `matrix` gives what is known of the models now; what was resolved is kept until that changes, or until a rate limit
    ends. `pins_after_success`: runs stay with a model that has answered.
    """

    def __init__(
        self,
        configuration: Configuration,
        usable: Collection[str],
        *,
        matrix: Callable[[], Matrix] = lambda: NOTHING_KNOWN,
        clock_ms: Callable[[], int] = lambda: 0,
        pins_after_success: bool = False,
    ) -> None:
        self._configuration = configuration
        self._usable = frozenset(usable)
        self._matrix = matrix
        self._clock_ms = clock_ms
        self._pins_after_success = pins_after_success
        self._kept: dict[tuple[str, str], AgentDefinition] = {}
        self._known = NOTHING_KNOWN
        self._known_until_ms = 0
        """0 = until the matrix changes."""
        self._patterns = sorted(patterns_of(configuration))
        self._picks: dict[tuple[str, str], str | None] = {}

    def resolve(self, agent: str, *, tenant: str, user_tier: str) -> AgentDefinition | Refusal:
        """The definition, or why there is none. Definitions of the configuration are every tenant's."""
        now_ms = self._clock_ms()
        self._look(now_ms)
        key = (agent, user_tier)
        found: AgentDefinition | Refusal | None = self._kept.get(key)
        if found is None:
            resolved = resolve_agent(
                self._configuration,
                agent,
                user_tier=user_tier,
                usable=self._usable,
                listings=self._known.listings(),
                why_not=lambda provider, model: self._known.standing(provider, model, now_ms).why_not,
            )
            found = self._pinned(resolved) if isinstance(resolved, ResolvedAgent) else refusal(resolved)
            # Refusals are not kept: callers can make up any number of names.
            if isinstance(found, AgentDefinition) and len(self._kept) < KEPT:
                self._kept[key] = found
        return found

    def _pinned(self, agent: ResolvedAgent) -> AgentDefinition:
        return pinned(agent, pins_after_success=self._pins_after_success)

    def _look(self, now_ms: int) -> None:
        """Forgets what was resolved when other models can be called now."""
        matrix = self._matrix()
        if matrix is self._known and not 0 < self._known_until_ms <= now_ms:
            return
        self._known, self._known_until_ms = matrix, matrix.next_change_ms(now_ms)
        self._kept.clear()
        self._tell_moves()

    def _tell_moves(self) -> None:
        """Whoever wrote a pattern wants to know when it means another model from now on."""
        listings = self._known.listings()
        for provider, pattern in self._patterns:
            pick = newest(pattern, listings.get(provider, ()))
            before = self._picks.get((provider, pattern))
            if pick is not None and before is not None and pick != before:
                log.warning("%s/%s means %s from now on, and meant %s", provider, pattern, pick, before)
            if pick is not None:
                self._picks[provider, pattern] = pick


def refusal(unresolved: Unresolved) -> Refusal:
    """Why an agent cannot run, in the codes the API maps."""
    code = "bad_request" if unresolved.reason_code == "invalid_argument" else unresolved.reason_code
    return Refusal(code=code, message=unresolved.message)


def pinned(agent: ResolvedAgent, *, pins_after_success: bool = False) -> AgentDefinition:
    """A resolved agent as a run keeps it."""
    others = [ModelChoice(provider=other.provider, model=other.model, effort=other.effort) for other in agent.fallbacks]
    first = ModelChoice(provider=agent.provider, model=agent.model, effort=agent.effort)
    return AgentDefinition(
        name=agent.name,
        sha256=agent.definition_sha256,
        provider=agent.provider,
        model=agent.model,
        effort=agent.effort,
        system_prompt=agent.system_prompt,
        tools=agent.tools,
        max_tokens=agent.max_tokens,
        max_iterations=agent.max_iterations,
        unbounded_iterations=agent.unbounded_iterations,
        retry_attempts=min(agent.retry_attempts, RETRY_ATTEMPTS_MAX),
        run_timeout_s=agent.run_timeout_s,
        sampling=agent.sampling,
        unknown_outcome=agent.unknown_outcome,
        interruption=_terms(agent),
        max_concurrent_children=agent.max_concurrent_children,
        compaction=agent.compaction,
        volumes=tuple(VolumeGrant(name=v.name, mode=v.mode, is_default=v.is_default) for v in agent.volumes),
        candidates=(first, *others) if others else (),
        fallback_on_error=agent.fallback_on_error,
        max_fallback_attempts=agent.max_fallback_attempts,
        rate_limit_cooldown_ms=agent.rate_limit_cooldown_ms,
        pin_after_success=pins_after_success,
    )


def _terms(agent: ResolvedAgent) -> InterruptionTerms | None:
    """How it may interrupt people: the narrower of what it and the operator say. None when it may not."""
    wanted, bounds = agent.interruption, agent.interruption_bounds
    if not wanted.enabled:
        return None
    return InterruptionTerms(
        enabled=True,
        kinds=wanted.kinds,
        max_pending=min(wanted.max_pending, bounds.max_pending_per_run),
        default_timeout_ms=bounds.default_timeout_ms,
        max_timeout_ms=bounds.max_timeout_ms,
    )
