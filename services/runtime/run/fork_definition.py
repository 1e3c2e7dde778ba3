"""Definition that a fork is pinned to: its origin's, its agent's current one, or another agent's, with overrides.

    agent ""  definition ""         as the origin, whatever the configuration says today
    agent ""  definition current    the origin's agent as it is configured now
    agent ""  definition 3f2a91...  the one of these two whose hash begins so
    agent X   definition ""         the agent X as it is configured now

If the origin was imported and not restored, its own definition counts as a request only (`restrict_to_current`): anyone
may have written its file, so tools, volumes, the script and every limit are those its agent has here now.

An override that would leave the fork unable to work (a tool that the definition does not grant, a provider that does
not exist) is refused, and the message lists what exists.

Before: command_handler.py has read the origin. After: services/core/run/lifecycle/fork.py.
"""

from typing import Any

from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import AgentDefinition, VolumeGrant
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.lifecycle.fork import (
    DIGEST_PREFIX_MIN,
    LONG_TEXTS,
    content_sha256,
    fork_user_id,
    is_foreign_event,
    override_definition,
    text_sha256,
)
from loomlog.services.core.run.limits import ITERATIONS_BACKSTOP, RETRY_ATTEMPTS_MAX
from loomlog.services.runtime.models.approval_policies import with_policies_in_force
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.definition_overrides import intersect_grants

CURRENT = "current"
VERSION_PREFIX = "def_"
"""Beginning of the ids of versions of agents."""
PROMPT, SCRIPT, _ = LONG_TEXTS


def resolve_fork_definition(
    command: ForkRun, started: RunStarted, definitions: DefinitionResolver, *, tenant: str
) -> AgentDefinition | CommandRefusal:
    """Return the definition of the fork, or the refusal."""
    chosen = _base_definition(command, started, definitions, tenant)
    if isinstance(chosen, CommandRefusal):
        return chosen
    chosen = _with_policies(chosen, started.definition, definitions, tenant)
    overrides = command.overrides
    if overrides is None:
        return chosen
    if overrides.provider is not None and overrides.provider not in definitions.providers():
        there = ", ".join(sorted(definitions.providers()))
        return _bad_request(f"overrides.provider is {overrides.provider[:80]!r}: there are {there}")
    if overrides.tools is None:
        return override_definition(chosen, overrides, tools=chosen.tools)
    for name in overrides.tools:
        if not intersect_grants(chosen.tools, (name,)):
            granted = ", ".join(chosen.tools) or "no tools"
            return _bad_request(f"overrides.tools: {name[:80]!r} is none of the agent's tools; it has {granted}")
    return override_definition(chosen, overrides, tools=intersect_grants(chosen.tools, overrides.tools))


def _with_policies(
    chosen: AgentDefinition, origin: AgentDefinition, definitions: DefinitionResolver, tenant: str
) -> AgentDefinition:
    """Return the definition with the rules in force for its agent, and those of the origin: a fork evades neither."""
    current = definitions.policies_in_force(chosen.name, tenant)
    approvals = with_policies_in_force(origin.approvals, with_policies_in_force(chosen.approvals, current))
    return chosen if approvals == chosen.approvals else replace(chosen, approvals=approvals)


def version_in(command: ForkRun) -> str:
    """Return the def_id that a fork names as its definition; empty if it names something else."""
    return command.definition if command.definition.startswith(VERSION_PREFIX) else ""


def has_same_prompt(one: AgentDefinition, other: AgentDefinition) -> bool:
    """Whether both have the same system prompt with the same parts of memory in it."""
    return text_sha256(one, *PROMPT) == text_sha256(other, *PROMPT) and one.grants == other.grants


def _bad_request(message: str) -> CommandRefusal:
    return CommandRefusal(code="bad_request", message=message)


def _base_definition(
    command: ForkRun, started: RunStarted, definitions: DefinitionResolver, tenant: str
) -> AgentDefinition | CommandRefusal:
    pinned, text = started.definition, command.definition
    if not command.agent and not text and not is_foreign_event(started):
        return pinned
    if command.agent and text not in ("", CURRENT):
        return _bad_request("agent and definition name two definitions: give one of them")
    current = definitions.resolve(
        command.agent or pinned.name,
        tenant=tenant,
        user_tier=started.options.user_tier,
        user_id=fork_user_id(command, started),
        credentials=command.credentials,
        operator_key_restricted=command.operator_key_restricted,
        tools=None if command.overrides is None else command.overrides.tools,
        def_id=version_in(command),
    )
    if command.agent or text == CURRENT or version_in(command):
        return current
    if is_foreign_event(started):
        if isinstance(current, CommandRefusal):
            return _current_unavailable(started, current)
        if not text or (len(text) >= DIGEST_PREFIX_MIN and pinned.sha256.startswith(text)):
            return restrict_to_current(pinned, current)
    if len(text) >= DIGEST_PREFIX_MIN:
        for candidate in (pinned, current):
            if isinstance(candidate, AgentDefinition) and candidate.sha256.startswith(text):
                return candidate
    now = current.sha256 if isinstance(current, AgentDefinition) else f"none ({current.message})"
    return _bad_request(
        f"definition is {text[:80]!r}: expected current, or at least {DIGEST_PREFIX_MIN} digits of the "
        f"hash of the definition the run is pinned to ({pinned.sha256}) or of the agent's current one ({now})"
    )


# --- definitions from imported runs ----------------------------------------------------------------------------------


def restrict_to_current(imported: AgentDefinition, current: AgentDefinition) -> AgentDefinition | CommandRefusal:
    """Return the definition of an imported run, as far as a caller might request it: `current`, the agent's definition
    here now, with the imported model, prompt and output limits, and the tools and volumes that both have.

    Refused when the scripts differ: the imported one would run with the tools of the current one.
    """
    if text_sha256(imported, *SCRIPT) != text_sha256(current, *SCRIPT):
        return _bad_request(
            f"the run was imported, and the agent {current.name} has another script here than the run says it had: "
            f"fork it with the definition {CURRENT}, or name an agent"
        )
    is_same_model = (imported.provider, imported.model, imported.effort) == (
        current.provider,
        current.model,
        current.effort,
    )
    definition = replace(
        current,
        provider=imported.provider,
        model=imported.model,
        effort=imported.effort,
        candidates=current.candidates if is_same_model else (),
        **_prompt_of(imported if text_sha256(imported, *PROMPT) != text_sha256(current, *PROMPT) else current),
        sampling=imported.sampling,
        tools=intersect_grants(current.tools, imported.tools),
        volumes=_common_volumes(imported, current),
        max_tokens=max(0, imported.max_tokens),
        max_iterations=_clamp(imported.max_iterations, ITERATIONS_BACKSTOP),
        unbounded_iterations=imported.unbounded_iterations and current.unbounded_iterations,
        retry_attempts=_clamp(imported.retry_attempts, RETRY_ATTEMPTS_MAX),
    )
    return definition if definition == current else replace(definition, sha256=content_sha256(definition))


def _prompt_of(definition: AgentDefinition) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in PROMPT}


def _common_volumes(imported: AgentDefinition, current: AgentDefinition) -> tuple[VolumeGrant, ...]:
    """Return the volumes that both have, each in the narrower of its two modes."""
    modes = {volume.name: volume.mode for volume in imported.volumes}
    return tuple(
        volume if volume.mode == modes[volume.name] else replace(volume, mode="ro")
        for volume in current.volumes
        if volume.name in modes
    )


def _clamp(value: int, maximum: int) -> int:
    return min(max(0, value), maximum)


def _current_unavailable(started: RunStarted, refusal: CommandRefusal) -> CommandRefusal:
    message = (
        f"the run was imported, so its fork has what its agent has here, which is unavailable: {refusal.message}; "
        "name an agent to continue with"
    )
    return replace(refusal, message=message)
