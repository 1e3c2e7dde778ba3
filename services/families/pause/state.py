"""The pauses of an installation: its state, what an event makes of it, and which pauses hold a given run.

Before: decide.py has an event, or a checkpoint a state. After: services/runtime/run/context.py asks for every run, the
api before it accepts one.
"""

from collections.abc import Mapping
from typing import assert_never

from msgspec import field

from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet, SwitchUsed
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.pauses import AGENT, ALL, TENANT, WidePause
from loomlog.services.core.run.run_facts import Pause
from loomlog.services.families.pause import limits

PauseEvent = PauseSet | PauseLifted | SwitchUsed


class PauseTable(Value, frozen=True, kw_only=True):
    """The current pauses, and the author of the last change."""

    entries: Mapping[str, WidePause] = field(default_factory=dict)
    """By `pause_key`."""
    changed_by: str = ""
    used_switches: tuple[str, ...] = ()
    """Values of the start-paused switch that have had their effect, the newest last."""

    def find(self, scope: str, tenant: str, agent: str) -> WidePause | None:
        """Return the pause of exactly that scope, regardless of others."""
        return self.entries.get(pause_key(scope, tenant, agent))

    def pauses_for(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """Return the pauses of a run of that agent and tenant: at most one of each scope, the widest first."""
        if not self.entries:
            return ()
        entries = (
            self.find(ALL, "", ""),
            self.find(TENANT, tenant, ""),
            self.find(AGENT, tenant, agent) or self.find(AGENT, "", agent),
        )
        return tuple(Pause(scope=entry.scope, reason=entry.reason, by=entry.by) for entry in entries if entry)

    def listed(self) -> tuple[WidePause, ...]:
        """Return all pauses, sorted by scope, tenant and agent."""
        return tuple(self.entries[key] for key in sorted(self.entries))

    def listed_for_tenant(self, tenant: str) -> tuple[WidePause, ...]:
        """Return the pauses that apply to a tenant's runs, narrowed to that tenant and sorted."""
        own = {key: entry for key, entry in self.entries.items() if entry.tenant == tenant}
        for entry in self.entries.values():
            if not entry.tenant:
                narrowed = replace(entry, scope=AGENT if entry.agent else TENANT, tenant=tenant)
                own.setdefault(pause_key(narrowed.scope, tenant, narrowed.agent), narrowed)
        return tuple(own[key] for key in sorted(own))


def pause_key(scope: str, tenant: str, agent: str) -> str:
    """Return the name of an entry; names have no line breaks (decide.py)."""
    return f"{scope}\n{tenant}\n{agent}"


def evolve(table: PauseTable, event: PauseEvent, at_ms: int) -> PauseTable:
    """Return the pauses after an event."""
    match event:
        case PauseSet():
            entry = copy_as(WidePause, event, at_ms=at_ms)
            entries = {**table.entries, pause_key(event.scope, event.tenant, event.agent): entry}
            return PauseTable(entries=entries, changed_by=event.by, used_switches=_with_used(table, event.switch))
        case PauseLifted():
            gone = pause_key(event.scope, event.tenant, event.agent)
            entries = {key: entry for key, entry in table.entries.items() if key != gone}
            return replace(table, entries=entries, changed_by=event.by)
        case SwitchUsed():
            return replace(table, used_switches=_with_used(table, event.switch))
        case _:
            assert_never(event)


def _with_used(table: PauseTable, switch: str) -> tuple[str, ...]:
    return (*table.used_switches, switch)[-limits.SWITCHES_MAX :] if switch else table.used_switches
