"""Agents of the configuration as the definitions that runs are pinned to, on models that can be called now."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from connectors.configuration import (
    Configuration,
    ResolvedAgent,
    Unresolved,
    newest,
    patterns_of,
    resolve_agent,
)
from connectors.protocols import Blobs
from schemas.values import AgentDefinition, BlobRef, InterruptionTerms, ModelChoice, VolumeGrant
from services.core.availability import Matrix
from services.core.run.falling_back import OPERATOR_KEY_RESTRICTED
from services.core.run.limits import RETRY_ATTEMPTS_MAX
from services.core.run.orders import Refusal
from services.runtime.payloads import inline_or_blob

NOTHING: Mapping[str, int] = {}
NO_NAMES: Mapping[str, str] = {}
log = logging.getLogger("loomlog.runtime")

KEPT = 10_000
"""Resolved definitions kept by (agent, user tier); resolving again would cost every start a hash."""
NOTHING_KNOWN = Matrix()


class ConfiguredDefinitions:
    """Protocol services.runtime.desk.Definitions over a configuration that does not change while the process lives.


    `matrix` gives what is known of the models now; what was resolved is kept until that changes, or until a rate limit
    ends. `pins_after_success`: runs stay with a model that has answered. `unbounded`: providers whose runs have no
    bound of turns. `time_limits_s`: by provider, for runs without one. `key_names`: by provider, the name a key for it
    has; those that are not in it need none.
    """

    def __init__(
        self,
        configuration: Configuration,
        usable: Collection[str],
        *,
        matrix: Callable[[], Matrix] = lambda: NOTHING_KNOWN,
        clock_ms: Callable[[], int] = lambda: 0,
        pins_after_success: bool = False,
        unbounded: Collection[str] = (),
        time_limits_s: Mapping[str, int] = NOTHING,
        key_names: Mapping[str, str] = NO_NAMES,
    ) -> None:
        self._key_names = key_names
        self._all_key_names = frozenset(key_names.values())
        self.scripts: dict[str, BlobRef] = {}
        """Where scripts lie that are too long for an event, by their text."""
        self._unbounded = frozenset(unbounded)
        self._time_limits_s = time_limits_s
        self._configuration = configuration
        self._usable = frozenset(usable)
        self._matrix = matrix
        self._clock_ms = clock_ms
        self._pins_after_success = pins_after_success
        self._kept: dict[tuple[str, str, frozenset[str] | None], AgentDefinition] = {}
        self._known = NOTHING_KNOWN
        self._known_until_ms = 0
        """0 = until the matrix changes."""
        self._patterns = sorted(patterns_of(configuration))
        self._picks: dict[tuple[str, str], str | None] = {}

    def resolve(
        self, agent: str, *, tenant: str, user_tier: str, keys: frozenset[str] | None = None
    ) -> AgentDefinition | Refusal:
        """The definition, or why there is none. Definitions of the configuration are every tenant's.

        `keys` None: the run may use the operator's keys. Else only providers are left for which it has one of these
        names, or which need none.
        """
        now_ms = self._clock_ms()
        self._look(now_ms)
        if keys is not None:
            keys &= self._all_key_names  # a run may bring any number of other names
        key = (agent, user_tier, keys)
        found: AgentDefinition | Refusal | None = self._kept.get(key)
        if found is None:
            resolved = resolve_agent(
                self._configuration,
                agent,
                user_tier=user_tier,
                usable=self._usable if keys is None else self._usable_with(keys),
                listings=self._known.listings(),
                why_not=lambda provider, model: self._known.standing(provider, model, now_ms).why_not,
            )
            found = self._pinned(resolved) if isinstance(resolved, ResolvedAgent) else refusal(resolved)
            if keys is not None and isinstance(found, Refusal):
                found = self._refused_for_keys(agent, tenant, user_tier, found)
            # Refusals are not kept: callers can make up any number of names.
            if isinstance(found, AgentDefinition) and len(self._kept) < KEPT:
                self._kept[key] = found
        return found

    def _usable_with(self, keys: frozenset[str]) -> frozenset[str]:
        names = self._key_names
        return frozenset(provider for provider in self._usable if provider not in names or names[provider] in keys)

    def _refused_for_keys(self, agent: str, tenant: str, user_tier: str, found: Refusal) -> Refusal:
        """That it may not use the operator's keys, when it is that; else what is wrong anyway."""
        with_operators = self.resolve(agent, tenant=tenant, user_tier=user_tier)
        if isinstance(with_operators, Refusal):
            return with_operators
        choices = with_operators.candidates or (ModelChoice(provider=with_operators.provider, model="", effort=""),)
        wanted = dict.fromkeys(name for one in choices if (name := self._key_names.get(one.provider)))
        if not wanted:
            return found
        return Refusal(
            code=OPERATOR_KEY_RESTRICTED,
            message=f"{OPERATOR_KEY_RESTRICTED}: agent {agent}: whoever starts this run may not use the operator's keys"
            " (it lacks the scope providers:operator-key); send a key of yours with the request, as the credential "
            f"{' or '.join(wanted)}",
        )

    def _pinned(self, agent: ResolvedAgent) -> AgentDefinition:
        definition = pinned(agent, pins_after_success=self._pins_after_success)
        if (blob := self.scripts.get(agent.code_body)) is not None:
            definition = replace(definition, code_body="", code_blob=blob)
        if agent.provider in self._unbounded:
            definition = replace(definition, unbounded_iterations=True)
        if not definition.run_timeout_s and agent.provider in self._time_limits_s:
            definition = replace(definition, run_timeout_s=self._time_limits_s[agent.provider])
        return definition

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


async def stored_scripts(configuration: Configuration, blobs: Blobs) -> dict[str, BlobRef]:
    """Scripts too long for an event, by their text, in the blob store. Raises OutsideError."""
    found: dict[str, BlobRef] = {}
    for agent in configuration.agents.values():
        _, blob = await inline_or_blob(agent.code_body, blobs)
        if blob is not None:
            found[agent.code_body] = blob
    return found


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
        code_body=agent.code_body,
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
