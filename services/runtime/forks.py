"""Which definition a fork is pinned to: that of its origin, that of its agent now, another agent's, with overrides.

    agent ""  definition ""         as the origin, whatever the configuration says today
    agent ""  definition current    the origin's agent as it is configured now
    agent ""  definition 3f2a91...  the one of these two whose hash begins so
    agent X   definition ""         the agent X as it is configured now

An override that would leave the fork with nothing to work with (a tool that the definition does not grant, a provider
that is not there) is refused with what there is.

Before: desk.py has read the origin. After: services/core/run/forking.py.
"""

from schemas.run_commands import ForkRun
from schemas.run_events import RunStarted
from schemas.values import AgentDefinition
from services.core.run.forking import DIGEST_PREFIX_MIN, overridden
from services.core.run.orders import Refusal
from services.runtime.resolver import Definitions
from services.runtime.wishes import granted_by_both

CURRENT = "current"


def definition_of(
    command: ForkRun, started: RunStarted, definitions: Definitions, *, tenant: str
) -> AgentDefinition | Refusal:
    """The definition of the fork, or why there is none."""
    chosen = _chosen(command, started, definitions, tenant)
    if isinstance(chosen, Refusal):
        return chosen
    overrides = command.overrides
    if overrides is None:
        return chosen
    if overrides.provider is not None and overrides.provider not in definitions.providers():
        there = ", ".join(sorted(definitions.providers()))
        return _wrong(f"overrides.provider is {overrides.provider[:80]!r}: there are {there}")
    if overrides.tools is None:
        return overridden(chosen, overrides, tools=chosen.tools)
    for name in overrides.tools:
        if not granted_by_both(chosen.tools, (name,)):
            granted = ", ".join(chosen.tools) or "no tools"
            return _wrong(f"overrides.tools: {name[:80]!r} is none of the agent's tools; it has {granted}")
    return overridden(chosen, overrides, tools=granted_by_both(chosen.tools, overrides.tools))


def _wrong(message: str) -> Refusal:
    return Refusal(code="bad_request", message=message)


def _chosen(command: ForkRun, started: RunStarted, definitions: Definitions, tenant: str) -> AgentDefinition | Refusal:
    pinned, wanted = started.definition, command.definition
    if not command.agent and not wanted:
        return pinned
    if command.agent and wanted not in ("", CURRENT):
        return _wrong("agent and definition name two definitions: give one of them")
    current = definitions.resolve(
        command.agent or pinned.name,
        tenant=tenant,
        user_tier=started.user_tier,
        credentials=command.credentials,
        operator_key_restricted=command.operator_key_restricted,
    )
    if command.agent or wanted == CURRENT:
        return current
    if len(wanted) >= DIGEST_PREFIX_MIN:
        for candidate in (pinned, current):
            if isinstance(candidate, AgentDefinition) and candidate.sha256.startswith(wanted):
                return candidate
    now = current.sha256 if isinstance(current, AgentDefinition) else f"none ({current.message})"
    return _wrong(
        f"definition is {wanted[:80]!r}: expected current, or at least {DIGEST_PREFIX_MIN} digits of the "
        f"hash of the definition the run is pinned to ({pinned.sha256}) or of the agent's current one ({now})"
    )
