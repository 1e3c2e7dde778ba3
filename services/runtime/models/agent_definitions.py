"""Resolution of configured agents to the definitions that runs are pinned to, on models that can be called now."""

import logging
from collections.abc import Callable, Collection, Mapping, Set

from loomlog.connectors.configuration import (
    Configuration,
    ResolvedAgent,
    UnresolvedAgent,
    collect_patterns,
    resolve_agent,
    select_newest,
)
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.tools.tool_guide import has_placeholders
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, InterruptionTerms, ModelChoice, VolumeGrant
from loomlog.schemas.records import replace
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.limits import RETRY_ATTEMPTS_MAX
from loomlog.services.core.run.turns.fallback import OPERATOR_KEY_RESTRICTED
from loomlog.services.runtime.content.payloads import inline_or_blob
from loomlog.services.runtime.run.definition_overrides import intersect_grants

NO_TIME_LIMITS: Mapping[str, int] = {}
NO_KEY_NAMES: Mapping[str, str] = {}
NO_KEYS: frozenset[str] = frozenset()
log = logging.getLogger("loomlog.runtime")

CACHE_MAX = 10_000
"""Resolved definitions kept by (agent, user tier); resolving again would cost a hash for every start."""
EMPTY_TABLE = AvailabilityTable()
FillPrompt = Callable[[str, tuple[str, ...]], str]
"""Returns a prompt for a run with these names and patterns of tools."""


def keep_prompt(prompt: str, tools: tuple[str, ...]) -> str:
    """Return the prompt as it is."""
    return prompt


class ConfiguredDefinitions:
    """Protocol loomlog.services.runtime.models.definition_resolver.DefinitionResolver over a configuration that does
    not change during the life of the process.

    `availability_table` returns what is known of the models now; a resolved definition is kept until that changes, or
    until a rate limit ends. `pins_after_success`: runs stay with a model that has answered. `unbounded_providers`:
    providers whose runs have no bound on turns. `time_limits_s`: by provider, for runs without one. `key_names`: by
    provider, the name of a key for it; a provider that is not in it needs none. One that is in it and not in `usable`
    is available to runs that bring the key.
    """

    def __init__(
        self,
        configuration: Configuration,
        usable: Collection[str],
        *,
        availability_table: Callable[[], AvailabilityTable] = lambda: EMPTY_TABLE,
        clock_ms: Callable[[], int] = lambda: 0,
        pins_after_success: bool = False,
        unbounded_providers: Collection[str] = (),
        time_limits_s: Mapping[str, int] = NO_TIME_LIMITS,
        key_names: Mapping[str, str] = NO_KEY_NAMES,
    ) -> None:
        self._key_names = key_names
        self._all_key_names = frozenset(key_names.values())
        self.scripts: dict[str, BlobRef] = {}
        """Blob references of the scripts that are too long for an event, by script text."""
        self._unbounded_providers = frozenset(unbounded_providers)
        self._time_limits_s = time_limits_s
        self._configuration = configuration
        self._usable = frozenset(usable)
        self._availability_table = availability_table
        self._clock_ms = clock_ms
        self._pins_after_success = pins_after_success
        self.fill_prompt: FillPrompt = keep_prompt
        """Replaces the placeholders of prompts; set once the tools of the process exist."""
        self._described_tools = frozenset(
            name
            for name, block in configuration.agents.items()
            if block.inject_tool_guide or has_placeholders(block.system_prompt)
        )
        """Agents whose prompt depends on their tools."""
        self._cache: dict[tuple[str, str, frozenset[str], bool], AgentDefinition] = {}
        self._table = EMPTY_TABLE
        self._table_valid_until_ms = 0
        """Time in ms until which the table is valid; 0 = until the matrix changes."""
        self._patterns = sorted(collect_patterns(configuration))
        self._pattern_models: dict[tuple[str, str], str | None] = {}

    def resolve(
        self,
        agent: str,
        *,
        tenant: str,
        user_tier: str,
        credentials: Collection[str] = (),
        operator_key_restricted: bool = False,
        tools: tuple[str, ...] | None = None,
    ) -> AgentDefinition | CommandRefusal:
        """Return the definition, or a refusal. Definitions of the configuration belong to every tenant.

        `credentials`: the names of those that the run brings. A provider whose key has one of these names is paid by
        the run; others are available when the run may use the operator's keys and there is one, or when they need none.
        `tools`: the caller's choice of tools; a prompt with placeholders describes only these.
        """
        now_ms = self._clock_ms()
        self._refresh_table(now_ms)
        # A run may bring any number of other credentials.
        own = self._all_key_names.intersection(credentials) if credentials else NO_KEYS
        narrowed = tools if agent in self._described_tools else None
        key = (agent, user_tier, own, operator_key_restricted)
        resolved: AgentDefinition | CommandRefusal | None = self._cache.get(key) if narrowed is None else None
        if resolved is None:
            resolved = self._resolve_uncached(
                agent, user_tier, own, now_ms, restricted=operator_key_restricted, tools=narrowed
            )
            if isinstance(resolved, CommandRefusal):
                resolved = self._explain_refusal(
                    resolved, agent, tenant, user_tier, own, restricted=operator_key_restricted
                )
            # Refusals and choices of tools are not cached: callers can invent any number of them.
            elif narrowed is None and len(self._cache) < CACHE_MAX:
                self._cache[key] = resolved
        return resolved

    def providers(self) -> Set[str]:
        return self._usable | self._key_names.keys()

    def _resolve_uncached(
        self,
        agent: str,
        user_tier: str,
        own_key_names: frozenset[str],
        now_ms: int,
        *,
        restricted: bool,
        tools: tuple[str, ...] | None = None,
    ) -> AgentDefinition | CommandRefusal:
        names = self._key_names
        paid = frozenset(provider for provider, name in names.items() if name in own_key_names)
        operators = frozenset(name for name in self._usable if name not in names) if restricted else self._usable
        # The others are not probed, so their listings may be out of date.
        listings = {name: models for name, models in self._table.listings().items() if name in self._usable}

        def why_not(provider: str, model: str) -> str:
            if provider not in self._usable:
                return ""
            return self._table.availability(provider, model, now_ms, own_key=provider in paid).unavailable_reason

        resolved = resolve_agent(
            self._configuration,
            agent,
            user_tier=user_tier,
            usable=operators | paid,
            listings=listings,
            unavailable_reason=why_not,
        )
        return self._pin(resolved, tools) if isinstance(resolved, ResolvedAgent) else to_refusal(resolved)

    def _explain_refusal(
        self,
        original: CommandRefusal,
        agent: str,
        tenant: str,
        user_tier: str,
        own_key_names: frozenset[str],
        *,
        restricted: bool,
    ) -> CommandRefusal:
        """Return the refusal with the keys that would help, if keys are missing; otherwise the real cause."""
        if restricted:
            anyway = self.resolve(agent, tenant=tenant, user_tier=user_tier, credentials=own_key_names)
            if isinstance(anyway, CommandRefusal):
                return anyway
        with_all = self._resolve_uncached(
            agent, user_tier, self._all_key_names, self._clock_ms(), restricted=restricted
        )
        if isinstance(with_all, CommandRefusal):
            return original
        choices = with_all.candidates or (ModelChoice(provider=with_all.provider, model="", effort=""),)
        # Where the operator has a key as well, one of the run helps only callers that may not use the operator's.
        lacking = [one.provider for one in choices if restricted or one.provider not in self._usable]
        missing_keys = dict.fromkeys(
            name for one in lacking if (name := self._key_names.get(one)) and name not in own_key_names
        )
        if not missing_keys:
            return original
        advice = f"send a key of yours with the request, as the credential {' or '.join(missing_keys)}"
        if not restricted:
            return replace(original, message=f"{original.message}; {advice}")
        return CommandRefusal(
            code=OPERATOR_KEY_RESTRICTED,
            message=f"{OPERATOR_KEY_RESTRICTED}: agent {agent}: the caller of this run may not use the operator's keys"
            f" (it lacks the scope providers:operator-key); {advice}",
        )

    def _pin(self, agent: ResolvedAgent, tools: tuple[str, ...] | None) -> AgentDefinition:
        granted = agent.tools if tools is None else intersect_grants(agent.tools, tools)
        definition = pin_definition(
            agent, self.fill_prompt(agent.system_prompt, granted), pins_after_success=self._pins_after_success
        )
        if (blob := self.scripts.get(agent.code_body)) is not None:
            definition = replace(definition, code_body="", code_blob=blob)
        if agent.provider in self._unbounded_providers:
            definition = replace(definition, unbounded_iterations=True)
        if not definition.run_timeout_s and agent.provider in self._time_limits_s:
            definition = replace(definition, run_timeout_s=self._time_limits_s[agent.provider])
        return definition

    def _refresh_table(self, now_ms: int) -> None:
        """Drop resolved definitions when the set of available models has changed."""
        matrix = self._availability_table()
        if matrix is self._table and not 0 < self._table_valid_until_ms <= now_ms:
            return
        self._table, self._table_valid_until_ms = matrix, matrix.next_change_ms(now_ms)
        self._cache.clear()
        self._log_pattern_changes()

    def _log_pattern_changes(self) -> None:
        """Log each pattern that selects another model from now on, for the author of the pattern."""
        listings = self._table.listings()
        for provider, pattern in self._patterns:
            pick = select_newest(pattern, listings.get(provider, ()))
            before = self._pattern_models.get((provider, pattern))
            if pick is not None and before is not None and pick != before:
                log.warning("%s/%s means %s from now on, and meant %s", provider, pattern, pick, before)
            if pick is not None:
                self._pattern_models[provider, pattern] = pick


async def store_scripts(configuration: Configuration, blobs: Blobs) -> dict[str, BlobRef]:
    """Store the scripts that are too long for an event in the blob store; by their text. Raises ConnectorError."""
    refs: dict[str, BlobRef] = {}
    for agent in configuration.agents.values():
        _, blob = await inline_or_blob(agent.code_body, blobs)
        if blob is not None:
            refs[agent.code_body] = blob
    return refs


def to_refusal(unresolved: UnresolvedAgent) -> CommandRefusal:
    """Return the reason why an agent cannot run as a refusal, in the codes that the API maps."""
    code = "bad_request" if unresolved.reason_code == "invalid_argument" else unresolved.reason_code
    return CommandRefusal(code=code, message=unresolved.message)


def pin_definition(agent: ResolvedAgent, system_prompt: str, *, pins_after_success: bool = False) -> AgentDefinition:
    """Return a resolved agent in the form that a run keeps, with its prompt as the model is to see it."""
    others = [ModelChoice(provider=other.provider, model=other.model, effort=other.effort) for other in agent.fallbacks]
    first = ModelChoice(provider=agent.provider, model=agent.model, effort=agent.effort)
    return AgentDefinition(
        name=agent.name,
        sha256=agent.definition_sha256,
        provider=agent.provider,
        model=agent.model,
        effort=agent.effort,
        system_prompt=system_prompt,
        tools=agent.tools,
        max_tokens=agent.max_tokens,
        max_iterations=agent.max_iterations,
        unbounded_iterations=agent.unbounded_iterations,
        retry_attempts=min(agent.retry_attempts, RETRY_ATTEMPTS_MAX),
        run_timeout_s=agent.run_timeout_s,
        sampling=agent.sampling,
        unknown_outcome=agent.unknown_outcome,
        code_body=agent.code_body,
        interruption=_interruption_terms(agent),
        max_concurrent_children=agent.max_concurrent_children,
        compaction=agent.compaction,
        volumes=tuple(VolumeGrant(name=v.name, mode=v.mode, is_default=v.is_default) for v in agent.volumes),
        candidates=(first, *others) if others else (),
        fallback_on_error=agent.fallback_on_error,
        max_fallback_attempts=agent.max_fallback_attempts,
        rate_limit_cooldown_ms=agent.rate_limit_cooldown_ms,
        pin_after_success=pins_after_success,
    )


def _interruption_terms(agent: ResolvedAgent) -> InterruptionTerms | None:
    """Return the narrower interruption terms of the agent and the operator; None when not allowed."""
    access, bounds = agent.interruption, agent.interruption_bounds
    if not access.enabled:
        return None
    return InterruptionTerms(
        enabled=True,
        kinds=access.kinds,
        max_pending=min(access.max_pending, bounds.max_pending_per_run),
        default_timeout_ms=bounds.default_timeout_ms,
        max_timeout_ms=bounds.max_timeout_ms,
    )
