"""Context of a tool call: the facts of its run, its folders and hosts, and how much room is left.

Before: tool_calls.py with the facts of a run. After: the tool, and the dial-time filter behind it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from loomlog.connectors.protocols import ToolContext, VolumeBinding
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.conversation import used_tokens
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import idempotency_key
from loomlog.services.core.run.subagents.children import root_of
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.runtime.models.model_calls import Toolset
from loomlog.services.runtime.tools.allowed_hosts import resolve_caller_hosts

NO_GRANTS: Mapping[str, Any] = {}


class ToolContextFactory:
    """Builds tool contexts. `volumes` are this process's folders, `made_volumes` those made at run time,
    `operator_hosts` the hosts that the operator allows for all runs; `callers_choose_hosts`: the hosts of a caller
    replace these (allowed_hosts.py).
    """

    def __init__(
        self,
        tools: Toolset,
        *,
        volumes: Mapping[str, VolumeBinding],
        operator_hosts: tuple[str, ...],
        callers_choose_hosts: bool = False,
        made_volumes: MadeVolumes | None = None,
    ) -> None:
        self._tools = tools
        self._made_volumes = made_volumes
        self._volumes = volumes
        self._operator_hosts = operator_hosts
        self._callers_choose_hosts = callers_choose_hosts

    def toolset(self, facts: RunFacts, tenant: str) -> Toolset:
        """Return the tools that the run may use, with those that clients of its principal offer."""
        return self._tools.for_principal(tenant, facts.subject)

    def granted_tools(self, facts: RunFacts, tenant: str) -> tuple[str, ...]:
        """Return the names of the tools that the run may call."""
        return tuple([spec.name for spec in self.toolset(facts, tenant).specs(facts.definition.tools)])

    def build_context(
        self, effect: CallTool | ReconcileTool, facts: RunFacts, tenant: str, granted: tuple[str, ...]
    ) -> ToolContext:
        """Return the context for the tool; without credentials, which are looked up when a call is made."""
        definition = facts.definition
        hosts, source = self._resolve_hosts(facts.options.allowed_hosts)
        return ToolContext(
            run_id=effect.run_id,
            session_id=facts.session_id,
            agent_id=facts.agent_id,
            agent=definition.name,
            tenant=tenant,
            subject=facts.subject,
            user_id=facts.user_id,
            user_tier=facts.options.user_tier,
            operator_key_restricted=facts.options.operator_key_restricted,
            provider=facts.current_model.provider,
            model=facts.current_model.model,
            tools=granted,
            root_run_id=root_of(facts),
            tool_grants=definition.tools,
            skills=() if definition.grants is None else definition.grants.skills,
            volumes=self._bound_volumes(facts, tenant),
            allowed_hosts=hosts,
            hosts_source=source,
            idempotency_key=idempotency_key(effect.run_id, effect.turn, effect.index),
            started_at_ms=facts.started_at_ms,
            used_tokens=used_tokens(facts),
            max_tokens=facts.max_context_tokens,
            sampling=definition.sampling,
            metadata=dict(facts.options.metadata),
            attempt=effect.attempt,
            compaction=definition.compaction,
            positions=facts.positions,
            skill_pins=facts.skill_pins,
            agent_def_id="" if definition.pin is None else definition.pin.def_id,
            grants=NO_GRANTS if definition.grants is None else structs.asdict(definition.grants),
        )

    def _resolve_hosts(self, caller: tuple[str, ...] | None) -> tuple[tuple[str, ...], str]:
        """Return the hosts of a run, and the source of that choice."""
        if caller is None or (self._callers_choose_hosts and not caller):
            return self._operator_hosts, "operator_default"
        if self._callers_choose_hosts:
            return resolve_caller_hosts(self._operator_hosts, caller), "caller"
        return narrow_allowed_hosts(self._operator_hosts, caller), "caller"

    def _bound_volumes(self, facts: RunFacts, tenant: str) -> tuple[VolumeBinding, ...]:
        """Return the volumes that the run was granted, then the ephemeral ones of its tree."""
        made = self._made_volumes
        bindings: dict[str, VolumeBinding] = {}
        for grant in facts.definition.volumes:
            volume = self._volumes.get(grant.name) or (made.find(tenant, grant.name) if made is not None else None)
            if volume is not None:
                # The narrower mode wins: a grant never widens what the process allows.
                mode = "rw" if grant.mode == "rw" and volume.mode == "rw" else "ro"
                bindings[grant.name] = replace(volume, mode=mode, is_default=grant.is_default)
        if made is not None:
            for volume in made.of_run(tenant, root_of(facts)):
                bindings.setdefault(volume.name, volume)
        return tuple(bindings.values())


def narrow_allowed_hosts(operator: tuple[str, ...], caller: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return a run's allowed hosts: the operator's list, narrowed by the caller's (null keeps it, empty denies all)."""
    if caller is None:
        return operator
    both = [host for host in caller if any(_covers(entry, host) for entry in operator)]
    # A caller's entry that is wider than the list allows the entries of the list that it covers.
    both += [entry for entry in operator if any(_covers(host, entry) for host in caller)]
    return tuple(dict.fromkeys(both))


def _covers(entry: str, host: str) -> bool:
    pattern, name = entry.strip().lower().rstrip("."), host.strip().lower().rstrip(".")
    if pattern in ("*", name):
        return True
    # Only names have subdomains; the last label of an IPv4 address is a number, that of a name never is.
    return name.endswith("." + pattern) and not name.rpartition(".")[2].isdigit()
