"""Pauses with a wider scope than one run: the fold of loom.control.events, and which of them apply to a given run.

An entry is named by (scope, tenant, agent); the last record about it counts. A record of a start-paused switch counts
once for each value of the switch, so that processes that restart, or start together, pause nothing twice. Pure, like
everything in services/core.

Before: loomlog.schemas.generated.stream_records.PauseSet. After: services/stream/global_tables/pauses.py keeps one for
a process.
"""

from collections.abc import Mapping

from msgspec import field

from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.run_facts import Pause

AGENT, TENANT, ALL = "agent", "tenant", "all"
PauseKey = tuple[str, str, str]


class InvalidPause(Exception):
    """An unknown scope, or fields that contradict the scope; the text has what was expected."""


class PauseTable(Value, frozen=True, kw_only=True):
    """The current pauses, each with the author of its last change."""

    entries: Mapping[PauseKey, PauseSet] = field(default_factory=dict)
    changed_by: str = ""
    used_switches: frozenset[str] = frozenset()
    """Values of the start-paused switch that have had their effect; an operator sets at most one per deployment."""

    def apply(self, change: PauseSet) -> "PauseTable":
        """Return the table after one record. Raises InvalidPause."""
        validate_scope(change.scope, change.tenant, change.agent)
        key = (change.scope, change.tenant, change.agent)
        if change.switch in self.used_switches:
            return self
        if change.switch:
            switched = replace(self, used_switches=self.used_switches | {change.switch})
            # A pause set by an operator keeps its author and its reason.
            return switched if key in self.entries else switched.apply(replace(change, switch=""))
        entries = {name: entry for name, entry in self.entries.items() if name != key}
        if change.paused:
            entries[key] = change
        return replace(self, entries=entries, changed_by=change.by)

    def has_entry(self, scope: str, tenant: str, agent: str) -> bool:
        """Whether exactly that scope is paused, regardless of others."""
        return (scope, tenant, agent) in self.entries

    def pauses_for(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """Return the pauses of a run of that agent and tenant: at most one of each scope, the widest first."""
        entries = (
            self.entries.get((ALL, "", "")),
            self.entries.get((TENANT, tenant, "")),
            self.entries.get((AGENT, tenant, agent)) or self.entries.get((AGENT, "", agent)),
        )
        return tuple(Pause(scope=entry.scope, reason=entry.reason, by=entry.by) for entry in entries if entry)

    def entries_for_tenant(self, tenant: str) -> tuple[PauseSet, ...]:
        """Return the pauses that apply to a tenant's runs, narrowed to that tenant."""
        own = {name: entry for name, entry in self.entries.items() if entry.tenant == tenant}
        for entry in self.entries.values():
            if not entry.tenant:
                narrowed = replace(entry, scope=AGENT if entry.agent else TENANT, tenant=tenant)
                own.setdefault((narrowed.scope, tenant, narrowed.agent), narrowed)
        return tuple(own.values())


def validate_scope(scope: str, tenant: str, agent: str) -> None:
    """Check that scope, tenant and agent belong together. Raises InvalidPause."""
    right = {ALL: not tenant and not agent, TENANT: bool(tenant) and not agent, AGENT: bool(agent)}.get(scope)
    if right is None:
        raise InvalidPause(f"scope is {scope[:60]!r}: expected agent, tenant or all")
    if not right:
        raise InvalidPause(
            f"scope {scope} with tenant {tenant[:60]!r} and agent {agent[:60]!r} does not say what to pause"
        )
