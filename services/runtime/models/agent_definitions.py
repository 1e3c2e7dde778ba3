"""Resolution of agents to the definitions that runs are pinned to, on models that can be called now.

Which version of an agent a name means is for others to say (services/families/ports/agent_versions.py): the tenant's
own, that of the configuration, or the shared one.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.model_patterns import select_newest
from loomlog.connectors.configuration.resolve import (
    DEFAULT_VOLUME,
    ResolvedAgent,
    UnresolvedAgent,
    resolve_agent,
    unknown_agent,
)
from loomlog.connectors.configuration.routing import collect_patterns
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.protocols import VolumeBinding
from loomlog.connectors.tools.tool_guide import has_placeholders
from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalPolicy,
    DefinitionPin,
    InterruptionTerms,
    ModelChoice,
    VolumeGrant,
)
from loomlog.schemas.records import replace
from loomlog.services.core.availability import COOLDOWN_DEFAULT_MS, AvailabilityTable
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.limits import CONCURRENT_CHILDREN_DEFAULT, FALLBACKS_DEFAULT, RETRY_ATTEMPTS_MAX
from loomlog.services.core.run.subagents.children import INHERITED_VOLUMES
from loomlog.services.core.run.turns.fallback import OPERATOR_KEY_RESTRICTED
from loomlog.services.families.ports.agent_versions import AgentVersion, AgentVersions
from loomlog.services.families.ports.credentials import CredentialUser, CredentialValues
from loomlog.services.runtime.models.approval_policies import ApprovalPolicies
from loomlog.services.runtime.run.definition_overrides import intersect_grants, output_fields

NO_TIME_LIMITS: Mapping[str, int] = {}
NO_RULES = ApprovalsBlock()
NO_KEY_NAMES: Mapping[str, str] = {}
NO_KEYS: frozenset[str] = frozenset()
log = logging.getLogger("loomlog.runtime")

AGENT = KINDS["agent"]
CACHE_MAX = 10_000
"""Resolved definitions kept by agent, version and user tier; resolving again would cost a hash for every start."""
EMPTY_TABLE = AvailabilityTable()
MadeVolumes = tuple[tuple[str, str], ...]
FillPrompt = Callable[[str, tuple[str, ...]], str]
"""Returns a prompt for a run with these names and patterns of tools."""


def keep_prompt(prompt: str, tools: tuple[str, ...]) -> str:
    """Return the prompt as it is."""
    return prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSource:
    """Where the definition of an agent comes from. `version_id` and `pin` are empty for one of the configuration."""

    block: AgentBlock
    describes_tools: bool
    """Its prompt depends on the tools of the run."""
    version_id: str = ""
    pin: DefinitionPin | None = None


def agent_source(block: AgentBlock, *, version_id: str = "", pin: DefinitionPin | None = None) -> AgentSource:
    """Return the source with that block."""
    describes_tools = block.inject_tool_guide or has_placeholders(block.system_prompt)
    return AgentSource(block=block, describes_tools=describes_tools, version_id=version_id, pin=pin)


class AgentDefinitions:
    """Protocol loomlog.services.runtime.models.definition_resolver.DefinitionResolver.

    `versions`, once it is set, has the agents that were defined at run time.

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
        self.stored: CredentialValues | None = None
        """The stored credentials, once they are read."""
        self._key_names = key_names
        self._all_key_names = frozenset(key_names.values())
        self._unbounded_providers = frozenset(unbounded_providers)
        self._time_limits_s = time_limits_s
        self._configuration = configuration
        self._usable = frozenset(usable)
        self._availability_table = availability_table
        self._clock_ms = clock_ms
        self._pins_after_success = pins_after_success
        self.fill_prompt: FillPrompt = keep_prompt
        """Replaces the placeholders of prompts; set once the tools of the process exist."""
        self._configured = {name: agent_source(block) for name, block in configuration.agents.items()}
        self.versions: AgentVersions | None = None
        self.approval_policies = ApprovalPolicies(configuration.approvals)
        self._sources: OrderedDict[str, AgentSource] = OrderedDict()
        """By def_id."""
        self._cache: OrderedDict[tuple[str, str, str, frozenset[str], bool, bool, MadeVolumes], AgentDefinition] = (
            OrderedDict()
        )
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
        user_id: str = "",
        credentials: Collection[str] = (),
        operator_key_restricted: bool = False,
        tools: tuple[str, ...] | None = None,
        def_id: str = "",
        is_child: bool = False,
    ) -> AgentDefinition | CommandRefusal:
        """Return the definition, or a refusal. Definitions of the configuration belong to every tenant.

        A version whose content must be loaded first (`load`) is refused as definition_pending.

        `credentials`: the names of those that the run brings. A provider whose key has one of these names, or that of a
        stored credential of the tenant, the user or the agent, is paid by them; others are available when the run may
        use the operator's keys and there is one, or when they need none.
        `tools`: the caller's choice of tools; a prompt with placeholders describes only these. `is_child`: an agent
        that names no volumes gets INHERITED_VOLUMES.
        """
        now_ms = self._clock_ms()
        self._refresh_table(now_ms)
        # A run may bring any number of other credentials.
        own = self._all_key_names.intersection(credentials) if credentials else NO_KEYS
        if self.stored is not None:
            user = CredentialUser(tenant=tenant, user=user_id, agent=agent)
            own |= {name for name in self._all_key_names if self.stored.has(name, user)}
        source = self._find_source(agent, tenant, def_id)
        if isinstance(source, CommandRefusal):
            return source
        narrowed = tools if source.describes_tools else None
        has_skills = self.versions is not None and self.versions.has_skills(tenant)
        volumes = self._made_volumes(source.block, tenant)
        key = (agent, source.version_id, user_tier, own, operator_key_restricted, has_skills, volumes)
        resolved: AgentDefinition | CommandRefusal | None = self._cache.get(key) if narrowed is None else None
        if resolved is None:
            resolved = self._resolve_uncached(
                source, agent, tenant, user_tier, own, now_ms, restricted=operator_key_restricted, tools=narrowed
            )
            if isinstance(resolved, CommandRefusal):
                resolved = self._explain_refusal(
                    resolved, source, agent, tenant, user_tier, own, restricted=operator_key_restricted
                )
            # Refusals and choices of tools are not cached: callers can invent any number of them.
            elif narrowed is None:
                self._cache[key] = resolved
                if len(self._cache) > CACHE_MAX:
                    self._cache.popitem(last=False)
        if isinstance(resolved, CommandRefusal):
            return resolved
        if is_child and not source.block.volumes:
            resolved = replace(resolved, volumes=INHERITED_VOLUMES)
        approvals = self.approval_policies.for_run(tenant, source.block.approvals)
        return replace(resolved, approvals=approvals) if approvals else resolved

    def policies_in_force(self, agent: str, tenant: str) -> tuple[ApprovalPolicy, ...]:
        source = self._find_source(agent, tenant, "")
        block = NO_RULES if isinstance(source, CommandRefusal) else source.block.approvals
        return self.approval_policies.for_run(tenant, block)

    def _made_volumes(self, block: AgentBlock, tenant: str) -> MadeVolumes:
        """Return name and mode of the agent's volumes that were made at run time."""
        versions = self.versions
        if versions is None or not versions.has_volumes(tenant):
            return ()
        names = [name for name in block.volumes or (DEFAULT_VOLUME,) if name not in self._configuration.volumes]
        return tuple((one.name, one.mode) for name in names if (one := versions.volume(tenant, name)) is not None)

    def _find_source(self, agent: str, tenant: str, def_id: str) -> AgentSource | CommandRefusal:
        """Return what the name means for the tenant, or that version of it."""
        resolved = self._resolve_name(agent, tenant, def_id)
        if isinstance(resolved, CommandRefusal):
            return resolved
        if resolved is None or resolved.is_of_file:
            configured = self._configured.get(agent)
            if configured is None:
                known = self._configuration.agents
                return CommandRefusal(code="unknown_agent", message=unknown_agent(agent, known))
            return configured
        source = self._sources.get(resolved.def_id)
        if source is None:
            if resolved.content is None:
                return CommandRefusal(code="definition_pending", message=f"the definition of {agent} is being loaded")
            try:
                block = AGENT.block_of(resolved.content)
            except DefinitionProblem as problem:
                return CommandRefusal(code="bad_request", message=f"agent {agent}, {resolved.def_id}: {problem}")
            pin = DefinitionPin(
                def_id=resolved.def_id, version=resolved.version, content_sha256=AGENT.hash(agent, resolved.content)
            )
            source = agent_source(block, version_id=resolved.def_id, pin=pin)
            self._sources[resolved.def_id] = source
            if len(self._sources) > CACHE_MAX:
                self._sources.popitem(last=False)
        return source

    def _resolve_name(self, agent: str, tenant: str, def_id: str) -> AgentVersion | CommandRefusal | None:
        return None if self.versions is None else self.versions.find(agent, tenant, def_id)

    def is_loaded(self, agent: str, *, tenant: str, def_id: str = "") -> bool:
        """Whether `resolve` needs nothing that must be loaded first."""
        resolved = self._resolve_name(agent, tenant, def_id)
        if resolved is None or isinstance(resolved, CommandRefusal):
            return True
        return resolved.content is not None or resolved.def_id in self._sources

    async def load(self, agent: str, *, tenant: str, def_id: str = "") -> None:
        """Load what `resolve` needs. Raises ConnectorError."""
        if self.versions is not None:
            await self.versions.load(agent, tenant, def_id)

    def _volume_of(self, tenant: str) -> Callable[[str], VolumeBinding | None]:
        def find(name: str) -> VolumeBinding | None:
            return self.versions.volume(tenant, name) if self.versions is not None else None

        return find

    def providers(self) -> Set[str]:
        return self._usable | self._key_names.keys()

    def _resolve_uncached(
        self,
        source: AgentSource,
        agent: str,
        tenant: str,
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
            has_skills=self.versions is not None and self.versions.has_skills(tenant),
            block=source.block,
            find_volume=self._volume_of(tenant),
        )
        if not isinstance(resolved, ResolvedAgent):
            return to_refusal(resolved)
        definition = self._pin(resolved, tools)
        return definition if source.pin is None else replace(definition, pin=source.pin)

    def _explain_refusal(
        self,
        original: CommandRefusal,
        source: AgentSource,
        agent: str,
        tenant: str,
        user_tier: str,
        own_key_names: frozenset[str],
        *,
        restricted: bool,
    ) -> CommandRefusal:
        """Return the refusal with the keys that would help, if keys are missing; otherwise the real cause."""
        if restricted:
            anyway = self._resolve_uncached(
                source, agent, tenant, user_tier, own_key_names, self._clock_ms(), restricted=False
            )
            if isinstance(anyway, CommandRefusal):
                return self._explain_refusal(anyway, source, agent, tenant, user_tier, own_key_names, restricted=False)
        with_all = self._resolve_uncached(
            source, agent, tenant, user_tier, self._all_key_names, self._clock_ms(), restricted=restricted
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


def to_refusal(unresolved: UnresolvedAgent) -> CommandRefusal:
    """Return the reason why an agent cannot run as a refusal, in the codes that the API maps."""
    code = "bad_request" if unresolved.reason_code == "invalid_argument" else unresolved.reason_code
    return CommandRefusal(code=code, message=unresolved.message)


def pin_definition(agent: ResolvedAgent, system_prompt: str, *, pins_after_success: bool = False) -> AgentDefinition:
    """Return a resolved agent in the form that a run keeps, with its prompt as the model is to see it.

    A number that is the default is 0, which takes the least space in the log.
    """
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
        max_concurrent_children=_zero_if_default(agent.max_concurrent_children, CONCURRENT_CHILDREN_DEFAULT),
        compaction=agent.compaction,
        volumes=tuple(VolumeGrant(name=v.name, mode=v.mode, is_default=v.is_default) for v in agent.volumes),
        candidates=(first, *others) if others else (),
        fallback_on_error=agent.fallback_on_error,
        max_fallback_attempts=_zero_if_default(agent.max_fallback_attempts, FALLBACKS_DEFAULT),
        rate_limit_cooldown_ms=_zero_if_default(agent.rate_limit_cooldown_ms, COOLDOWN_DEFAULT_MS),
        pin_after_success=pins_after_success,
        grants=agent.grants,
        **(output_fields(agent.output_schema, agent.output_retries) if agent.output_schema else {}),
    )


def _zero_if_default(value: int, default: int) -> int:
    return 0 if value == default else value


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
