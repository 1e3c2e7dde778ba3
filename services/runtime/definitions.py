"""Agents of the configuration as the definitions that runs are pinned to."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from connectors.configuration import Configuration, ResolvedAgent, Unresolved, resolve_agent
from connectors.protocols import Blobs
from schemas.values import AgentDefinition, BlobRef, VolumeGrant
from services.core.run.limits import RETRY_ATTEMPTS_MAX
from services.core.run.orders import Refusal
from services.runtime.payloads import inline_or_blob

NOTHING: Mapping[str, int] = {}
NO_SCRIPTS: Mapping[str, BlobRef] = {}

KEPT = 10_000
"""Resolved definitions kept by (agent, user tier); resolving again would cost every start a hash."""


class ConfiguredDefinitions:
    """Protocol services.runtime.desk.Definitions over a configuration that does not change while the process lives."""

    def __init__(
        self,
        configuration: Configuration,
        usable: Collection[str],
        *,
        unbounded: Collection[str] = (),
        time_limits_s: Mapping[str, int] = NOTHING,
        scripts: Mapping[str, BlobRef] = NO_SCRIPTS,
    ) -> None:
        """`unbounded`: providers whose runs have no bound of turns. `time_limits_s`: by provider, for runs without one.
        `scripts`: where long scripts lie, by their text."""
        self._unbounded = frozenset(unbounded)
        self._time_limits_s = time_limits_s
        self._scripts = scripts
        self._configuration = configuration
        self._usable = frozenset(usable)
        self._kept: dict[tuple[str, str], AgentDefinition] = {}

    def resolve(self, agent: str, *, tenant: str, user_tier: str) -> AgentDefinition | Refusal:
        """The definition, or why there is none. Definitions of the configuration are every tenant's."""
        key = (agent, user_tier)
        found: AgentDefinition | Refusal | None = self._kept.get(key)
        if found is None:
            resolved = resolve_agent(self._configuration, agent, user_tier=user_tier, usable=self._usable)
            found = self._pinned(resolved) if isinstance(resolved, ResolvedAgent) else refusal(resolved)
            # Refusals are not kept: callers can make up any number of names.
            if isinstance(found, AgentDefinition) and len(self._kept) < KEPT:
                self._kept[key] = found
        return found

    def _pinned(self, agent: ResolvedAgent) -> AgentDefinition:
        definition = pinned(agent)
        if (blob := self._scripts.get(agent.code_body)) is not None:
            definition = replace(definition, code_body="", code_blob=blob)
        if agent.provider in self._unbounded:
            definition = replace(definition, unbounded_iterations=True)
        if not definition.run_timeout_s and agent.provider in self._time_limits_s:
            definition = replace(definition, run_timeout_s=self._time_limits_s[agent.provider])
        return definition


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


def pinned(agent: ResolvedAgent) -> AgentDefinition:
    """A resolved agent as a run keeps it."""
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
        sampling=agent.sampling,
        unknown_outcome=agent.unknown_outcome,
        code_body=agent.code_body,
        run_timeout_s=agent.run_timeout_s,
        volumes=tuple(VolumeGrant(name=v.name, mode=v.mode, is_default=v.is_default) for v in agent.volumes),
    )
