"""Pauses wider than a run: what runtimes hold their runs by, and what state files have.

Before: services/runtime/run/command_handler.py, services/application/transfer. After: services/families/pause.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loomlog.services.core.access.decide import Caller
from loomlog.services.core.pauses import WidePause
from loomlog.services.core.run.run_facts import Pause


class HoldingPauses(Protocol):
    """The pauses in force at one time."""

    @property
    def changed_by(self) -> str:
        """Author of the last change."""
        ...

    def pauses_for(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """Return the pauses of a run of that agent and tenant: at most one of each scope, the widest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPauses:
    """The pauses that hold the runs of this process."""

    now: Callable[[], HoldingPauses]
    on_change: Callable[[Callable[[], None]], None]
    """Has a function called after changes."""


class StatedPauses(Protocol):
    """The pauses of the installation, as state files have them."""

    def exported(self, tenant: str) -> Sequence[WidePause]:
        """Return all pauses; of a tenant those that hold its runs, narrowed to it."""
        ...

    async def restore(self, caller: Caller, pause: WidePause, *, dry_run: bool) -> str | None:
        """Set a pause of another installation here; returns its position, or None when it was set already. The caller
        is an administrator. Raises Refused, Unavailable.
        """
        ...
